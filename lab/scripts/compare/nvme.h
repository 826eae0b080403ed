/* What of QEMU and of the rest of FEMU its translation layer names. Only the clock is called. */
#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>
#include "inc/pqueue.h"

#define QTAILQ_ENTRY(type) TAILQ_ENTRY(type)
#define QTAILQ_HEAD(name, type) TAILQ_HEAD(name, type)
#define QTAILQ_INIT TAILQ_INIT
#define QTAILQ_FIRST TAILQ_FIRST
#define QTAILQ_INSERT_TAIL TAILQ_INSERT_TAIL
#define QTAILQ_REMOVE TAILQ_REMOVE
#define g_malloc0(bytes) calloc(1, bytes)
#define qemu_thread_create(thread, name, start, argument, mode) ((void)(start))
#define femu_ring_count(ring) 0
#define femu_ring_dequeue(ring, to, count) 0
#define femu_ring_enqueue(ring, from, count) 0
enum { QEMU_CLOCK_REALTIME, NVME_CMD_WRITE, NVME_CMD_READ, NVME_CMD_DSM };
typedef int QemuThread;

typedef struct NvmeRequest {
    uint64_t slba;
    int nlb;
    int64_t stime, reqlat, expire_time;
    struct { int opcode; } cmd;
} NvmeRequest;

typedef struct FemuCtrl {
    struct ssd *ssd;
    struct rte_ring **to_ftl, **to_poller;
    int nr_pollers;
    struct {
        int secsz, secs_per_pg, pgs_per_blk, blks_per_pl, pls_per_lun, luns_per_ch, nchs;
        int pg_rd_lat, pg_wr_lat, blk_er_lat, ch_xfer_lat, gc_thres_pcent, gc_thres_pcent_high;
    } bb_params;
} FemuCtrl;

/* Read once for every read, program and erase of a collection. */
static int64_t now_ns = 1;
static long collector_commands;
static inline int64_t qemu_clock_get_ns(int clock) { collector_commands++; return now_ns; }
