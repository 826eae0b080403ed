#!/usr/bin/env python3
"""sync=eager with its defaults beside its alternatives, on every profile: never_worse.py SYNCLINE [--json FILE].

The alternatives: sync=ordered, all data of syncs to the log, all of it in place. Every workload of `bench` that counts operations, in its
default length, SQLite in four journal modes. A score is the smaller of two shares, up to the last acknowledged call and of the whole run:
the shortest time of the alternatives over the time. `rel` is the score of the default over the best of an alternative: 1 or more if no
alternative has a better worse half. `bytes` and `pages` are those of the default over the fewest of the alternatives whose score is at
most 3 % below the best; runs that differ by less than 64 KiB or 8 pages count as equal, since a mount and an unmount alone differ by
some blocks.
"""
import concurrent.futures
import json
import os
import subprocess

import common
from common import bench, lab

LOG = "eager_threshold=100000,eager_stream=64M,eager_run=64M"
PLACE = "eager_threshold=0"
CONFIGS = {"ordered": ("ordered", ""), "default": ("eager", ""), "log": ("eager", LOG), "place": ("eager", PLACE)}
WORKLOADS = ["sqlite", "fileio", "create", "mixed"]
MODES = "delete,truncate,persist,wal"
NEAR = 0.97
FEW_BYTES, FEW_PAGES = 64 << 10, 8


def profiles(program):
    """Every profile, and those at the ends of what published figures leave open."""
    listed = subprocess.run([lab(program), "devices", "--json"], check=True, capture_output=True).stdout
    for device in json.loads(listed)["devices"]:
        yield device["name"]
        for open_ in device["open"]:
            ends = {open_["low"], open_["high"]} - {open_["value"]}
            yield from (f"{device['name']}:{open_['parameter']}={end}" for end in sorted(ends))


def runs(program, device, config):
    sync, options = CONFIGS[config]
    words = [*WORKLOADS, "--device", device, "--sync", sync, "--journal-mode", MODES] + (["-o", options] if options else [])
    return {(run["workload"], run["config"].get("journal_mode") or "-"): run for run in bench(program, "several", *words)}


def row(found):
    """The figures of one workload from a run of each configuration."""
    times = {name: (run["foreground"]["duration_s"], run["metrics"]["duration_s"]) for name, run in found.items()}
    best = [min(times[name][part] for name in CONFIGS if name != "default") for part in (0, 1)]
    scores = {name: min(best[part] / time[part] for part in (0, 1) if time[part] > 0) for name, time in times.items()}
    top = max(score for name, score in scores.items() if name != "default")
    good = [name for name in CONFIGS if name != "default" and scores[name] >= NEAR * top]

    def more(key, few):
        mine, least = found["default"]["metrics"][key], min(found[name]["metrics"][key] for name in good)
        return 1.0 if mine <= least + few else mine / least

    return {"foreground": best[0] / times["default"][0] if times["default"][0] else 1.0, "whole": best[1] / times["default"][1],
            "rel": scores["default"] / top, "bytes": more("written_bytes", FEW_BYTES), "pages": more("nand_page_programs", FEW_PAGES)}


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--devices")
    args = parser.parse_args()
    rows, devices = [], args.devices.split(",") if args.devices else list(profiles(args.syncline))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        tasks = {(device, config): pool.submit(runs, lab(args.syncline), device, config) for device in devices for config in CONFIGS}
        for device in devices:
            found = {config: tasks[device, config].result() for config in CONFIGS}
            for workload, mode in found["default"]:
                figures = row({config: found[config][workload, mode] for config in CONFIGS})
                rows.append({"device": device, "workload": workload, "journal_mode": mode} | figures)
    for one in sorted(rows, key=lambda one: one["rel"]):
        if one["rel"] < NEAR or max(one["bytes"], one["pages"]) > 1.1:
            name = " ".join((one["device"], one["workload"], one["journal_mode"]))
            print(f"{name:60} rel {one['rel']:.2f} bytes {one['bytes']:.2f} pages {one['pages']:.2f}")
    print(sum(one["rel"] < NEAR for one in rows), "of", len(rows), "rows below", NEAR)
    common.store(args.json, "never-worse", rows=rows)


if __name__ == "__main__":
    common.main(main)
