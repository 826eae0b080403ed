#!/usr/bin/env python3
"""How long write() and fallocate() wait beside another file's ftruncate and fsync, on the same emulated eMMC in real time.

    latency.py SYNCLINE [--profile P] [--guest] [--quick] [--json FILE]

    kernel ext4       on a loop device over `syncline-lab flash serve`, noatime,lazytime, as in the paper's evaluation
    xfs, btrfs        on the same; f2fs with --guest, or where the kernel has it: the comparison that the paper leaves for later
    syncline mount    on the same served flash, noatime,lazytime, served at real-time priority (chrt), as the writer is
    in process        the volume as a library, on the same model
    Both of ours take the memory for 64 MiB of pages beforehand (cache=64M,cache_reserve=64M), as `syncline record` does.

For each: the table of `syncline-lab latency` with the paper's Table 1 beside it, then what must hold. A bound that only calls miss
during which a processor ran not even a thread of the highest priority (a hypervisor, a kernel that is not preemptible) is named
apart: no file system holds it on that machine. Needs root, loop devices, FUSE. Exit code 1: something does not hold.

With --guest all of it runs in qemu guests, flash included, in virtual time: one processor that takes a nanosecond for an
instruction, and no hypervisor that takes it away. Needs what guest.py needs.
"""
import json

import common
import guest
from bench_mounted import VIRTUAL_MODULES, has_file_system
from common import MKE2FS, Failed, Missing, lab, mounted

# Room for what is allocated and given back, without waiting for a commit.
SIZE = "2G"
OPTIONS = "noatime,lazytime"
RESERVE = "cache=64M,cache_reserve=64M"
# Places in process, with their options. What a reserve spares is measured in virtual time.
IN_PROCESS = {"in process": RESERVE, "in process, no reserve": "cache=64M"}
# Below the priority of the thread that writes, above everything that is not real-time.
PRIORITY = "chrt --fifo 40 "
SYSTEMS = [
    ("ext4 (kernel)", MKE2FS + "{node}", "mount -t ext4 -o " + OPTIONS + " {node} {mnt}"),
    *((name, f"mkfs.{name} -q -f {more}{{node}}", f"mount -t {name} -o noatime,lazytime {{node}} {{mnt}}")
      for name, more in {"xfs": "-K ", "btrfs": "-K ", "f2fs": "-t 0 "}.items()),
    ("syncline mount", MKE2FS + "{flash}", PRIORITY + "{syncline} mount {flash} {mnt} -o " + OPTIONS + "," + RESERVE),
]
# The paper's maximum without a background, in process; a request to the server of a mount may take as long again.
WRITE_ALONE_MAX_US = {"in process": 359, "syncline mount": 718}
WRITE_MAX_US = 1000
WRITE_RATIO_MAX = 3
FALLOCATE_MAX_US = 5000


def in_guest(syncline, profile, options, system=None, volume=None):
    """The document of a guest of its own: on a mount of `system`, or in process with the options `volume`."""
    names = {"mnt": "/mnt", "flash": "/flash/flash", "syncline": "/bin/syncline"}
    commands = [f"syncline-lab latency --in-process {profile} -o {volume} {options}"]
    if system:
        serve = f"mkdir /flash && syncline-lab flash serve {profile} --size {SIZE} /flash --attach=ublk > /tmp/node"
        # A shell of busybox prefers its own mke2fs to one on the path.
        commands = [serve, "/bin/" + system[1], system[2], f"syncline-lab latency /mnt {options}"]
    commands[-1] += " --json /tmp/latency > /dev/null && cat /tmp/latency"
    made = system[1].split()[0] if system else "mke2fs"
    programs = [syncline, lab(syncline), common.need(made), common.need("chrt")]
    kind = system[0] if system and made.startswith("mkfs.") else "ext4"
    with guest.Guest(guest.cache_of(syncline), programs, [*VIRTUAL_MODULES, kind], instruction_ns=1) as inside:
        for command in commands:
            node = inside.sh("cat /tmp/node").strip() if "{node}" in command else ""
            said = inside.sh(command.format(node=node, **names))
        return json.loads(said)


def measure(args, options, place):
    """The document of `syncline-lab latency` in a place, or why there is none."""
    system = next((system for system in SYSTEMS if system[0] == place), None)
    try:
        if args.guest:
            return in_guest(args.syncline, args.profile, " ".join(options), system, IN_PROCESS.get(place))
        if system is None:
            words = ["--in-process", args.profile, "-o", IN_PROCESS[place]]
            return common.document(lab(args.syncline), "latency", *words, *options)
        if place == "f2fs" and not has_file_system(place):
            raise Missing("this kernel has no f2fs; --guest")
        with mounted(args.syncline, args.profile, system, "--size", SIZE) as names:
            return common.document(lab(args.syncline), "latency", names["mnt"], *options)
    except (Failed, Missing) as why:
        return {"why": str(why)}


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
        alone_max_us = WRITE_ALONE_MAX_US.get(name, WRITE_MAX_US)
        return [
            (f"write, maximum below {alone_max_us} us", most("write", False, unstalled), alone_max_us),
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


def results(documents):
    """One line for each place and case."""
    for name, document in documents.items():
        for case in document.get("cases", []):
            machine = case["machine"] or {}
            yield {"place": name, "call": case["call"], "background": "fsyncs" if case["background"] else "none",
                   "calls": case["calls"], "mean_us": case["latency_us_mean"], "p999_us": case["latency_us_p999"],
                   "max_us": case["latency_us_max"], "unstalled_max_us": machine.get("latency_us_max_unstalled"),
                   "stalled_calls": machine.get("stalled_calls")}


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--profile", default="nexus7-emmc")
    parser.add_argument("--quick", action="store_true", help="a minute for each place")
    parser.add_argument("--guest", action="store_true", help="all in guests of Debian's kernel, in virtual time")
    parser.add_argument("--operations", type=int, help="calls of each case")
    places = [name for name, *_ in SYSTEMS] + list(IN_PROCESS)
    parser.add_argument("--place", action="append", choices=places, help="only this one; may be given several times")
    args = parser.parse_args()
    if not args.guest:
        common.need_mounts()
    options = ["--quick"] * args.quick + (["--operations", str(args.operations)] if args.operations else [])
    documents = {}
    for place in args.place or places:
        if args.guest or IN_PROCESS.get(place, RESERVE) == RESERVE:
            documents[place] = measure(args, options, place)
            table(place, documents[place])
    print()
    # The kernel and the lack of a reserve are comparisons: what they do not hold is no fault of ours.
    missed = {name: judge(name, found) for name, found in documents.items()}
    common.store(args.json, "latency-places", results=list(results(documents)), documents=documents)
    return 1 if sum(missed.get(name, 0) for name in ("syncline mount", "in process")) else 0


if __name__ == "__main__":
    common.main(main)
