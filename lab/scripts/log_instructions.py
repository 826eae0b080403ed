#!/usr/bin/env python3
"""Instructions of fsync and of cached overwrites with each format of the log, counted by valgrind: exact but for the allocator.

    log_instructions.py SYNCLINE [--operations N] [--json FILE]

    for each workload, each format of the log:
        valgrind --tool=callgrind --toggle-collect=CALL syncline-lab bench WORKLOAD --operations N, and 2 N
        the difference over N: an operation, without what the workload does before

The calls are `Volume::fsync`, `Volume::commit_atomic` and `Volume::write`, with the memory and the flash model below them in it; the
model costs more for the longer writes of jbd2. Needs valgrind and a binary with symbols.
"""
import concurrent.futures
import os
import re
import subprocess
import tempfile

import common
from common import Failed, bench_words, lab

# label, workload and its arguments, calls that count
WORKS = [
    ("4 KiB random overwrite, fsync", ["fileio/random-overwrite-fsync"], ["fsync"]),
    ("create, 4 KiB, fsync", ["create"], ["fsync"]),
    ("SQLite insert, DELETE", ["sqlite/insert", "--journal-mode", "delete"], ["fsync"]),
    ("SQLite insert, WAL", ["sqlite/insert", "--journal-mode", "wal"], ["fsync"]),
    ("SQLite insert, batch-atomic", ["sqlite/insert", "--journal-mode", "atomic"], ["commit_atomic"]),
    ("cached 4 KiB overwrite, the first since a sync", ["fileio/random-overwrite-fsync"], ["write"]),
]
LOGS = ["jbd2", "packed"]


def counted(syncline, workload, calls, log, operations):
    """Instructions of the calls in a run."""
    with tempfile.TemporaryDirectory() as place:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={place}/out", "--collect-atstart=no"]
        command += [f"--toggle-collect=syncline_fs::volume::Volume::{call}" for call in calls]
        command += [lab(syncline), *bench_words(*workload, "--operations", operations, "--sync", "eager", "--log", log, "--size", "256")]
        done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or found is None:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")
    return int(found.group(1))


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--operations", type=int, default=100)
    args = parser.parse_args()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        def start(work, log, operations):
            return pool.submit(counted, args.syncline, work[1], work[2], log, operations)
        runs = {(work[0], log): [start(work, log, args.operations * n) for n in (1, 2)] for work in WORKS for log in LOGS}
        each = {key: (twice.result() - once.result()) / args.operations for key, (once, twice) in runs.items()}
    print(f"{'instructions an operation':<50}{'jbd2':>10}{'packed':>10}{'ratio':>8}")
    for label, _, _ in WORKS:
        jbd2, packed = (each[label, log] for log in LOGS)
        print(f"{label:<50}{jbd2:>10.0f}{packed:>10.0f}{packed / jbd2:>8.2f}")
    results = {label: {log: {"instructions": round(each[label, log])} for log in LOGS} for label, _, _ in WORKS}
    common.store(args.json, "log-instructions", results=results)


if __name__ == "__main__":
    common.main(main)
