#!/usr/bin/env python3
"""SQLite on a kernel's ext4 over the write buffer, with and without relaxed files, on an emulated flash device in real time.

    relaxed_blocks.py SYNCLINE [--profile P] [--operations N] [--rounds N] [--mode MODE ...] [--json FILE]

    for each round, journal mode and configuration:
        syncline flash serve P DIR                   a fresh device; every request takes its modelled time
        two loop devices on it                       the volume and, behind it on the same flash, the log
        syncline buffer attach ... --attach          but for `ext4 alone`; the kernel's ext4 on it
        SQLite: 4,000 rows of about 1 KB, then N updates of one random row, each a transaction of synchronous=FULL
    relaxed: `syncline buffer relax` of the directory before the updates; preload: the program runs under `syncline preload`

Seconds are those of the updates; flushes and megabytes are the device's, `all` with the emptying of the buffer. Needs root, loop
devices, FUSE and e2fsprogs.
"""
import argparse
import contextlib
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

# A checkout stays as it is.
sys.dont_write_bytecode = True
from fjord_mounted import loops, served, stats, told  # noqa: E402

ROWS = 4000
# name: behind the buffer, relaxed in it, under preload
CONFIGS = {
    "ext4 alone": (False, False, False),
    "buffer": (True, False, False),
    "relaxed": (True, True, False),
    "preload": (True, False, True),
    "relaxed, preload": (True, True, True),
}


def child(directory, mode, operations):
    """The program: makes the table, says so, waits for a line, updates, says how long it took."""
    rng = random.Random(7)
    db = sqlite3.connect(os.path.join(directory, "app.db"), isolation_level=None)
    db.execute(f"PRAGMA journal_mode={mode}")
    db.execute("PRAGMA synchronous=FULL")
    text = lambda: rng.randbytes(500).hex()  # noqa: E731
    db.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
    db.execute("BEGIN")
    for nr in range(ROWS):
        db.execute("INSERT INTO t VALUES (?, ?)", (nr, text()))
    db.execute("COMMIT")
    if mode == "wal":
        db.execute("PRAGMA wal_checkpoint(RESTART)")
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    for _ in range(operations):
        db.execute("UPDATE t SET b = ? WHERE a = ?", (text(), rng.randrange(ROWS)))
    print(time.monotonic() - began, flush=True)
    sys.stdin.readline()
    db.close()


@contextlib.contextmanager
def mounted(node):
    with tempfile.TemporaryDirectory() as mnt:
        told("mount", "-t", "ext4", node, mnt)
        try:
            yield mnt
        finally:
            told("umount", mnt)


@contextlib.contextmanager
def buffered(syncline, volume, log, wanted):
    """The block device to mount, and the directory of its buffer."""
    if not wanted:
        yield volume, None
        return
    with tempfile.TemporaryDirectory() as directory:
        node = told(syncline, "buffer", "attach", volume, directory, "--log", log, "--create", "--force", "--attach")
        try:
            yield node, directory
        finally:
            told(syncline, "buffer", "detach", directory)


def one(syncline, profile, config, mode, operations):
    """Figures of one run."""
    buffer, relaxed, preload = CONFIGS[config]
    command = [sys.executable, os.path.abspath(__file__), "--child", mode, "--operations", str(operations)]
    if preload:
        command = [syncline, "preload", "--relaxed", "app.db*", "--", *command]
    with served(syncline, profile) as flash, loops(os.path.join(flash, "flash")) as (volume, log):
        told("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", volume)
        with buffered(syncline, volume, log, buffer) as (node, directory):
            with mounted(node) as mnt:
                where = os.path.join(mnt, "app")
                os.mkdir(where)
                with subprocess.Popen([*command, where], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
                    program.stdout.readline()
                    told("sync", "-f", where)
                    if relaxed:
                        told(syncline, "buffer", "relax", directory, where)
                    before = stats(flash)
                    program.stdin.write("\n")
                    program.stdin.flush()
                    seconds = float(program.stdout.readline())
                    after = stats(flash)
                    program.stdin.close()
                if program.returncode:
                    raise RuntimeError("the program failed")
        end = stats(flash)
    mb = lambda seen: (seen["written_bytes"] - before["written_bytes"]) / 1e6  # noqa: E731
    return {"transactions_per_s": operations / seconds, "flushes": (after["flushes"] - before["flushes"]) / operations,
            "megabytes": mb(after), "all_megabytes": mb(end)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("syncline", help="the program, or with --child the directory")
    parser.add_argument("--profile", default="emmc-gnote")
    parser.add_argument("--operations", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mode", nargs="+", default=["delete", "wal"])
    parser.add_argument("--json")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args.syncline, args.child, args.operations)
    syncline = os.path.abspath(args.syncline)
    found = {}
    for _ in range(args.rounds):
        for mode in args.mode:
            for config in CONFIGS:
                seen = one(syncline, args.profile, config, mode, args.operations)
                found.setdefault((config, mode), []).append(seen)
                print(f"{mode:8} {config:18} " + " ".join(f"{name} {value:.2f}" for name, value in seen.items()), flush=True)
    runs = [{"config": config, "mode": mode, **{name: statistics.median(seen[name] for seen in all_seen) for name in all_seen[0]}}
            for (config, mode), all_seen in found.items()]
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"runs": runs}, file, indent=1)
    return None


main()
