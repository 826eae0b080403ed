#!/usr/bin/env python3
"""Years until flash is worn with jbd2's records in the log and with packed ones: `syncline lifetime` on what a mount writes.

    log_lifetime.py SYNCLINE [TRACE ...] [--device P] [--daily N] [--transactions N] [--passes N] [--json FILE]

    for each format of the log, each workload:
        mke2fs, syncline mount -o sync=eager,log=FORMAT,trace=RUN    a fresh image of 512 MiB
        syncline bench sqlite/insert --journal-mode wal --dir, or syncline replay --trace TRACE --dir
        umount                                                       the write-back is in the trace
        syncline lifetime --trace RUN.blocks.trace --passes N        erases until nothing changes from pass to pass

A TRACE is one of system calls; its contents are noise, so packed records are as long as they can be. Years are those of blocks that
wear evenly if the work is done N times a day: 100 traces, 100,000 transactions. The times of the run do not count. Needs root and FUSE.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

SIZE_BYTES = 512 << 20
UNMOUNT_SECONDS = 60


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"log_lifetime: {' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def blocks_of(syncline, place, log, work):
    """The block trace of `work`, a command that ends with a directory, on a fresh volume."""
    image, mnt, run = (os.path.join(place, name) for name in ("image", "mnt", log))
    os.makedirs(mnt, exist_ok=True)
    with open(image, "wb") as file:
        file.truncate(SIZE_BYTES)
    call("mke2fs", "-q", "-t", "ext4", "-b", "4096", image)
    call(syncline, "mount", image, mnt, "-o", f"sync=eager,log={log},trace={run}")
    try:
        call(syncline, *work, "--dir", mnt)
    finally:
        call("umount", mnt)
    trace, end = run + ".blocks.trace", time.monotonic() + UNMOUNT_SECONDS
    # The server writes back after the mount is gone, and ends the trace last.
    while not os.path.exists(trace) and time.monotonic() < end:
        time.sleep(0.1)
    return trace


def measured(args, work, daily):
    """Megabytes, programmed megabytes and years, by format."""
    found = {}
    for log in ("jbd2", "packed"):
        with tempfile.TemporaryDirectory(prefix="lifetime") as place:
            trace = blocks_of(args.syncline, place, log, work)
            said = json.loads(call(args.syncline, "lifetime", "--trace", trace, "--device", args.device,
                                   "--passes", str(args.passes), "--json"))
        days = said["rated_cycles"] / (said["lifetime"]["cycles_used"] / args.passes) / daily
        found[log] = {"written_bytes": said["written_bytes"] // args.passes,
                      "programmed_bytes": said["programmed_bytes"] // args.passes, "years": days / 365}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("syncline")
    parser.add_argument("trace", nargs="*", help="traces of system calls")
    parser.add_argument("--device", default="nexus7-emmc")
    parser.add_argument("--daily", type=float, default=100, help="repetitions of a trace a day")
    parser.add_argument("--transactions", type=float, default=100_000, help="SQLite transactions a day")
    parser.add_argument("--operations", type=int, default=2_000, help="SQLite transactions that are run")
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--json", help="write the figures as JSON")
    args = parser.parse_args()
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        sys.exit("log_lifetime: needs root and /dev/fuse; run it on a machine that has them")
    args.syncline = os.path.abspath(args.syncline)
    bench = ["bench", "sqlite/insert", "--journal-mode", "wal", "--operations", str(args.operations)]
    works = {"SQLite insert, WAL": (bench, args.transactions / args.operations)}
    for trace in args.trace:
        name = os.path.splitext(os.path.basename(trace))[0]
        works[name] = (["replay", "--trace", os.path.abspath(trace)], args.daily)
    rows = {name: measured(args, *work) for name, work in works.items()}
    for name, found in rows.items():
        for log, figures in found.items():
            print(f"{name:<24}{log:<8}{figures['written_bytes'] / 1e6:9.1f} MB {figures['programmed_bytes'] / 1e6:9.1f} MB programmed"
                  f" {figures['years']:8.2f} years")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "syncline.log-lifetime/1", "results": rows}, file, indent=1)


if __name__ == "__main__":
    main()
