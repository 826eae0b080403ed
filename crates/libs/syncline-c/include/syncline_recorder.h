/* The periodic recorder: what happened before and after a fault, one file for each event.
 *
 * Link with -lsyncline (pkg-config syncline). The files are described in docs/FORMAT.md;
 * `syncline record-read` lists, verifies and extracts them.
 */
#ifndef SYNCLINE_RECORDER_H
#define SYNCLINE_RECORDER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct syncline_recorder syncline_recorder;

/* How events reach their files. */
enum {
    SYNCLINE_RECORDER_PAPER = 0, /* fallocate at the fault, sync_file_range, fsync in the end */
    SYNCLINE_RECORDER_POOL = 1,  /* files made ready before; durable each 2 MB */
    SYNCLINE_RECORDER_URING = 2  /* a pool, direct I/O by io_uring */
};

typedef struct {
    uint64_t recorder;         /* number of this run, in file names; the time is a good one */
    uint32_t record_bytes_max; /* 8 bytes to 16 MiB */
    uint32_t pre_records;      /* records kept before a fault */
    uint32_t post_records_max; /* most records after it */
    uint32_t slack_records;    /* records that the writer may be behind before one is lost */
    uint32_t events_max;       /* events at one time; more are refused */
    uint32_t strategy;         /* SYNCLINE_RECORDER_... */
} syncline_recorder_config;

typedef struct {
    uint64_t lost;     /* records that found the ring full */
    uint64_t started;  /* events begun */
    uint64_t finished; /* events complete */
    uint64_t durable;  /* of these, events that survive a power cut */
    uint64_t refused;  /* faults whose event could not be begun */
    uint64_t failed;   /* events with an error */
} syncline_recorder_counts_t;

/* Opens a recorder whose events go into `dir`. 0, or -1 with syncline_recorder_error(). */
int syncline_recorder_open(const char *dir, const syncline_recorder_config *config,
                           syncline_recorder **out);

/* Gives a record to the recorder: no system call, no lock, no allocation. One thread at a time.
 * 0; 1: lost, because the ring is full or the record too long, which shows as a gap; -1: null. */
int syncline_recorder_push(syncline_recorder *recorder, uint64_t time_ns, const void *record,
                           size_t bytes);

/* A fault: the next record begins an event of at most post_records more (never more than
 * configured). From any thread, and from signal handlers. */
void syncline_recorder_trigger(const syncline_recorder *recorder, uint32_t post_records);

/* The next record ends the events that are being recorded. From any thread. */
void syncline_recorder_stop(const syncline_recorder *recorder);

/* What happened so far. One thread at a time, which may be another than the one that pushes.
 * 0 or -1. */
int syncline_recorder_counts(syncline_recorder *recorder, syncline_recorder_counts_t *out);

/* Ends the events under way, waits until they are durable, frees the recorder. `out` may be null.
 * 0 if every fault has its event and every event is durable, else -1. */
int syncline_recorder_close(syncline_recorder *recorder, syncline_recorder_counts_t *out);

/* The last error of this thread, one sentence; valid until its next call. */
const char *syncline_recorder_error(void);

#ifdef __cplusplus
}
#endif

#endif
