#!/usr/bin/env python3
"""The same workloads on kernel file systems and on a Syncline mount, over one emulated flash device in real time.

    bench_mounted.py SYNCLINE [--profile P ...] [--only NAME ...] [--scale X] [--quick] [--guest] [--json FILE] [--html FILE]

    for each profile, each file system:
        syncline flash serve PROFILE DIR --attach=loop  a fresh device: every read, write and flush takes its modelled time
        mkfs, mount                                   the kernel on the loop device, Syncline and fuse2fs on DIR/flash or the loop device
        syncline bench WORKLOAD --dir MOUNT           wall-clock rate; counts at the device are read before and after
        umount, losetup -d, umount DIR

f2fs, where the kernel has none, runs in a guest of its own (guest.py) whose disk is the served file.
With --guest all of them run in such guests, flash included, in virtual time: one processor that takes a nanosecond for an
instruction, a device that takes what its model says. So their rates compare on any machine.
Needs root, loop devices, FUSE; with --guest only what guest.py needs. A file system whose tools or kernel module are missing is
left out, and the table says why.
"""
import argparse
import contextlib
import html
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

# A checkout stays as it is.
sys.dont_write_bytecode = True
import guest  # noqa: E402

# name, what makes it, what mounts it; {node} loop device, {flash} the file, {mnt} mount point, {syncline} the binary
MKE2FS = "mke2fs -q -t ext4 -b 4096 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "
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
MOUNTED_SECONDS = 120
# Some are asked for by name at run time, so no module says that it needs them.
VIRTUAL_MODULES = ["ublk_drv", "fuse", "crc32c_generic", "crc32_generic", "libcrc32c", "xxhash_generic", "blake2b_generic", "sha256_generic"]
VIRTUAL_SIZE = "384M"
PROFILES = ["nexus7-emmc", "nexus7-emmc:streams=4", "sd-2012"]


def run(command, **names):
    """Runs a command line; returns why it failed, or nothing."""
    words = [word.format(**names) for word in command.split()]
    if shutil.which(words[0]) is None:
        return f"{words[0]} is not installed"
    done = subprocess.run(words, capture_output=True, text=True)
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return None if done.returncode == 0 else (said[-1] if said else f"{words[0]} failed")


def stats(directory):
    with open(os.path.join(directory, "stats"), encoding="utf-8") as file:
        return json.load(file)


def here(command):
    """Runs a shell command on this machine, as Guest.run in a guest."""
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    return done.returncode, done.stderr if done.returncode else done.stdout


def measure(shell, syncline, seen, mnt, workload, mode, operations):
    """One workload: rate, and what the device has `seen` up to a final sync. `shell` runs commands where the mount is."""
    where = os.path.join(mnt, workload.replace("/", "-") + (mode or ""))
    shell(f"mkdir {where} && sync")
    before = seen()
    command = f"{syncline} bench {workload} --dir {where} --operations {operations} --json -"
    if mode:
        command += f" --journal-mode {mode}"
    code, said = shell(command)
    if code != 0:
        return {"why": (said.strip().splitlines() or ["it failed"])[-1]}
    metrics = json.loads(said)["runs"][0]["foreground"]  # the rest is a syncfs, which does nothing through FUSE
    shell("sync")
    after = seen()
    counts = {key: (after[key] - before[key]) / operations
              for key in ("write_requests", "written_bytes", "flushes", "nand_page_programs")}
    rate = metrics.get("transactions_per_s") or operations / metrics["duration_s"]
    return {"per_s": rate, "latency_us_p50": metrics.get("latency_us_p50"),
            "latency_us_p99": metrics.get("latency_us_p99"), **counts}


def mount(system, names):
    """Makes and mounts one file system; returns why not, or nothing."""
    _, make, attach = system
    why = run(make, **names) or run(attach, **names)
    if why:
        return why
    end = time.monotonic() + MOUNTED_SECONDS
    while not os.path.ismount(names["mnt"]):
        if time.monotonic() > end:
            return "it did not mount"
        time.sleep(0.05)
    return None


def all_workloads(shell, profile, system, names, seen, scale):
    rows = {}
    for workload, mode, operations in WORKLOADS:
        key = workload + (f" {mode}" if mode else "")
        operations = max(2, int(operations * scale))
        rows[key] = measure(shell, names["syncline"], seen, names["mnt"], workload, mode, operations)
        print(f"{profile:<24}{system[0]:<30}{key:<34}{cell(rows[key])}", file=sys.stderr, flush=True)
    return rows


def left_out(profile, system, why):
    print(f"{profile:<24}{system[0]:<30}left out: {why}", file=sys.stderr, flush=True)
    return {workload + (f" {mode}" if mode else ""): {"why": why} for workload, mode, _ in WORKLOADS}


def has_file_system(name):
    subprocess.run(["modprobe", "-q", name], check=False) if shutil.which("modprobe") else None
    with open("/proc/filesystems", encoding="ascii") as file:
        return name in file.read().split()


def in_guest(syncline, profile, system, scale):
    """All workloads on a file system of a guest's kernel; the guest's disk is the served file."""
    directory = tempfile.mkdtemp(prefix="flash")
    # Made before it is served: the device's times are for the workloads.
    with tempfile.NamedTemporaryFile(prefix="flash", dir="/dev/shm") as image:
        image.truncate(1 << 30)
        why = run(system[1].replace("{node}", "{flash}"), flash=image.name)
        if why:
            os.rmdir(directory)
            return left_out(profile, system, why)
        return served_to_guest(syncline, profile, system, scale, directory, image.name)


def served_to_guest(syncline, profile, system, scale, directory, image):
    serve = [syncline, "flash", "serve", profile, directory, "--image", image]
    done = subprocess.run(serve, capture_output=True, text=True)
    try:
        if done.returncode != 0:
            return left_out(profile, system, done.stderr.strip())
        flash = os.path.join(directory, "flash")
        cache = os.path.join(os.path.dirname(os.path.abspath(syncline)), "guest")
        names = {"mnt": "/mnt", "syncline": os.path.basename(syncline)}
        with guest.Guest(cache, [syncline], disk=flash) as inside:
            code, said = inside.run(system[2].format(node="/dev/vda", mnt="/mnt"))
            if code != 0:
                return left_out(profile, system, said.strip())
            # The figures are of another kernel, and its rates of another processor.
            note = f"guest, Linux {inside.run('uname -r')[1].strip()}, {inside.cpu()}"
            rows = all_workloads(inside.run, profile, system, names, lambda: stats(directory), scale)
            inside.run("umount /mnt")
            return {key: {**row, "note": note} for key, row in rows.items()}
    except guest.Missing as missing:
        return left_out(profile, system, str(missing))
    finally:
        subprocess.run(["umount", directory], check=False, stderr=subprocess.DEVNULL)
        os.rmdir(directory)


@contextlib.contextmanager
def mounted(syncline, profile, system, size):
    """A file system on a fresh device of that size, until the end: names of its parts, and why it is not there, or nothing."""
    directory, mnt = tempfile.mkdtemp(prefix="flash"), tempfile.mkdtemp(prefix="mounted")
    kernel = "{node}" in system[1]
    serve = [syncline, "flash", "serve", profile, directory, "--size", size] + (["--attach=loop"] if kernel else [])
    done = subprocess.run(serve, capture_output=True, text=True)
    node = done.stdout.strip()
    names = {"node": node, "flash": os.path.join(directory, "flash"), "mnt": mnt, "syncline": syncline, "directory": directory}
    try:
        yield names, done.stderr.strip() if done.returncode != 0 else mount(system, names)
    finally:
        leave(mnt, directory, names["flash"], node)
        os.rmdir(mnt)
        os.rmdir(directory)


def one(syncline, profile, system, scale):
    """All workloads on one file system over a fresh device."""
    if system[0].startswith("f2fs") and not has_file_system("f2fs"):
        return in_guest(syncline, profile, system, scale)
    with mounted(syncline, profile, system, "1G") as (names, why):
        if why:
            return left_out(profile, system, why)
        return all_workloads(here, profile, system, names, lambda: stats(names["directory"]), scale)


def in_virtual_time(syncline, profile, system, scale):
    """All workloads on one file system of a guest's kernel, or a mount in it, over flash served in the same guest."""
    commands = [shutil.which(command.split()[0]) for command in system[1:] if not command.startswith(("mount ", "{"))]
    if None in commands:
        return left_out(profile, system, f"{system[1].split()[0]} is not installed")
    cache = os.path.join(os.path.dirname(os.path.abspath(syncline)), "guest")
    names = {"mnt": "/mnt", "syncline": os.path.basename(syncline)}
    modules = [*VIRTUAL_MODULES, system[0].split()[0]]
    try:
        with guest.Guest(cache, [syncline, *commands], modules, instruction_ns=1) as inside:
            def shell(command):
                code, said = inside.run(command)
                if code != 0:
                    raise guest.Missing((said.strip().splitlines() or [f"`{command}` failed"])[-1])
                return said
            shell(f"mkdir /flash && {names['syncline']} flash serve {profile} --size {VIRTUAL_SIZE} /flash --attach=ublk > /tmp/node")
            node = shell("cat /tmp/node").strip()
            for command in system[1:]:
                # A shell of busybox prefers its own mke2fs to one on the path.
                own = "" if command.startswith(("mount ", "{")) else "/bin/"
                shell(own + command.format(node=node, flash=node, **names))
            kernel = shell("uname -r").strip()
            rows = all_workloads(inside.run, profile, system, names,
                                 lambda: json.loads(shell(f"{names['syncline']} flash stats /flash")), scale)
            return {key: {**row, "note": f"guest, Linux {kernel}, virtual time"} for key, row in rows.items()}
    except guest.Missing as missing:
        return left_out(profile, system, str(missing))


def leave(mnt, directory, flash, node):
    """Unmounts the file system and ends the server of its device."""
    if os.path.ismount(mnt):
        subprocess.run(["umount", mnt], check=False)
        end = time.monotonic() + MOUNTED_SECONDS
        # A FUSE server writes back after the mount is gone.
        while busy(node or flash) and time.monotonic() < end:
            time.sleep(0.1)
    if node:
        subprocess.run(["losetup", "-d", node], check=False)
        time.sleep(0.2)
    subprocess.run(["umount", directory], check=False, stderr=subprocess.DEVNULL)


def busy(path):
    """Whether a process has this file open."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{fd}") == path:
                    return True
        except OSError:
            continue
    return False


def cell(row):
    if "why" in row:
        return "left out: " + row["why"]
    return (f"{row['per_s']:8.1f}/s  {row['write_requests']:6.2f} req {row['written_bytes'] / 1024:7.1f} KiB"
            f" {row['flushes']:5.2f} flush {row['nand_page_programs']:6.1f} pages"
            + (f"  ({row['note']})" if "note" in row else ""))


def page(results):
    """One self-contained HTML page: bars of the rates, and the counts beside them."""
    parts = ["<!doctype html><meta charset=utf-8><title>Mounted, side by side</title>",
             "<style>body{font:14px sans-serif;margin:2em}td,th{padding:2px 10px;text-align:right}",
             "td:first-child,th:first-child{text-align:left}</style><h1>One emulated flash device, real time</h1>"]
    for profile, systems in results.items():
        parts.append(f"<h2>{html.escape(profile)}</h2>")
        for workload, mode, _ in WORKLOADS:
            key = workload + (f" {mode}" if mode else "")
            rows = [(name, systems[name][key]) for name in systems]
            most = max((row["per_s"] for _, row in rows if "per_s" in row), default=1)
            parts.append(f"<h3>{key}</h3><table><tr><th>file system<th>operations/s<th><th>req/op<th>KiB/op"
                         "<th>flush/op<th>pages/op<th>p99 ms")
            for name, row in rows:
                if "why" in row:
                    parts.append(f"<tr><td>{name}<td colspan=7>left out: {html.escape(row['why'])}")
                    continue
                width = 300 * row["per_s"] / most
                bar = f"<svg width=300 height=12><rect width={width:.0f} height=12 fill=#47a /></svg>"
                p99 = (row["latency_us_p99"] or 0) / 1000
                name += f" ({row['note']})" if "note" in row else ""
                parts.append(f"<tr><td>{html.escape(name)}<td>{row['per_s']:.1f}<td>{bar}<td>{row['write_requests']:.2f}"
                             f"<td>{row['written_bytes'] / 1024:.1f}<td>{row['flushes']:.2f}"
                             f"<td>{row['nand_page_programs']:.1f}<td>{p99:.1f}")
            parts.append("</table>")
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("syncline")
    parser.add_argument("--profile", action="append", help="default: " + ", ".join(PROFILES))
    parser.add_argument("--only", action="append", help="part of a file system's name")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the operations of every workload")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the operations: whether every row works")
    parser.add_argument("--guest", action="store_true", help="all in guests of Debian's kernel, in virtual time")
    parser.add_argument("--json", help="write the figures as JSON")
    parser.add_argument("--html", help="write a page with plots")
    args = parser.parse_args()
    run_one = in_virtual_time if args.guest else one
    if not args.guest and (os.geteuid() != 0 or not os.path.exists("/dev/fuse") or not os.path.exists("/dev/loop-control")):
        sys.exit("bench_mounted: needs root, /dev/fuse and loop devices; run it on a machine that has them")
    results = {}
    scale = 0.05 if args.quick else args.scale
    for profile in args.profile or PROFILES:
        results[profile] = {system[0]: run_one(args.syncline, profile, system, scale) for system in SYSTEMS
                            if not args.only or any(part in system[0] for part in args.only)}
    for profile, systems in results.items():
        print(f"\n{profile}")
        for workload, mode, _ in WORKLOADS:
            key = workload + (f" {mode}" if mode else "")
            for name in systems:
                print(f"{key:<34}{name:<30}{cell(systems[name][key])}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "syncline.mounted/1", "results": results}, file, indent=1)
    if args.html:
        with open(args.html, "w", encoding="utf-8") as file:
            file.write(page(results))


if __name__ == "__main__":
    main()
