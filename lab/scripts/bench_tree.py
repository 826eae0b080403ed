#!/usr/bin/env python3
"""A source tree and a stream on kernel ext4, fuse2fs and Syncline, all on an image in memory.

    bench_tree.py SYNCLINE [--files N] [--mib N] [--rounds N] [--memory DIR] [--only NAME]... [--uring] [--json FILE]

    for each round, each file system: a fresh image in --memory (/dev/shm), mounted
        untar   tar xf of a made tree: sizes and directories as a source tree has them, the same in every run
        find    find -type f -size +0 on a fresh mount, so that nothing is cached
        rm      rm -rf of the tree
        create4 four processes, each makes 1,000 files of 4 KiB in a directory of its own
        write   dd of --mib MiB with a final fsync
        read    dd of the same after a fresh mount

Prints the best time of each, in seconds, and Syncline's speed as a multiple of the others'. Needs root, loop devices and FUSE;
a file system whose tools are missing is left out, and the table says why. With --uring the kernel offers FUSE over io_uring
meanwhile. Run it on a machine that does nothing else.
"""
import io
import multiprocessing
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import time

import common
from common import MKE2FS, Failed, Missing, call

# name, what mounts it: {image} the file, {node} a loop device over it, {mnt} the mount point
SYSTEMS = [
    ("ext4", "mount -t ext4 {node} {mnt}"),
    ("fuse2fs", "fuse2fs {image} {mnt} -o fakeroot"),
    ("syncline eager", "{syncline} mount {image} {mnt}"),
    ("syncline ordered", "{syncline} mount {image} {mnt} -o sync=ordered"),
    ("syncline affinity=none", "{syncline} mount {image} {mnt} -o affinity=none"),
    ("syncline uring=off", "{syncline} mount {image} {mnt} -o uring=off"),
]
STEPS = ["untar", "find", "rm", "create4", "write", "read"]
IMAGE_MIB = 6144
BLOCK = 1 << 20


def make_tree(path, files):
    """A tar of so many files: 14 to a directory, most of a few KiB, some of hundreds."""
    rng = random.Random(1)
    noise = rng.randbytes(1 << 20)
    dirs = ["tree"]

    def add(tar, name, kind, size=0):
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.size, info.mtime = kind, 0o755 if kind == tarfile.DIRTYPE else 0o644, size, 1_600_000_000
        start = rng.randrange(len(noise) - size) if size else 0
        tar.addfile(info, io.BytesIO(noise[start:start + size]) if size else None)

    with tarfile.open(path, "w") as tar:
        add(tar, "tree", tarfile.DIRTYPE)
        for number in range(files):
            if number % 14 == 0:
                dirs.append(f"{rng.choice(dirs[-40:])}/d{number // 14}")
                add(tar, dirs[-1], tarfile.DIRTYPE)
            size = min(int(rng.lognormvariate(8.4, 1.3)), 400_000)
            add(tar, f"{dirs[-1]}/file{number}.c", tarfile.REGTYPE, size)


class System:
    """One file system on one image."""

    def __init__(self, system, syncline, directory):
        self.command = system[1]
        self.image, self.mnt = os.path.join(directory, "image"), os.path.join(directory, "mnt")
        os.mkdir(self.mnt)
        with open(self.image, "wb") as file:
            file.truncate(IMAGE_MIB << 20)
        call(*MKE2FS.split(), self.image)
        self.node = call("losetup", "-f", "--show", self.image) if "{node}" in self.command else None
        self.names = {"image": self.image, "mnt": self.mnt, "syncline": syncline, "node": self.node}

    def remount(self):
        common.unmount(self.mnt, self.node or self.image)
        call(*(word.format(**self.names) for word in self.command.split()))
        common.wait_until(lambda: os.path.ismount(self.mnt), "it did not mount")

    def close(self):
        common.unmount(self.mnt, self.node or self.image)
        if self.node:
            call("losetup", "-d", self.node)


def timed(*words):
    began = time.monotonic()
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(f"{words[0]}: {done.stderr.strip().splitlines()[-1:]}")
    return time.monotonic() - began


def create(directory):
    os.mkdir(directory)
    for number in range(1000):
        with open(os.path.join(directory, f"file{number}"), "xb", buffering=0) as file:
            file.write(bytes(4096))


def create_by_four(mnt):
    began = time.monotonic()
    makers = [multiprocessing.Process(target=create, args=[os.path.join(mnt, f"dir{number}")]) for number in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
        if maker.exitcode != 0:
            raise Failed("a process that makes files failed")
    return time.monotonic() - began


def measure(system, tar, mib):
    """The seconds of each step."""
    tree, stream = os.path.join(system.mnt, "tree"), os.path.join(system.mnt, "stream")
    seconds = {}
    system.remount()
    seconds["untar"] = timed("tar", "xf", tar, "-C", system.mnt)
    system.remount()
    seconds["find"] = timed("find", tree, "-type", "f", "-size", "+0")
    seconds["rm"] = timed("rm", "-rf", tree)
    seconds["create4"] = create_by_four(system.mnt)
    system.remount()
    size = [f"bs={BLOCK}", f"count={mib}", "status=none"]
    seconds["write"] = timed("dd", "if=/dev/zero", f"of={stream}", "conv=fsync", *size)
    system.remount()
    seconds["read"] = timed("dd", f"if={stream}", "of=/dev/null", *size)
    return seconds


def one(system, args, tar):
    """A fresh image: its figures, or why there are none."""
    with tempfile.TemporaryDirectory(prefix="tree", dir=args.memory) as directory:
        try:
            made = System(system, args.syncline, directory)
            try:
                return measure(made, tar, args.mib)
            finally:
                made.close()
        except (Failed, Missing) as why:
            return {"why": str(why)}


def table(best):
    print(f"\n{'seconds, best of the rounds':<30}" + "".join(f"{step:>9}" for step in STEPS))
    for name, row in best.items():
        cells = row.get("why") or "".join(f"{row[step]:>9.2f}" for step in STEPS)
        print(f"{name:<30}{cells}")
    for name in best:
        for other in ("fuse2fs", "ext4"):
            if name.startswith("syncline") and "why" not in best[name] and "why" not in best.get(other, {"why": 1}):
                cells = "".join(f"{best[other][step] / best[name][step]:>8.2f}x" for step in STEPS)
                print(f"{name + ' to ' + other:<30}{cells}")


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--mib", type=int, default=1024, help="length of the stream")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="/dev/shm", help="a directory in memory, with 4 GiB free")
    parser.add_argument("--uring", action="store_true", help="offer io_uring to the mounts (Linux 6.14)")
    parser.add_argument("--only", action="append", help="part of a file system's name")
    args = parser.parse_args()
    common.need_mounts()
    best = {}
    with tempfile.TemporaryDirectory(prefix="tree", dir=args.memory) as scratch, common.offered(args.uring):
        tar = os.path.join(scratch, "tree.tar")
        make_tree(tar, args.files)
        for _ in range(args.rounds):
            for system in SYSTEMS:
                if args.only and not any(part in system[0] for part in args.only):
                    continue
                row, before = one(system, args, tar), best.get(system[0], {})
                print(f"{system[0]:<20}{row}", file=sys.stderr, flush=True)
                if "why" not in row:
                    best[system[0]] = {step: min(row[step], before.get(step, row[step])) for step in STEPS}
                else:
                    best.setdefault(system[0], row)
    table(best)
    common.store(args.json, "tree", seconds=best)


if __name__ == "__main__":
    common.main(main)
