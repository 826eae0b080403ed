#!/usr/bin/env python3
"""From which size on an eager fsync should write data in place, by device: eager_sizes.py SYNCLINE [--json FILE].

Synced data of 16 KiB to 1 MiB, new blocks, overwritten ones in a row and overwritten pages here and there, once all to the
log and once all in place, on simulated devices in virtual time. A figure is the time of the log over that in place; above 1
in place is faster. `whole` has the write-back and the unmount, `foreground` ends with the last sync. `measured` is the time of
the default, where the mount measures the costs of its device, over the shorter of the two; `fixed` that of sizes for every
device.
"""
import os
import random
import tempfile

import common
from common import bench, lab

MIB = 1 << 20
FILE_BYTES = 64 * MIB
SYNCED_BYTES = 16 * MIB
DEVICES = ["nexus7-emmc", "generic-emmc", "sd-2012:log_blocks=1", "sd-2012", "sd-2012:log_blocks=8", "galaxy-s6-ufs", "ssd-850pro"]
SIZES_KIB = [16, 32, 64, 128, 256, 512, 1024]
LOG = "eager_threshold=100000,eager_stream=64M,eager_run=64M"
PLACE = "eager_threshold=0"
FIXED = "eager_threshold=100,eager_stream=128K,eager_run=256K"


def iolog(path, writes):
    """Writes with a sync after each group, as fio's iolog of version 2."""
    lines = ["fio version 2 iolog", "/f add", "/f open"]
    for group in writes:
        lines += [f"/f write {at} {size}" for at, size in group] + ["/f sync 0 0"]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines + ["/f close"]) + "\n")


def filled():
    """The file that overwrites find."""
    return [[(at, MIB) for at in range(0, FILE_BYTES, MIB)]]


def syncs(data, size):
    draw = random.Random(1)
    count = max(8, min(200, SYNCED_BYTES // size))
    if data == "new":
        return [[(n * size, size)] for n in range(count)]
    if data == "run":
        return filled() + [[(draw.randrange(FILE_BYTES // size) * size, size)] for _ in range(count)]
    pages = range(size // 4096)
    return filled() + [[(draw.randrange(FILE_BYTES // 4096) * 4096, 4096) for _ in pages] for _ in range(count)]


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--devices", default=",".join(DEVICES))
    args = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        trace = os.path.join(scratch, "syncs.log")

        def seconds(device, options, writes):
            iolog(trace, writes)
            words = ["--trace", trace, "--sync", "eager", "--device", device, "--size", 512] + (["-o", options] if options else [])
            run = bench(lab(args.syncline), "replay", *words)[0]
            return run["metrics"]["duration_s"], run["foreground"]["duration_s"]

        for device in args.devices.split(","):
            before = seconds(device, PLACE, filled())
            for data in ("new", "run", "scattered"):
                row = {"device": device, "data": data}
                for kib in SIZES_KIB:
                    base = (0, 0) if data == "new" else before
                    writes = syncs(data, kib * 1024)
                    log, place = (seconds(device, options, writes) for options in (LOG, PLACE))
                    for part, name in enumerate(("whole", "foreground")):
                        row[f"{name}_{kib}k"] = (log[part] - base[part]) / (place[part] - base[part])
                    best = min(log[0], place[0]) - base[0]
                    for name, options in (("measured", ""), ("fixed", FIXED)):
                        row[f"{name}_{kib}k"] = (seconds(device, options, writes)[0] - base[0]) / best
                found.append(row)
                for name in ("whole", "measured", "fixed"):
                    words = [f"{row[f'{name}_{kib}k']:6.2f}" for kib in SIZES_KIB]
                    print(f"{device:14} {data:10} {name:10} {' '.join(words)}", flush=True)
    common.store(args.json, "eager-sizes", rows=found)


if __name__ == "__main__":
    common.main(main)
