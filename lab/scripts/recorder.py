#!/usr/bin/env python3
"""The periodic recorder in real time: which strategy needs how much slack, on the same emulated eMMC, beside another file's fsyncs.

    recorder.py SYNCLINE [--profile P] [--records N] [--period-us N] [--only NAME ...] [--json FILE]

    ext4 (kernel)     on a loop device over `syncline-lab flash serve`, noatime,lazytime: strategies paper, pool and uring
    syncline mount    on the same served flash, served at real-time priority: paper and pool
    in an image       a volume in the recorder's own process, `syncline record --image` of the served flash

Each run records 16 KiB each period, with three faults whose events overlap, while a process loops ftruncate and fsync on another
file (not in an image). Prints records lost, events, the most records that the writer was behind, and what the reader finds. Needs
root, loop devices, FUSE. Exit code 1: a record was lost or an event is not whole.
"""
import contextlib
import os
import re
import subprocess
import sys
import tempfile

import common
from common import MKE2FS, Failed, Missing, mounted

OPTIONS = "noatime,lazytime"
RT = "chrt --fifo 40 "
KERNEL = (MKE2FS + "{node}", "mount -t ext4 -o " + OPTIONS + " {node} {mnt}")
MOUNT = (MKE2FS + "{flash}", RT + "{syncline} mount {flash} {mnt} -o " + OPTIONS)
RUNS = [
    ("ext4 (kernel)", KERNEL, "paper"),
    ("ext4 (kernel)", KERNEL, "pool"),
    ("ext4 (kernel)", KERNEL, "uring"),
    ("syncline mount", MOUNT, "paper"),
    ("syncline mount", MOUNT, "pool"),
]
POST = 2000
DISTURB = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
size = 0
while True:
    size = (1 << 20) - size
    os.ftruncate(fd, size)
    os.fsync(fd)
"""


@contextlib.contextmanager
def disturbed(path):
    process = subprocess.Popen([sys.executable, "-c", DISTURB, path])
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def recorded(syncline, arguments, where, strategy):
    """One run; its figures."""
    faults = [arguments.records // 4 + n * POST // 4 for n in range(3)]
    command = [syncline, "record", *where, "--generate", "--records", str(arguments.records), "--period-us", str(arguments.period_us),
               "--post", str(POST), "--fault-at", ",".join(map(str, faults))] + (["--strategy", strategy] if strategy else [])
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"(\d+) records, (\d+) lost; (\d+) events, (\d+) faults refused; (\d+) of (\d+) records of slack used", done.stdout)
    if not found:
        return {"why": (done.stderr or done.stdout).strip().splitlines()[-1]}
    names = ["records", "lost", "events", "refused", "slack_used_records", "slack_records"]
    with tempfile.TemporaryDirectory() as copy:
        if where[0] == "--image":
            subprocess.run([syncline, "cp", "-r", where[1] + ":/", copy + "/all"], check=True)
            where = [copy + "/all"]
        read = subprocess.run([syncline, "record-read", *where, "--verify"], capture_output=True, text=True)
    return dict(zip(names, map(int, found.groups())), whole=read.returncode == 0, said=done.stderr.strip())


def run(arguments, system, commands, strategy):
    """The figures of one of `RUNS`, or in an image without `commands`; or why there are none."""
    # A file system that is not mounted: the directory of the device stands in for it.
    made = commands or (MKE2FS + "{flash}", "mount --bind {directory} {mnt}")
    try:
        with mounted(arguments.syncline, arguments.profile, (system, *made), "--size", "2G") as names:
            if not commands:
                return recorded(arguments.syncline, arguments, ["--image", names["flash"]], None)
            directory = tempfile.mkdtemp(dir=names["mnt"])
            with disturbed(os.path.join(names["mnt"], "other")):
                return recorded(arguments.syncline, arguments, [directory], strategy)
    except (Failed, Missing) as why:
        return {"why": str(why)}


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--profile", default="nexus7-emmc")
    parser.add_argument("--records", type=int, default=8000)
    parser.add_argument("--period-us", type=int, default=5000)
    parser.add_argument("--only", action="append", help="such as 'syncline mount pool'; may be given several times")
    arguments = parser.parse_args()
    common.need_mounts()
    results = {}
    print(f"{'':<24} {'records':>8} {'lost':>5} {'events':>7} {'behind by at most':>18}  read back")
    for system, commands, strategy in RUNS + [("in an image", None, None)]:
        name = f"{system} {strategy}" if strategy else system
        if arguments.only and name not in arguments.only:
            continue
        figures = run(arguments, system, commands, strategy)
        results[name] = figures
        if "why" in figures:
            print(f"{name:<24} left out: {figures['why']}")
            continue
        behind = f"{figures['slack_used_records']} of {figures['slack_records']}"
        print(f"{name:<24} {figures['records']:>8} {figures['lost']:>5} {figures['events']:>7} {behind:>18}  "
              f"{'every event whole' if figures['whole'] else 'NOT WHOLE'}", flush=True)
    common.store(arguments.json, "recorder", results=results)
    return 1 if any(f.get("lost") or f.get("whole") is False for f in results.values()) else 0


if __name__ == "__main__":
    common.main(main)
