#!/usr/bin/env python3
"""A source tree and a stream on kernel ext4, fuse2fs and Syncline, all on an image in memory.

    bench_tree.py SYNCLINE [--files N] [--mib N] [--rounds N] [--memory DIR] [--only NAME ...] [--json FILE]

    for each round, each file system: a fresh image in --memory (/dev/shm), mounted
        untar   tar xf of a made tree: sizes and directories as a source tree has them, the same in every run
        find    find -type f -size +0 on a fresh mount, so that nothing is cached
        rm      rm -rf of the tree
        write   dd of --mib MiB with a final fsync
        read    dd of the same after a fresh mount

Prints the best time of each, in seconds, and Syncline's speed as a multiple of the others'. Needs root, loop devices and FUSE;
a file system whose tools are missing is left out, and the table says why. Run it on a machine that does nothing else.
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

# name, what mounts it: {image} the file, {node} a loop device over it, {mnt} the mount point
SYSTEMS = [
    ("ext4", "mount -t ext4 {node} {mnt}"),
    ("fuse2fs", "fuse2fs {image} {mnt} -o fakeroot"),
    ("syncline eager", "{syncline} mount {image} {mnt}"),
    ("syncline ordered", "{syncline} mount {image} {mnt} -o sync=ordered"),
    ("syncline affinity=none", "{syncline} mount {image} {mnt} -o affinity=none"),
]
STEPS = ["untar", "find", "rm", "write", "read"]
IMAGE_MIB = 6144
MOUNTED_SECONDS = 30
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
        tar.addfile(info, Bytes(noise, start, size) if size else None)

    with tarfile.open(path, "w") as tar:
        add(tar, "tree", tarfile.DIRTYPE)
        for number in range(files):
            if number % 14 == 0:
                dirs.append(f"{rng.choice(dirs[-40:])}/d{number // 14}")
                add(tar, dirs[-1], tarfile.DIRTYPE)
            size = min(int(rng.lognormvariate(8.4, 1.3)), 400_000)
            add(tar, f"{dirs[-1]}/file{number}.c", tarfile.REGTYPE, size)


class Bytes:
    """A part of a buffer as a file."""

    def __init__(self, data, start, size):
        self.data, self.at, self.end = data, start, start + size

    def read(self, size):
        piece = self.data[self.at:min(self.at + size, self.end)]
        self.at += len(piece)
        return piece


def run(command, **names):
    words = [word.format(**names) for word in command.split()]
    if shutil.which(words[0]) is None:
        raise RuntimeError(f"{words[0]} is not installed")
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip() or done.stdout.strip() or words[0] + " failed").splitlines()[-1])
    return done.stdout.strip()


class System:
    """One file system on one image."""

    def __init__(self, system, syncline, directory):
        self.command = system[1]
        self.image, self.mnt = os.path.join(directory, "image"), os.path.join(directory, "mnt")
        os.mkdir(self.mnt)
        self.names = {"image": self.image, "mnt": self.mnt, "syncline": syncline}
        run(f"truncate -s {IMAGE_MIB}M {{image}}", **self.names)
        run("mke2fs -q -t ext4 -b 4096 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 {image}", **self.names)
        self.node = None
        if "{node}" in self.command:
            self.node = self.names["node"] = run("losetup -f --show {image}", **self.names)

    def mount(self):
        run(self.command, **self.names)
        end = time.monotonic() + MOUNTED_SECONDS
        while not os.path.ismount(self.mnt):
            if time.monotonic() > end:
                raise RuntimeError("it did not mount")
            time.sleep(0.02)

    def unmount(self):
        if not os.path.ismount(self.mnt):
            return
        run("umount {mnt}", **self.names)
        end = time.monotonic() + MOUNTED_SECONDS
        # A FUSE server writes back after the mount is gone.
        while self.node is None and in_use(self.image) and time.monotonic() < end:
            time.sleep(0.02)

    def remount(self):
        self.unmount()
        self.mount()

    def close(self):
        self.unmount()
        if self.node:
            run("losetup -d {node}", **self.names)


def in_use(path):
    """Whether a process has this file open."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if any(os.readlink(f"/proc/{pid}/fd/{fd}") == path for fd in os.listdir(f"/proc/{pid}/fd")):
                return True
        except OSError:
            continue
    return False


def timed(*words):
    began = time.monotonic()
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]}: {done.stderr.strip().splitlines()[-1:]}")
    return time.monotonic() - began


def measure(system, tar, mib):
    """The seconds of each step."""
    tree, stream = os.path.join(system.mnt, "tree"), os.path.join(system.mnt, "stream")
    seconds = {}
    system.mount()
    seconds["untar"] = timed("tar", "xf", tar, "-C", system.mnt)
    system.remount()
    seconds["find"] = timed("find", tree, "-type", "f", "-size", "+0")
    seconds["rm"] = timed("rm", "-rf", tree)
    system.remount()
    size = [f"bs={BLOCK}", f"count={mib}", "status=none"]
    seconds["write"] = timed("dd", "if=/dev/zero", f"of={stream}", "conv=fsync", *size)
    system.remount()
    seconds["read"] = timed("dd", f"if={stream}", "of=/dev/null", *size)
    return seconds


def one(system, args, tar):
    """A fresh image: its figures, or why there are none."""
    directory = tempfile.mkdtemp(prefix="tree", dir=args.memory)
    made = None
    try:
        made = System(system, args.syncline, directory)
        return measure(made, tar, args.mib)
    except RuntimeError as why:
        return {"why": str(why)}
    finally:
        if made:
            made.close()
        shutil.rmtree(directory)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("syncline")
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--mib", type=int, default=1024, help="length of the stream")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="/dev/shm", help="a directory in memory, with 4 GiB free")
    parser.add_argument("--only", action="append", help="part of a file system's name")
    parser.add_argument("--json", help="write the figures as JSON")
    args = parser.parse_args()
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse") or not os.path.exists("/dev/loop-control"):
        sys.exit("bench_tree: needs root, /dev/fuse and loop devices; run it on a machine that has them")
    best = {}
    with tempfile.TemporaryDirectory(prefix="tree", dir=args.memory) as scratch:
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
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "syncline.tree/1", "seconds": best}, file, indent=1)


if __name__ == "__main__":
    main()
