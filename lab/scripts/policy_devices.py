#!/usr/bin/env python3
"""Replacement policies beside each other on devices: policy_devices.py SYNCLINE [--json FILE].

The page accesses of the captured programs go through each policy at each size of the cache, and what comes out is played on
simulated devices in virtual time, as `syncline cache` does it. A row has the seconds of each policy; the program `all` has
geometric means of the times that `blockclock` takes, and `worst` those of the program that is worst for it.
"""
import argparse
import glob
import json
import math
import os
import subprocess

DEVICES = [
    "sd-2012", "sd-kingston-phone", "sd-sandisk-phone", "emmc-n900", "emmc-nexus-s", "generic-emmc", "nexus7-emmc", "galaxy-s6-ufs",
]
SIZES = ["4M", "8M", "16M", "32M", "64M"]
POLICIES = ["clock", "lru", "linux2q", "cflru", "lru-wsr", "for", "fab", "spatialclock", "spatial-protected", "blockclock"]
OURS = "blockclock"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("syncline")
    parser.add_argument("--devices", default=",".join(DEVICES))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--traces", nargs="*", help="traces instead of those that ship")
    parser.add_argument("--json")
    args = parser.parse_args()
    samples = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "samples")
    traces = args.traces or sorted(glob.glob(os.path.join(samples, "*.pages.trace")))
    policies = args.policies.split(",")

    times = {}
    for trace in traces:
        command = [args.syncline, "cache", "--trace", trace, "--size", args.sizes, "--policy", args.policies, "--json", "-"]
        for device in args.devices.split(","):
            command += ["--device", device]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        program = os.path.basename(trace).split(".")[0]
        for run in json.loads(done.stdout)["runs"]:
            for device in run["devices"]:
                place = (device["device"], run["pages"], program)
                times.setdefault(place, {})[run["policy"]] = device["elapsed_s"]

    found = []
    for (device, pages, program), row in times.items():
        found.append({"device": device, "pages": pages, "program": program} | row)
    for device, pages in dict.fromkeys((device, pages) for device, pages, _ in times):
        rows = [row for (d, p, _), row in times.items() if (d, p) == (device, pages)]
        ratios = {policy: [row[policy] / row[OURS] for row in rows] for policy in policies}
        means = {policy: math.exp(sum(map(math.log, r)) / len(r)) for policy, r in ratios.items()}
        place = {"device": device, "pages": pages}
        found.append(place | {"program": "all"} | {policy: round(mean, 12) for policy, mean in means.items()})
        found.append(place | {"program": "worst"} | {policy: round(min(r), 12) for policy, r in ratios.items()})
        words = [f"{policy} {means[policy]:.2f} ({min(ratios[policy]):.3f})" for policy in policies if policy != OURS]
        print(f"{device:18} {pages:6} {' '.join(words)}", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "syncline.policy-devices/1", "rows": found}, file, indent=1)


if __name__ == "__main__":
    main()
