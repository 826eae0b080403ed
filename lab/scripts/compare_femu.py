#!/usr/bin/env python3
"""Compares write amplification, erases, device time and speed of the page map with FEMU's.

    compare_femu.py SYNCLINE CHECKOUT [TRACE ...] [--gib N] [--rounds N] [--json FILE]

CHECKOUT is a copy of FEMU (Li et al., FAST 2018; github.com/MoatLab/FEMU) of before its translation
layer was split into several files. Of it, hw/femu/bbssd/ftl.c and ftl.h, hw/femu/lib/pqueue.c and
hw/femu/inc/pqueue.h are needed; they are compiled as they are, with a driver of ours in the place of
QEMU: it calls what FEMU's thread calls for a write, and its clock is the device's. A TRACE is
anything that `syncline trace` reads as block requests: its written pages, in a row, over and over.
Without one, three are generated from seeds.

Both simulators get the same list of page numbers, one at a time: every page once, then half of the
writes uncounted, then the other half. Superblocks, pages a block, dies, times of the flash and the
free superblocks at which collection begins are equal. Speeds are of the counted writes, in memory,
in alternated rounds; the ratio is the median.

Exit code 1: under uniform writes the two differ by more than 5 %.
"""

import argparse
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

from compare_ftlsim import (GENERATED, PAGE_BYTES, PAGES_PER_BLOCK, SPARE_PERCENT, WITHIN,
                            build_ours, play_list, run, uniform, written_pages)

FILES = ["hw/femu/bbssd/ftl.c", "hw/femu/bbssd/ftl.h", "hw/femu/lib/pqueue.c",
         "hw/femu/inc/pqueue.h"]

# What of QEMU and of the rest of FEMU the translation layer names. Only the clock is called.
NVME_H = r"""
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
"""

DRIVER = r"""
#include <time.h>
#include "hw/femu/bbssd/ftl.c"

static long erases(struct ssd *ssd)
{
    long sum = 0;
    for (int i = 0; i < ssd->sp.blks_per_pl; i++)
        sum += ssd->ch[0].lun[0].pl[0].blk[i].erase_cnt;
    return sum;
}

static void play(struct ssd *ssd, const unsigned *pages, long count)
{
    for (long i = 0; i < count; i++) {
        NvmeRequest request = { .slba = 8ull * pages[i], .nlb = 8, .stime = now_ns };
        now_ns += ssd_write(ssd, &request);
        if (should_gc(ssd))
            do_gc(ssd, false);
    }
}

/* FILE COUNT UNCOUNTED BLOCKS PAGES_PER_BLOCK DIES RESERVE */
int main(int argc, char **argv)
{
    long count = atol(argv[2]), uncounted = atol(argv[3]);
    int dies = atoi(argv[6]), reserve = atoi(argv[7]);
    FILE *file = fopen(argv[1], "rb");
    unsigned *pages = malloc(count * sizeof(*pages));
    if (!file || fread(pages, sizeof(*pages), count, file) != (size_t)count)
        return 2;
    struct ssd ssd = { .ssdname = "theirs" };
    FemuCtrl control = { .ssd = &ssd, .bb_params = {
        .secsz = 512, .secs_per_pg = 8, .pgs_per_blk = atoi(argv[5]), .blks_per_pl = atoi(argv[4]),
        .pls_per_lun = 1, .luns_per_ch = 1, .nchs = dies, .pg_rd_lat = NAND_READ_LATENCY,
        .pg_wr_lat = NAND_PROG_LATENCY, .blk_er_lat = NAND_ERASE_LATENCY,
        .gc_thres_pcent = 75, .gc_thres_pcent_high = 95 } };
    ssd_init(&control);
    if (reserve >= 0) {
        /* Free lines besides the one that is written: none is collected before. */
        ssd.sp.gc_thres_lines = -1;
        ssd.sp.gc_thres_lines_high = reserve;
    }
    play(&ssd, pages, uncounted);
    long commands = collector_commands, erased = erases(&ssd), from_ns = now_ns;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    play(&ssd, pages + uncounted, count - uncounted);
    clock_gettime(CLOCK_MONOTONIC, &b);
    commands = collector_commands - commands;
    erased = erases(&ssd) - erased;
    printf("{\"host_writes\": %ld, \"programs\": %ld, \"erases\": %ld, \"device_s\": %.9f, "
           "\"elapsed_s\": %.6f}\n", count - uncounted,
           count - uncounted + (commands - erased * dies) / 2, erased, (now_ns - from_ns) / 1e9,
           (b.tv_sec - a.tv_sec) + (b.tv_nsec - a.tv_nsec) / 1e9);
    return 0;
}
"""


def build_theirs(checkout, scratch):
    """Compiles the checkout's files and the driver."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("no C compiler; install gcc")
    for name in FILES:
        source, copy = pathlib.Path(checkout, name), pathlib.Path(scratch, name)
        if not source.is_file():
            sys.exit(f"{checkout}: no {name} there; give a checkout of FEMU")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    pathlib.Path(scratch, "hw/femu/nvme.h").write_text(NVME_H, encoding="ascii")
    driver = pathlib.Path(scratch, "driver.c")
    driver.write_text(DRIVER, encoding="ascii")
    program = pathlib.Path(scratch, "theirs")
    subprocess.run([compiler, "-O3", "-march=native", "-w", "-I", scratch, "-I",
                    pathlib.Path(scratch, "hw/femu"), "-o", program, driver,
                    pathlib.Path(scratch, "hw/femu/lib/pqueue.c")], check=True)
    return program


def compare(programs, path, sizes, dies, rounds):
    """Figures of both for one list on so many dies; with `rounds` 0 FEMU's own thresholds."""
    ours, theirs = programs
    pages, writes = sizes
    warm = writes // 2
    ratios = []
    for _ in range(max(rounds, 1)):
        here = run([ours, path, pages, warm, PAGES_PER_BLOCK, SPARE_PERCENT, "greedy", dies])
        there = run([theirs, path, pages + writes, pages + warm, here["blocks"], PAGES_PER_BLOCK,
                     dies, here["reserve"] if rounds else -1])
        assert here["host_writes"] == there["host_writes"], "other writes were counted"
        ratios.append(there["elapsed_s"] / here["elapsed_s"])
    return {"dies": dies, "thresholds": "ours" if rounds else "FEMU's", "ours": here,
            "femu": there, "times_as_fast": statistics.median(ratios), "ratios": ratios}


def row_text(row):
    """A line of the table."""
    both = (row["ours"], row["femu"])
    waf = [one["programs"] / one["host_writes"] for one in both]
    seconds = [one["device_s"] for one in both]
    rate = [one["host_writes"] / one["elapsed_s"] / 1e6 for one in both]
    return (f"{row['writes'][:20]:<20} {row['dies']:>4} {row['thresholds']:<7} {waf[0]:>9.3f} "
            f"{waf[1]:>7.3f} {both[0]['erases']:>12} {both[1]['erases']:>8} {apart(row) * 100:>7.2f} "
            f"{seconds[0]:>11.1f} {seconds[1]:>8.1f} {rate[0]:>6.2f} {rate[1]:>6.2f} "
            f"{row['times_as_fast']:>6.2f}")


def apart(row):
    """How far amplification or erases differ, whichever more, as a part of FEMU's."""
    here, there = row["ours"], row["femu"]
    return max(abs(here[name] / there[name] - 1) for name in ("programs", "erases"))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("syncline")
    arguments.add_argument("checkout")
    arguments.add_argument("traces", nargs="*")
    arguments.add_argument("--gib", type=float, default=1.0, help="size of the device")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--json", help="write the figures")
    args = arguments.parse_intermixed_args()
    pages = int(args.gib * (1 << 30)) // PAGE_BYTES
    writes = 16 * pages
    document, wrong = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        programs = (build_ours(), build_theirs(args.checkout, scratch))
        path = pathlib.Path(scratch, "pages")
        print(f"{'writes':<20} {'dies':>4} {'begins':<7} {'WAF ours':>9} {'FEMU':>7} "
              f"{'erases ours':>12} {'FEMU':>8} {'apart %':>7} {'device s':>11} {'FEMU':>8} "
              f"{'M/s':>6} {'FEMU':>6} {'times':>6}")
        for name, next_page in [(t, None) for t in args.traces] or GENERATED:
            draw = random.Random(1)
            if next_page:
                source = [next_page(draw, pages) for _ in range(writes)]
            else:
                own = written_pages(args.syncline, name, scratch)
                source = [own[i % len(own)] % pages for i in range(writes)]
            count = play_list(path, pages, source)
            forms = [(1, args.rounds), (4, args.rounds)]
            if next_page is uniform:
                forms.append((1, 0))
            for dies, rounds in forms:
                row = {"writes": pathlib.Path(name).name,
                       **compare(programs, path, (pages, count), dies, rounds)}
                wrong += next_page is uniform and rounds > 0 and apart(row) > WITHIN
                document.append(row)
                print(row_text(row), flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
