#!/usr/bin/env python3
"""Compares write amplification, erases, device time and speed of BAST with FlashSim's.

    compare_flashsim.py CHECKOUT [--boost DIR] [--gib N] [--rounds N] [--json FILE]

CHECKOUT is a copy of FlashSim (Tauras, Kim and Gupta, extended by Bjorling;
github.com/MatiasBjorling/flashsim). What BAST needs of it is compiled as it is with a driver of
ours, which stands in for the other schemes; Boost's headers are needed (DIR, or where the compiler
looks). Three lists of page numbers are generated from seeds.

Both simulators get the same list, one page at a time: every page once, then writes that are not
counted, then the counted ones. Blocks, pages a block, log blocks and times of the flash are equal,
on one die. Speeds are of the counted writes, in memory, in alternated rounds; the ratio is the
median.

Exit code 1: under uniform writes the two differ by more than 5 %.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

from compare_ftlsim import (PAGE_BYTES, PAGES_PER_BLOCK, SPARE_PERCENT, WITHIN, build_ours,
                            play_list, run, uniform)

LOG_BLOCKS = 16
UNCOUNTED, COUNTED = 20_000, 100_000
SOURCES = [f"ssd_{name}.cpp" for name in (
    "address block bm bus channel config controller die event ftlparent package page plane ram ssd "
    "stats").split()] + ["FTLs/bast_ftl.cpp"]

# Times in microseconds.
CONFIG = """
RAM_READ_DELAY 0.000001
RAM_WRITE_DELAY 0.000001
BUS_CTRL_DELAY 0.001
BUS_DATA_DELAY 0.04
SSD_SIZE 1
PACKAGE_SIZE 1
DIE_SIZE 1
PLANE_SIZE {blocks}
BLOCK_SIZE {per_block}
BLOCK_ERASES 1000000
BLOCK_ERASE_DELAY 2000
PAGE_READ_DELAY 40
PAGE_WRITE_DELAY 200
PAGE_ENABLE_DATA 0
FTL_IMPLEMENTATION 1
BAST_LOG_PAGE_LIMIT {log_blocks}
"""

DRIVER = r"""
#include <chrono>
#include <new>
#include "ssd.h"
using namespace ssd;

/* It counts on fresh memory for the number of the first free block. */
void *operator new(std::size_t bytes) { return calloc(1, bytes); }
void operator delete(void *memory) noexcept { free(memory); }
void operator delete(void *memory, std::size_t) noexcept { free(memory); }

/* Named by the controller, never built. */
#define NEVER(scheme, base) \
    scheme::scheme(Controller &controller) : base(controller) { abort(); } \
    scheme::~scheme() {} \
    enum status scheme::read(Event &) { abort(); } \
    enum status scheme::write(Event &) { abort(); } \
    enum status scheme::trim(Event &) { abort(); }
#define NEVER_DEMAND(scheme) \
    NEVER(scheme, FtlImpl_DftlParent) \
    void scheme::cleanup_block(Event &, Block *) { abort(); } \
    void scheme::print_ftl_statistics() { abort(); }
NEVER(FtlImpl_Page, FtlParent)
NEVER(FtlImpl_Fast, FtlParent)
void FtlImpl_Fast::print_ftl_statistics() { abort(); }
FtlImpl_DftlParent::FtlImpl_DftlParent(Controller &c) : FtlParent(c) { abort(); }
FtlImpl_DftlParent::~FtlImpl_DftlParent() {}
double FtlImpl_DftlParent::mpage_modified_ts_compare(const MPage &) { abort(); }
NEVER_DEMAND(FtlImpl_Dftl)
NEVER_DEMAND(FtlImpl_BDftl)

static double play(Ssd *ssd, const unsigned *page, const unsigned *end, double now_us)
{
    for (; page < end; page++)
        now_us += ssd->event_arrive(WRITE, *page, 1, now_us);
    return now_us;
}

/* FILE COUNT UNCOUNTED RESULT, and ssd.conf in the working directory */
int main(int argc, char **argv)
{
    long count = atol(argv[2]), uncounted = atol(argv[3]);
    FILE *file = fopen(argv[1], "rb");
    std::vector<unsigned> pages(count);
    if (!file || fread(pages.data(), 4, count, file) != (size_t)count)
        return 2;
    load_config();
    Ssd *ssd = new Ssd();
    double from_us = play(ssd, pages.data(), pages.data() + uncounted, 1);
    Stats before = ssd->get_controller().stats;
    auto started = std::chrono::steady_clock::now();
    double to_us = play(ssd, pages.data() + uncounted, pages.data() + count, from_us);
    std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
    const Stats &now = ssd->get_controller().stats;
    FILE *result = fopen(argv[4], "w");
    fprintf(result, "{\"host_writes\": %ld, \"programs\": %ld, \"map_programs\": %ld, "
            "\"erases\": %ld, \"device_s\": %.9f, \"elapsed_s\": %.6f}\n",
            count - uncounted, now.numFTLWrite - before.numFTLWrite,
            now.numGCWrite - before.numGCWrite, now.numFTLErase - before.numFTLErase,
            (to_us - from_us) / 1e6, elapsed.count());
    fclose(result);
    _Exit(0);
}
"""


def eight_hot(draw, pages):
    """Nine of ten writes to the first eight blocks: half as many as there are log blocks."""
    hot = 8 * PAGES_PER_BLOCK
    return draw.randrange(hot) if draw.random() < 0.9 else draw.randrange(hot, pages)


def build_theirs(checkout, boost, scratch):
    """Compiles the checkout's files and the driver."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        sys.exit("no C++ compiler; install g++")
    for name in SOURCES:
        if not pathlib.Path(checkout, name).is_file():
            sys.exit(f"{checkout}: no {name} there; give a checkout of FlashSim")
    driver = pathlib.Path(scratch, "driver.cpp")
    driver.write_text(DRIVER, encoding="ascii")
    program = pathlib.Path(scratch, "theirs")
    places = ["-I", checkout] + (["-I", boost] if boost else [])
    subprocess.run([compiler, "-std=gnu++14", "-O3", "-march=native", "-w", *places, "-o", program,
                    driver, *(pathlib.Path(checkout, name) for name in SOURCES)], check=True)
    return program


def run_theirs(program, path, counts, blocks):
    """What the driver wrote; FlashSim itself speaks on standard output."""
    home = pathlib.Path(program).parent
    text = CONFIG.format(blocks=blocks, per_block=PAGES_PER_BLOCK, log_blocks=LOG_BLOCKS)
    (home / "ssd.conf").write_text(text, encoding="ascii")
    result = home / "result"
    subprocess.run([program, path, *map(str, counts), result], check=True, cwd=home,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return json.loads(result.read_text(encoding="ascii"))


def compare(programs, path, pages, rounds):
    """Figures of both for one list."""
    ours, theirs = programs
    counts = (pages + UNCOUNTED + COUNTED, pages + UNCOUNTED)
    ratios = []
    for _ in range(rounds):
        here = run([ours, path, pages, UNCOUNTED, PAGES_PER_BLOCK, SPARE_PERCENT,
                    f"bast:{LOG_BLOCKS}", 1])
        there = run_theirs(theirs, path, counts, here["blocks"])
        assert here["host_writes"] == there["host_writes"], "other writes were counted"
        ratios.append(there["elapsed_s"] / here["elapsed_s"])
    there["programs"] -= there["map_programs"]
    return {"ours": here, "flashsim": there, "times_as_fast": statistics.median(ratios),
            "ratios": ratios}


def apart(row):
    """How far amplification or erases differ, whichever more, as a part of FlashSim's."""
    here, there = row["ours"], row["flashsim"]
    return max(abs(here[name] / there[name] - 1) for name in ("programs", "erases"))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("checkout", type=os.path.abspath)
    arguments.add_argument("--boost", help="directory that holds boost/")
    arguments.add_argument("--gib", type=float, default=1.0, help="size of the device")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", help="write the figures")
    args = arguments.parse_args()
    pages = int(args.gib * (1 << 30)) // PAGE_BYTES
    draw = random.Random(1)
    writes = UNCOUNTED + COUNTED
    lists = [("uniform", [uniform(draw, pages) for _ in range(writes)]),
             ("eight-hot-blocks", [eight_hot(draw, pages) for _ in range(writes)]),
             ("in-order", [i % pages for i in range(writes)])]
    document, wrong = [], False
    with tempfile.TemporaryDirectory() as scratch:
        programs = (build_ours(), build_theirs(args.checkout, args.boost, scratch))
        path = pathlib.Path(scratch, "pages")
        print(f"{'writes':<18} {'WAF ours':>9} {'FlashSim':>9} {'map':>6} {'erases ours':>12} "
              f"{'FlashSim':>9} {'apart %':>8} {'device s':>9} {'FlashSim':>9} {'M/s':>6} "
              f"{'FlashSim':>9} {'times':>6}")
        for name, source in lists:
            play_list(path, pages, source)
            row = {"writes": name, **compare(programs, path, pages, args.rounds)}
            document.append(row)
            wrong = wrong or (name == "uniform" and apart(row) > WITHIN)
            here, there = row["ours"], row["flashsim"]
            rates = [one["host_writes"] / one["elapsed_s"] / 1e6 for one in (here, there)]
            print(f"{name:<18} {here['programs'] / COUNTED:>9.3f} "
                  f"{there['programs'] / COUNTED:>9.3f} {there['map_programs'] / COUNTED:>6.3f} "
                  f"{here['erases']:>12} {there['erases']:>9} {apart(row) * 100:>8.2f} "
                  f"{here['device_s']:>9.1f} {there['device_s']:>9.1f} {rates[0]:>6.2f} "
                  f"{rates[1]:>9.4f} {row['times_as_fast']:>6.0f}", flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
