#!/usr/bin/env python3
"""Generated records at rest: the import into partitions, and the queries of docs/FLEETS.md in DuckDB, with bounded memory. Real time.

    sweep_records.py SYNCLINE [--devices N] [--records N] [--memory MB] [--directory DIR] [--json FILE]

A device's day is a trace of system calls of six programs, RECORDS of them: writes of files (a power law), a sync after a few, reads. DEVICES of
them are made, imported one after the other (only the import counts) and removed; then each query of the document runs over all.
`rss` is the peak of the process that did it, in MB. Needs pyarrow and duckdb, and about 8 bytes of disk a record.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

import suite

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = ["messenger", "browser", "mail", "camera", "launcher", "system"]
ENDINGS = ["db", "db-wal", "jpg", "xml", "tmp", ""]
OPERATIONS = ["write", "read", "fsync", "stat"]
FILES = 2000
DAY_NS = 86_400 * 10**9
#: Records of a row group that is generated at once.
GROUP = 1 << 20
BEGAN = 1767225600


def groups(records, seed):
    """The records of one device's day, a table for each group."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    draws = np.random.default_rng(seed)
    names = pa.array([f"/data/{PROGRAMS[n % len(PROGRAMS)]}/{n}.{ENDINGS[n % 5]}".rstrip(".") for n in range(FILES)])
    programs, operations = pa.array(PROGRAMS), pa.array(OPERATIONS)
    done = 0
    while done < records:
        n = min(GROUP, records - done)
        file = (FILES * draws.random(n) ** 3).astype(np.int32)
        operation = draws.choice(len(OPERATIONS), n, p=[0.45, 0.3, 0.1, 0.15]).astype(np.int32)
        moved = pa.array(operation > 1)
        length = pa.array(np.where(draws.random(n) < 0.8, 4096, 65536))
        offset = pa.array(draws.integers(0, 1 << 14, n) * 4096)
        none = pa.nulls(n, pa.int64())
        time_ns = np.sort(draws.integers(DAY_NS * done // records, DAY_NS * (done + n) // records, n))
        yield pa.table({
            "time_ns": pa.array(time_ns),
            "op": pa.DictionaryArray.from_arrays(operation, operations),
            "process": pa.array(1000 + file % len(PROGRAMS), pa.int64()),
            "process_name": pa.DictionaryArray.from_arrays(file % len(PROGRAMS), programs),
            "file": pa.DictionaryArray.from_arrays(file, names),
            "inode": pa.array(file, pa.int64()),
            "offset_bytes": pc.if_else(moved, none, offset),
            "len_bytes": pc.if_else(moved, none, length),
            "latency_ns": pa.array(draws.integers(500, 50_000, n)),
        })
        done += n


def write_trace(path, records, seed):
    """A trace file of ours, by pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = {"syncline.trace.version": "1", "syncline.trace.kind": "syscall", "syncline.trace.source": "generated"}
    writer = None
    for table in groups(records, seed):
        columns = [pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in table.schema]
        table = table.cast(pa.schema(columns))
        if writer is None:
            writer = pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.add_key_value_metadata(metadata)
        writer.write_table(table, row_group_size=1 << 17)
    writer.close()


def measured(words):
    """Seconds, the peak of resident memory in MB, and the output of a program that must not fail."""
    began = time.monotonic()
    child = subprocess.Popen(words, stdout=subprocess.PIPE)
    said = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{words[0]} failed with {child.returncode}")
    return time.monotonic() - began, usage.ru_maxrss / 1024, said


def again(args):
    """The words that run this script once more."""
    return [sys.executable, os.path.abspath(__file__), args.syncline, "--records", str(args.records)]


def imported(args, place, output):
    """Imports each device's day; returns seconds and the highest peak of memory."""
    trace, seconds, peak = os.path.join(place, "day.trace"), 0.0, 0.0
    for device in range(args.devices):
        # In a process of its own: the peak of a child begins with its parent's memory.
        subprocess.run([*again(args), "--generate", f"{device}:{trace}"], check=True)
        words = [args.syncline, "trace", "import", trace, "--to", "parquet", "--device-name", f"card-{device:03}", "--start", str(BEGAN)]
        took, rss, _ = measured([*words, "-o", output])
        os.unlink(trace)
        seconds, peak = seconds + took, max(peak, rss)
        print(f"card {device}: {took:.1f} s, {rss:.0f} MB", file=sys.stderr)
    return seconds, peak


def queries():
    """Title and text of each query of the document."""
    with open(os.path.join(ROOT, "docs", "FLEETS.md")) as file:
        return re.findall(r"\n([^\n]+):\n\n```sql\n(.*?)```", file.read(), re.S)


def query(text, memory_mb):
    """Runs one query in this process and prints how many rows it gave."""
    import duckdb

    connection = duckdb.connect(config={"memory_limit": f"{memory_mb}MB", "threads": 2})
    print(len(connection.execute(text).fetchall()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("syncline")
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--memory", type=int, default=1000)
    parser.add_argument("--directory")
    parser.add_argument("--query", help=argparse.SUPPRESS)
    parser.add_argument("--generate", help=argparse.SUPPRESS)
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.query:
        return query(args.query, args.memory)
    if args.generate:
        seed, path = args.generate.split(":", 1)
        return write_trace(path, args.records, int(seed))
    args.syncline = os.path.abspath(args.syncline)
    total, found = args.devices * args.records, []
    with tempfile.TemporaryDirectory(prefix="records", dir=args.directory) as place:
        output = os.path.join(place, "records")
        seconds, peak = imported(args, place, output)
        stored = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(output) for name in names)
        found.append({"what": "import", "records": total, "seconds": seconds, "rss_mb": peak, "bytes": stored})
        print(found[-1])
        os.chdir(place)
        for title, text in queries():
            took, rss, rows = measured([*again(args), "--memory", str(args.memory), "--query", text])
            found.append({"what": title, "records": total, "seconds": took, "rss_mb": rss, "rows": int(rows)})
            print(found[-1])
        os.chdir(ROOT)
    if args.json:
        suite.store(args.json, "sweep-records", found)


if __name__ == "__main__":
    main()
