#!/usr/bin/env python3
"""dm-writecache, bcache and Syncline's write buffer before the same emulated flash, in a qemu guest and in virtual time.

    guest_peers.py SYNCLINE [--profile P] [--operations N] [--fill N] [--instruction-ns N] [--only NAME ...] [--json FILE]

    for each of them:
        syncline flash serve PROFILE      a fresh flash device, a block device through ublk
        dm-linear                         home and log, both on that flash
        ext4 (ordered) on home with the log, 4 KiB overwrites at random in 16 MiB, each with an fsync (`syncline bench --dir`):
            N operations after mkfs; with --fill, when so many more have filled the log, N again

Time is the guest's, and virtual: one processor that takes --instruction-ns for an instruction, a flash that takes what its profile
says. All of them have the same processor, so programs outside of the kernel (Syncline, and the flash itself) pay for their work.
"""
import argparse
import json
import os
import sys

# A checkout stays as it is.
sys.dont_write_bytecode = True
import guest  # noqa: E402
from guest_blocks import MKE2FS, Failed  # noqa: E402

MODULES = ["ublk_drv", "dm_mod", "dm_writecache", "bcache", "crc32c_generic", "ext4"]
PROGRAMS = ["/usr/sbin/dmsetup", "/usr/sbin/mke2fs"]
FLASH_MIB = 288
HOME_MIB = 192
WORKLOAD = "fileio/random-overwrite-fsync"
BCACHE = "/sys/block/bcache0/bcache"
# name, what makes the device {node}
STACKS = [
    ("ext4 alone", "ln -s /dev/mapper/home {node}"),
    ("dm-writecache",
     "dmsetup create cached --noudevsync --table"
     " \"0 $(blockdev --getsz /dev/mapper/home) writecache s /dev/mapper/home /dev/mapper/log 4096 0\""
     " && dmsetup mknodes && ln -s /dev/mapper/cached {node}"),
    ("bcache",
     "make-bcache -B /dev/mapper/home -C /dev/mapper/log --writeback -b 32k > /dev/null"
     " && for device in log home; do echo $(readlink -f /dev/mapper/$device) > /sys/fs/bcache/register; done"
     f" && for i in $(seq 100); do [ -e /dev/bcache0 ] && break; usleep 100000; done"
     # It takes 1,024 buckets or more. Attached, and nothing passes by because the flash is slow (the kernel's bcache.rst): all that it can do.
     f" && grep -E 'clean|dirty' {BCACHE}/state && echo writeback > {BCACHE}/cache_mode"
     " && for of in read write; do echo 0 > $(echo /sys/fs/bcache/*-*)/congested_${{of}}_threshold_us; done"
     " && ln -s /dev/bcache0 {node}"),
    ("syncline buffer",
     "syncline buffer attach /dev/mapper/home /served --log /dev/mapper/log --create --as ublk > /tmp/node"
     " && ln -s $(cat /tmp/node) {node}"),
]


class Flash:
    """A fresh flash device with home and log on it."""

    def __init__(self, inside, profile, log_mib):
        self.inside = inside
        self.sh("mkdir -p /flash /served"
                f" && syncline flash serve {profile} --size {FLASH_MIB}M /flash --attach=ublk > /tmp/node")
        node = self.sh("cat /tmp/node").strip()
        for name, first, sectors in (("home", 0, HOME_MIB << 11), ("log", HOME_MIB << 11, log_mib << 11)):
            self.sh(f"dmsetup create {name} --noudevsync --table '0 {sectors} linear {node} {first}'")
        self.sh("dmsetup mknodes")

    def sh(self, command):
        """Output of a shell command that must succeed."""
        code, said = self.inside.run(command)
        if code != 0:
            raise Failed(f"`{command}` ended with {code}: {said.strip()}")
        return said

    def stats(self):
        return json.loads(self.sh("syncline flash stats /flash"))

    def measure(self, operations):
        """Rate and latencies of the workload, and what the flash saw."""
        self.sh("sync")
        before = self.stats()
        said = self.sh(f"mkdir -p /mnt/w && syncline bench {WORKLOAD} --dir /mnt/w --operations {operations} --json - 2>/dev/null")
        metrics = json.loads(said)["runs"][0]["foreground"]
        after = self.stats()
        self.sh("rm -rf /mnt/w && sync")
        counts = {key: (after[key] - before[key]) / operations
                  for key in ("write_requests", "written_bytes", "flushes", "nand_page_programs")}
        rate = metrics.get("transactions_per_s") or operations / metrics["duration_s"]
        return {"per_s": rate, "latency_us_p50": metrics.get("latency_us_p50"), "latency_us_p99": metrics.get("latency_us_p99"),
                **counts}


def one(inside, stack, args):
    flash = Flash(inside, args.profile, args.log_mib)
    flash.sh(stack[1].format(node="/tmp/device"))
    flash.sh(f"{MKE2FS} /tmp/device && mount -t ext4 /tmp/device /mnt")
    rows = {"fresh": flash.measure(args.operations)}
    if args.fill:
        flash.measure(args.fill)
        rows["filled"] = flash.measure(args.operations)
    return rows


def table(results, field):
    base = results.get("ext4 alone", {}).get(field)
    yield (f"{field:<18}{'fsyncs/s':>10}{'x alone':>9}{'p50 ms':>9}{'p99 ms':>9}{'writes':>9}{'KiB':>8}{'flushes':>9}{'pages':>8}"
           f"{'buffer is':>11}")
    ours = results.get("syncline buffer", {}).get(field)
    for name, rows in results.items():
        row = rows.get(field)
        if row is None:
            continue
        times = f"{row['per_s'] / base['per_s']:9.2f}" if base else " " * 9
        faster = f"{ours['per_s'] / row['per_s']:10.2f}x" if ours else ""
        yield (f"{name:<18}{row['per_s']:10.1f}{times}{(row['latency_us_p50'] or 0) / 1000:9.2f}"
               f"{(row['latency_us_p99'] or 0) / 1000:9.2f}{row['write_requests']:9.2f}{row['written_bytes'] / 1024:8.1f}"
               f"{row['flushes']:9.2f}{row['nand_page_programs']:8.2f}{faster}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("syncline")
    parser.add_argument("--profile", default="nexus7-emmc")
    parser.add_argument("--log-mib", type=int, default=32)
    parser.add_argument("--operations", type=int, default=300)
    parser.add_argument("--fill", type=int, default=0, help="operations before a second turn that finds the log full; 0: no second turn")
    parser.add_argument("--instruction-ns", type=int, default=1, choices=[1, 2, 4, 8])
    parser.add_argument("--only", nargs="+", choices=[name for name, _ in STACKS])
    parser.add_argument("--json")
    args = parser.parse_args()
    cache = os.path.join(os.path.dirname(os.path.abspath(args.syncline)), "guest")
    results = {}
    try:
        os.makedirs(cache, exist_ok=True)
        tools = guest.unpacked("bcache-tools", os.path.join(cache, "bcache-tools"))
        programs = [args.syncline, *PROGRAMS, os.path.join(tools, "usr/sbin/make-bcache")]
        for stack in STACKS:
            if args.only and stack[0] not in args.only:
                continue
            # A guest of its own for each: nothing that one leaves in the kernel's memory helps another.
            with guest.Guest(cache, programs, MODULES, instruction_ns=args.instruction_ns) as inside:
                kernel = inside.run("uname -r")[1].strip()
                results[stack[0]] = one(inside, stack, args)
                print(f"{stack[0]}: {results[stack[0]]['fresh']['per_s']:.1f} fsyncs/s", file=sys.stderr, flush=True)
    except (guest.Missing, Failed) as why:
        sys.exit(f"guest_peers: {why}")
    print(f"Linux {kernel} in a guest, {args.profile}, log {args.log_mib} MiB, {args.operations} operations,"
          f" {args.instruction_ns} ns an instruction")
    for field in ("fresh", "filled"):
        if any(field in rows for rows in results.values()):
            print("\n".join(table(results, field)))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "syncline.guest-peers/1", "kernel": kernel, "settings": vars(args), "stacks": results}, file, indent=1)


if __name__ == "__main__":
    main()
