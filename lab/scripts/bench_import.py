#!/usr/bin/env python3
"""Images of trees: `syncline import` beside tar, cp -a, mke2fs -d and tar2ext4, in one run with a warm cache.

    bench_import.py SYNCLINE [--before SYNCLINE] [--tree DIR] [--disk DIR] [--memory DIR] [--rounds N] [--only TREE ...] [--json FILE]

    share     --tree (/usr/share)
    small     40,000 files of 8 KB in 200 directories
    million   1,000,000 files of 10 bytes in 1,000 directories, as an archive only

For each tree, by turns: import of an archive and of a directory into an image in --memory (/dev/shm) and on --disk (/var/tmp), tar x and
cp -a into --memory, mke2fs -d, and tar2ext4 of hcsshim where it is on the path. --before is another build, to compare with. Prints
seconds, the best of the rounds, and the largest resident size; the load of the machine is printed and stored. The image on disk
includes the flush, the others write nothing to a disk.
"""
import os
import shutil
import sys
import tarfile
import tempfile

import common
from common import Failed, Missing, call

MADE = {"small": (40_000, 200, 8192), "million": (1_000_000, 1000, 10)}


def make_tar(path, files, dirs, size):
    """Blocks of headers are made by hand: tarfile needs minutes for a million."""
    data = bytes(at * 7 % 251 + 1 for at in range(size))
    data += bytes(-len(data) % 512)

    def header(name, size, kind):
        info = tarfile.TarInfo(name)
        info.size, info.type, info.mtime, info.mode = size, kind, 1_700_000_000, 0o755 if kind == tarfile.DIRTYPE else 0o644
        return bytearray(info.tobuf(tarfile.USTAR_FORMAT))

    with open(path, "wb", 1 << 20) as file:
        plain = header("d/0000000", size, tarfile.REGTYPE)
        for number in range(dirs):
            file.write(header(f"d{number}", 0, tarfile.DIRTYPE))
            for each in range(files // dirs):
                name = b"d%d/f%d" % (number, each)
                plain[:100] = name.ljust(100, b"\0")
                plain[148:156] = b" " * 8
                plain[148:156] = b"%06o\0 " % sum(plain)
                file.write(plain + data)
        file.write(bytes(1024))


def timed(*words):
    """Seconds and the largest resident size in MiB, which GNU time takes: a child of this program begins with this one's."""
    with tempfile.NamedTemporaryFile("r") as out:
        call("time", "-o", out.name, "-f", "%e %M", *words)
        seconds, kib = out.read().split()
    return {"seconds": float(seconds), "mib": round(int(kib) / 1024, 1)}


def emptied(path):
    """Removes what the last step made."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)
    return path


def steps(args, tar, tree):
    """Name, what it makes, and the command."""
    memory, disk = os.path.join(args.scratch, "made"), os.path.join(args.on_disk, "made")
    megabytes = os.path.getsize(tar) * 2 // (1 << 20) + 256
    yield "import tar", memory, [args.syncline, "import", tar, memory]
    yield "import tar, disk", disk, [args.syncline, "import", tar, disk]
    yield "tar x", memory, ["tar", "-xf", tar, "-C", memory]
    if shutil.which("tar2ext4"):
        yield "tar2ext4", memory, ["tar2ext4", "-i", tar, "-o", memory]
    if args.before:
        yield "before tar", memory, [args.before, "import", tar, memory]
    if tree is None:
        return
    yield "import directory", memory, [args.syncline, "import", tree, memory]
    yield "import directory, disk", disk, [args.syncline, "import", tree, disk]
    yield "cp -a", memory, ["cp", "-a", f"{tree}/.", memory]
    inodes = str(sum(len(dirs) + len(files) for _, dirs, files in os.walk(tree)) + 100)
    yield "mke2fs -d", memory, ["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-N", inodes, "-d", tree, memory, f"{megabytes}M"]
    if args.before:
        yield "before directory", memory, [args.before, "import", tree, memory]


def best_of(rounds, name, steps):
    """The best round of each step: a name, the file or directory that it makes, and its words."""
    best = {}
    for _ in range(rounds):
        for step, made, words in steps:
            emptied(made)
            if step in ("tar x", "cp -a"):
                os.mkdir(made)
            try:
                row = timed(*words)
            except (Failed, Missing) as why:
                print(f"{name} {step}: {why}", file=sys.stderr)
                continue
            print(f"{name:<8}{step:<24}{row}", file=sys.stderr, flush=True)
            if row["seconds"] < best.get(step, row | {"seconds": float("inf")})["seconds"]:
                best[step] = row
        emptied(made)
    return best


def measure(args, name):
    """The best round of each step."""
    tar, tree = os.path.join(args.scratch, "tree.tar"), None
    if name in MADE:
        make_tar(tar, *MADE[name])
        if name == "small":
            tree = os.path.join(args.scratch, "tree")
            os.mkdir(tree)
            call("tar", "-xf", tar, "-C", tree)
    else:
        tree = args.tree
        call("tar", "--numeric-owner", "-C", tree, "-cf", tar, ".")
    best = best_of(args.rounds, name, list(steps(args, tar, tree)))
    for path in (tar, tree if name in MADE else None):
        if path:
            emptied(path)
    return best


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--before", type=os.path.abspath, help="another build of the program")
    parser.add_argument("--tree", default="/usr/share")
    parser.add_argument("--memory", default="/dev/shm", help="a directory in memory, with 8 GiB free")
    parser.add_argument("--disk", default="/var/tmp", help="a directory on a disk, with 6 GiB free")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=["share", *MADE])
    args = parser.parse_args()
    load = os.getloadavg()[0]
    records = []
    with tempfile.TemporaryDirectory(prefix="import", dir=args.memory) as args.scratch, \
            tempfile.TemporaryDirectory(prefix="import", dir=args.disk) as args.on_disk:
        for name in args.only or ["share", *MADE]:
            for step, row in measure(args, name).items():
                records.append({"tree": name, "step": step} | row | {"load": round(load, 2)})
    print(f"load {load:.2f}, {os.cpu_count()} processors")
    for record in records:
        print(f"{record['tree']:<9}{record['step']:<26}{record['seconds']:>8.2f} s{record['mib']:>9.1f} MiB")
    common.store(args.json, "import", records=records)


if __name__ == "__main__":
    common.main(main)
