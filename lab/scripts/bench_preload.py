#!/usr/bin/env python3
"""Programs with their syncs put off: the preload library beside libeatmydata and beside none, alternated in one run.

    bench_preload.py LIBRARY [--dir DIR] [--rounds N]

SQLite inserts rows one a transaction (DELETE journal: about four syncs each); `files` creates, writes, syncs and renames files.
Each ratio is the median of N rounds of the time beside that of libeatmydata in the same round; under 1 is faster.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

import common

EATMYDATA = ["/usr/lib/x86_64-linux-gnu/libeatmydata.so", "/usr/lib/aarch64-linux-gnu/libeatmydata.so",
             "/usr/lib/libeatmydata/libeatmydata.so"]
FILES = """
import os, sys
for at in range(int(sys.argv[1])):
    fd = os.open("file.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(fd, b"x" * 4096)
    os.fsync(fd)
    os.close(fd)
    os.rename("file.tmp", "file%d" % (at % 100))
"""


def workloads(operations):
    rows = "".join(f"INSERT INTO t VALUES ({at}, hex(randomblob(50)));\n" for at in range(operations))
    sql = "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT);\n" + rows
    return {"sqlite": (["sqlite3", "a.db"], sql), "files": ([sys.executable, "-c", FILES, str(operations)], "")}


def run(command, text, libraries, rules, where):
    env = {name: value for name, value in os.environ.items() if not name.startswith("SYNCLINE_PRELOAD")}
    env["LD_PRELOAD"] = libraries
    env["SYNCLINE_PRELOAD_RULES"] = rules
    with tempfile.TemporaryDirectory(dir=where) as place:
        began = time.monotonic()
        subprocess.run(command, input=text, text=True, cwd=place, env=env, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - began


def main():
    parser = common.parser(__doc__, "library")
    parser.add_argument("--dir", default=None)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--operations", type=int, default=3000)
    args = parser.parse_args()
    library = os.path.abspath(args.library)
    other = next((path for path in EATMYDATA if os.path.exists(path)), None)
    if other is None:
        raise common.Missing("libeatmydata is not installed; install libeatmydata1")
    ways = {"libeatmydata": (other, ""), "every file": (library, "relaxed *"),
            "chosen files": (library, "relaxed *\nstrict *.keep"), "strict": (library, ""), "none": ("", "")}
    print(f"{'workload':10} {'way':14} {'median s':>9} {'ratio':>6}  (beside libeatmydata, {args.rounds} rounds)")
    rows = []
    for name, (command, text) in workloads(args.operations).items():
        times = {way: [] for way in ways}
        for at in range(args.rounds + 1):
            # The first round warms up; the order turns.
            for way in list(ways)[at % len(ways):] + list(ways)[:at % len(ways)]:
                seconds = run(command, text, *ways[way], args.dir)
                if at > 0:
                    times[way].append(seconds)
        for way, seconds in times.items():
            ratio = statistics.median(own / base for own, base in zip(seconds, times["libeatmydata"]))
            print(f"{name:10} {way:14} {statistics.median(seconds):9.3f} {ratio:6.2f}")
            rows.append({"workload": name, "way": way, "seconds": statistics.median(seconds), "ratio": ratio})
    common.store(args.json, "preload-cost", results=rows)


if __name__ == "__main__":
    common.main(main)
