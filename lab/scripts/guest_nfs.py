#!/usr/bin/env python3
"""`syncline serve --nfs` with Linux's NFS client, in a qemu guest of Debian's kernel.

    guest_nfs.py SYNCLINE [--kills N] [--only PART] [--json FILE]

    on this machine: syncline serve --nfs 127.0.0.1:PORT card.img       no root is needed
    in the guest:    mount -t nfs -o vers=3,proto=tcp,nolock,...        through qemu's user network

        sqlite    two programs at once insert into one database, DELETE and WAL; integrity_check, no row missing
        sync      dd with O_SYNC, fsync of a file and fsync of a directory succeed
        conform   syncline-posix conform, as root: every answer is ext4's but for DIFFERENCES, and each of these is there
        kills     N times: a program appends and syncs while the server is killed with SIGKILL. Every line that was synced is in the image;
                  the server starts again, the program goes on, and no line is missing or twice

Prints one line for each; fails if one does. syncline-posix is looked for beside SYNCLINE.
"""
import argparse
import base64
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# A checkout stays as it is.
sys.dont_write_bytecode = True
import guest  # noqa: E402

MODULES = ["virtio_pci", "virtio_net", "nfsv3"]
# What qemu's user network calls this machine's loopback interface.
HOST = "10.0.2.2"
LINES = 400
PARTS = ["sqlite", "sync", "conform", "kills"]
SERVE_SECONDS = 20
WRITER = f"""
n=0
while [ $n -lt {LINES} ]; do
    n=$((n + 1))
    printf '%08d\\n' $n | dd of=/mnt/lines bs=9 seek=$((n - 1)) conv=notrunc,fsync 2>/dev/null || exit 1
    echo $n > /tmp/synced
done
"""
INSERT = """
n=0; while [ $n -lt 40 ]; do n=$((n + 1)); echo ".timeout 60000"; echo "INSERT INTO t(who, n) VALUES('%s', $n);"; done | sqlite3 /mnt/%s.db
"""


# Answers that are not those of a local ext4: why, then the beginning of the assertion (file of cases, case, step) and how many differ.
DIFFERENCES = [
    ("NFSv3 has no extended attributes", {"data.txt user attributes": 16, "data.txt who may set attributes": 3}),
    ("NFSv3 has no flags of renameat2", {"rename.txt renameat2 with": 21}),
    ("NFSv3 has no fallocate", {"data.txt fallocate": 10, "data.txt ranges taken out and put in": 6}),
    ("times of NFSv3 end in 1970 and 2106", {"utimensat.txt the range of the format": 6}),
    ("Linux's client cuts the nanoseconds of 1970-01-01 00:00:00", {"utimensat.txt times of a": 7}),
    ("Linux's client renames an open file that is removed, and removes it at the last close", {
        "chmod.txt fchmod of an open and of a removed file: @stat h mode,nlink -> 4711,0": 1,
        "chown.txt fchown of an open and of a removed file": 1,
        "ftruncate.txt a removed file": 1,
        "link.txt a removed file cannot be linked again": 1,
        "open.txt a removed file lives as long as it is open": 1,
        "unlink.txt an open file without a name": 3,
    }),
    ("a removed directory has no file handle: ESTALE", {
        "chmod.txt fchmod of an open and of a removed file": 2,
        "rmdir.txt a removed directory that is still open": 2,
        "rmdir.txt nothing is made in a removed working directory": 2,
    }),
    ("Linux's client sends no change to what a file has already (chown -1 -1, truncate to its size)", {
        "chown.txt chown clears set-id bits of programs": 4,
        "truncate.txt times": 1,
    }),
    ("the server sees no open files: after a chmod only the owner goes on writing", {
        "ftruncate.txt an open file stays writable whatever its mode becomes": 2,
    }),
    ("Linux's client reads from its cache, which moves no access time", {
        "data.txt writes and times": 1,
        # The contents of a file may have left its cache.
        "data.txt access times by relatime": (1, 2),
    }),
]


class Failed(Exception):
    """What went wrong."""


class Server:
    """`syncline serve` on this machine, on one port for all its lives."""

    def __init__(self, program, image):
        self.program, self.image, self.process = program, image, None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def start(self):
        ended = time.monotonic() + SERVE_SECONDS
        while time.monotonic() < ended:
            self.process = subprocess.Popen([self.program, "serve", "--nfs", f"127.0.0.1:{self.port}", self.image],
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if "NFS on" in self.process.stdout.readline():
                return
            # The port of a killed server is free a moment later.
            said = self.process.stderr.read()
            self.process.wait()
            time.sleep(0.1)
        raise Failed(f"the server does not start: {said}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(timeout=60) != 0:
            raise Failed(f"serve ended with {self.process.returncode}: {self.process.stderr.read()}")


class Tests:
    def __init__(self, inside, server, args):
        self.inside, self.server, self.args = inside, server, args
        self.differences = []

    def sh(self, command):
        code, said = self.inside.run(command)
        if code != 0:
            raise Failed(f"`{command}` ended with {code}: {said.strip()[-800:]}")
        return said

    def mount(self):
        port = self.server.port
        self.sh("ifconfig lo 127.0.0.1 up; ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up; mkdir -p /mnt")
        options = f"vers=3,proto=tcp,mountproto=tcp,nolock,port={port},mountport={port},addr={HOST},mountaddr={HOST}"
        self.sh(f"/bin/mount -i -t nfs -o nodev,{options},timeo=20 {HOST}:/ /mnt")

    def sqlite(self):
        rows = {}
        for mode in ("delete", "wal"):
            self.sh(f"sqlite3 /mnt/{mode}.db 'PRAGMA journal_mode={mode}; CREATE TABLE t(who TEXT, n INTEGER);' > /tmp/mode")
            one, two = (INSERT % (who, mode) for who in ("a", "b"))
            self.sh(f"({two.strip()}) > /tmp/two 2>&1 & {{ {one.strip()}; }} && wait $! && cat /tmp/two >&2")
            asked = f"sqlite3 /mnt/{mode}.db 'PRAGMA integrity_check; SELECT count(*) FROM t;'"
            said = self.sh(asked).split()
            if said != ["ok", "80"]:
                raise Failed(f"sqlite, {mode}: {said}")
            rows[mode] = 80
        return f"two writers, DELETE and WAL: {sum(rows.values())} of 160 rows, integrity_check ok"

    def sync(self):
        self.sh("dd if=/dev/zero of=/mnt/synced bs=64k count=16 oflag=sync 2>/dev/null; fsync /mnt/synced /mnt; sync")
        return "O_SYNC writes, fsync of a file and of a directory"

    def conform(self):
        said = self.sh("mkdir /mnt/conform; syncline-posix conform /mnt/conform --other /dev/shm || true").splitlines()
        count, self.differences = sorted_out(said)
        expected = sum(row["assertions"] for row in self.differences[1:])
        return f"{count} assertions, {count - expected} as on ext4, {expected} that NFSv3 or its client answers otherwise"

    def kills(self):
        draw = random.Random(self.args.seed)
        acknowledged = 0
        for _ in range(self.args.kills):
            self.sh("rm -f /mnt/lines /tmp/synced /tmp/done; sync")
            program = base64.b64encode(WRITER.encode()).decode()
            self.sh(f"echo {program} | base64 -d > /tmp/writer; (sh /tmp/writer && touch /tmp/done) & true")
            time.sleep(draw.uniform(0.3, 2.0))
            self.server.kill()
            # The client waits now; what it was told is in this file.
            synced = int(self.sh("cat /tmp/synced 2>/dev/null || echo 0").strip())
            copy = self.server.image + ".killed"
            shutil.copyfile(self.server.image, copy)
            read = subprocess.run([self.server.program, "cat", copy + ":/lines"], capture_output=True, text=True)
            kept = read.stdout.split()[:synced]
            if kept != [f"{n:08}" for n in range(1, synced + 1)]:
                raise Failed(f"{synced} lines were synced before the kill, {len(kept)} are there: {read.stderr}")
            acknowledged += synced
            self.server.start()
            self.sh("for i in $(seq 600); do [ -e /tmp/done ] && break; usleep 100000; done; [ -e /tmp/done ]")
            lines = self.sh("cat /mnt/lines").split()
            if lines != [f"{n:08}" for n in range(1, LINES + 1)]:
                raise Failed(f"after the restart the file has {len(lines)} lines of {LINES}")
        return f"{self.args.kills} kills: all {acknowledged} synced lines kept, the client went on each time"


def sorted_out(lines):
    """The number of assertions, and rows for --json: how many agree, how many differ for each reason. Fails if one more or less does."""
    summary = re.fullmatch(r"(\d+) assertions, (\d+) disagree", lines[-1] if lines else "")
    if summary is None:
        raise Failed(f"conform: {' '.join(lines)[-800:]}")
    names = [re.sub(r"^(\S+):\d+ ", r"\1 ", line) for line in lines[:-1]]
    rows, wrong = [], []
    for why, wanted in DIFFERENCES:
        differ = 0
        for start, counts in wanted.items():
            found = [name for name in names if name.startswith(start)]
            names = [name for name in names if not name.startswith(start)]
            differ += len(found)
            if len(found) not in (counts if isinstance(counts, tuple) else [counts]):
                wrong.append(f"{start}: {len(found)} differ, expected {counts}: {found}")
        rows.append({"reason": why, "assertions": differ})
    wrong += [f"not expected: {name}" for name in names]
    if wrong:
        raise Failed("conform: " + "\n".join(wrong))
    asserted = int(summary.group(1))
    return asserted, [{"reason": "as on a local ext4", "assertions": asserted - int(summary.group(2))}, *rows]


def judged(server):
    """Ends the server; e2fsck's answer on the image."""
    server.end()
    ran = subprocess.run(["/sbin/e2fsck", "-fn", server.image], capture_output=True, text=True)
    if ran.returncode != 0:
        raise Failed(f"e2fsck: {ran.stdout[-500:]}")
    return "e2fsck -fn: clean after the server ended"


def lines(tests):
    """The results, one after the other: name, text."""
    for name in tests.args.only or PARTS:
        yield name, getattr(tests, name)()
    tests.sh("umount /mnt")
    yield "image", judged(tests.server)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("syncline")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--json")
    here = os.path.dirname(os.path.abspath(__file__))
    args = parser.parse_args()
    cache = os.path.join(os.path.dirname(here), "target", "guest")
    with tempfile.TemporaryDirectory() as scratch:
        image = os.path.join(scratch, "card.img")
        subprocess.run([args.syncline, "mkfs", "--size", "256M", image, "--", "-b", "4096"], check=True)
        server = Server(args.syncline, image)
        server.start()
        try:
            # Beside them, the suite runs copies of sleep.
            posix = os.path.join(os.path.dirname(os.path.abspath(args.syncline)), "syncline-posix")
            programs = [shutil.which("sqlite3") or "/usr/bin/sqlite3", "/usr/bin/mount", "/usr/bin/sleep", posix]
            with guest.Guest(cache, programs, MODULES, network=True) as inside:
                tests = Tests(inside, server, args)
                tests.mount()
                results = {}
                for name, text in lines(tests):
                    results[name] = text
                    print(f"{name:8} {text}", flush=True)
        except (guest.Missing, Failed) as err:
            sys.exit(f"guest_nfs: {err}")
        finally:
            if server.process.poll() is None:
                server.kill()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "syncline.guest-nfs/1", "parts": results, "conform": tests.differences}, file, indent=1)


if __name__ == "__main__":
    main()
