#!/usr/bin/env python3
"""Compares our simulators with those of others.

    compare.py libcachesim SYNCLINE [TRACE ...] [--pages N,...]       miss counts of the policies, to the last access
    compare.py ftlsim SYNCLINE CHECKOUT [TRACE ...]                   the page map with SSSL-ftlsim
    compare.py femu SYNCLINE CHECKOUT [TRACE ...]                     the page map with FEMU's translation layer
    compare.py flashsim CHECKOUT [--boost DIR]                        BAST with FlashSim
    [--gib N] [--rounds N] [--json FILE]

libcachesim needs the Python package of that name. A TRACE is anything that `syncline-lab trace` reads, of block requests or
pages; a trace of system calls is refused, since libCacheSim knows no deleted files.

The others are checkouts (Peter Desnoyers, github.com/pjd-nu/sssl-ftlsim; Li et al., FAST 2018, github.com/MoatLab/FEMU of before its
translation layer was split; Tauras, Kim and Gupta, extended by Bjorling, github.com/MatiasBjorling/flashsim, which needs Boost's
headers). Their files are compiled as they are with the drivers in compare/. Both sides get one list of page numbers: every page
once, writes that are not counted, the counted ones: the written pages of a TRACE over and over, or draws from seeds. Blocks, pages
a block, dies, times of the flash, log blocks and the free blocks at which collection begins are equal. ftlsim runs as ours collects
(copies have a write frontier of their own) and as its example does (one frontier). Times are of the counted writes, in memory, in
alternated rounds; the ratio is the median.

Exit code 1: a policy that is defined alike has another count; under uniform writes, or with ftlsim in the form that collects as
ours, amplification or erases differ by more than 5 %.
"""
import array
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

import common
from common import Missing, call, document, lab

HERE = pathlib.Path(__file__).resolve().parent / "compare"
PAGE_BYTES = 4096
PAGES_PER_BLOCK = 64
# Of the usable size: used to 90 % of the flash.
SPARE_PERCENT = 11
WITHIN = 0.05
# Names in ours and in libCacheSim.
POLICIES = {"lru": "LRU", "clock": "Clock", "sieve": "Sieve", "min": "Belady", "2q": "TwoQ", "arc": "ARC", "s3-fifo": "S3FIFO"}
# libCacheSim's S3-FIFO of fewer than 20 pages takes in nothing new.
PAGES = [32, 64, 128, 256, 512, 1024, 2048, 8192]
FEMU = ["hw/femu/bbssd/ftl.c", "hw/femu/bbssd/ftl.h", "hw/femu/lib/pqueue.c", "hw/femu/inc/pqueue.h"]
BAST_LOG_BLOCKS = 16
BAST_UNCOUNTED, BAST_COUNTED = 20_000, 100_000
FLASHSIM = [f"ssd_{name}.cpp" for name in (
    "address block bm bus channel config controller die event ftlparent package page plane ram ssd stats").split()]
FLASHSIM.append("FTLs/bast_ftl.cpp")


def uniform(draw, pages):
    """Every page as likely as any other."""
    return draw.randrange(pages)


def hot(draw, pages, most):
    """Nine of ten writes to the first pages."""
    return draw.randrange(most) if draw.random() < 0.9 else draw.randrange(most, pages)


def skewed(draw, pages):
    """Page numbers as the fourth power of a uniform one, over the whole device."""
    rank = int(pages * draw.random() ** 4)
    return rank * 2_654_435_761 % pages


GENERATED = {"uniform": uniform, "hot-cold-90-10": lambda draw, pages: hot(draw, pages, pages // 10), "skewed": skewed}


def written_pages(syncline, trace, scratch):
    """The pages that a trace writes, in its order."""
    log = pathlib.Path(scratch, "trace.iolog")
    call(lab(syncline), "trace", "export", "--to", "fio", "-o", log, trace)
    pages = []
    for line in log.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if "write" in words:
            offset, length = map(int, words[words.index("write") + 1:][:2])
            pages.extend(range(offset // PAGE_BYTES, -(-(offset + length) // PAGE_BYTES)))
    if not pages:
        sys.exit(f"{trace}: nothing is written in it; give a trace of block requests with writes")
    return pages


def play_list(path, pages, source):
    """Writes every page once, then `source`, as 32-bit numbers."""
    words = array.array("I", range(pages))
    words.extend(source)
    assert words.itemsize == 4
    if sys.byteorder != "little":
        words.byteswap()
    with open(path, "wb") as out:
        words.tofile(out)


def build_theirs(compilers, checkout, files, scratch, *words):
    """Compiles files of a checkout with a driver of ours."""
    compiler = common.need(*compilers)
    for name in files:
        if not pathlib.Path(checkout, name).is_file():
            sys.exit(f"{checkout}: no {name} there; give a checkout of the simulator")
    program = pathlib.Path(scratch, "theirs")
    subprocess.run([compiler, "-O3", "-march=native", "-w", "-I", HERE, "-I", checkout, *words, "-o", program], check=True)
    return program


def build_ours():
    """The program that plays a list on our maps."""
    said = call("cargo", "bench", "--quiet", "-p", "syncline-nand", "--bench", "pages", "--no-run", "--message-format", "json")
    programs = [json.loads(line).get("executable") for line in said.splitlines()]
    return next(program for program in reversed(programs) if program)


def run(*command):
    """The JSON that a program prints."""
    return json.loads(call(*command))


def in_rounds(rounds, peer, ours, theirs):
    """Figures of both, and how many times as fast ours is."""
    ratios = []
    for _ in range(rounds):
        here = ours()
        there = theirs(here)
        assert here["host_writes"] == there["host_writes"], "other writes were counted"
        ratios.append(there["elapsed_s"] / here["elapsed_s"])
    return {"ours": here, peer: there, "times_as_fast": statistics.median(ratios), "ratios": ratios}


def apart(here, there):
    """How far amplification or erases differ, whichever more, as a part of theirs."""
    return max(abs(here[name] / there[name] - 1) for name in ("programs", "erases"))


def lists(args, pages, scratch):
    """Name and page numbers of each list: of the traces, or generated."""
    writes = 16 * pages
    for trace in args.traces:
        own = written_pages(args.syncline, trace, scratch)
        yield pathlib.Path(trace).name, [own[i % len(own)] % pages for i in range(writes)]
    for name, next_page in {} if args.traces else GENERATED.items():
        draw = random.Random(1)
        yield name, [next_page(draw, pages) for _ in range(writes)]


def ftlsim(args, pages, scratch):
    ours, path = build_ours(), pathlib.Path(scratch, "pages")
    theirs = build_theirs(["cc", "gcc"], args.checkout, ["ftlsim.c", "ftlsim.h"], scratch, HERE / "ftlsim.c",
                          pathlib.Path(args.checkout, "ftlsim.c"))
    for name, source in lists(args, pages, scratch):
        play_list(path, pages, source)
        warm = len(source) // 2
        for victims, frontiers in [("greedy", 2), ("greedy", 1), ("fifo", 1)]:
            row = in_rounds(
                args.rounds, "ftlsim", lambda: run(ours, path, pages, warm, PAGES_PER_BLOCK, SPARE_PERCENT, victims, 1),
                lambda here: run(theirs, path, pages + len(source), pages + warm, here["blocks"], PAGES_PER_BLOCK, here["reserve"],
                                 victims, frontiers))
            yield {"writes": name, "victims": victims, "frontiers": frontiers, **row}, frontiers == 2


def femu(args, pages, scratch):
    ours, path = build_ours(), pathlib.Path(scratch, "pages")
    for name in FEMU:
        copy = pathlib.Path(scratch, name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if pathlib.Path(args.checkout, name).is_file():
            shutil.copy(pathlib.Path(args.checkout, name), copy)
    shutil.copy(HERE / "nvme.h", pathlib.Path(scratch, "hw/femu/nvme.h"))
    theirs = build_theirs(["cc", "gcc"], args.checkout, FEMU, scratch, "-I", scratch, "-I", pathlib.Path(scratch, "hw/femu"),
                          HERE / "femu.c", pathlib.Path(scratch, "hw/femu/lib/pqueue.c"))
    for name, source in lists(args, pages, scratch):
        play_list(path, pages, source)
        warm = len(source) // 2
        # Once more with FEMU's own thresholds.
        for dies, own in [(1, False), (4, False)] + [(1, True)] * (name == "uniform"):
            row = in_rounds(
                1 if own else args.rounds, "femu",
                lambda: run(ours, path, pages, warm, PAGES_PER_BLOCK, SPARE_PERCENT, "greedy", dies),
                lambda here: run(theirs, path, pages + len(source), pages + warm, here["blocks"], PAGES_PER_BLOCK, dies,
                                 -1 if own else here["reserve"]))
            yield ({"writes": name, "dies": dies, "thresholds": "FEMU's" if own else "ours", **row}, name == "uniform" and not own)


def flashsim(args, pages, scratch):
    ours, path, result = build_ours(), pathlib.Path(scratch, "pages"), pathlib.Path(scratch, "result")
    boost = ["-I", args.boost] if args.boost else []
    theirs = build_theirs(["c++", "g++"], args.checkout, FLASHSIM, scratch, "-std=gnu++14", *boost, HERE / "flashsim.cpp",
                          *(pathlib.Path(args.checkout, name) for name in FLASHSIM))
    draw, writes = random.Random(1), BAST_UNCOUNTED + BAST_COUNTED

    def of_theirs(here):
        # FlashSim itself speaks on standard output.
        config = (HERE / "flashsim.conf").read_text(encoding="ascii")
        config = config.format(blocks=here["blocks"], per_block=PAGES_PER_BLOCK, log_blocks=BAST_LOG_BLOCKS)
        pathlib.Path(scratch, "ssd.conf").write_text(config, encoding="ascii")
        call(theirs, path, pages + writes, pages + BAST_UNCOUNTED, result, cwd=scratch)
        there = json.loads(result.read_text(encoding="ascii"))
        there["programs"] -= there["map_programs"]
        return there

    # Half as many hot blocks as there are log blocks.
    eight = 8 * PAGES_PER_BLOCK
    for name, source in [("uniform", [uniform(draw, pages) for _ in range(writes)]),
                         ("eight-hot-blocks", [hot(draw, pages, eight) for _ in range(writes)]),
                         ("in-order", [i % pages for i in range(writes)])]:
        play_list(path, pages, source)
        bast = f"bast:{BAST_LOG_BLOCKS}"
        row = in_rounds(args.rounds, "flashsim",
                        lambda: run(ours, path, pages, BAST_UNCOUNTED, PAGES_PER_BLOCK, SPARE_PERCENT, bast, 1), of_theirs)
        yield {"writes": name, **row}, name == "uniform"


def simulators(args):
    """The three with page numbers: prints and returns the rows, and how many differ that must not."""
    pages, rows, wrong = int(args.gib * (1 << 30)) // PAGE_BYTES, [], 0
    print(f"{'writes':<20} {'form':<22} {'WAF ours':>9} {args.peer:>9} {'erases ours':>12} {args.peer:>9} {'apart %':>8}"
          f" {'device s':>9} {args.peer:>9} {'M/s':>7} {args.peer:>9} {'times':>7}")
    with tempfile.TemporaryDirectory() as scratch:
        for row, equal in {"ftlsim": ftlsim, "femu": femu, "flashsim": flashsim}[args.peer](args, pages, scratch):
            both = row["ours"], row[args.peer]
            wrong += equal and apart(*both) > WITHIN
            rows.append(row)
            form = " ".join(f"{name} {row[name]}" for name in ("victims", "frontiers", "dies", "thresholds") if name in row)
            waf = [one["programs"] / one["host_writes"] for one in both]
            seconds = [one.get("device_s", float("nan")) for one in both]
            rate = [one["host_writes"] / one["elapsed_s"] / 1e6 for one in both]
            print(f"{row['writes'][:20]:<20} {form:<22} {waf[0]:>9.3f} {waf[1]:>9.3f} {both[0]['erases']:>12} {both[1]['erases']:>9}"
                  f" {apart(*both) * 100:>8.2f} {seconds[0]:>9.1f} {seconds[1]:>9.1f} {rate[0]:>7.2f} {rate[1]:>9.4f}"
                  f" {row['times_as_fast']:>7.2f}", flush=True)
    return rows, wrong


def generate(path, seed, hot_share):
    """A hot set with scans, and sequential files that are read once more: SPC lines."""
    draw = random.Random(seed)
    with open(path, "w", encoding="ascii") as out:
        number = 0
        while number < 200_000:
            if draw.random() < hot_share:
                pages = [int(8000 * draw.random() ** 4)]
            else:
                start = draw.randrange(40_000)
                pages = range(start, start + draw.randrange(1, 64))
            for page in pages:
                op = "W" if draw.random() < 0.4 else "R"
                out.write(f"0,{page * 8},4096,{op},{number / 1000:.3f}\n")
                number += 1


def libcachesim(args):
    """Prints and returns the miss counts, and how many differ."""
    try:
        import libcachesim as library
    except ImportError:
        raise Missing("libcachesim is not installed; pip install libcachesim") from None
    pages, rows = [int(word) for word in args.pages.split(",")], []
    settings = library.ReaderInitParam()
    settings.ignore_obj_size = True
    with tempfile.TemporaryDirectory() as scratch:
        traces = [pathlib.Path(trace) for trace in args.traces]
        for name, seed, share in () if traces else (("generated-hot", 1, 0.995), ("generated-scans", 2, 0.9)):
            traces.append(pathlib.Path(scratch, f"{name}.csv"))
            generate(traces[-1], seed, share)
        print(f"{'trace':<24} {'policy':<8} {'pages':>6} {'ours':>10} {'libCacheSim':>12}")
        for trace in traces:
            exported = pathlib.Path(scratch, "oracle.bin")
            call(lab(args.syncline), "trace", "export", "--to", "oracle-general", "-o", exported, trace)
            found = document(lab(args.syncline), "cache", "--trace", trace, "--policy", ",".join(POLICIES), "--size",
                             ",".join(f"{count}p" for count in pages))
            if found["trace"]["kind"] == "syscall":
                sys.exit(f"{trace}: libCacheSim knows no deleted files; give a trace of blocks or pages")
            accesses = found["trace"]["accesses"]
            assert exported.stat().st_size == 24 * accesses, "the export has other accesses"
            misses = {(one["policy"], one["pages"]): one["misses"] for one in found["runs"]}
            for policy, name in POLICIES.items():
                # Above all pages of the trace there is one size.
                for count in (count for count in pages if (policy, count) in misses):
                    reader = library.TraceReader(str(exported), library.TraceType.ORACLE_GENERAL_TRACE, settings)
                    there = round(getattr(library, name)(count).process_trace(reader)[0] * accesses)
                    here = misses[policy, count]
                    rows.append({"trace": trace.stem, "policy": policy, "pages": count, "accesses": accesses, "misses": here,
                                 "libcachesim_misses": there})
                    print(f"{trace.stem:<24} {policy:<8} {count:>6} {here:>10} {there:>12}  {'' if here == there else 'DIFFERENT'}")
    wrong = sum(row["misses"] != row["libcachesim_misses"] for row in rows)
    print(f"{len(rows) - wrong} of {len(rows)} counts are equal to those of {getattr(library, '__version__', 'its version')}")
    return rows, wrong


def main():
    top = common.parser(__doc__)
    peers = top.add_subparsers(dest="peer", required=True)
    for name, positional in {"libcachesim": ["syncline"], "ftlsim": ["syncline", "checkout"], "femu": ["syncline", "checkout"],
                             "flashsim": ["checkout"]}.items():
        peer = peers.add_parser(name, parents=[common.parser(None, *positional)], add_help=False)
        if "syncline" in positional:
            peer.add_argument("traces", nargs="*")
        if "checkout" in positional:
            peer.add_argument("--gib", type=float, default=1.0, help="size of the device")
            peer.add_argument("--rounds", type=int, default=3 if name == "flashsim" else 5)
        else:
            peer.add_argument("--pages", default=",".join(map(str, PAGES)))
    peers.choices["flashsim"].add_argument("--boost", help="directory that holds boost/")
    args = top.parse_args()
    if "checkout" in args:
        args.checkout = os.path.abspath(args.checkout)
    rows, wrong = libcachesim(args) if args.peer == "libcachesim" else simulators(args)
    common.store(args.json, f"compare-{args.peer}", rows=rows)
    return 1 if wrong else 0


if __name__ == "__main__":
    common.main(main)
