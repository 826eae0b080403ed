#!/usr/bin/env python3
"""Compares write amplification, erases and speed of the page map with a public FTL simulator's.

    compare_ftlsim.py SYNCLINE CHECKOUT [TRACE ...] [--gib N] [--rounds N] [--json FILE]

CHECKOUT is a copy of SSSL-ftlsim (Peter Desnoyers, Northeastern University; github.com/pjd-nu/
sssl-ftlsim): its ftlsim.c and ftlsim.h. They are compiled as they are with a driver of ours; its
Python callbacks are not used, so no Python headers are needed. A TRACE is anything that
`syncline trace` reads as block requests: its written pages, in a row, over and over. Without one,
three are generated from seeds.

Both simulators get the same list of page numbers: every page once, then half of the writes
uncounted, then the other half. Blocks, pages a block and the free blocks at which collection
begins are equal. ftlsim runs in two forms: as ours collects (copies have a write frontier of
their own, the victim is the best block of both), and as its example does (one frontier for writes
and copies). Times are of the counted writes, in memory, in alternated rounds; the ratio is the
median.

Exit code 1: the form that collects as ours does differs by more than 5 %.
"""

import argparse
import array
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

PAGE_BYTES = 4096
PAGES_PER_BLOCK = 64
# Of the usable size: used to 90 % of the flash.
SPARE_PERCENT = 11
WITHIN = 0.05

# What of <Python.h> the callbacks name; they are never called.
PYTHON_H = """
typedef struct object PyObject;
#define Py_BuildValue(...) ((PyObject *)0)
#define PyEval_CallObject(f, a) ((PyObject *)0)
#define PyErr_Occurred() 0
#define PyErr_Print()
#define Py_DECREF(o)
"""

DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "ftlsim.h"

static unsigned *pages;
static size_t at;
static long erases;
static struct segment *(*chosen)(struct pool *);

static int next_page(void *self) { return (int)pages[at++]; }

static struct segment *counted(struct pool *pool) { erases++; return chosen(pool); }

/* Whose best victim holds less. */
static struct pool *best_of_both(struct ftl *ftl)
{
    struct pool *a = ftl->pools[0], *b = ftl->pools[1];
    return b->tail_utilization(b) < a->tail_utilization(a) ? b : a;
}

static struct pool *pool_new(struct ftl *ftl, const char *victims, int per_block)
{
    struct pool *pool =
        victims[0] == 'g' ? greedy_pool_new(ftl, per_block) : lru_pool_new(ftl, per_block);
    chosen = pool->getseg;
    pool->getseg = counted;
    pool->addseg(pool, do_get_blk(ftl));
    return pool;
}

/* FILE COUNT UNCOUNTED BLOCKS PAGES_PER_BLOCK RESERVE VICTIMS FRONTIERS */
int main(int argc, char **argv)
{
    long count = atol(argv[2]), uncounted = atol(argv[3]);
    int blocks = atoi(argv[4]), per_block = atoi(argv[5]), frontiers = atoi(argv[8]);
    FILE *file = fopen(argv[1], "rb");
    pages = malloc(count * sizeof(*pages));
    if (!file || fread(pages, sizeof(*pages), count, file) != (size_t)count)
        return 2;
    struct ftl *ftl = ftl_new(blocks, per_block);
    ftl->minfree = atoi(argv[6]);
    ftl->get_input_pool = write_select_first;
    ftl->get_pool_to_clean = frontiers == 2 ? best_of_both : clean_select_first;
    for (int i = 0; i < blocks; i++)
        do_put_blk(ftl, segment_new(per_block));
    struct pool *first = pool_new(ftl, argv[7], per_block);
    first->next_pool = first;
    if (frontiers == 2) {
        struct pool *copies = pool_new(ftl, argv[7], per_block);
        first->next_pool = copies->next_pool = copies;
    }
    struct getaddr source = { next_page, 0, 0 };
    do_ftl_run(ftl, &source, uncounted);
    long programs = ftl->int_writes, writes = ftl->ext_writes, erased = erases;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    do_ftl_run(ftl, &source, count - uncounted);
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("{\"host_writes\": %ld, \"programs\": %ld, \"erases\": %ld, \"elapsed_s\": %.6f}\n",
           ftl->ext_writes - writes, ftl->int_writes - programs, erases - erased,
           (b.tv_sec - a.tv_sec) + (b.tv_nsec - a.tv_nsec) / 1e9);
    return 0;
}
"""


def uniform(draw, pages):
    """Every page as likely as any other."""
    return draw.randrange(pages)


def hot_and_cold(draw, pages):
    """Nine of ten writes to a tenth of the pages."""
    hot = pages // 10
    return draw.randrange(hot) if draw.random() < 0.9 else draw.randrange(hot, pages)


def skewed(draw, pages):
    """Page numbers as the fourth power of a uniform one, over the whole device."""
    rank = int(pages * draw.random() ** 4)
    return rank * 2_654_435_761 % pages


GENERATED = [("uniform", uniform), ("hot-cold-90-10", hot_and_cold), ("skewed", skewed)]


def written_pages(syncline, trace, scratch):
    """The pages that a trace writes, in its order."""
    log = pathlib.Path(scratch, "trace.iolog")
    subprocess.run([syncline, "trace", "export", "--to", "fio", "-o", log, trace], check=True,
                   stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pages = []
    for line in log.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if "write" in words:
            offset, length = map(int, words[words.index("write") + 1:][:2])
            pages.extend(range(offset // PAGE_BYTES, -(-(offset + length) // PAGE_BYTES)))
    log.unlink()
    if not pages:
        sys.exit(f"{trace}: nothing is written in it; give a trace of block requests with writes")
    return pages


def play_list(path, pages, source):
    """Writes every page once, then `source`, as 32-bit numbers; returns how many `source` has."""
    words = array.array("I", range(pages))
    words.extend(source)
    assert words.itemsize == 4
    if sys.byteorder != "little":
        words.byteswap()
    with open(path, "wb") as out:
        words.tofile(out)
    return len(words) - pages


def run(command):
    """The JSON that a program prints."""
    done = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE,
                          stdin=subprocess.DEVNULL)
    return json.loads(done.stdout)


def build_theirs(checkout, scratch):
    """Compiles the checkout and the driver."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("no C compiler; install gcc")
    for name in ("ftlsim.c", "ftlsim.h"):
        if not pathlib.Path(checkout, name).is_file():
            sys.exit(f"{checkout}: no {name} there; give a checkout of SSSL-ftlsim")
    pathlib.Path(scratch, "Python.h").write_text(PYTHON_H, encoding="ascii")
    driver = pathlib.Path(scratch, "driver.c")
    driver.write_text(DRIVER, encoding="ascii")
    program = pathlib.Path(scratch, "theirs")
    subprocess.run([compiler, "-O3", "-march=native", "-w", "-I", scratch, "-I", checkout, "-o",
                    program, driver, pathlib.Path(checkout, "ftlsim.c")], check=True)
    return program


def build_ours():
    """The program that plays a list on our page map."""
    said = subprocess.run(["cargo", "bench", "--quiet", "-p", "syncline-nand", "--bench", "pages",
                           "--no-run", "--message-format", "json"], check=True,
                          stdout=subprocess.PIPE).stdout
    for line in reversed(said.decode().splitlines()):
        program = json.loads(line).get("executable")
        if program:
            return program
    sys.exit("cargo built no program; run this in the repository")


def compare(programs, path, sizes, rounds):
    """Figures of every form for one list, with the times of each round."""
    ours, theirs = programs
    pages, writes = sizes
    warm = writes // 2
    rows = []
    for victims, frontiers in [("greedy", 2), ("greedy", 1), ("fifo", 1)]:
        ratios = []
        for _ in range(rounds):
            here = run([ours, path, pages, warm, PAGES_PER_BLOCK, SPARE_PERCENT, victims, 1])
            there = run([theirs, path, pages + writes, pages + warm, here["blocks"],
                         PAGES_PER_BLOCK, here["reserve"], victims, frontiers])
            assert here["host_writes"] == there["host_writes"], "other writes were counted"
            ratios.append(there["elapsed_s"] / here["elapsed_s"])
        rows.append({"victims": victims, "frontiers": frontiers, "ours": here, "ftlsim": there,
                     "times_as_fast": statistics.median(ratios)})
    return rows


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
        print(f"{'writes':<24} {'victims':<8} {'frontiers':>9} {'WAF ours':>9} {'ftlsim':>7} "
              f"{'erases ours':>12} {'ftlsim':>9} {'differs %':>10} {'times as fast':>14}")
        for name, next_page in [(t, None) for t in args.traces] or GENERATED:
            draw = random.Random(1)
            if next_page:
                source = [next_page(draw, pages) for _ in range(writes)]
            else:
                own = written_pages(args.syncline, name, scratch)
                source = [own[i % len(own)] % pages for i in range(writes)]
            count = play_list(path, pages, source)
            for row in compare(programs, path, (pages, count), args.rounds):
                here, there = row["ours"], row["ftlsim"]
                waf = [one["programs"] / one["host_writes"] for one in (here, there)]
                apart = max(abs(waf[0] / waf[1] - 1), abs(here["erases"] / there["erases"] - 1))
                wrong += row["frontiers"] == 2 and apart > WITHIN
                document.append({"writes": pathlib.Path(name).name, **row})
                print(f"{pathlib.Path(name).name[:24]:<24} {row['victims']:<8} "
                      f"{row['frontiers']:>9} {waf[0]:>9.3f} {waf[1]:>7.3f} {here['erases']:>12} "
                      f"{there['erases']:>9} {apart * 100:>10.2f} {row['times_as_fast']:>14.2f}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
