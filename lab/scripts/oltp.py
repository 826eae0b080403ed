#!/usr/bin/env python3
"""MariaDB and sysbench OLTP on mounts over one emulated flash device: journal bytes and transactions with and without a coarse mtime.

    oltp.py SYNCLINE [--profile P] [--rows N] [--seconds S] [--threads N] [--only NAME ...] [--quick] [--json FILE]

After section 5.2 of the coarse-mtime paper (Son et al.): the read-write mix, 8 threads, one million rows, a flush method that uses
fsync. One database is made in memory; each row of the table starts with a copy of it behind `syncline-lab flash serve`:

    ext4 ordered                          the kernel on a loop device; journal bytes are jbd2's blocks a transaction times its transactions
    syncline ordered | eager              the volume over FUSE; journal bytes as `syncline status` counts them
    ... with mtime_update=100             the same with timestamps at multiples of 100 ms

MariaDB calls fdatasync where it says fsync; a library of five lines, compiled here, gives it the fsync that the paper's database
had. Needs root, loop devices, FUSE, mariadbd, sysbench, cc.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import common
from common import Failed, call, mounted, stats

ROWS = [
    ("ext4 ordered", "mount -t ext4 -o data=ordered {node} {mnt}"),
    ("syncline ordered", "{syncline} mount {flash} {mnt} -o sync=ordered,allow_other"),
    ("syncline ordered,mtime_update=100", "{syncline} mount {flash} {mnt} -o sync=ordered,mtime_update=100,allow_other"),
    ("syncline eager", "{syncline} mount {flash} {mnt} -o sync=eager,allow_other"),
    ("syncline eager,mtime_update=100", "{syncline} mount {flash} {mnt} -o sync=eager,mtime_update=100,allow_other"),
]
FSYNC = """#include <unistd.h>
int fdatasync(int fd)
{
    return fsync(fd);
}
"""
START_SECONDS = 600


class Database:
    """A running MariaDB with its data in a directory."""

    def __init__(self, data, work, library):
        self.socket = os.path.join(work, "socket")
        self.log = os.path.join(work, "log")
        environment = dict(os.environ, LD_PRELOAD=library)
        command = ["mariadbd", "--no-defaults", "--user=mysql", f"--datadir={data}", f"--socket={self.socket}",
                   "--skip-networking", f"--pid-file={work}/pid", "--innodb-flush-method=fsync",
                   "--innodb-flush-log-at-trx-commit=1", "--innodb-log-file-size=96M", "--innodb-buffer-pool-size=256M",
                   "--skip-log-bin", f"--log-error={self.log}"]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS
        while subprocess.run([*self.client("mariadb"), "-e", "SELECT 1"], capture_output=True).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise Failed("MariaDB does not start: " + pathlib.Path(self.log).read_text(errors="replace")[-400:])
            time.sleep(0.1)

    def client(self, program):
        return [program, "--no-defaults", f"--socket={self.socket}", "-u", "root"]

    def end(self):
        call(*self.client("mariadb-admin"), "shutdown")
        self.process.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()


def sysbench(args, socket, *command):
    return call("sysbench", "oltp_read_write", f"--mysql-socket={socket}", "--mysql-user=root",
                f"--table-size={args.rows}", "--tables=1", f"--threads={args.threads}", *command)


def prepared(args, work, library):
    """An image with the database, made on the kernel's ext4 in memory."""
    image, mnt = os.path.join(work, "image"), os.path.join(work, "made")
    # A row of sysbench takes about 250 bytes with its index; the logs, and room to grow.
    with open(image, "wb") as file:
        file.truncate((1 << 30) + args.rows * 600)
    os.mkdir(mnt)
    call("mke2fs", "-q", "-t", "ext4", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", image)
    call("mount", "-o", "loop", image, mnt)
    try:
        data = os.path.join(mnt, "data")
        os.mkdir(data)
        shutil.chown(data, "mysql")
        call("mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={data}", "--skip-test-db",
             "--innodb-log-file-size=96M", "--auth-root-authentication-method=normal")
        database = Database(data, work, library)
        try:
            call(*database.client("mariadb"), "-e", "CREATE DATABASE sbtest")
            sysbench(args, database.socket, "prepare")
            database.end()
        finally:
            database.kill()
    finally:
        call("umount", mnt)
    return image


def kernel_journal_bytes(node):
    """What jbd2 wrote for a mounted loop device: blocks of its transactions, descriptor and commit block of each."""
    name = os.path.basename(node)
    text = pathlib.Path(next(iter(pathlib.Path("/proc/fs/jbd2").glob(name + "-*"))), "info").read_text()
    transactions = int(re.search(r"(\d+) transactions", text).group(1))
    blocks = int(re.search(r"(\d+) logged blocks per transaction", text).group(1))
    return transactions * (blocks + 1) * 4096


def journal_bytes(syncline, mnt, node):
    if node:
        return kernel_journal_bytes(node)
    return json.loads(call(syncline, "status", "--json", mnt))["device"]["journal_bytes"]


def one(args, row, work, image, library):
    """The run on one kind of mount."""
    copy = os.path.join(work, "copy")
    call("cp", "--sparse=always", image, copy)
    try:
        with mounted(args.syncline, args.profile, (row[0], "", row[1]), "--image", copy) as names:
            database = Database(os.path.join(names["mnt"], "data"), work, library)
            try:
                sysbench(args, database.socket, f"--time={args.seconds // 4 + 1}", "run")
                before = stats(names["directory"]), journal_bytes(args.syncline, names["mnt"], names["node"])
                said = sysbench(args, database.socket, f"--time={args.seconds}", "run")
                after = stats(names["directory"]), journal_bytes(args.syncline, names["mnt"], names["node"])
                database.end()
            finally:
                database.kill()
    finally:
        os.remove(copy)
    return {
        "transactions_per_s": float(re.search(r"transactions:.*\((\S+) per sec", said).group(1)),
        "transactions": int(re.search(r"transactions:\s+(\d+)", said).group(1)),
        "journal_bytes": after[1] - before[1],
        **{key: after[0][key] - before[0][key] for key in ("written_bytes", "write_requests", "flushes", "nand_page_programs")},
    }


def table(results):
    print(f"\n{'':<36}{'trans/s':>9}{'journal KiB/trans':>19}{'KiB/trans':>11}{'flushes/trans':>15}{'pages/trans':>13}")
    base = None
    for name, row in results.items():
        if "why" in row:
            print(f"{name:<36}left out: {row['why']}")
            continue
        count = max(1, row["transactions"])
        journal = row["journal_bytes"] / 1024 / count
        print(f"{name:<36}{row['transactions_per_s']:>9.1f}{journal:>19.1f}{row['written_bytes'] / 1024 / count:>11.1f}"
              f"{row['flushes'] / count:>15.2f}{row['nand_page_programs'] / count:>13.1f}", end="")
        if name.endswith("mtime_update=100") and base and base[0] in name:
            _, rate, bytes_each = base
            print(f"   journal bytes {100 * (journal / bytes_each - 1):+.1f} %,"
                  f" transactions/s {100 * (row['transactions_per_s'] / rate - 1):+.1f} %", end="")
        else:
            base = name, row["transactions_per_s"], max(journal, 1e-9)
        print()
    print("\nthe paper, ext4 on an SSD with mtime_update=100: journal bytes -94.1 %, transactions/s +7.9 %")


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--profile", default="nexus7-emmc")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--only", action="append", help="part of a row's name")
    parser.add_argument("--quick", action="store_true", help="10,000 rows and 5 seconds: whether every row works")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.seconds = 10_000, 5
    common.need_mounts("mariadbd", "mariadb-install-db", "sysbench", "cc", "mke2fs")
    results = {}
    with tempfile.TemporaryDirectory(prefix="syncline-oltp-", dir="/dev/shm") as work:
        # The server runs as another user, who need not be able to write to /tmp.
        os.chmod(work, 0o777)
        os.environ["TMPDIR"] = work
        library = os.path.join(work, "fsync.so")
        source = os.path.join(work, "fsync.c")
        pathlib.Path(source).write_text(FSYNC)
        call("cc", "-shared", "-fPIC", "-o", library, source)
        image = prepared(args, work, library)
        for row in ROWS:
            if args.only and not any(part in row[0] for part in args.only):
                continue
            try:
                results[row[0]] = one(args, row, work, image, library)
            except Failed as why:
                results[row[0]] = {"why": str(why)}
            print(f"{row[0]}: {results[row[0]]}", file=sys.stderr, flush=True)
    table(results)
    common.store(args.json, "oltp", profile=args.profile, rows=args.rows, results=results)


if __name__ == "__main__":
    common.main(main)
