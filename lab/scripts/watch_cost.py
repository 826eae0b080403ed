#!/usr/bin/env python3
"""Processor time of `syncline-lab trace watch` while fio makes a given rate of requests. Real time; root, fio, a loop device.

    watch_cost.py SYNCLINE [--rates 1000,10000] [--seconds S] [--json FILE]

For each rate, random writes of 4 KiB with O_DIRECT: to a loop device over a file in memory (`device`), and to a file of an ext4 on it
(`file`), with the watch and without it. `cpu_percent` is what the watch takes of one processor, user and system; `sys_us` what a request costs
fio's own calls into the kernel, in which the events are made; the trace file has `bytes` a request.
"""
import contextlib
import glob
import json
import os
import signal
import subprocess
import tempfile
import time

import common
from common import call, lab

SIZE_MIB = 512


@contextlib.contextmanager
def device(place, kind):
    """A loop device, and where fio writes."""
    image = os.path.join("/dev/shm", f"watch-cost-{os.getpid()}.img")
    with open(image, "wb") as file:
        file.truncate(SIZE_MIB << 20)
    node, mounted = call("losetup", "-f", "--show", image), os.path.join(place, "mnt")
    try:
        if kind == "device":
            yield node, node
        else:
            call("mke2fs", "-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0", node)
            os.makedirs(mounted, exist_ok=True)
            call("mount", node, mounted)
            try:
                yield node, os.path.join(mounted, "file")
            finally:
                call("umount", mounted)
    finally:
        call("losetup", "-d", node)
        os.unlink(image)


def processor_s(pid):
    """Processor time of a process, seconds."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fio(path, rate, seconds):
    """Requests a second, and system time a request in microseconds."""
    said = call("fio", "--name=watch", f"--filename={path}", "--rw=randwrite", "--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=32",
                f"--size={SIZE_MIB // 2}m", "--time_based", f"--runtime={seconds}", f"--rate_iops={rate}", "--output-format=json")
    job = json.loads(said[said.index("{") :])["jobs"][0]
    iops = job["write"]["iops"]
    return iops, 1e4 * job["sys_cpu"] / iops


def measured(args, kind, rate):
    with tempfile.TemporaryDirectory(prefix="watch") as place, device(place, kind) as (node, path):
        fio(path, rate, 3)
        _, bare_us = fio(path, rate, args.seconds)
        output = os.path.join(place, "out")
        watch = subprocess.Popen([lab(args.syncline), "trace", "watch", node, "-o", output, "--cpu", "100", "--rotate-size", "1G"],
                                 stdout=subprocess.PIPE, text=True)
        while not os.path.exists(os.path.join(output, "watch.json")):
            time.sleep(0.05)
        worked, began = processor_s(watch.pid), time.monotonic()
        iops, seen_us = fio(path, rate, args.seconds)
        worked, passed = processor_s(watch.pid) - worked, time.monotonic() - began
        watch.send_signal(signal.SIGTERM)
        said = watch.communicate()[0]
        requests, lost = (int(line.split()[at]) for line, at in zip(said.splitlines(), (1, 0)))
        size = sum(map(os.path.getsize, glob.glob(os.path.join(output, "*.trace"))))
    return {"kind": kind, "rate": rate, "requests_s": iops, "seconds": args.seconds, "cpu_percent": 100 * worked / passed,
            "requests": requests, "lost": lost, "bytes": size / max(requests, 1), "sys_us_bare": bare_us, "sys_us_watched": seen_us}


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--rates", default="1000,10000")
    parser.add_argument("--seconds", type=int, default=60)
    args = parser.parse_args()
    records = []
    for kind in ("device", "file"):
        for rate in map(int, args.rates.split(",")):
            records.append(measured(args, kind, rate))
            print(records[-1])
    common.store(args.json, "watch-cost", results=records)


if __name__ == "__main__":
    common.main(main)
