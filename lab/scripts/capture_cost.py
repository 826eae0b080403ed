#!/usr/bin/env python3
"""What a capture costs: the same work on a mount with and without `trace=`, in turns.

    capture_cost.py SYNCLINE [--rounds N] [--files N] [--work DIR]

One piece of work: unpack a tree of small files, walk it, write a file in 4 KiB calls with an fsync every 64, rename every
file, remove the tree. Each round does it once on each mount, in alternating order, on an image in memory; printed are the
median of the ratios of a round and their range. Real time: run it on a quiet machine.
"""
import os
import random
import statistics
import sys
import tarfile
import tempfile
import time

import common
from common import call

WRITER = """
import os, sys
f = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
page = b"x" * 4096
for n in range(8192):
    os.pwrite(f, page, n * 4096)
    if n % 64 == 63:
        os.fdatasync(f)
"""


def tree(path, files):
    rng = random.Random(3)
    os.makedirs(path)
    for nr in range(files):
        where = os.path.join(path, f"d{nr % 97}")
        os.makedirs(where, exist_ok=True)
        with open(os.path.join(where, f"f{nr}"), "wb") as file:
            file.write(rng.randbytes(rng.choice([500, 3000, 9000, 20000])))


def work(mnt, tar):
    """Seconds for one piece of work."""
    began = time.monotonic()
    call("tar", "-xf", tar, "-C", mnt)
    call("find", mnt, "-type", "f", "-size", "+4k", "-newer", "/")
    call(sys.executable, "-c", WRITER, os.path.join(mnt, "pages"))
    for name in os.listdir(os.path.join(mnt, "tree")):
        where = os.path.join(mnt, "tree", name)
        for file in os.listdir(where):
            os.rename(os.path.join(where, file), os.path.join(where, "moved-" + file))
    call("rm", "-rf", os.path.join(mnt, "tree"), os.path.join(mnt, "pages"))
    return time.monotonic() - began


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--files", type=int, default=8000)
    parser.add_argument("--work", default="/dev/shm", help="where image and traces are")
    args = parser.parse_args()
    ratios, seconds = [], {"without": [], "with": []}
    with tempfile.TemporaryDirectory(dir=args.work) as scratch:
        tree(os.path.join(scratch, "tree"), args.files)
        tar = os.path.join(scratch, "tree.tar")
        with tarfile.open(tar, "w") as out:
            out.add(os.path.join(scratch, "tree"), "tree")
        mnt, image = os.path.join(scratch, "mnt"), os.path.join(scratch, "image")
        os.mkdir(mnt)
        for round_nr in range(args.rounds + 1):
            took = {}
            for which in ("without", "with") if round_nr % 2 else ("with", "without"):
                call("mke2fs", "-q", "-F", "-t", "ext4", "-E", "nodiscard", image, "1G")
                options = "noatime" if which == "without" else f"noatime,trace={scratch}/trace"
                call(args.syncline, "mount", "-o", options, image, mnt)
                try:
                    took[which] = work(mnt, tar)
                    status = call(args.syncline, "status", "--json", mnt)
                finally:
                    call(args.syncline, "umount", mnt)
                if which == "with" and '"lost":0' not in status.replace(" ", ""):
                    raise common.Failed("records were lost: the figure does not count")
            # The first round warms up.
            if round_nr:
                ratios.append(took["with"] / took["without"])
                for which, time_s in took.items():
                    seconds[which].append(time_s)
    median = {which: statistics.median(times) for which, times in seconds.items()}
    print(f"without {median['without']:.2f} s, with trace= {median['with']:.2f} s; median ratio of {args.rounds} rounds "
          f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    common.store(args.json, "capture-cost", seconds=median, ratios=ratios)


if __name__ == "__main__":
    common.main(main)
