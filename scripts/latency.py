#!/usr/bin/env python3
"""How long write() and fallocate() wait beside another file's ftruncate and fsync, on the same emulated eMMC in real time.

    latency.py SYNCLINE [--profile P] [--quick] [--json FILE]

    kernel ext4       on a loop device over `syncline flash serve`, noatime,lazytime, as in the paper's evaluation
    syncline mount    on the same served flash, noatime,lazytime, served at real-time priority (chrt), as the writer is
    in process        the volume as a library, on the same model

For each: the table of `syncline latency` with the paper's Table 1 beside it, then what must hold. A bound that only calls miss
during which a processor ran not even a thread of the highest priority (a hypervisor, a kernel that is not preemptible) is named
apart: no file system holds it on that machine. Needs root, loop devices, FUSE. Exit code 1: something does not hold.
"""
import argparse
import json
import subprocess
import sys

from bench_mounted import MKE2FS, mounted

OPTIONS = "noatime,lazytime"
# Below the priority of the thread that writes, above everything that is not real-time.
PRIORITY = "chrt --fifo 40 "
SYSTEMS = [
    ("ext4 (kernel)", MKE2FS + "{node}", "mount -t ext4 -o " + OPTIONS + " {node} {mnt}"),
    ("syncline mount", MKE2FS + "{flash}", PRIORITY + "{syncline} mount {flash} {mnt} -o " + OPTIONS),
]
WRITE_MAX_US = 1000
WRITE_RATIO_MAX = 3
FALLOCATE_MAX_US = 5000


def measure(command):
    """Runs `syncline latency`; its document, or why there is none."""
    done = subprocess.run(command + ["--json", "-"], stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {"why": f"exit code {done.returncode}"}


def table(name, document):
    print(f"\n{name}")
    if "why" in document:
        print(f"  not measured: {document['why']}")
        return
    print(f"  {'call':<10} {'background':<18} {'calls':>6} {'avg us':>8} {'p99.9':>8} {'max us':>8}"
          f" {'unstalled':>9} {'late':>5}   paper avg / max")
    paper = {("fallocate", False): (141, 4299), ("fallocate", True): (813, 208440),
             ("write", False): (178, 359), ("write", True): (181, 1043)}
    for case in document["cases"]:
        avg, most = paper[case["call"], case["background"]]
        unstalled = case["machine"]["latency_us_max_unstalled"] if case["machine"] else float("nan")
        print(f"  {case['call']:<10} {'ftruncate + fsync' if case['background'] else 'none':<18} {case['calls']:>6}"
              f" {case['latency_us_mean']:>8.0f} {case['latency_us_p999']:>8.0f} {case['latency_us_max']:>8.0f}"
              f" {unstalled:>9.0f} {case['late_periods']:>5}   {avg} / {most}")
        for outlier in case["outliers"]:
            if outlier["cause"]:
                print(f"    {outlier['latency_us']:.0f} us during {outlier['cause']}")
    stretches = [("idle", document["idle"])] + [(f"{c['call']}{' beside fsyncs' * c['background']}", c["machine"]) for c in document["cases"]]
    for what, machine in stretches:
        if machine:
            print(f"  {what}: {machine['stalls']} stalls of processors in {machine['watched_s']:.0f} s, the longest"
                  f" {machine['stall_us_max']:.0f} us; {machine['stalled_calls']} calls overlap one")
    for remark in document["remarks"]:
        print(f"  {remark}")


def judge(name, document):
    """Prints what must hold; how much of it does not."""
    if "why" in document:
        return 1
    cases = {(case["call"], case["background"]): case for case in document["cases"]}

    def most(call, background, unstalled):
        machine = cases[call, background]["machine"]
        return machine["latency_us_max_unstalled"] if unstalled and machine else cases[call, background]["latency_us_max"]

    def rules(unstalled):
        write = most("write", True, unstalled)
        return [
            (f"write beside fsyncs, maximum below {WRITE_MAX_US} us", write, WRITE_MAX_US),
            (f"write beside fsyncs, maximum below {WRITE_RATIO_MAX} times the one without",
             write, WRITE_RATIO_MAX * most("write", False, unstalled)),
            (f"fallocate beside fsyncs, maximum below {FALLOCATE_MAX_US} us", most("fallocate", True, unstalled), FALLOCATE_MAX_US),
        ]

    missed = 0
    for (rule, value, bound), (_, own, own_bound) in zip(rules(False), rules(True)):
        verdict = "holds" if value < bound else "but for stalls" if own < own_bound else "DOES NOT HOLD"
        missed += verdict == "DOES NOT HOLD"
        print(f"{name:<16} {verdict:<14} {rule}: {value:.0f} us, {own:.0f} us without calls that overlap a stall of the machine")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("syncline")
    parser.add_argument("--profile", default="nexus7-emmc")
    parser.add_argument("--quick", action="store_true", help="a minute for each place")
    parser.add_argument("--operations", type=int, help="calls of each case")
    parser.add_argument("--place", action="append", choices=[name for name, *_ in SYSTEMS] + ["in process"],
                        help="only this one; may be given several times")
    parser.add_argument("--json", help="all documents, by place")
    arguments = parser.parse_args()
    extra = ["--quick"] if arguments.quick else []
    extra += ["--operations", str(arguments.operations)] if arguments.operations else []
    documents = {}
    for system in SYSTEMS:
        if arguments.place and system[0] not in arguments.place:
            continue
        with mounted(arguments.syncline, arguments.profile, system, "2G") as (names, why):
            command = [arguments.syncline, "latency", names["mnt"]] + extra
            documents[system[0]] = {"why": why} if why else measure(command)
        table(system[0], documents[system[0]])
    if not arguments.place or "in process" in arguments.place:
        documents["in process"] = measure([arguments.syncline, "latency", "--in-process", arguments.profile] + extra)
        table("in process", documents["in process"])
    print()
    # The kernel is the comparison: what it does not hold is no fault of ours.
    missed = {name: judge(name, document) for name, document in documents.items()}
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(documents, file, indent=1)
    return 1 if sum(missed.get(name, 0) for name in ("syncline mount", "in process")) else 0


if __name__ == "__main__":
    sys.exit(main())
