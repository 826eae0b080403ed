"""Times the loads of those tests of kdave/xfstests that take long on a mount, there and on the kernel's ext4.

    cargo xtask run xfstests-loads XFSTESTS=CHECKOUT [--rounds 9]

The programs are the suite's, and xfs_io; each load runs on a new image of each kind in turn, and the median counts. One line a load and
kind: milliseconds, and how many times those of ext4.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time

import suite

# Name, test of the suite, command in the mounted directory.
LOADS = [
    ("append", "generic/069", ["{src}/append_writer", "300000"]),
    ("write", "generic/371", ["xfs_io", "-f", "-c", "pwrite -q 0 80M", "f"]),
    ("holes", "generic/346", ["{src}/holetest", "-f", "-w", "f", "64"]),
    ("fallocate", "generic/438", ["{src}/t_mmap_fallocate", "f", "64"]),
    ("direct", "generic/446", ["sh", "-c", "{direct}"]),
]
# Reads past the cache beside stores through a mapping, and holes that are punched.
DIRECT = """xfs_io -f -c 'truncate 256k' f
for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do xfs_io -d -c 'pread -q 0 128k' f & \
xfs_io -c 'mmap 0 128k' -c 'mwrite 0 128k' f; xfs_io -c 'fpunch 0 128k' f; wait; done"""

KINDS = ["ext4", "eager", "ordered", "eager+cache=2G", "eager+writeback_cache+cache=2G"]


def once(program, kind, command, place):
    """Milliseconds of the load on a new image."""
    image, directory = os.path.join(place, "image"), os.path.join(place, "mnt")
    suite.make_image(image, 1024)
    if kind == "ext4":
        suite.run("mount", "-o", "loop", image, directory)
    else:
        suite.run(program, "mount", "-o", suite.mount_options(kind), image, directory)
    try:
        began = time.monotonic()
        subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)
        return (time.monotonic() - began) * 1000
    finally:
        suite.run(*(["umount", directory] if kind == "ext4" else [program, "umount", directory]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="write the figures as JSON")
    args = parser.parse_args()
    suite.need(["mkfs.ext4", "xfs_io", "mount"], "e2fsprogs xfsprogs mount")
    program, src = os.path.abspath(args.program), os.path.join(os.path.abspath(args.checkout), "src")
    rows = []
    with tempfile.TemporaryDirectory() as place:
        os.mkdir(os.path.join(place, "mnt"))
        for name, test, command in LOADS:
            command = [word.format(src=src, direct=DIRECT) for word in command]
            taken = {kind: [] for kind in KINDS}
            for _ in range(args.rounds):
                for kind in KINDS:
                    taken[kind].append(once(program, kind, command, place))
            median = {kind: statistics.median(times) for kind, times in taken.items()}
            for kind, milliseconds in median.items():
                rows.append({"load": name, "test": test, "kind": kind, "milliseconds": round(milliseconds, 1)})
                print(f"{test} {name:10} {kind:32} {milliseconds:9.1f} ms {milliseconds / median['ext4']:6.1f}", flush=True)
            if args.json:
                suite.store(args.json, "xfstests-loads", rows)


if __name__ == "__main__":
    main()
