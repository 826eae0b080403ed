#!/usr/bin/env python3
"""The write buffer as a block device of the kernel, in a qemu guest: through ublk, nbd-client and a loop device.

    guest_blocks.py SYNCLINE [--ways WAY ...] [--cuts N] [--seed N] [--profile P] [--instruction-ns N] [--json FILE]

    in a guest of Debian's kernel:
        syncline flash serve PROFILE      a flash device in real time, a block device through ublk
        dm-linear                         home and log of the buffer, both on that flash
        for each way of ublk, nbd, fuse:
            syncline buffer attach        limits as the kernel sees them; which commands arrive; fsync over them
            N times                       ext4 on it, written and synced; at a random moment the server is killed, the flash
                                          loses what was not flushed; attached again, every fsync is there, e2fsck is clean
            N times                       the same with every other file relaxed, and two that are removed and made again
            syncline buffer detach        the same without buffer and log

Prints one table; fails if a line of it does. Nothing of it runs on this machine but qemu: no root is needed.

With --instruction-ns the guest has one processor and virtual time: what else this machine does cannot make a command late.
"""
import argparse
import base64
import json
import os
import random
import re
import sys

# A checkout stays as it is.
sys.dont_write_bytecode = True
import guest  # noqa: E402

MODULES = ["ublk_drv", "nbd", "loop", "dm_mod", "crc32c_generic", "ext4"]
# They are called by their paths where busybox has the same name: its shell would take its own, whose dd has no O_SYNC.
PROGRAMS = ["/usr/sbin/nbd-client", "/usr/sbin/dmsetup", "/usr/sbin/mke2fs", "/usr/sbin/e2fsck", "/usr/sbin/losetup",
            "/usr/sbin/blkdiscard", "/usr/bin/dd"]
SECTOR_BYTES = 512
FLASH_MIB, HOME_MIB, LOG_MIB = 160, 96, 16
SLOTS = 16
LINES_A_PAGE = 256
# With `buffer relax`: these are relaxed, and these are removed before each overwrite, so that blocks of a relaxed one come to a
# strict one.
RELAXED = [slot for slot in range(SLOTS) if slot % 2]
REMADE = [0, 1]
# How long the writer runs before a cut, in milliseconds.
CUT_AFTER_MS = (200, 2500)
# What runs in the guest until it is killed: file N % 16 is overwritten with lines of N, synced, and then N is said; with an
# argument the first ones are removed before. No leading zeros: to awk of busybox they are octal.
WRITER = f"""
n=0
while :; do
    n=$((n + 1)); slot=$((n % {SLOTS})); pages=$((1 + slot % 5))
    [ -n "$1" ] && [ $slot -lt {len(REMADE)} ] && rm -f /mnt/slot$slot
    yes "$(printf '%2d %12d' $slot $n)" 2>/dev/null | head -n $((pages * {LINES_A_PAGE})) > /tmp/new
    /bin/dd if=/tmp/new of=/mnt/slot$slot bs=64k conv=notrunc,fsync 2>/dev/null || exit
    echo $n >> /tmp/synced
done
"""
# What the servers said, where their threads are, and the end of the kernel's log: for who looks into a failure.
LOOK_AROUND = "cat /tmp/complained; for pid in $(pidof syncline); do head /proc/$pid/cmdline /proc/$pid/task/*/stack; done; dmesg | tail -n 20"
MKE2FS = "/bin/mke2fs -q -t ext4 -b 4096 -F -E lazy_itable_init=0,lazy_journal_init=0,nodiscard"


class Failed(Exception):
    """What went wrong in the guest."""


class Blocks:
    """The guest with its flash."""

    def __init__(self, inside, profile):
        self.inside = inside
        self.sh(f"mkdir -p /flash /served && syncline flash serve {profile} --size {FLASH_MIB}M /flash --attach > /tmp/node")
        self.node = node = self.sh("cat /tmp/node").strip()
        sectors = HOME_MIB << 11, LOG_MIB << 11
        self.sh(f"dmsetup create home --table '0 {sectors[0]} linear {node} 0' &&"
                f" dmsetup create log --table '0 {sectors[1]} linear {node} {sectors[0]}' && dmsetup mknodes")

    def sh(self, command):
        """Output of a shell command that must succeed."""
        code, said = self.inside.run(command)
        if code != 0:
            raise Failed(f"`{command}` ended with {code}: {said.strip()}")
        return said

    def flash(self):
        return json.loads(self.sh("syncline flash stats /flash"))

    def buffer(self):
        return json.loads(self.sh("syncline buffer status --json /served"))

    def attach(self, way, more=""):
        """Serves; the block device that the kernel has."""
        how = {"ublk": "--as ublk", "nbd": "--as nbd", "fuse": "--attach"}[way]
        self.sh("syncline buffer attach /dev/mapper/home /served --log /dev/mapper/log"
                f" {how} {more} -f > /tmp/served 2>/tmp/complained & echo $! > /tmp/server;"
                " for i in $(seq 600); do grep -q . /tmp/served && break; kill -0 $(cat /tmp/server) || break; usleep 50000; done;"
                " grep -q . /tmp/served || { cat /tmp/complained >&2; false; }")
        if way != "nbd":
            return self.sh("cat /tmp/served").strip()
        self.sh("nbd-client -unix /served/nbd /dev/nbd0 -N device -b 512 -C 2 > /dev/null")
        return "/dev/nbd0"

    def detach(self, way):
        if way == "nbd":
            self.sh("nbd-client -d /dev/nbd0")
        # Connections end a moment later.
        self.sh("for i in $(seq 100); do syncline buffer detach /served && break; usleep 100000; done; wait $(cat /tmp/server)")

    def cut(self, way, node):
        """The server is killed and the flash loses what was not flushed."""
        self.sh("kill -9 $(cat /tmp/server); syncline flash cut /flash; wait $(cat /tmp/server); true")
        # What is left of it in the kernel fails on its own.
        # nbd-client does not wait until the device is free again.
        unused = "for i in $(seq 600); do [ -e /sys/block/nbd0/pid ] || break; usleep 50000; done"
        clear = {"ublk": "true", "nbd": f"nbd-client -d /dev/nbd0; {unused}", "fuse": f"losetup -d {node}; umount -l /served"}[way]
        self.inside.run(f"[ ! -e /tmp/writer ] || {{ kill $(cat /tmp/writer); wait $(cat /tmp/writer); rm /tmp/writer; }};"
                        f" umount /mnt || umount -l /mnt; {clear}")
        self.sh("rm -f /served/*; syncline flash on /flash")

    def limits(self, node):
        """What the kernel believes of the device."""
        queue = f"/sys/block/{os.path.basename(node)}/queue"
        names = ["logical_block_size", "physical_block_size", "max_sectors_kb", "discard_max_bytes", "write_cache", "fua"]
        values = self.sh(" && ".join(f"cat {queue}/{name}" for name in names)).splitlines()
        return dict(zip(names, values, strict=True))


def commands(blocks, way, node):
    """Which commands arrive at the buffer, and whether what was flushed is kept; a line of the table for each."""
    limits = blocks.limits(node)
    yield "limits", True, ", ".join(f"{name} {value}" for name, value in limits.items())
    before = blocks.buffer()["flushes"]
    blocks.sh(f"dd if=/dev/zero bs=4k count=1 2>/dev/null | tr '\\0' a | /bin/dd of={node} bs=4k seek=100 oflag=direct 2>/dev/null")
    plain = blocks.buffer()["flushes"] - before
    blocks.sh(f"dd if=/dev/zero bs=4k count=1 2>/dev/null | tr '\\0' b |"
              f" /bin/dd of={node} bs=4k seek=200 oflag=direct conv=fsync 2>/dev/null")
    flushed = blocks.buffer()["flushes"] - before - plain
    blocks.sh(f"dd if=/dev/zero bs=4k count=1 2>/dev/null | tr '\\0' c |"
              f" /bin/dd of={node} bs=4k seek=300 oflag=direct,sync 2>/dev/null")
    synchronous = blocks.buffer()["flushes"] - before - plain - flushed
    yield "a write alone is no flush", plain == 0, f"{plain} flushes"
    yield "fsync is a flush", flushed == 1, f"{flushed} flushes"
    # The kernel sends a FUA write, and a flush behind it.
    yield "O_SYNC is a FUA write or a flush", synchronous >= 1, f"{synchronous} flushes, fua {limits['fua']}"
    if int(limits["discard_max_bytes"]) > 0:
        # In one command: while a guest in virtual time waits for one, the buffer is idle for long and empties its log.
        asked = "syncline buffer status --json /served"
        said = blocks.sh(f"dd if=/dev/zero bs=4k count=1 2>/dev/null | tr '\\0' c | /bin/dd of={node} bs=4k seek=300 oflag=direct,sync 2>/dev/null;"
                         f" {asked} && /bin/blkdiscard -f -o {300 * 4096} -l 4096 {node} && {asked}")
        mapped, left = (json.loads(document)["mapped_pages"] for document in re.findall(r"^{.*?^}", said, re.M | re.S))
        yield "a discard forgets its page", left == mapped - 1, f"{mapped} pages in the log, then {left}"
    else:
        yield "a discard forgets its page", way == "fuse", "none is offered"
    blocks.sh(f"dd if=/dev/zero bs=4k count=1 2>/dev/null | tr '\\0' d |"
              f" /bin/dd of={node} bs=4k seek=400 oflag=direct 2>/dev/null")
    blocks.cut(way, node)
    node = blocks.attach(way)
    kept = [blocks.sh(f"/bin/dd if={node} bs=4k skip={page} count=1 iflag=direct 2>/dev/null | head -c 1; echo").strip("\0\n")
            for page in (200, 400)]
    yield "a cut keeps what was flushed", kept[0] == "b", f"page 200 is {kept[0]!r}"
    # The oracle can fail: what nobody flushed was in the killed server only.
    yield "a cut loses what was not", kept[1] != "d", f"page 400 is {kept[1]!r}"


def judge(blocks, synced, relaxed):
    """Every file that was synced has its lines: of the last sync, or of the one under way; of a relaxed one, of any.

    Returns how many relaxed files lost their last sync.
    """
    lost = 0
    for slot in range(SLOTS):
        versions = [n for n in range(max(1, synced - SLOTS + 1), synced + 1) if n % SLOTS == slot]
        under_way = (synced + 1) % SLOTS == slot
        if not versions or relaxed and under_way and slot in REMADE:
            continue
        oldest = versions[-1]
        newest = synced + 1 if under_way else oldest
        lines = (1 + slot % 5) * LINES_A_PAGE
        # Made again it is another file, which nobody relaxed.
        may_wait = relaxed and slot in RELAXED and slot not in REMADE
        late = "old = 1" if may_wait else 'print FILENAME, $0 > "/dev/stderr"; bad = 1; exit'
        said = blocks.sh(f"awk -v slot={slot} -v oldest={oldest} -v newest={newest}"
                         " '$1 != slot || NF != 2 { print FILENAME, $0 > \"/dev/stderr\"; bad = 1; exit }"
                         f" $2 + 0 < oldest || $2 + 0 > newest {{ {late} }}"
                         f" END {{ if (NR != {lines}) {{ print FILENAME, NR > \"/dev/stderr\"; bad = 1 }} if (old) print \"old\"; exit bad }}'"
                         f" /mnt/slot{slot}")
        lost += "old" in said
    return lost


def cut_often(blocks, way, cuts, rng, relaxed=False):
    """Cuts with a file system on it; the block device, and how many syncs were judged, pages recovered, syncs of relaxed files lost."""
    node = blocks.attach(way, "--create --force")
    blocks.sh(f"{MKE2FS} {node}")
    syncs = recovered = lost = 0
    write = f": > /tmp/synced && {{ sh /writer {'remake' if relaxed else ''} > /dev/null 2>&1 & echo $! > /tmp/writer; }}"
    for cut in range(cuts):
        blocks.sh(f"mount -t ext4 {node} /mnt")
        if relaxed:
            if cut == 0:
                # Files can be relaxed once they are there.
                blocks.sh(f"{write}; until grep -qx {SLOTS} /tmp/synced; do usleep 100000; done; kill $(cat /tmp/writer); wait $(cat /tmp/writer);"
                          " rm /tmp/writer")
            blocks.sh("syncline buffer relax /served " + " ".join(f"/mnt/slot{slot}" for slot in RELAXED))
            if blocks.buffer()["relaxed_files"] != len(RELAXED):
                raise Failed(f"of {len(RELAXED)} files {blocks.buffer()['relaxed_files']} are relaxed")
        blocks.sh(write)
        after_ms = rng.randint(*CUT_AFTER_MS)
        blocks.sh(f"usleep {after_ms * 1000}")
        blocks.cut(way, node)
        synced = int(blocks.sh("tail -n 1 /tmp/synced").strip() or 0)
        try:
            node = blocks.attach(way)
            recovered += blocks.buffer()["recovered_pages"]
            blocks.sh(f"mount -t ext4 {node} /mnt")
            lost += judge(blocks, synced, relaxed)
            if relaxed:
                # What a cut took away while it was made again.
                blocks.sh("touch " + " ".join(f"/mnt/slot{slot}" for slot in REMADE))
            blocks.sh("umount /mnt")
            blocks.sh(f"/bin/e2fsck -fn {node}")
        except Failed as failed:
            raise Failed(f"cut {cut + 1} of {cuts}, {after_ms} ms after the mount, {synced} syncs: {failed}") from failed
        syncs += synced
        if sys.stderr.isatty():
            print(f"\r{way}: {cut + 1} of {cuts} cuts", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    return node, syncs, recovered, lost


def terminated(blocks, node):
    """SIGTERM while ext4 is mounted from a ublk device: it is served until that is unmounted, then drained; a line of the table."""
    blocks.sh(f"mount -t ext4 {node} /mnt && echo before > /mnt/term && kill -TERM $(cat /tmp/server) && usleep 2000000")
    blocks.sh("kill -0 $(cat /tmp/server) && echo after >> /mnt/term && sync && umount /mnt && wait $(cat /tmp/server)")
    blocks.sh("mount -t ext4 -o ro /dev/mapper/home /mnt && [ $(cat /mnt/term | wc -l) = 2 ] && umount /mnt")
    return "SIGTERM waits for the file system", True, "served until unmounted, then drained; the exit code is 0"


def one_way(blocks, way, cuts, seed):
    """The lines of a way."""
    node = blocks.attach(way, "--create --force")
    yield from commands(blocks, way, node)
    blocks.detach(way)
    node, syncs, recovered, lost = cut_often(blocks, way, cuts, random.Random(seed), relaxed=True)
    blocks.detach(way)
    yield (f"{cuts} power cuts, half of the files relaxed", recovered > 0 and lost > 0,
           f"{syncs} syncs, all of strict files kept; {lost} of relaxed ones lost; e2fsck clean")
    node, syncs, recovered, _ = cut_often(blocks, way, cuts, random.Random(seed))
    yield f"{cuts} power cuts under ext4", recovered > 0, f"{syncs} syncs, all kept; {recovered} pages recovered; e2fsck clean"
    refused, said = blocks.inside.run(f"mount -t ext4 {node} /mnt && syncline buffer detach /served")
    yield "detach is refused while it is mounted", refused == 1 and "syncline: " in said, said.strip().split("syncline: ")[-1]
    blocks.sh("umount /mnt")
    if way == "ublk":
        yield terminated(blocks, node)
        blocks.attach(way)
    blocks.detach(way)
    blocks.sh("/bin/e2fsck -fn /dev/mapper/home && mount -t ext4 -o ro /dev/mapper/home /mnt && ls /mnt/slot1 && umount /mnt")
    yield "detached it is plain ext4", True, "e2fsck clean, mounted without buffer and log"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("syncline")
    parser.add_argument("--ways", nargs="+", default=["ublk", "nbd", "fuse"], choices=["ublk", "nbd", "fuse"])
    parser.add_argument("--cuts", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", default="nexus7-emmc")
    parser.add_argument("--instruction-ns", type=int, choices=[1, 2, 4, 8])
    parser.add_argument("--json")
    args = parser.parse_args()
    missing = [program for program in PROGRAMS if not os.path.exists(program)]
    if missing:
        sys.exit(f"guest_blocks: {missing[0]} is not there; install nbd-client, dmsetup, e2fsprogs and util-linux")
    cache = os.path.join(os.path.dirname(os.path.abspath(args.syncline)), "guest")
    rows = []
    # What is under way, and where, when something fails.
    way, kernel = "flash", ""

    def add(way, name, held, found):
        rows.append({"way": way, "name": name, "held": held, "found": found})
        print(f"{way:5} {'ok ' if held else 'NOT'} {name:40} {found}", flush=True)

    try:
        with guest.Guest(cache, [args.syncline, *PROGRAMS], MODULES, instruction_ns=args.instruction_ns) as inside:
            blocks = Blocks(inside, args.profile)
            blocks.sh(f"echo {base64.b64encode(WRITER.encode()).decode()} | base64 -d > /writer")
            kernel = blocks.sh("uname -r").strip()
            print(f"Linux {kernel} in a guest, {args.profile}, seed {args.seed}", flush=True)
            add("flash", "--attach takes ublk where it is", blocks.node.startswith("/dev/ublkb"), blocks.node)
            for way in args.ways:
                try:
                    for name, held, found in one_way(blocks, way, args.cuts, args.seed):
                        add(way, name, held, found)
                except Failed as why:
                    raise Failed(f"{why}\n{inside.run(LOOK_AROUND)[1]}") from why
    except guest.Missing as why:
        sys.exit(f"guest_blocks: {why}")
    except Failed as why:
        add(way, "all commands of the guest succeed", False, str(why))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "syncline.guest-blocks/1", "kernel": kernel, "profile": args.profile, "rows": rows}, file, indent=1)
    if not all(row["held"] for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
