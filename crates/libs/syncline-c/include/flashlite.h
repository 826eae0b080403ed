/* FlashLite: files written in random order that the device sees as sequential writes.
 *
 * Every function may be called from any thread; one handle may be used by several at once, but for
 * flashlite_close. Functions that return int or int64_t give a negative FLASHLITE_E* on failure, and
 * flashlite_message() then says in words what happened and what to do next. Link with -lsyncline
 * (pkg-config syncline).
 */
#ifndef FLASHLITE_H
#define FLASHLITE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct flashlite flashlite;

enum {
    FLASHLITE_OK = 0,
    FLASHLITE_EIO = -1,          /* the storage failed */
    FLASHLITE_EFULL = -2,        /* no space; the call can be made again */
    FLASHLITE_ENOTALOG = -3,     /* the file is no log */
    FLASHLITE_ECORRUPT = -4,     /* synced bytes are damaged */
    FLASHLITE_EUNSUPPORTED = -5, /* a log of a newer version */
    FLASHLITE_EUSAGE = -6,       /* arguments, or a read-only log */
    FLASHLITE_ELATCHED = -7,     /* an earlier write or sync failed */
    FLASHLITE_EMOVED = -8,       /* the bytes are in the rearranged file */
    FLASHLITE_ESTOPPED = -9      /* the callback asked to stop */
};

/* Makes a new log in a file that does not exist. NULL on failure. */
flashlite *flashlite_create(const char *path);

/* The same for a device that maps flash in larger units than 4096 bytes: syncs fill up pages of this
 * size, a power of two from 4096 to 65536. 16384 is right for most cards. */
flashlite *flashlite_create_paged(const char *path, uint32_t page_bytes);

/* Opens a log; read_only is 0 or 1. What a crash tore at its end is cut off. NULL on failure. */
flashlite *flashlite_open(const char *path, int read_only);

/* Bytes of the log that the opening dropped; none of them had been synced. */
uint64_t flashlite_dropped_bytes(const flashlite *log);

/* Length of the file in bytes. */
uint64_t flashlite_size(const flashlite *log);

/* Reads at an offset of the file: the number of bytes, less than len only at the end. Bytes never
 * written are zeros. */
int64_t flashlite_pread(const flashlite *log, void *into, size_t len, uint64_t offset);

/* Writes all of it at an offset of the file: 0, or an error. */
int flashlite_pwrite(flashlite *log, const void *from, size_t len, uint64_t offset);

/* From now on the tags of so many records of more than 512 bytes are written together, which saves a
 * call each; 1, as at first, or more: 64 is enough. A process that is killed then loses fewer of its
 * last records than this, and none that was synced. A write is one record, or two where a segment of
 * the log ends, or one for each MiB. 0, or an error. */
int flashlite_set_tags_at_once(flashlite *log, uint32_t tags);

/* Sets the length of the file. */
int flashlite_set_size(flashlite *log, uint64_t size_bytes);

/* Makes everything written before durable. */
int flashlite_sync(flashlite *log);

/* Called as the file grows; a result other than 0 stops. */
typedef int (*flashlite_progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);

/* Writes the log as a normal file, from start to end, compared with its checksums: path.part grows,
 * and becomes path when it is complete and durable. There must be no file at path yet. release is
 * 1 to give the log's space back on the way, else 0. progress may be NULL. Called again with the same
 * path after a stop or a crash, it goes on. */
int flashlite_rearrange(flashlite *log, const char *path, int release,
                        flashlite_progress progress, void *context);

/* Syncs, and frees the handle whatever the result. */
int flashlite_close(flashlite *log);

/* What the last failed call of this thread said; valid until its next call. Never NULL. */
const char *flashlite_message(void);

#ifdef __cplusplus
}
#endif

#endif
