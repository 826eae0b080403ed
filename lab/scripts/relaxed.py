#!/usr/bin/env python3
"""Programs on relaxed files and on the write buffer.

    relaxed.py fjord SYNCLINE [--profile P] [--only APPLICATION ...] [--config NAME ...] [--rounds N] [--scale X] [--json FILE]
        the configurations of `bench fjord` in real time: a real browser over pages of a local server, isync with dovecot, and Python's
        SQLite on a mount. Without a log the log is there and switched off (`syncline ctl set log=off`). Seconds are those of the
        application; megabytes and flushes are the device's, with the unmount, which empties the log
    relaxed.py blocks SYNCLINE [--profile P] [--operations N] [--rounds N] [--mode MODE ...] [--json FILE]
        SQLite on a kernel's ext4 over the write buffer: 4,000 rows of about 1 KB, then N updates of one random row, each a transaction of
        synchronous=FULL. relaxed: `syncline buffer relax` of the directory before the updates; preload: under `syncline preload`. Seconds
        are those of the updates; flushes and megabytes are the device's, `all` with the emptying of the buffer
    relaxed.py corrupt [--trials N] [--seed S] [--only browser|cache] [--json FILE]
        damage that a power cut may leave of relaxed files, after the informed-storage paper's 6.7.2, which zeroed parts of files by hand
        browser   a copy of a real profile gets zeros or its own old bytes over random parts of files, and cut ends. Recovered: the
                  browser comes to the last page, at the first start or the second
        cache     a program with a cache of answers in SQLite, which it may lose but never misread: an answer has a checksum, an error of
                  the database deletes it. Recovered: every answer is right, and the database passes its own check at the end

fjord and blocks start each run on a fresh emulated flash device with two loop devices on it: the volume and, behind it, the log. They
need root, loop devices, FUSE and e2fsprogs. An application whose program is missing is left out, and the last lines say why.
"""
import contextlib
import hashlib
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

import capture
import common
from common import Failed, Missing, call, flash, stats

VOLUME_MIB = 512
LOG_MIB = 256
PHONE = "sync=ordered,writeback_preset=android"
# name: options of the mount, settings after it; none: without a buffer
MOUNTS = {
    "native": ("", None),
    "log": ("buffer_ram=0", ()),
    "ram": ("", ("log=off",)),
    "both": ("", ()),
    "relaxed-ram": ("relaxed=*", ("log=off",)),
    "relaxed-both": ("relaxed=*", ()),
}
APPLICATIONS = {
    "browsing": lambda mnt, work, scale: capture.browse(mnt, work, scale, stay_ms=100),
    "e-mail": capture.mail,
    "SQLite": capture.rlbench,
}


@contextlib.contextmanager
def served(syncline, profile):
    """A fresh device: its directory, and the volume and the log as loop devices on it."""
    with flash(syncline, profile, "--size", f"{VOLUME_MIB + LOG_MIB}M") as (directory, _), contextlib.ExitStack() as nodes:
        found = []
        for offset_mib, size_mib in ((0, VOLUME_MIB), (VOLUME_MIB, LOG_MIB)):
            found.append(call("losetup", "--find", "--show", "--direct-io=on", "--offset", offset_mib << 20, "--sizelimit", size_mib << 20,
                              os.path.join(directory, "flash")))
            nodes.callback(subprocess.run, ["losetup", "-d", found[-1]], check=False)
        call(*common.MKE2FS.split(), found[0])
        yield directory, *found


def application(args, config, name):
    """Seconds of the application, megabytes written, flushes."""
    options, settings = MOUNTS[config]
    with served(args.syncline, args.profile) as (directory, volume, log):
        buffer = [] if settings is None else [f"buffer_log={log}"]
        words = ",".join([PHONE, *filter(None, [options]), *buffer])
        with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as mnt:
            call(args.syncline, "mount", "-o", words, volume, mnt)
            try:
                if settings:
                    call(args.syncline, "ctl", "set", mnt, *settings)
                before, began = stats(directory), time.monotonic()
                APPLICATIONS[name](mnt, work, args.scale)
                seconds = time.monotonic() - began
            finally:
                call(args.syncline, "umount", mnt)
                # The log is empty and the volume closed then.
                common.wait_until(lambda: not common.judge(volume), "the volume was not clean after the unmount", 600, 0.1)
            after = stats(directory)
    return {"seconds": seconds, "megabytes": (after["written_bytes"] - before["written_bytes"]) / 1e6,
            "flushes": after["flushes"] - before["flushes"]}


def change(own, native):
    return "" if own is native or not native else f" ({100 * (own / native - 1):+.0f} %)"


def table(figures, rounds):
    print(f"medians of {rounds} rounds, in turns; change against native")
    print(f"{'application':12} {'config':14} {'s':>18} {'MB':>18} {'flushes':>8}")
    for application, configs in figures.items():
        middle = {config: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
                  for config, runs in configs.items() if runs}
        native = middle.get("native")
        for config, row in middle.items():
            base = native if native and config != "native" else None
            seconds = f"{row['seconds']:.2f}" + (change(row["seconds"], base["seconds"]) if base else "")
            megabytes = f"{row['megabytes']:.1f}" + (change(row["megabytes"], base["megabytes"]) if base else "")
            print(f"{application:12} {config:14} {seconds:>18} {megabytes:>18} {row['flushes']:8.0f}")


def fjord(args):
    applications, configs = args.only or list(APPLICATIONS), args.config or list(MOUNTS)
    figures = {name: {config: [] for config in configs} for name in applications}
    left_out = {}
    for at in range(args.rounds):
        for name in applications:
            # The order turns.
            for config in configs[at % len(configs):] + configs[:at % len(configs)]:
                if name in left_out:
                    continue
                try:
                    figures[name][config].append(application(args, config, name))
                except Missing as err:
                    left_out[name] = str(err)
                except (Failed, RuntimeError, subprocess.SubprocessError, OSError) as err:
                    left_out[name] = f"{config}: {err}"
                else:
                    print(f"round {at + 1}, {name}, {config}: {figures[name][config][-1]['seconds']:.2f} s", file=sys.stderr, flush=True)
    table({name: rows for name, rows in figures.items() if name not in left_out}, args.rounds)
    for name, why in left_out.items():
        print(f"{name}: left out, {why}", file=sys.stderr)
    common.store(args.json, "fjord-mounted", profile=args.profile, figures=figures)
    return 1 if any(": " in why for why in left_out.values()) else 0


ROWS = 4000
# name: behind the buffer, relaxed in it, under preload
BUFFERS = {
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
def buffered(syncline, volume, log, wanted):
    """The block device to mount, and the directory of its buffer."""
    if not wanted:
        yield volume, None
        return
    with tempfile.TemporaryDirectory() as directory:
        node = call(syncline, "buffer", "attach", volume, directory, "--log", log, "--create", "--force", "--attach")
        try:
            yield node, directory
        finally:
            call(syncline, "buffer", "detach", directory)


def updates(args, config, mode):
    """Figures of one run."""
    buffer, relaxed, preload = BUFFERS[config]
    command = [sys.executable, os.path.abspath(__file__), "child", mode, str(args.operations)]
    if preload:
        command = [args.syncline, "preload", "--relaxed", "app.db*", "--", *command]
    with served(args.syncline, args.profile) as (directory, volume, log):
        with buffered(args.syncline, volume, log, buffer) as (node, served_at), tempfile.TemporaryDirectory() as mnt:
            call("mount", "-t", "ext4", node, mnt)
            try:
                where = os.path.join(mnt, "app")
                os.mkdir(where)
                with subprocess.Popen([*command, where], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
                    program.stdout.readline()
                    call("sync", "-f", where)
                    if relaxed:
                        call(args.syncline, "buffer", "relax", served_at, where)
                    before = stats(directory)
                    program.stdin.write("\n")
                    program.stdin.flush()
                    seconds = float(program.stdout.readline())
                    after = stats(directory)
                    program.stdin.close()
                if program.returncode:
                    raise Failed("the program failed")
            finally:
                call("umount", mnt)
        end = stats(directory)
    mb = lambda seen: (seen["written_bytes"] - before["written_bytes"]) / 1e6  # noqa: E731
    return {"transactions_per_s": args.operations / seconds, "flushes": (after["flushes"] - before["flushes"]) / args.operations,
            "megabytes": mb(after), "all_megabytes": mb(end)}


def blocks(args):
    found = {}
    for _ in range(args.rounds):
        for mode in args.mode:
            for config in BUFFERS:
                seen = updates(args, config, mode)
                found.setdefault((config, mode), []).append(seen)
                print(f"{mode:8} {config:18} " + " ".join(f"{name} {value:.2f}" for name, value in seen.items()), flush=True)
    common.store(args.json, "relaxed-blocks", runs=[
        {"config": config, "mode": mode, **{name: statistics.median(seen[name] for seen in all_seen) for name in all_seen[0]}}
        for (config, mode), all_seen in found.items()])


PARTS_MAX = 8
ANSWERS = 400


def files_of(directory):
    found = []
    for where, _, names in os.walk(directory):
        paths = [os.path.join(where, name) for name in names]
        found += [path for path in paths if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path)]
    return sorted(found)


def corrupt(paths, rng):
    """Blocks of 4 KiB of random files become zeros, or what another block of the file holds; ends are cut off."""
    parts = rng.randint(1, PARTS_MAX)
    for _ in range(parts):
        path = rng.choice(paths)
        size = os.path.getsize(path)
        with open(path, "r+b") as file:
            way = rng.randrange(3)
            at = rng.randrange(max(1, size)) // 4096 * 4096
            length = min(4096 * rng.randint(1, 8), size - at)
            if way == 0:
                file.truncate(at)
                continue
            old = bytes(length)
            if way == 1:
                file.seek(rng.randrange(max(1, size)) // 4096 * 4096)
                old = file.read(length)
            file.seek(at)
            file.write(old)
    return parts


def browses(directory, work):
    try:
        capture.browse(directory, work, 0.1, stay_ms=100)
        return True
    except RuntimeError:
        return False


def browser(trials, seed):
    with tempfile.TemporaryDirectory() as work:
        full = os.path.join(work, "full")
        os.mkdir(full)
        capture.browse(full, work, 0.3, stay_ms=300)
        outcomes = {"first start": 0, "second start": 0, "not": 0}
        for trial in range(trials):
            rng = random.Random(seed * 1000 + trial)
            copy = os.path.join(work, "copy")
            shutil.copytree(full, copy, symlinks=True)
            for lock in ("SingletonLock", "SingletonCookie", "SingletonSocket"):
                path = os.path.join(copy, "profile", lock)
                if os.path.lexists(path):
                    os.remove(path)
            corrupt(files_of(copy), rng)
            outcome = "first start" if browses(copy, work) else "second start" if browses(copy, work) else "not"
            outcomes[outcome] += 1
            if outcome == "not":
                print(f"browser, trial {trial}: not recovered", file=sys.stderr)
            shutil.rmtree(copy, ignore_errors=True)
        return {"trials": trials, "files": len(files_of(full)), **outcomes}


class Cache:
    """Answers in a database that may be lost."""

    def __init__(self, path):
        self.path, self.lost, self.refused = path, 0, 0
        self.open()

    def open(self):
        self.database = sqlite3.connect(self.path, isolation_level=None)
        self.database.execute("CREATE TABLE IF NOT EXISTS answers (name TEXT PRIMARY KEY, sum BLOB, body BLOB)")

    def start_again(self):
        self.lost += 1
        self.database.close()
        for end in ("", "-journal", "-wal", "-shm"):
            if os.path.exists(self.path + end):
                os.remove(self.path + end)
        self.open()

    def get(self, name, fetch):
        try:
            row = self.database.execute("SELECT sum, body FROM answers WHERE name = ?", [name]).fetchone()
            if row and hashlib.sha256(row[1]).digest() == row[0]:
                return row[1]
            self.refused += row is not None
            body = fetch(name)
            self.database.execute("REPLACE INTO answers VALUES (?, ?, ?)", [name, hashlib.sha256(body).digest(), body])
            return body
        except (sqlite3.DatabaseError, TypeError):
            self.start_again()
            return fetch(name)


def answer(name):
    rng = random.Random(name)
    return rng.randbytes(rng.choice([200, 1000, 5000, 20_000]))


def cache(trials, seed):
    outcome = {"trials": trials, "recovered": 0, "database deleted": 0, "answers refused": 0, "wrong answers": 0}
    names = [f"answer {nr}" for nr in range(ANSWERS)]
    with tempfile.TemporaryDirectory() as work:
        full = os.path.join(work, "full.db")
        filled = Cache(full)
        for name in names:
            filled.get(name, answer)
        filled.database.close()
        for trial in range(trials):
            copy = os.path.join(work, f"copy{trial}.db")
            shutil.copy(full, copy)
            corrupt([copy], random.Random(seed * 1000 + trial))
            try:
                found = Cache(copy)
            except sqlite3.DatabaseError:
                # Not even a database: as in `get`.
                os.remove(copy)
                found = Cache(copy)
                found.lost = 1
            wrong = sum(found.get(name, answer) != answer(name) for name in names for _ in range(2))
            sound = sqlite_is_sound(found)
            outcome["wrong answers"] += wrong
            outcome["recovered"] += wrong == 0 and sound
            outcome["database deleted"] += found.lost > 0
            outcome["answers refused"] += found.refused
            found.database.close()
    return outcome


def sqlite_is_sound(found):
    """Its own check passes, or what it finds is thrown away as an error would be."""
    try:
        if found.database.execute("PRAGMA integrity_check").fetchone() == ("ok",):
            return True
    except sqlite3.DatabaseError:
        pass
    found.start_again()
    return found.database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def corruption(args):
    figures = {}
    if args.only != "browser":
        figures["cache"] = cache(args.trials * 10, args.seed)
    if args.only != "cache":
        try:
            figures["browser"] = browser(args.trials, args.seed)
        except Missing as err:
            print(f"browser: left out, {err}", file=sys.stderr)
    for name, row in figures.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in row.items()))
    common.store(args.json, "corrupt-relaxed", **figures)
    return 1 if figures.get("cache", {}).get("wrong answers") or figures.get("browser", {}).get("not") else 0


def main():
    if sys.argv[1:2] == ["child"]:
        return child(sys.argv[4], sys.argv[2], int(sys.argv[3]))
    top = common.parser(__doc__)
    kinds = top.add_subparsers(dest="what", required=True)

    def kind(name, *names):
        return kinds.add_parser(name, parents=[common.parser(None, *names)], add_help=False)

    found = kind("fjord", "syncline")
    found.add_argument("--profile", default="emmc-gnote")
    found.add_argument("--only", action="append", choices=list(APPLICATIONS), help="these applications")
    found.add_argument("--config", action="append", choices=list(MOUNTS), help="these configurations")
    found.add_argument("--rounds", type=int, default=3)
    found.add_argument("--scale", type=float, default=0.5, help="how much each application does; 1: as the largest capture")
    found = kind("blocks", "syncline")
    found.add_argument("--profile", default="emmc-gnote")
    found.add_argument("--operations", type=int, default=1000)
    found.add_argument("--rounds", type=int, default=3)
    found.add_argument("--mode", nargs="+", default=["delete", "wal"])
    found = kind("corrupt")
    found.add_argument("--trials", type=int, default=20, help="of the browser; the cache has ten times as many")
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--only", choices=["browser", "cache"])
    args = top.parse_args()
    if args.what != "corrupt":
        common.need_mounts("mke2fs", "e2fsck")
    return {"fjord": fjord, "blocks": blocks, "corrupt": corruption}[args.what](args)


if __name__ == "__main__":
    common.main(main)
