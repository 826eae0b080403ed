#!/usr/bin/env python3
"""Years until flash is worn with jbd2's records in the log and with packed ones: `syncline-lab lifetime` on what a mount writes.

    log_lifetime.py SYNCLINE [TRACE ...] [--device P] [--daily N] [--transactions N] [--passes N] [--json FILE]

    for each format of the log, each workload:
        mke2fs, syncline mount -o sync=eager,log=FORMAT,trace=RUN    a fresh image of 512 MiB
        syncline-lab bench sqlite insert --journal-mode wal --dir, or syncline-lab replay --trace TRACE --dir
        umount                                                       the write-back is in the trace
        syncline-lab lifetime --trace RUN.blocks.trace --passes N        erases until nothing changes from pass to pass

A TRACE is one of system calls; its contents are noise, so packed records are as long as they can be. Years are those of blocks that
wear evenly if the work is done N times a day: 100 traces, 100,000 transactions. The times of the run do not count. Needs root and FUSE.
"""
import json
import os
import tempfile

import common
from common import bench_words, call, lab

SIZE_MIB = 512


def blocks_of(syncline, place, log, work):
    """The block trace of `work`, a command that ends with a directory, on a fresh volume."""
    image, mnt, run = (os.path.join(place, name) for name in ("image", "mnt", log))
    os.makedirs(mnt, exist_ok=True)
    common.make_image(image, SIZE_MIB)
    call(syncline, "mount", image, mnt, "-o", f"sync=eager,log={log},trace={run}")
    try:
        call(lab(syncline), *work, "--dir", mnt)
    finally:
        call("umount", mnt)
    events = run + ".events"
    # The server writes back after the mount is gone, and ends the trace last.
    common.wait_until(lambda: os.path.exists(events), f"{events} does not come", 60)
    call(lab(syncline), "trace", "import", events, "-o", run)
    return run + ".blocks.trace"


def measured(args, work, daily):
    """Megabytes, programmed megabytes and years, by format."""
    found = {}
    for log in ("jbd2", "packed"):
        with tempfile.TemporaryDirectory(prefix="lifetime") as place:
            trace = blocks_of(args.syncline, place, log, work)
            said = json.loads(call(lab(args.syncline), "lifetime", "--trace", trace, "--device", args.device, "--passes", args.passes, "--json"))
        days = said["rated_cycles"] / (said["lifetime"]["cycles_used"] / args.passes) / daily
        found[log] = {"written_bytes": said["written_bytes"] // args.passes,
                      "programmed_bytes": said["programmed_bytes"] // args.passes, "years": days / 365}
    return found


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("trace", nargs="*", help="traces of system calls")
    parser.add_argument("--device", default="nexus7-emmc")
    parser.add_argument("--daily", type=float, default=100, help="repetitions of a trace a day")
    parser.add_argument("--transactions", type=float, default=100_000, help="SQLite transactions a day")
    parser.add_argument("--operations", type=int, default=2_000, help="SQLite transactions that are run")
    parser.add_argument("--passes", type=int, default=20)
    args = parser.parse_args()
    common.need_mounts()
    bench = bench_words("sqlite/insert", "--journal-mode", "wal", "--operations", args.operations)
    works = {"SQLite insert, WAL": (bench, args.transactions / args.operations)}
    for trace in args.trace:
        name = os.path.splitext(os.path.basename(trace))[0]
        works[name] = (["replay", "--trace", os.path.abspath(trace)], args.daily)
    rows = {name: measured(args, *work) for name, work in works.items()}
    for name, found in rows.items():
        for log, figures in found.items():
            print(f"{name:<24}{log:<8}{figures['written_bytes'] / 1e6:9.1f} MB {figures['programmed_bytes'] / 1e6:9.1f} MB programmed"
                  f" {figures['years']:8.2f} years")
    common.store(args.json, "log-lifetime", results=rows)


if __name__ == "__main__":
    common.main(main)
