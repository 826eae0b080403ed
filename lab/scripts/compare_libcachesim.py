#!/usr/bin/env python3
"""Compares miss counts of our policies with libCacheSim's, to the last access.

    compare_libcachesim.py SYNCLINE [TRACE ...] [--pages N,...] [--json FILE]

Needs the Python package libcachesim (pip install libcachesim). A TRACE is anything that
`syncline trace` reads, of block requests or pages; without one, two are generated from seeds.
Each is exported by `syncline trace export --to oracle-general`, which libCacheSim reads with all
objects of one size, and goes through `syncline cache`. A system-call trace is refused: libCacheSim
knows no deleted files.

Exit code 1: a policy that is defined alike has another count. Those that are not are printed with
what differs.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

# Ours, theirs, and where the definitions differ.
POLICIES = [
    ("lru", "LRU", None),
    ("clock", "Clock", None),
    ("sieve", "Sieve", None),
    ("min", "Belady", None),
    ("2q", "TwoQ", None),
]
PAGES = [16, 64, 128, 256, 512, 1024, 2048, 8192]


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


def ours(syncline, trace, pages):
    """Miss counts by policy and pages, and the number of accesses."""
    names = ",".join(name for name, _, _ in POLICIES)
    sizes = ",".join(f"{count}p" for count in pages)
    text = subprocess.run(
        [syncline, "cache", "--trace", trace, "--policy", names, "--size", sizes, "--json", "-"],
        check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL).stdout
    document = json.loads(text)
    if document["trace"]["kind"] == "syscall":
        sys.exit(f"{trace}: libCacheSim knows no deleted files; give a trace of blocks or pages")
    found = {(run["policy"], run["pages"]): run["misses"] for run in document["runs"]}
    return found, document["trace"]["accesses"]


def theirs(library, path, policy, pages, accesses):
    """libCacheSim's miss count."""
    settings = library.ReaderInitParam()
    settings.ignore_obj_size = True
    reader = library.TraceReader(str(path), library.TraceType.ORACLE_GENERAL_TRACE, settings)
    share, _ = getattr(library, policy)(pages).process_trace(reader)
    return round(share * accesses)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("syncline")
    arguments.add_argument("traces", nargs="*")
    arguments.add_argument("--pages", default=",".join(map(str, PAGES)))
    arguments.add_argument("--json", help="write the figures")
    args = arguments.parse_args()
    try:
        import libcachesim
    except ImportError:
        sys.exit("libcachesim is not installed; pip install libcachesim")
    pages = [int(word) for word in args.pages.split(",")]
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        traces = [pathlib.Path(trace) for trace in args.traces]
        if not traces:
            for name, seed, hot in (("generated-hot", 1, 0.995), ("generated-scans", 2, 0.9)):
                traces.append(pathlib.Path(scratch, f"{name}.csv"))
                generate(traces[-1], seed, hot)
        print(f"{'trace':<24} {'policy':<8} {'pages':>6} {'ours':>10} {'libCacheSim':>12}  ")
        for trace in traces:
            exported = pathlib.Path(scratch, "oracle.bin")
            subprocess.run(
                [args.syncline, "trace", "export", "--to", "oracle-general", "-o", exported, trace],
                check=True, stdin=subprocess.DEVNULL)
            misses, accesses = ours(args.syncline, trace, pages)
            assert exported.stat().st_size == 24 * accesses, "the export has other accesses"
            for policy, name, differs in POLICIES:
                for count in pages:
                    here = misses[policy, count]
                    there = theirs(libcachesim, exported, name, count, accesses)
                    note = "" if here == there else differs or "DIFFERENT"
                    wrong += here != there and differs is None
                    rows.append({"trace": trace.stem, "policy": policy, "pages": count,
                                 "accesses": accesses, "misses": here, "libcachesim_misses": there})
                    print(f"{trace.stem:<24} {policy:<8} {count:>6} {here:>10} {there:>12}  {note}")
    equal = sum(row["misses"] == row["libcachesim_misses"] for row in rows)
    version = getattr(libcachesim, "__version__", "of unknown version")
    print(f"{equal} of {len(rows)} counts are equal to those of libcachesim {version}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
