#!/usr/bin/env python3
"""The configurations of `bench fjord` in real time: a browser, a mail client and SQLite on a mount over an emulated flash device.

    fjord_mounted.py SYNCLINE [--profile P] [--only APPLICATION ...] [--config NAME ...] [--rounds N] [--scale X] [--json FILE]

    for each round, configuration and application:
        syncline flash serve P DIR --attach          a fresh device; every request takes its modelled time
        two loop devices on it                       the volume and, behind it on the same flash, the log
        syncline mount -o ...                        then the application, then umount, which empties the log
    seconds are those of the application; megabytes and device seconds are the device's, with the unmount

The browser is a real one over pages of a local server, its profile on the mount; the client is isync, the server dovecot, the
database Python's SQLite. Without a log the log is there and switched off (`syncline ctl set log=off`). Needs root, loop devices,
FUSE and e2fsprogs; an application whose program is missing is left out, and the last lines say why.
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

# A checkout stays as it is.
sys.dont_write_bytecode = True
import capture  # noqa: E402

VOLUME_MIB = 512
LOG_MIB = 256
PHONE = "sync=ordered,writeback_preset=android"
# name: options of the mount, settings after it; none: without a buffer
CONFIGS = {
    "native": ("", None),
    "log": ("buffer_ram=0", ()),
    "ram": ("", ("log=off",)),
    "both": ("", ()),
    "relaxed-ram": ("relaxed=*", ("log=off",)),
    "relaxed-both": ("relaxed=*", ()),
}
APPLICATIONS = {
    "browsing": lambda mnt, work, scale: capture.browse(mnt, work, scale, stay_ms=100),
    "e-mail": capture.mail,
    "SQLite": capture.rlbench,
}


def told(*command):
    """Runs a program; its output, or an exception with what it said."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError((done.stderr or done.stdout).strip() or f"{command[0]} failed")
    return done.stdout.strip()


@contextlib.contextmanager
def loops(flash):
    """The volume and the log as loop devices on one file."""
    nodes = []
    try:
        for offset_mib, size_mib in ((0, VOLUME_MIB), (VOLUME_MIB, LOG_MIB)):
            nodes.append(told("losetup", "--find", "--show", "--direct-io=on", "--offset", str(offset_mib << 20),
                              "--sizelimit", str(size_mib << 20), flash))
        yield nodes
    finally:
        for node in nodes:
            subprocess.run(["losetup", "-d", node], check=False)


@contextlib.contextmanager
def served(syncline, profile):
    """A fresh device: its directory."""
    with tempfile.TemporaryDirectory(prefix="fjord") as directory:
        told(syncline, "flash", "serve", profile, directory, "--size", f"{VOLUME_MIB + LOG_MIB}M")
        try:
            yield directory
        finally:
            end = time.monotonic() + 60
            while subprocess.run(["umount", directory], capture_output=True).returncode and time.monotonic() < end:
                time.sleep(0.1)


def stats(directory):
    with open(os.path.join(directory, "stats"), encoding="utf-8") as file:
        return json.load(file)


def unmounted(syncline, mnt, volume):
    """Unmounts, and waits until the log is empty and the volume closed."""
    told(syncline, "umount", mnt)
    end = time.monotonic() + 600
    while subprocess.run(["e2fsck", "-n", volume], capture_output=True).returncode != 0:
        if time.monotonic() > end:
            raise RuntimeError("the volume was not clean after the unmount")
        time.sleep(0.1)


def one(syncline, profile, config, application, scale):
    """Seconds of the application, megabytes written, flushes."""
    options, settings = CONFIGS[config]
    with served(syncline, profile) as directory, loops(os.path.join(directory, "flash")) as (volume, log):
        told("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-E", "nodiscard", volume)
        buffer = [] if settings is None else [f"buffer_log={log}"]
        words = ",".join([PHONE, *filter(None, [options]), *buffer])
        with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as mnt:
            told(syncline, "mount", "-o", words, volume, mnt)
            try:
                if settings:
                    told(syncline, "ctl", "set", mnt, *settings)
                before, began = stats(directory), time.monotonic()
                APPLICATIONS[application](mnt, work, scale)
                seconds = time.monotonic() - began
            finally:
                unmounted(syncline, mnt, volume)
            after = stats(directory)
    return {"seconds": seconds, "megabytes": (after["written_bytes"] - before["written_bytes"]) / 1e6,
            "flushes": after["flushes"] - before["flushes"]}


def change(own, native):
    return "" if own is native or not native else f" ({100 * (own / native - 1):+.0f} %)"


def table(figures, rounds):
    print(f"medians of {rounds} rounds, in turns; change against native")
    print(f"{'application':12} {'config':14} {'s':>18} {'MB':>18} {'flushes':>8}")
    for application, configs in figures.items():
        middle = {config: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
                  for config, runs in configs.items() if runs}
        native = middle.get("native")
        for config, row in middle.items():
            base = native if native and config != "native" else None
            seconds = f"{row['seconds']:.2f}" + (change(row["seconds"], base["seconds"]) if base else "")
            megabytes = f"{row['megabytes']:.1f}" + (change(row["megabytes"], base["megabytes"]) if base else "")
            print(f"{application:12} {config:14} {seconds:>18} {megabytes:>18} {row['flushes']:8.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("syncline")
    parser.add_argument("--profile", default="emmc-gnote")
    parser.add_argument("--only", action="append", choices=list(APPLICATIONS), help="these applications")
    parser.add_argument("--config", action="append", choices=list(CONFIGS), help="these configurations")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=0.5, help="how much each application does; 1: as the largest capture")
    parser.add_argument("--json", help="write the figures as JSON")
    args = parser.parse_args()
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse") or not os.path.exists("/dev/loop-control"):
        sys.exit("fjord_mounted: needs root, /dev/fuse and loop devices; run it on a machine that has them")
    applications, configs = args.only or list(APPLICATIONS), args.config or list(CONFIGS)
    figures = {application: {config: [] for config in configs} for application in applications}
    left_out = {}
    for at in range(args.rounds):
        for application in applications:
            # The order turns.
            for config in configs[at % len(configs):] + configs[:at % len(configs)]:
                if application in left_out:
                    continue
                try:
                    row = one(args.syncline, args.profile, config, application, args.scale)
                except capture.Missing as err:
                    left_out[application] = str(err)
                    continue
                except (RuntimeError, subprocess.SubprocessError, OSError) as err:
                    left_out[application] = f"{config}: {err}"
                    continue
                figures[application][config].append(row)
                print(f"round {at + 1}, {application}, {config}: {row['seconds']:.2f} s", file=sys.stderr, flush=True)
    table({name: rows for name, rows in figures.items() if name not in left_out}, args.rounds)
    for application, why in left_out.items():
        print(f"{application}: left out, {why}", file=sys.stderr)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "syncline.fjord-mounted/1", "profile": args.profile, "figures": figures}, file, indent=1)
    return 1 if any(": " in why for why in left_out.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
