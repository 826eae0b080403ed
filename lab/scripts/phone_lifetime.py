#!/usr/bin/env python3
"""Years that a phone's flash lives under traces of its programs, by how their fsyncs become durable.

    phone_lifetime.py SYNCLINE TRACE... [--device P] [--size-gib N] [--json FILE]

Each trace of system calls is replayed with its pauses, on a fresh volume in virtual time, with eager sync, with packed records and with
periodic sync. The years are those until every block has its rated cycles, if the trace went on for ever and all blocks wore evenly:

    rated cycles * size / (flash pages programmed * page size / duration of the trace)
"""
import argparse
import json
import os
import subprocess
import sys
import tomllib

YEAR_S = 365.25 * 24 * 3600
GAP_MAX_MS = 24 * 3600 * 1000


def replayed(syncline, device, trace, modes, logs):
    command = [syncline, "bench", "replay", "--trace", trace, "--device", device, "--gap-max", str(GAP_MAX_MS), "--sync", modes,
               "--log", logs, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip())
    return json.loads(done.stdout)["runs"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("syncline")
    parser.add_argument("trace", nargs="+")
    parser.add_argument("--device", default="nexus7-emmc")
    parser.add_argument("--size-gib", type=int, default=8)
    parser.add_argument("--json")
    args = parser.parse_args()
    profiles = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "profiles")
    with open(os.path.join(profiles, f"{args.device.split(':')[0]}.toml"), "rb") as file:
        geometry = tomllib.load(file)["geometry"]
    rows = []
    for trace in args.trace:
        for run in replayed(args.syncline, args.device, trace, "eager,periodic", "jbd2,packed"):
            metrics, config = run["metrics"], run["config"]
            programmed = metrics["nand_page_programs"] * geometry["page_kib"] * 1024
            rows.append({
                "trace": os.path.basename(trace), "sync": config["sync"], "log": config.get("log") or "jbd2",
                "duration_s": metrics["duration_s"], "pages": metrics["nand_page_programs"], "written_bytes": metrics["written_bytes"],
                "years": geometry["rated_cycles"] * (args.size_gib << 30) * metrics["duration_s"] / programmed / YEAR_S,
            })
    for row in rows:
        print(f"{row['trace']:<28}{row['sync']:<10}{row['log']:<8}{row['pages']:>8.0f} pages in {row['duration_s']:>8.0f} s"
              f"{row['years']:>8.1f} years")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "syncline.phone-lifetime/1", "device": args.device, "size_gib": args.size_gib, "results": rows}, file,
                      indent=1)


if __name__ == "__main__":
    main()
