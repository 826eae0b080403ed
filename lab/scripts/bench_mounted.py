#!/usr/bin/env python3
"""The same workloads on kernel file systems and on a Syncline mount, over one emulated flash device in real time.

    bench_mounted.py SYNCLINE [--profile P ...] [--only NAME ...] [--scale X] [--quick] [--guest] [--json FILE]

    for each profile, each file system:
        syncline-lab flash serve PROFILE DIR --attach=loop  a fresh device: every read, write and flush takes its modelled time
        mkfs, mount                                   the kernel on the loop device, Syncline and fuse2fs on DIR/flash or the loop device
        syncline-lab bench WORKLOAD --dir MOUNT           wall-clock rate; counts at the device are read before and after
        umount, losetup -d, umount DIR

f2fs, where the kernel has none, runs in a guest of its own (guest.py) whose disk is the served file.
With --guest all of them run in such guests, flash included, in virtual time: one processor that takes a nanosecond for an
instruction, a device that takes what its model says. So their rates compare on any machine.
Needs root, loop devices, FUSE; with --guest only what guest.py needs. A file system whose tools or kernel module are missing is
left out, and the table says why.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import common
import guest
from common import MKE2FS, Failed, Missing, bench_words, call, flash, lab, mounted, stats

# name, what makes it, what mounts it; {node} loop device, {flash} the file, {mnt} mount point, {syncline} the binary
SYSTEMS = [
    ("ext4 ordered", MKE2FS + "{node}", "mount -t ext4 -o data=ordered {node} {mnt}"),
    ("ext4 lazytime,noatime", MKE2FS + "{node}", "mount -t ext4 -o lazytime,noatime {node} {mnt}"),
    ("ext4 data=journal", MKE2FS + "{node}", "mount -t ext4 -o data=journal {node} {mnt}"),
    ("ext4 fast_commit", MKE2FS + "-O fast_commit {node}", "mount -t ext4 {node} {mnt}"),
    ("xfs", "mkfs.xfs -q -f -K {node}", "mount -t xfs {node} {mnt}"),
    ("btrfs", "mkfs.btrfs -q -f -K {node}", "mount -t btrfs {node} {mnt}"),
    ("f2fs", "mkfs.f2fs -q -f -t 0 {node}", "mount -t f2fs {node} {mnt}"),
    # Durability of time only: what is synced may be lost, and there a mixture of old and new may be left.
    ("f2fs nobarrier", "mkfs.f2fs -q -f -t 0 {node}", "mount -t f2fs -o fsync_mode=nobarrier {node} {mnt}"),
    ("fuse2fs", MKE2FS + "{node}", "fuse2fs {node} {mnt} -o fakeroot"),
    ("syncline ordered", MKE2FS + "{flash}", "{syncline} mount {flash} {mnt} -o sync=ordered"),
    ("syncline eager", MKE2FS + "{flash}", "{syncline} mount {flash} {mnt} -o sync=eager"),
    ("syncline eager,log=packed", MKE2FS + "{flash}", "{syncline} mount {flash} {mnt} -o sync=eager,log=packed"),
    ("syncline eager,mtime_update", MKE2FS + "{flash}", "{syncline} mount {flash} {mnt} -o sync=eager,mtime_update=100"),
    ("syncline periodic", MKE2FS + "{flash}", "{syncline} mount {flash} {mnt} -o sync=periodic"),
    ("syncline eager, files relaxed", MKE2FS + "{flash}", "{syncline} mount {flash} {mnt} -o sync=eager,relaxed=*"),
]
# workload, journal mode, operations
WORKLOADS = [
    ("sqlite/insert", "delete", 60),
    ("sqlite/insert", "persist", 60),
    ("sqlite/insert", "wal", 150),
    ("sqlite/insert", "atomic", 150),
    ("fileio/random-overwrite-fsync", None, 200),
    ("create/4k-fsync", None, 150),
]
# Some are asked for by name at run time, so no module says that it needs them.
VIRTUAL_MODULES = ["ublk_drv", "fuse", "crc32c_generic", "crc32_generic", "libcrc32c", "xxhash_generic", "blake2b_generic", "sha256_generic"]
VIRTUAL_SIZE = "384M"
PROFILES = ["nexus7-emmc", "nexus7-emmc:streams=4", "sd-2012"]


def here(command):
    """Runs a shell command on this machine, as Guest.run in a guest."""
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    return done.returncode, done.stderr if done.returncode else done.stdout


def measure(shell, program, seen, mnt, workload, mode, operations):
    """One workload: rate, and what the device has `seen` up to a final sync. `shell` runs commands where the mount is."""
    where = os.path.join(mnt, workload.replace("/", "-") + (mode or ""))
    shell(f"mkdir {where} && sync")
    before = seen()
    modes = ["--journal-mode", mode] if mode else []
    words = [program, *bench_words(workload, "--dir", where, "--operations", operations, *modes), "--json", "-"]
    code, said = shell(" ".join(words))
    if code != 0:
        return {"why": (said.strip().splitlines() or ["it failed"])[-1]}
    metrics = json.loads(said)["runs"][0]["foreground"]  # the rest is a syncfs, a no-op on FUSE
    shell("sync")
    return common.rates(metrics, before, seen(), operations)


def all_workloads(shell, profile, system, program, mnt, seen, scale):
    rows = {}
    for workload, mode, operations in WORKLOADS:
        key = workload + (f" {mode}" if mode else "")
        operations = max(2, int(operations * scale))
        rows[key] = measure(shell, program, seen, mnt, workload, mode, operations)
        print(f"{profile:<24}{system[0]:<30}{key:<34}{cell(rows[key])}", file=sys.stderr, flush=True)
    return rows


def left_out(profile, system, why):
    print(f"{profile:<24}{system[0]:<30}left out: {why}", file=sys.stderr, flush=True)
    return {workload + (f" {mode}" if mode else ""): {"why": why} for workload, mode, _ in WORKLOADS}


def has_file_system(name):
    subprocess.run(["modprobe", "-q", name], check=False) if shutil.which("modprobe") else None
    with open("/proc/filesystems", encoding="ascii") as file:
        return name in file.read().split()


def in_guest(syncline, profile, system, scale, kernels):
    """All workloads on a file system of a guest's kernel; the guest's disk is the served file."""
    # Made before it is served: the device's times are for the workloads.
    with tempfile.NamedTemporaryFile(prefix="flash", dir="/dev/shm") as image:
        image.truncate(1 << 30)
        call(*(word.format(node=image.name) for word in system[1].split()))
        with flash(syncline, profile, "--image", image.name) as (directory, _):
            disk = os.path.join(directory, "flash")
            with guest.Guest(guest.cache_of(syncline), [lab(syncline)], disk=disk, packages=kernels) as inside:
                inside.sh(system[2].format(node="/dev/vda", mnt="/mnt"))
                # The figures are of another kernel, and its rates of another processor.
                note = f"guest, Linux {inside.sh('uname -r').strip()}, {inside.cpu()}"
                rows = all_workloads(inside.run, profile, system, "syncline-lab", "/mnt", lambda: stats(directory), scale)
                inside.run("umount /mnt")
                return {key: {**row, "note": note} for key, row in rows.items()}


def one(syncline, profile, system, scale, kernels):
    """All workloads on one file system over a fresh device."""
    if system[0].startswith("f2fs") and not has_file_system("f2fs"):
        return in_guest(syncline, profile, system, scale, kernels)
    with mounted(syncline, profile, system, "--size", "1G") as names:
        return all_workloads(here, profile, system, lab(syncline), names["mnt"], lambda: stats(names["directory"]), scale)


def in_virtual_time(syncline, profile, system, scale, kernels):
    """All workloads on one file system of a guest's kernel, or a mount in it, over flash served in the same guest."""
    commands = [common.need(command.split()[0]) for command in system[1:] if not command.startswith(("mount ", "{"))]
    modules = [*VIRTUAL_MODULES, system[0].split()[0]]
    programs = [syncline, lab(syncline), *commands]
    with guest.Guest(guest.cache_of(syncline), programs, modules, instruction_ns=1, packages=kernels) as inside:
        inside.sh(f"mkdir /flash && syncline-lab flash serve {profile} --size {VIRTUAL_SIZE} /flash --attach=ublk > /tmp/node")
        node = inside.sh("cat /tmp/node").strip()
        for command in system[1:]:
            # A shell of busybox prefers its own mke2fs to one on the path.
            own = "" if command.startswith(("mount ", "{")) else "/bin/"
            inside.sh(own + command.format(node=node, flash=node, mnt="/mnt", syncline="syncline"))
        note = f"guest, Linux {inside.sh('uname -r').strip()}, virtual time"
        rows = all_workloads(inside.run, profile, system, "syncline-lab", "/mnt",
                             lambda: json.loads(inside.sh("syncline-lab flash stats /flash")), scale)
        return {key: {**row, "note": note} for key, row in rows.items()}


def tried(run_one, syncline, profile, system, *settings):
    """The rows of a file system, or why there are none."""
    try:
        return run_one(syncline, profile, system, *settings)
    except (Missing, Failed) as why:
        return left_out(profile, system, str(why))


def cell(row):
    if "why" in row:
        return "left out: " + row["why"]
    return (f"{row['per_s']:8.1f}/s  {row['write_requests']:6.2f} req {row['written_bytes'] / 1024:7.1f} KiB"
            f" {row['flushes']:5.2f} flush {row['nand_page_programs']:6.1f} pages"
            + (f"  ({row['note']})" if "note" in row else ""))


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--profile", action="append", help="default: " + ", ".join(PROFILES))
    parser.add_argument("--only", action="append", help="part of a file system's name")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the operations of every workload")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the operations: whether every row works")
    parser.add_argument("--guest", action="store_true", help="all in guests of Debian's kernel, in virtual time")
    parser.add_argument("--kernel", metavar="PACKAGE", help="package with the kernel of guests, of those that apt knows")
    args = parser.parse_args()
    kernels = [args.kernel] if args.kernel else guest.KERNELS
    run_one = in_virtual_time if args.guest else one
    if not args.guest:
        common.need_mounts()
    results = {}
    scale = 0.05 if args.quick else args.scale
    for profile in args.profile or PROFILES:
        results[profile] = {system[0]: tried(run_one, args.syncline, profile, system, scale, kernels) for system in SYSTEMS
                            if not args.only or any(part in system[0] for part in args.only)}
    for profile, systems in results.items():
        print(f"\n{profile}")
        for workload, mode, _ in WORKLOADS:
            key = workload + (f" {mode}" if mode else "")
            for name in systems:
                print(f"{key:<34}{name:<30}{cell(systems[name][key])}")
    common.store(args.json, "mounted", results=results)


if __name__ == "__main__":
    common.main(main)
