#!/usr/bin/env python3
"""Orders of write-back beside each other in a whole volume: writeback_orders.py SYNCLINE [--json FILE].

Captured programs, in eager mode with and without their syncs (`relaxed=*`), by size of the cache, on simulated devices in virtual
time. A figure is the time of a whole run with write-back and unmount, in seconds. The row `all` has
geometric means of the times that `space` takes, `foreground` that of `file` up to the last call.
"""
import argparse
import json
import math
import subprocess

DEVICES = ["sd-2012", "nexus7-emmc"]
CACHES = ["4M"]
ORDERS = {
    "file": ("file", "clock"),
    "lru": ("policy", "lru"),
    "clock": ("policy", "clock"),
    "fab": ("policy", "fab"),
    "spatialclock": ("policy", "spatialclock"),
    "space": ("space", "clock"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("syncline")
    parser.add_argument("--devices", default=",".join(DEVICES))
    parser.add_argument("--caches", default=",".join(CACHES))
    parser.add_argument("--modes", default="eager")
    parser.add_argument("--json")
    args = parser.parse_args()

    def seconds(mode, device, cache, syncs, order):
        relaxed = "" if syncs == "yes" else ",relaxed=*"
        writeback, policy = ORDERS[order]
        command = [args.syncline, "bench", "replay", "--sync", mode, "--device", device, "--json", "-",
                   "--policy", policy, "-o", f"cache={cache},writeback={writeback}{relaxed}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        runs = json.loads(done.stdout)["runs"]
        return {
            run["workload"].removeprefix("replay/"): (run["metrics"]["duration_s"], run["foreground"]["duration_s"])
            for run in runs
        }

    found = []
    for mode in args.modes.split(","):
        for device in args.devices.split(","):
            for cache in args.caches.split(","):
                for syncs in ("yes", "no") if mode == "eager" else ("yes",):
                    times = {order: seconds(mode, device, cache, syncs, order) for order in ORDERS}
                    place = {"mode": mode, "device": device, "cache": cache, "syncs": syncs}
                    programs = list(times["space"])

                    def mean(order, part):
                        logs = [math.log(times[order][p][part] / times["space"][p][part]) for p in programs]
                        return round(math.exp(sum(logs) / len(logs)), 12)

                    for program in programs:
                        whole = {order: times[order][program][0] for order in ORDERS}
                        found.append(place | {"program": program} | whole)
                    means = {order: mean(order, 0) for order in ORDERS}
                    found.append(place | {"program": "all", "foreground": mean("file", 1)} | means)
                    words = [f"{order} {means[order]:.2f}" for order in ORDERS]
                    print(f"{mode:8} {device:18} {cache:4} syncs {syncs:4} {' '.join(words)}", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "syncline.writeback-orders/1", "rows": found}, file, indent=1)


if __name__ == "__main__":
    main()
