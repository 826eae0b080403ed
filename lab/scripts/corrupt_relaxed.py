#!/usr/bin/env python3
"""Controlled corruption of files that would be relaxed: does a browser's profile recover, and a cache in SQLite?

    corrupt_relaxed.py [--trials N] [--seed S] [--only browser|cache] [--json FILE]

    browser   a real profile is filled by browsing pages of a local server; then, each trial: a copy of it, zeros or the file's own
              old bytes over random parts of files of the copy (what a power cut may leave of relaxed files), the browser again
              on it. Recovered: it comes to the last page, at the first start or the second.
    cache     a program with a cache of answers in SQLite, which it may lose but never misread: an answer has a checksum, an error of
              the database deletes it. Recovered: every answer is right, and the database passes its own check at the end.

After the informed-storage paper's 6.7.2, which zeroed parts of files of cloud-backed applications by hand.
"""
import argparse
import hashlib
import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile

sys.dont_write_bytecode = True
import capture  # noqa: E402

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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20, help="of the browser; the cache has ten times as many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["browser", "cache"])
    parser.add_argument("--json", help="write the figures as JSON")
    args = parser.parse_args()
    figures = {}
    if args.only != "browser":
        figures["cache"] = cache(args.trials * 10, args.seed)
    if args.only != "cache":
        try:
            figures["browser"] = browser(args.trials, args.seed)
        except capture.Missing as err:
            print(f"browser: left out, {err}", file=sys.stderr)
    for name, row in figures.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in row.items()))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "syncline.corrupt-relaxed/1", **figures}, file, indent=1)
    failed = figures.get("cache", {}).get("wrong answers", 0) or figures.get("browser", {}).get("not", 0)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
