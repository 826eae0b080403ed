#!/usr/bin/env python3
"""Throughput through the C library and the Python package beside Rust: bench_libraries.py BUILD [--json FILE].

BUILD is the directory of a release build, or `syncline` in it: it has the examples `throughput` and `inserts`,
libsyncline.so, libsyncline_native.so and libsyncline_sqlite.so (`cargo xtask run bench-libraries` builds them). Streams of 1 MiB
blocks go to an image in memory, 4 KiB writes with fsync to the emulated eMMC in real time (FUSE). With --sqlite:
inserts of SQLite through the Rust VFS and through the extension, in memory and on that eMMC. They take turns. In memory the
fastest of ROUNDS counts, since the machine can only add to a time. On the eMMC the median of twice as many does, after a
round that does not count: what a run finds there is what the runs before have left.
"""

import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import common
from common import ROOT, call

MIB = 1 << 20
SPREAD = 16 << 20


def python(image, what, count):
    """What throughput.rs does, through the Python package."""
    import syncline

    block = b"x" * MIB
    with syncline.Volume(image) as volume:
        with volume.open("/file", "w+b", buffering=0) as file:
            if what == "stream":
                begin = time.perf_counter_ns()
                for _ in range(count):
                    file.write(block)
                file.fsync()
                print(time.perf_counter_ns() - begin, end=" ")
                file.seek(0)
                begin = time.perf_counter_ns()
                for _ in range(count):
                    file.read(MIB)
                print(time.perf_counter_ns() - begin)
            else:
                for _ in range(SPREAD // MIB):
                    file.write(block)
                file.fsync()
                begin = time.perf_counter_ns()
                for at in range(count):
                    file.seek(at * 7919 * 4096 % SPREAD)
                    file.write(block[:4096])
                    file.fsync()
                print(time.perf_counter_ns() - begin)
        volume.unlink("/file")


def programs(build, work):
    """The command of each language."""
    c = work / "c"
    subprocess.run(
        ["cc", "-O2", "-Wall", "-Werror", "-I", ROOT / "crates/libs/syncline-c/include", "-o", c,
         ROOT / "crates/libs/syncline-c/benches/throughput.c", build / "libsyncline.so"], check=True)
    (work / "libsyncline.so.0").symlink_to(build / "libsyncline.so")
    package = work / "python" / "syncline"
    shutil.copytree(ROOT / "crates/libs/syncline-py/python/syncline", package)
    shutil.copy(build / "libsyncline_native.so", package / "_native.abi3.so")
    os.environ["LD_LIBRARY_PATH"] = str(work)
    os.environ["PYTHONPATH"] = str(package.parent)
    return {"Rust": [build / "examples/throughput"], "C": [c], "Python": [sys.executable, __file__, "--child"]}


def measure(commands, image, what, count, rounds, on_flash=False):
    """Nanoseconds of each language, a list for each figure."""
    return timed({name: [*command, image, what, str(count)] for name, command in commands.items()}, rounds, on_flash)


def timed(commands, rounds, on_flash):
    """Runs the commands in turns; nanoseconds of each, a list for each figure that it prints."""
    found = {name: [] for name in commands}
    for turn in range(2 * rounds + 1 if on_flash else rounds):
        # To and fro, so that nobody always finds what the same one left.
        for name, command in list(commands.items())[:: -1 if turn % 2 else 1]:
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            if turn >= on_flash:
                found[name].append([int(word) for word in done.stdout.split()])
    choose = statistics.median if on_flash else min
    return {name: [choose(times) for times in zip(*rows)] for name, rows in found.items()}


@contextlib.contextmanager
def flash(build, options):
    """An ext4 on an emulated device, in real time."""
    with common.flash(build / "syncline", options.device, "--size", "256M") as (directory, _):
        card = os.path.join(directory, "flash")
        call("mke2fs", "-q", "-F", "-t", "ext4", card)
        yield card


def sqlite_rows(build, work, options):
    """Inserts a second through the Rust VFS and the extension, in each journal mode."""
    memory = work / "memory.img"
    call("mke2fs", "-q", "-t", "ext4", memory, "256M")
    ways = {"Rust VFS": "rust", "extension": build / "libsyncline_sqlite.so"}
    found = []
    with flash(build, options) as card:
        for image, where, count in ((memory, "memory", options.syncs * 50), (card, options.device, options.syncs)):
            # SQLite's journal mode "delete" commits by atomic writes, which both VFSs offer.
            for name, mode in (("batch-atomic", "delete"), ("WAL", "wal")):
                commands = {way: [build / "examples/inserts", image, how, mode, str(count)] for way, how in ways.items()}
                best = timed(commands, options.rounds, where == options.device)
                per_s = {f"{way}_per_s".replace(" ", "_").lower(): count / (ns / 1e9) for way, (ns,) in best.items()}
                found.append({"where": where, "journal_mode": name, **per_s,
                              "extension_of_rust": per_s["extension_per_s"] / per_s["rust_vfs_per_s"]})
    return found


def rows(commands, build, work, options):
    image = work / "memory.img"
    call("mke2fs", "-q", "-t", "ext4", image, "1G")
    stream = measure(commands, image, "stream", options.mib, options.rounds)
    image.unlink()
    per_s = {language: [options.mib / (ns / 1e9) for ns in found] for language, found in stream.items()}
    figures = {"write_mib_per_s": {n: v[0] for n, v in per_s.items()}, "read_mib_per_s": {n: v[1] for n, v in per_s.items()}}
    with flash(build, options) as card:
        sync = measure(commands, card, "sync", options.syncs, options.rounds, on_flash=True)
    figures["syncs_per_s"] = {language: options.syncs / (ns / 1e9) for language, (ns,) in sync.items()}
    return [
        {"language": language, **{name: of[language] for name, of in figures.items()},
         **{f"{name}_of_rust": of[language] / of["Rust"] for name, of in figures.items()}}
        for language in commands
    ]


def main():
    if sys.argv[1:2] == ["--child"]:
        return python(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = common.parser(__doc__, "build")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--syncs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="nexus7-emmc")
    parser.add_argument("--sqlite", action="store_true", help="the extension of SQLite beside the Rust VFS")
    options = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as work:
        work, build = pathlib.Path(work), pathlib.Path(options.build).resolve()
        build = build.parent if build.is_file() else build
        found = sqlite_rows(build, work, options) if options.sqlite else rows(programs(build, work), build, work, options)
    common.store(options.json, "libraries", rows=found)
    if options.sqlite:
        print(f"{'inserts/s':14}{'journal':10}{'Rust VFS':>12}{'extension':>12}   of Rust")
        for row in found:
            print(f"{row['where']:14}{row['journal_mode']:10}{row['rust_vfs_per_s']:12.1f}{row['extension_per_s']:12.1f}"
                  f"   {row['extension_of_rust']:.3f}")
        return
    print(f"{'':8}{'write MiB/s':>14}{'read MiB/s':>14}{'fsyncs/s':>12}   of Rust")
    for row in found:
        ratios = ", ".join(f"{row[name + '_of_rust']:.2f}" for name in ("write_mib_per_s", "read_mib_per_s", "syncs_per_s"))
        print(f"{row['language']:8}{row['write_mib_per_s']:14.0f}{row['read_mib_per_s']:14.0f}{row['syncs_per_s']:12.1f}   {ratios}")


if __name__ == "__main__":
    common.main(main)
