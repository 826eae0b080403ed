"""The workloads of `syncline-lab bench` on a mounted file system, counted by the block layer.

kernel_workload.py prepare WORKLOAD DIR
kernel_workload.py run WORKLOAD DIR DEVICE [DIVISOR]    prints a JSON row for each phase

Requests are counted from the block_rq_issue events of DEVICE (loop0): /sys/block/DEVICE/stat counts some empty flushes
as writes. Before each operation a timer tick passes, so that timestamps move as they do on a slow device; else several
overwrites would share one inode change and fsync would commit nothing.
"""

import json
import os
import random
import re
import sqlite3
import sys
import time

FILE_BYTES = 16 << 20
TICK_S = 0.005
RANDOM = random.Random(1)


EVENT = re.compile(r"block_rq_issue: \S+ (\S+) (?:\d+ )?\(.*?\) \d+ \+ (\d+)")


class Trace:
    """The write and flush requests of one device, from an instance of tracefs."""

    def __init__(self, device):
        self.dir = f"/sys/kernel/tracing/instances/syncline-{os.getpid()}"
        os.mkdir(self.dir)
        major, minor = map(int, open(f"/sys/block/{device}/dev").read().split(":"))
        self.put("buffer_size_kb", "32768")
        self.put("events/block/block_rq_issue/filter", f"dev == {major << 20 | minor}")
        self.put("events/block/block_rq_issue/enable", "1")

    def put(self, name, value):
        with open(f"{self.dir}/{name}", "w") as file:
            file.write(value)

    def start(self):
        self.put("trace", "")

    def stop(self):
        counts = {"writes": 0, "sectors": 0, "flushes": 0}
        for line in open(f"{self.dir}/trace", errors="replace"):
            event = EVENT.search(line)
            if not event:
                continue
            kind, sectors = event[1], int(event[2])
            if "W" in kind and sectors:
                counts["writes"] += 1
                counts["sectors"] += sectors
            elif "F" in kind and not sectors:
                counts["flushes"] += 1
        return counts

    def close(self):
        os.rmdir(self.dir)


def measure(workload, mode, trace, operations, step):
    trace.start()
    for number in range(operations):
        time.sleep(TICK_S)
        step(number)
    counts = trace.stop()
    return json.dumps({
        "workload": workload,
        "journal_mode": mode,
        "operations": operations,
        "write_requests_per_op": round(counts["writes"] / operations, 3),
        "written_kib_per_op": round(counts["sectors"] / 2 / operations, 3),
        "flushes_per_op": round(counts["flushes"] / operations, 3),
    })


def connect(directory, mode):
    db = sqlite3.connect(f"{directory}/bench.db", isolation_level=None)
    db.execute(f"PRAGMA journal_mode={mode}")
    db.execute("PRAGMA synchronous=FULL")
    return db


def text():
    return "".join(chr(97 + RANDOM.randrange(26)) for _ in range(12))


def sqlite_phases(directory, mode, trace, rows):
    db = connect(directory, mode)
    db.execute("SELECT count(*) FROM t").fetchone()

    def insert(number):
        values = [number + 1] + [RANDOM.randrange(1 << 24) for _ in range(3)] + [text() for _ in range(13)]
        db.execute(f"INSERT INTO t VALUES({','.join('?' * 17)})", values)

    def update(number):
        values = [RANDOM.randrange(1 << 24), text(), text(), text(), number + 1]
        db.execute("UPDATE t SET i1=?, c1=?, c7=?, c13=? WHERE id=?", values)

    def delete(number):
        db.execute("DELETE FROM t WHERE id=?", [number + 1])

    for name, step in (("insert", insert), ("update", update), ("delete", delete)):
        yield measure(f"sqlite/{name}", mode, trace, rows, step)
    db.close()


def overwrite(directory, name, trace, operations):
    length = 256 << 10 if "256k" in name else 4096
    sync = os.fdatasync if name.endswith("fdatasync") else os.fsync
    fd = os.open(f"{directory}/data.bin", os.O_RDWR)
    while os.read(fd, 1 << 20):
        pass
    data, places = RANDOM.randbytes(length), FILE_BYTES // length

    def step(number):
        place = RANDOM.randrange(places) if name.startswith("random") else number % places
        os.pwrite(fd, data, place * length)
        sync(fd)

    yield measure(f"fileio/{name}", None, trace, operations, step)
    os.close(fd)


def append(directory, trace, operations):
    data = RANDOM.randbytes(256 << 10)
    fd = os.open(f"{directory}/seq.bin", os.O_RDWR | os.O_CREAT)

    def step(number):
        os.pwrite(fd, data, number * len(data))
        os.fsync(fd)

    yield measure("fileio/sequential-256k-fsync", None, trace, operations, step)
    os.close(fd)


def create(directory, trace, operations):
    data = RANDOM.randbytes(4096)

    def step(number):
        fd = os.open(f"{directory}/files/f{number:05}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        os.pwrite(fd, data, 0)
        os.fsync(fd)
        os.close(fd)

    yield measure("create/4k-fsync", None, trace, operations, step)


def prepare(workload, directory):
    if workload.startswith("sqlite"):
        columns = ", ".join(["i1 INTEGER", "i2 INTEGER", "i3 INTEGER"] + [f"c{n} TEXT" for n in range(1, 14)])
        db = connect(directory, workload.split("-")[1])
        db.execute(f"CREATE TABLE t(id INTEGER PRIMARY KEY, {columns})")
        db.close()
    elif workload == "create":
        os.mkdir(f"{directory}/files")
    elif "overwrite" in workload:
        fd = os.open(f"{directory}/data.bin", os.O_RDWR | os.O_CREAT)
        for mib in range(FILE_BYTES >> 20):
            os.pwrite(fd, RANDOM.randbytes(1 << 20), mib << 20)
        os.fsync(fd)
        os.close(fd)


def main():
    action, workload, directory = sys.argv[1:4]
    if action == "prepare":
        return prepare(workload, directory)
    trace, divisor = Trace(sys.argv[4]), int(sys.argv[5]) if len(sys.argv) > 5 else 1
    if workload.startswith("sqlite"):
        rows = sqlite_phases(directory, workload.split("-")[1], trace, 300 // divisor)
    elif workload == "create":
        rows = create(directory, trace, 500 // divisor)
    elif workload == "sequential-256k-fsync":
        rows = append(directory, trace, 64 // divisor)
    else:
        rows = overwrite(directory, workload, trace, (64 if "256k" in workload else 2000) // divisor)
    print(",\n".join(rows), end="")
    trace.close()


if __name__ == "__main__":
    main()
