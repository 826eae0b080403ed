#!/usr/bin/env python3
"""Gain of hot zones by size of the volume, fill, and size and number of zones: hot_zone_sizes.py SYNCLINE [--json FILE].

The workload `mixed` on aged volumes of the tablet's eMMC, in virtual time, with three maps of the device and both sync
modes. A figure is the time without zones over that with them. `default` are the zones that suit the volume; other sizes
and numbers are tried on 2 GiB with the page map and sync=ordered, as far as they fit into an eighth of the volume. Zone
map and DFTL are measured up to 8 GiB, sync=eager up to 32 GiB. `--only` takes a part of the rows, as
`--only 2,page,80,ordered`; `--jobs` runs some at a time.
"""
import argparse
import concurrent.futures
import itertools
import json
import subprocess

OPERATIONS = 2000
VOLUMES_GIB = [2, 8, 32, 64]
FILLS_PERCENT = [70, 80, 90]
MAPS = {
    "page": "mapping=page",
    "zone": "mapping=zone,map_segment_kib=16384,map_cache_segments=4",
    "dftl": "mapping=dftl",
}
SYNCS = ["ordered", "eager"]
GIB_MAX_OF_ZONES = 2
GIB_MAX_OF_MAPS = 8
GIB_MAX_OF_EAGER = 32
SIZES_MIB = [16, 64, 256]
COUNTS = [1, 4, 16]


def zones_of(volume_gib, mapping, sync):
    """Names and options of what is tried beside no zones."""
    found = {"default": "alloc=hot_zones"}
    if (mapping, sync) == ("page", "ordered") and volume_gib <= GIB_MAX_OF_ZONES:
        for count, size in itertools.product(COUNTS, SIZES_MIB):
            if count * size <= volume_gib * 128:
                found[f"{count}x{size}"] = f"alloc=hot_zones,hot_zones={count},hot_zone_size={size}M"
    return found


def measure(syncline, row, options):
    volume_gib, mapping, fill, sync = row
    command = [syncline, "bench", "mixed", "--operations", str(OPERATIONS), "--fill", str(fill), "--sync", sync,
               "--size", str(volume_gib * 1024), "--device", f"nexus7-emmc:{MAPS[mapping]}", "--json", "-"]
    done = subprocess.run(command + (["-o", options] if options else []), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["runs"][0]["metrics"]


def row_of(syncline, row):
    volume_gib, mapping, fill, sync = row
    found = {"volume_gib": volume_gib, "mapping": mapping, "fill_percent": fill, "sync": sync}
    base = measure(syncline, row, "")
    found["none_s"], found["none_gc"] = base["duration_s"], base["nand_gc_runs"]
    zones = zones_of(volume_gib, mapping, sync)
    for count, size in itertools.product(COUNTS, SIZES_MIB):
        found[f"gain_{count}x{size}"] = "-"
    for name, options in zones.items():
        run = measure(syncline, row, options)
        gain = base["duration_s"] / run["duration_s"]
        if name == "default":
            found["default_s"], found["default_gc"], found["gain"] = run["duration_s"], run["nand_gc_runs"], gain
        else:
            found[f"gain_{name}"] = f"{(gain - 1) * 100:+.0f} %"
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("syncline")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json")
    args = parser.parse_args()
    wanted = [set(only.split(",")) for only in args.only] or [set()]
    rows = [row for row in itertools.product(VOLUMES_GIB, MAPS, FILLS_PERCENT, SYNCS)
            if any(only <= {str(part) for part in row} for only in wanted)
            and (row[1] == "page" or row[0] <= GIB_MAX_OF_MAPS)
            and (row[3] == "ordered" or row[0] <= GIB_MAX_OF_EAGER)]
    found = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for row in pool.map(lambda row: row_of(args.syncline, row), rows):
            found.append(row)
            grid = " ".join(f"{name[5:]} {text}" for name, text in row.items() if name.startswith("gain_") and text != "-")
            print(f"{row['volume_gib']:3} GiB {row['mapping']} {row['fill_percent']} % {row['sync']:7} "
                  f"{row['none_s']:7.2f} s, default {(row['gain'] - 1) * 100:+.1f} % {grid}", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "syncline.hot-zone-sizes/1", "rows": found}, file, indent=1)


if __name__ == "__main__":
    main()
