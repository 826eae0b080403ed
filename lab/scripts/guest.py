#!/usr/bin/env python3
"""A Linux guest in qemu, for what the running kernel does not have: f2fs, ublk, nbd, dm-writecache, bcache, NFS; and tests in it.

    guest.py blocks SYNCLINE [--ways WAY ...] [--cuts N] [--seed N] [--profile P] [--instruction-ns N] [--json FILE]
        the write buffer as a block device of the kernel, through ublk, nbd-client and a loop device, over an emulated flash device:
        limits as the kernel sees them, commands that arrive, fsync over them; N times ext4 on it, written and synced, at a random
        moment the server is killed and the flash loses all that was not flushed: every fsync is there, e2fsck is clean; the same with
        every other file relaxed, and two that are removed and made again; detached, the same without buffer and log
    guest.py nfs SYNCLINE [--kills N] [--seed N] [--only PART] [--json FILE]
        `serve --nfs` on this machine, without root, with the guest's client through qemu's user network
        sqlite    two programs at once insert into one database, DELETE and WAL; integrity_check, no row missing
        sync      dd with O_SYNC, fsync of a file and fsync of a directory succeed
        conform   syncline-posix conform (beside SYNCLINE), as root: every answer is ext4's but for DIFFERENCES, and each of these is there
        kills     N times the server is killed while a program appends and syncs: every line that was synced is in the image; the server
                  starts again, the program goes on, and no line is missing or twice
    guest.py peers SYNCLINE [--profile P] [--operations N] [--fill N] [--instruction-ns N] [--only NAME ...] [--json FILE]
        dm-writecache, bcache and the write buffer: ext4 (ordered) on home with the log, both on the same emulated flash, N overwrites of
        4 KiB at random in 16 MiB, each with an fsync; with --fill, when so many more have filled the log, N again
    guest.py takeover SYNCLINE
        a mount with sandbox=strict on Debian's kernels, whose process behaves as if taken over (taken_over, beside SYNCLINE): every
        attempt is refused, and the mount still answers
    guest.py casefold SYNCLINE
        a directory that folds case, changed by Syncline through FUSE, then by Debian's kernels, then by Syncline: each finds the other's
        names in other spellings; e2fsck and `check` find nothing
    guest.py lives SYNCLINE [--kernel PACKAGE]
        a mount on scsi_debug, which counts writes by group, and on qemu's NVMe with data placement (qemu 9, Linux 6.16; left out on
        older ones), whose commands the kernel traces: every lifetime that the mount knows reaches the device as a group or a stream

For other scripts:

    with Guest(cache, [program], disk=disk) as guest:  disk is a file: reads, writes and flushes of the guest reach it as its own
        guest.run("mount -t f2fs /dev/vda /mnt")       a shell command; its exit code and output

The kernel is Debian's package for cloud-less machines, 6.12 where apt has it, else the default one; it is fetched by apt and
unpacked into `cache`; nothing is installed. The initramfs has a static busybox, the needed modules, and the given programs with
their libraries. The guest has two serial lines: the console goes to a file, commands go through the other one.

On a busy machine an emulated timer comes late, and Linux would give up on it: `no_timer_check` says that it is there.

With `instruction_ns` time in the guest is virtual: an instruction of its one emulated processor takes so long, and a wait takes no
time of the host. What runs beside qemu changes no figure then.
"""
import base64
import contextlib
import glob
import json
import lzma
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unicodedata

import common
from common import Failed, Missing, lab

# The guest's disk is virtio, its file system f2fs; crc32 is asked for by name at run time, so no module says that it needs it.
F2FS_MODULES = ["virtio_pci", "virtio_blk", "crc32_generic", "f2fs"]
# Packages that depend on a kernel: the first that apt knows is taken.
KERNELS = ["linux-image-6.12-amd64", "linux-image-amd64"]
BOOT_SECONDS = 120
KVM_BOOT_SECONDS = 20
COMMAND_SECONDS = 1800
INIT = """#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /mnt /run /tmp
for module in {modules}; do insmod /modules/$module.ko || echo "no module $module"; done
stty -F /dev/ttyS1 raw -echo
exec </dev/ttyS1 >/dev/ttyS1 2>&1
echo ready
# Without "command" an error of the shell's own, as a redirection that fails, would end it.
# Not "read": busybox's forgets what it has of a line when a process ends meanwhile, and this one inherits all that others leave.
while line=$(head -n 1) && [ -n "$line" ]; do
    command eval "$line"
    echo "ended $?"
done
poweroff -f
"""


def cache_of(syncline):
    """Where kernels of guests are kept."""
    return os.path.join(os.path.dirname(os.path.abspath(syncline)), "guest")


def images(root):
    """Kernels in unpacked packages; Debian has moved them."""
    places = ["boot/vmlinuz-*", "usr/lib/modules/*/vmlinuz"]
    return [path for place in places for path in glob.glob(os.path.join(root, place))]


def kernel(cache, packages=KERNELS):
    """The directory of unpacked kernel packages, those of the first that apt knows."""
    root = os.path.join(cache, "kernel" if packages is KERNELS else packages[0])
    if images(root):
        return root
    if shutil.which("apt-get") is None:
        raise Missing("needs a kernel for a guest; on Debian apt fetches it")
    for package in packages:
        parts = parts_of(package)
        for part in parts:
            unpacked(part, root)
        if parts:
            return root
    raise Missing(f"no package {packages[-1]}; run apt-get update")


def parts_of(package):
    """A kernel's package, and those with its image and modules that it depends on; none if apt does not know it."""
    known = subprocess.run(["apt-cache", "depends", package], capture_output=True, text=True)
    if known.returncode != 0:
        return []
    needed = re.findall(r"Depends: (linux-(?:image|binary|modules)-\S+)", known.stdout)
    return [package, *(part for name in needed for part in parts_of(name))]


def unpacked(package, root):
    """Fetches a Debian package and unpacks it into `root`, which is returned."""
    os.makedirs(root, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(["apt-get", "download", package], cwd=place, capture_output=True, text=True)
        packages = glob.glob(os.path.join(place, "*.deb"))
        if done.returncode != 0 or not packages:
            raise Missing(f"apt cannot download {package}: {done.stderr.strip().splitlines()[-1:]}")
        subprocess.run(["dpkg-deb", "-x", packages[0], root], check=True)
    return root


def module_order(root, wanted):
    """The wanted modules with what they depend on, in the order of loading: name and contents."""
    files = {os.path.basename(path).split(".")[0].replace("-", "_"): path
             for path in glob.glob(os.path.join(root, "**/lib/modules/**/*.ko*"), recursive=True)}
    order = []

    def add(name):
        if any(name == known for known, _ in order) or name not in files:
            return
        with (lzma.open if files[name].endswith(".xz") else open)(files[name], "rb") as file:
            module = file.read()
        found = re.search(rb"\0depends=([^\0]*)\0", module)
        for needed in (found.group(1).decode().split(",") if found else []):
            add(needed.replace("-", "_"))
        order.append((name, module))

    for name in wanted:
        add(name)
    return order


class Archive:
    """An initramfs: the cpio format "newc" of the kernel's documentation (early-userspace/buffer-format)."""

    def __init__(self):
        self.bytes = bytearray()
        self.made = set()
        self.number = 0

    def entry(self, name, mode, data=b""):
        self.number += 1
        words = [self.number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        self.bytes += b"070701" + b"".join(b"%08X" % word for word in words) + name.encode() + b"\0"
        self.pad()
        self.bytes += data
        self.pad()

    def pad(self):
        self.bytes += b"\0" * (-len(self.bytes) % 4)

    def add(self, name, data, mode=0o100755):
        parent = os.path.dirname(name)
        parts = parent.split("/") if parent else []
        for at in range(1, len(parts) + 1):
            directory = "/".join(parts[:at])
            if directory not in self.made:
                self.made.add(directory)
                self.entry(directory, 0o040755)
        if name not in self.made:
            self.made.add(name)
            self.entry(name, mode, data)

    def file(self, name, path):
        with open(path, "rb") as file:
            self.add(name, file.read())

    def end(self):
        self.entry("TRAILER!!!", 0)
        return bytes(self.bytes)


def static_busybox():
    """The path of a busybox that needs no library."""
    busybox = shutil.which("busybox")
    if busybox is None or "not a dynamic" not in subprocess.run(["ldd", busybox], capture_output=True, text=True).stderr:
        raise Missing("needs a static busybox; install busybox-static")
    return busybox


def initramfs(root, programs, modules):
    """The bytes of the guest's first file system. Programs come before busybox's of the same name."""
    busybox = static_busybox()
    archive = Archive()
    for name in ("dev", "proc", "sys", "mnt", "tmp"):
        archive.add(name, b"", 0o040755)
    archive.file("bin/busybox", busybox)
    order = module_order(root, modules)
    for name, module in order:
        archive.add(f"modules/{name}.ko", module)
    for program in programs:
        with tempfile.NamedTemporaryFile() as small:
            # The debugging part of a program is most of it.
            if subprocess.run(["strip", "-o", small.name, program], capture_output=True).returncode == 0:
                archive.file("bin/" + os.path.basename(program), small.name)
            else:
                archive.file("bin/" + os.path.basename(program), program)
        said = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        for library in re.findall(r"(/\S+)", said):
            archive.file(library.lstrip("/"), os.path.realpath(library))
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for applet in applets:
        archive.add("bin/" + applet, b"busybox", 0o120777)
    archive.add("init", INIT.format(modules=" ".join(name for name, _ in order)).encode())
    return archive.end()


class Guest:
    """A running guest."""

    # What to try, in this order; one that does not boot is not tried again. Where the machine is a guest itself, kvm may be
    # there and not work.
    accelerators = [["-accel", "kvm", "-cpu", "host"], ["-accel", "tcg"]]

    def __init__(self, cache, programs, modules=None, disk=None, processors=2, instruction_ns=None, network=False, packages=KERNELS,
                 devices=()):
        """`instruction_ns` (1, 2, 4, ...): one processor, in virtual time. `network`: 10.0.2.2 is this machine's loopback interface.
        `devices`: more of qemu's options."""
        if shutil.which("qemu-system-x86_64") is None:
            raise Missing("needs qemu-system-x86_64; install qemu-system-x86")
        os.makedirs(cache, exist_ok=True)
        root = kernel(cache, packages)
        self.network, self.devices = network, devices
        self.scratch = tempfile.mkdtemp(prefix="guest-")
        self.process = None
        try:
            with open(os.path.join(self.scratch, "initramfs"), "wb") as file:
                file.write(initramfs(root, programs, modules or F2FS_MODULES))
            if instruction_ns:
                shift = instruction_ns.bit_length() - 1
                time = ["-accel", "tcg", "-icount", f"shift={shift},sleep=off", "-smp", "1"]
                self.boot(root, disk, time)
                return
            while True:
                try:
                    self.boot(root, disk, [*Guest.accelerators[0], "-smp", str(processors)])
                    return
                except Missing:
                    if len(Guest.accelerators) == 1:
                        raise
                    Guest.accelerators = Guest.accelerators[1:]
        except BaseException:
            self.__exit__()
            raise

    def boot(self, root, disk, machine):
        kvm = "kvm" in machine
        if kvm and not os.access("/dev/kvm", os.W_OK):
            raise Missing("needs /dev/kvm")
        command = ["qemu-system-x86_64", *machine, "-m", "1024", "-nodefaults", "-no-reboot",
                   "-display", "none", "-kernel", images(root)[0],
                   "-initrd", os.path.join(self.scratch, "initramfs"), "-append", "console=ttyS0 panic=-1 quiet no_timer_check",
                   "-serial", "file:" + os.path.join(self.scratch, "console"), "-serial", "stdio"]
        command += self.devices
        if self.network:
            command += ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="]
        if disk is not None:
            # Flushes are passed on; nothing stays in a cache of the host.
            command += ["-drive", f"file={disk},format=raw,if=virtio,cache=none,aio=threads"]
        with open(os.path.join(self.scratch, "qemu"), "wb") as said:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
        try:
            self.until("ready", KVM_BOOT_SECONDS if kvm else BOOT_SECONDS)
        except Missing:
            self.process.kill()
            self.process.wait()
            raise

    def cpu(self):
        """How its processor is made: a slow one shows in rates, not in counts."""
        return "kvm" if "kvm" in Guest.accelerators[0] else "emulated processor"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def until(self, word, seconds):
        """Output up to the line that starts with the word, and the rest of that line."""
        lines = []
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            while True:
                line = self.process.stdout.readline().decode(errors="replace")
                if not line:
                    raise Missing("the guest ended: " + self.last_words())
                if line.startswith(word):
                    return "".join(lines), line[len(word):].strip()
                lines.append(line)
        finally:
            timer.cancel()

    def last_words(self):
        """The end of what qemu and the kernel said; of a kernel that died, how that began."""
        said = ""
        for name in ("qemu", "console"):
            try:
                with open(os.path.join(self.scratch, name), encoding="utf-8", errors="replace") as file:
                    text = file.read()
            except OSError:
                continue
            died = re.search(r"^.*(BUG:|Oops|Kernel panic|Out of memory|lockup)", text, re.MULTILINE)
            said += text[died.start():][:1500] if died else text[-300:]
        return " ".join(said.split()) or "it said nothing"

    def run(self, command):
        """Runs a shell command; its exit code, and what it printed, or what it complained of if it failed."""
        whole = f"{{ {command} ; }} 2>/tmp/said; code=$?; [ $code = 0 ] || cat /tmp/said; (exit $code)"
        self.process.stdin.write(whole.encode() + b"\n")
        self.process.stdin.flush()
        said, code = self.until("ended ", COMMAND_SECONDS)
        return int(code), said

    def sh(self, command):
        """Output of a shell command that must succeed."""
        code, said = self.run(command)
        if code != 0:
            raise Failed(f"`{command}` ended with {code}: {said.strip()[-800:]}")
        return said


class Flash:
    """An emulated flash device in a guest, with `home` and `log` on it."""

    def __init__(self, inside, profile, attach, size_mib, home_mib, log_mib):
        self.inside, self.sh = inside, inside.sh
        self.sh(f"mkdir -p /flash /served && syncline-lab flash serve {profile} --size {size_mib}M /flash {attach} > /tmp/node")
        self.node = self.sh("cat /tmp/node").strip()
        for name, first, sectors in (("home", 0, home_mib << 11), ("log", home_mib << 11, log_mib << 11)):
            self.sh(f"dmsetup create {name} --noudevsync --table '0 {sectors} linear {self.node} {first}'")
        self.sh("dmsetup mknodes")

    def stats(self):
        return json.loads(self.sh("syncline-lab flash stats /flash"))


BLOCKS_MODULES = ["ublk_drv", "nbd", "loop", "dm_mod", "crc32c_generic", "ext4"]
# They are called by their paths where busybox has the same name: its shell would take its own, whose dd has no O_SYNC.
BLOCKS_PROGRAMS = ["/usr/sbin/nbd-client", "/usr/sbin/dmsetup", "/usr/sbin/mke2fs", "/usr/sbin/e2fsck", "/usr/sbin/losetup",
            "/usr/sbin/blkdiscard", "/usr/bin/dd"]
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
SLOTS_WRITER = f"""
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


class Blocks(Flash):
    """The buffer over the flash, as a block device."""

    def __init__(self, inside, profile):
        super().__init__(inside, profile, "--attach", FLASH_MIB, HOME_MIB, LOG_MIB)

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
        self.sh("kill -9 $(cat /tmp/server); syncline-lab flash cut /flash; wait $(cat /tmp/server); true")
        # What is left of it in the kernel fails on its own.
        # nbd-client does not wait until the device is free again.
        unused = "for i in $(seq 600); do [ -e /sys/block/nbd0/pid ] || break; usleep 50000; done"
        clear = {"ublk": "true", "nbd": f"nbd-client -d /dev/nbd0; {unused}", "fuse": f"losetup -d {node}; umount -l /served"}[way]
        self.inside.run(f"[ ! -e /tmp/writer ] || {{ kill $(cat /tmp/writer); wait $(cat /tmp/writer); rm /tmp/writer; }};"
                        f" umount /mnt || umount -l /mnt; {clear}")
        self.sh("rm -f /served/*; syncline-lab flash on /flash")

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
    remade = " ".join(f"/mnt/slot{slot}" for slot in REMADE)
    write = f": > /tmp/synced && {{ sh /writer {'remake' if relaxed else ''} > /dev/null 2>&1 & echo $! > /tmp/writer; }}"
    for cut in range(cuts):
        blocks.sh(f"mount -t ext4 {node} /mnt")
        if relaxed:
            if cut == 0:
                # Files can be relaxed once they are there. The end of the writer may take one away that it makes again.
                blocks.sh(f"{write}; until grep -qx {SLOTS} /tmp/synced; do usleep 100000; done; kill $(cat /tmp/writer); wait $(cat /tmp/writer);"
                          f" rm /tmp/writer; touch {remade}")
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
                blocks.sh(f"touch {remade}")
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


def blocks(args):
    missing = [program for program in BLOCKS_PROGRAMS if not os.path.exists(program)]
    if missing:
        raise Missing(f"{missing[0]} is not there; install nbd-client, dmsetup, e2fsprogs and util-linux")
    rows = []
    # The way under way, for a failure.
    way, kernel_name = "flash", ""

    def add(way, name, held, found):
        rows.append({"way": way, "name": name, "held": held, "found": found})
        print(f"{way:5} {'ok ' if held else 'NOT'} {name:40} {found}", flush=True)

    programs = [args.syncline, lab(args.syncline), *BLOCKS_PROGRAMS]
    with Guest(cache_of(args.syncline), programs, BLOCKS_MODULES, instruction_ns=args.instruction_ns) as inside:
        try:
            device = Blocks(inside, args.profile)
            inside.sh(f"echo {base64.b64encode(SLOTS_WRITER.encode()).decode()} | base64 -d > /writer")
            kernel_name = inside.sh("uname -r").strip()
            print(f"Linux {kernel_name} in a guest, {args.profile}, seed {args.seed}", flush=True)
            add("flash", "--attach takes ublk where it is", device.node.startswith("/dev/ublkb"), device.node)
            for way in args.ways:
                for name, held, found in one_way(device, way, args.cuts, args.seed):
                    add(way, name, held, found)
        except Failed as why:
            add(way, "all commands of the guest succeed", False, f"{why}\n{inside.run(LOOK_AROUND)[1]}")
    common.store(args.json, "guest-blocks", kernel=kernel_name, profile=args.profile, rows=rows)
    return 0 if all(row["held"] for row in rows) else 1


NFS_MODULES = ["virtio_pci", "virtio_net", "nfsv3"]
# What qemu's user network calls this machine's loopback interface.
HOST = "10.0.2.2"
LINES = 400
PARTS = ["sqlite", "sync", "conform", "kills"]
SERVE_SECONDS = 20
LINES_WRITER = f"""
n=0
while [ $n -lt {LINES} ]; do
    n=$((n + 1))
    printf '%08d\\n' $n | dd of=/mnt/lines bs=9 seek=$((n - 1)) conv=notrunc,fsync 2>/dev/null || exit 1
    echo $n > /tmp/synced
done
"""
INSERT = """
n=0; while [ $n -lt 40 ]; do n=$((n + 1)); echo ".timeout 60000"; echo "INSERT INTO t(who, n) VALUES('%s', $n);"; done | sqlite3 /mnt/%s.db
"""


# Answers that are not those of a local ext4: why, then the beginning of the assertion (file of cases, case, step) and how many differ.
DIFFERENCES = [
    ("NFSv3 has no extended attributes", {"data.txt user attributes": 16, "data.txt who may set attributes": 3}),
    ("NFSv3 has no flags of renameat2", {"rename.txt renameat2 with": 21}),
    ("NFSv3 has no fallocate", {"data.txt fallocate": 10, "data.txt ranges taken out and put in": 6}),
    ("times of NFSv3 end in 1970 and 2106", {"utimensat.txt the range of the format": 6}),
    ("Linux's client cuts the nanoseconds of 1970-01-01 00:00:00", {"utimensat.txt times of a": 7}),
    ("Linux's client renames an open file that is removed, and removes it at the last close", {
        "chmod.txt fchmod of an open and of a removed file: @stat h mode,nlink -> 4711,0": 1,
        "chown.txt fchown of an open and of a removed file": 1,
        "ftruncate.txt a removed file": 1,
        "link.txt a removed file cannot be linked again": 1,
        "open.txt a removed file lives as long as it is open": 1,
        "unlink.txt an open file without a name": 3,
    }),
    ("a removed directory has no file handle: ESTALE", {
        "chmod.txt fchmod of an open and of a removed file": 2,
        "rmdir.txt a removed directory that is still open": 2,
        "rmdir.txt nothing is made in a removed working directory": 2,
    }),
    ("Linux's client sends no change to what a file has already (chown -1 -1, truncate to its size)", {
        "chown.txt chown clears set-id bits of programs": 4,
        "truncate.txt times": 1,
    }),
    ("the server sees no open files: after a chmod only the owner goes on writing", {
        "ftruncate.txt an open file stays writable whatever its mode becomes": 2,
    }),
    ("Linux's client reads from its cache, which moves no access time", {
        "data.txt writes and times": 1,
        # The contents of a file may have left its cache.
        "data.txt access times by relatime": (1, 2),
    }),
]


class Server:
    """`syncline serve` on this machine, on one port for all its lives."""

    def __init__(self, program, image):
        self.program, self.image, self.process = program, image, None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def start(self):
        ended = time.monotonic() + SERVE_SECONDS
        while time.monotonic() < ended:
            self.process = subprocess.Popen([self.program, "serve", "--nfs", f"127.0.0.1:{self.port}", self.image],
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if "NFS on" in self.process.stdout.readline():
                return
            # The port of a killed server is free a moment later.
            said = self.process.stderr.read()
            self.process.wait()
            time.sleep(0.1)
        raise Failed(f"the server does not start: {said}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(timeout=60) != 0:
            raise Failed(f"serve ended with {self.process.returncode}: {self.process.stderr.read()}")


class Tests:
    def __init__(self, inside, server, args):
        self.sh, self.server, self.args = inside.sh, server, args
        self.differences = []

    def mount(self):
        port = self.server.port
        self.sh("ifconfig lo 127.0.0.1 up; ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up; mkdir -p /mnt")
        options = f"vers=3,proto=tcp,mountproto=tcp,nolock,port={port},mountport={port},addr={HOST},mountaddr={HOST}"
        self.sh(f"/bin/mount -i -t nfs -o nodev,{options},timeo=20 {HOST}:/ /mnt")

    def sqlite(self):
        rows = {}
        for mode in ("delete", "wal"):
            self.sh(f"sqlite3 /mnt/{mode}.db 'PRAGMA journal_mode={mode}; CREATE TABLE t(who TEXT, n INTEGER);' > /tmp/mode")
            one, two = (INSERT % (who, mode) for who in ("a", "b"))
            self.sh(f"({two.strip()}) > /tmp/two 2>&1 & {{ {one.strip()}; }} && wait $! && cat /tmp/two >&2")
            asked = f"sqlite3 /mnt/{mode}.db 'PRAGMA integrity_check; SELECT count(*) FROM t;'"
            said = self.sh(asked).split()
            if said != ["ok", "80"]:
                raise Failed(f"sqlite, {mode}: {said}")
            rows[mode] = 80
        return f"two writers, DELETE and WAL: {sum(rows.values())} of 160 rows, integrity_check ok"

    def sync(self):
        self.sh("dd if=/dev/zero of=/mnt/synced bs=64k count=16 oflag=sync 2>/dev/null; fsync /mnt/synced /mnt; sync")
        return "O_SYNC writes, fsync of a file and of a directory"

    def conform(self):
        said = self.sh("mkdir /mnt/conform; syncline-posix conform /mnt/conform --other /dev/shm || true").splitlines()
        count, self.differences = sorted_out(said)
        expected = sum(row["assertions"] for row in self.differences[1:])
        return f"{count} assertions, {count - expected} as on ext4, {expected} that NFSv3 or its client answers otherwise"

    def kills(self):
        draw = random.Random(self.args.seed)
        acknowledged = 0
        for _ in range(self.args.kills):
            self.sh("rm -f /mnt/lines /tmp/synced /tmp/done; sync")
            program = base64.b64encode(LINES_WRITER.encode()).decode()
            self.sh(f"echo {program} | base64 -d > /tmp/writer; (sh /tmp/writer && touch /tmp/done) & true")
            time.sleep(draw.uniform(0.3, 2.0))
            self.server.kill()
            # The client waits now; what it was told is in this file.
            synced = int(self.sh("cat /tmp/synced 2>/dev/null || echo 0").strip())
            copy = self.server.image + ".killed"
            shutil.copyfile(self.server.image, copy)
            read = subprocess.run([self.server.program, "cat", copy + ":/lines"], capture_output=True, text=True)
            kept = read.stdout.split()[:synced]
            if kept != [f"{n:08}" for n in range(1, synced + 1)]:
                raise Failed(f"{synced} lines were synced before the kill, {len(kept)} are there: {read.stderr}")
            acknowledged += synced
            self.server.start()
            self.sh("for i in $(seq 600); do [ -e /tmp/done ] && break; usleep 100000; done; [ -e /tmp/done ]")
            lines = self.sh("cat /mnt/lines").split()
            if lines != [f"{n:08}" for n in range(1, LINES + 1)]:
                raise Failed(f"after the restart the file has {len(lines)} lines of {LINES}")
        return f"{self.args.kills} kills: all {acknowledged} synced lines kept, the client went on each time"


def sorted_out(lines):
    """The number of assertions, and rows for --json: how many agree, how many differ for each reason. Fails if one more or less does."""
    summary = re.fullmatch(r"(\d+) assertions, (\d+) disagree", lines[-1] if lines else "")
    if summary is None:
        raise Failed(f"conform: {' '.join(lines)[-800:]}")
    names = [re.sub(r"^(\S+):\d+ ", r"\1 ", line) for line in lines[:-1]]
    rows, wrong = [], []
    for why, wanted in DIFFERENCES:
        differ = 0
        for start, counts in wanted.items():
            found = [name for name in names if name.startswith(start)]
            names = [name for name in names if not name.startswith(start)]
            differ += len(found)
            if len(found) not in (counts if isinstance(counts, tuple) else [counts]):
                wrong.append(f"{start}: {len(found)} differ, expected {counts}: {found}")
        rows.append({"reason": why, "assertions": differ})
    wrong += [f"not expected: {name}" for name in names]
    if wrong:
        raise Failed("conform: " + "\n".join(wrong))
    asserted = int(summary.group(1))
    return asserted, [{"reason": "as on a local ext4", "assertions": asserted - int(summary.group(2))}, *rows]


def nfs(args):
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        image = os.path.join(scratch, "card.img")
        common.call(args.syncline, "mkfs", "--size", "256M", image, "--", "-b", "4096")
        server = Server(args.syncline, image)
        server.start()
        try:
            # Beside them, the suite runs copies of sleep.
            posix = os.path.join(os.path.dirname(args.syncline), "syncline-posix")
            programs = [common.need("sqlite3"), "/usr/bin/mount", "/usr/bin/sleep", posix]
            with Guest(cache_of(args.syncline), programs, NFS_MODULES, network=True) as inside:
                tests = Tests(inside, server, args)
                tests.mount()
                for name in args.only or PARTS:
                    results[name] = getattr(tests, name)()
                    print(f"{name:8} {results[name]}", flush=True)
                tests.sh("umount /mnt")
                server.end()
                if complaint := common.judge(image):
                    raise Failed(f"e2fsck: {complaint}")
                print("image    e2fsck -fn: clean after the server ended")
        finally:
            if server.process.poll() is None:
                server.kill()
    common.store(args.json, "guest-nfs", parts=results, conform=tests.differences)


PEERS_MODULES = ["ublk_drv", "dm_mod", "dm_writecache", "bcache", "crc32c_generic", "ext4"]
PEERS_PROGRAMS = ["/usr/sbin/dmsetup", "/usr/sbin/mke2fs"]
PEERS_FLASH_MIB, PEERS_HOME_MIB = 288, 192
WORKLOAD = "syncline-lab " + " ".join(common.bench_words("fileio/random-overwrite-fsync"))
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


def overwrites(device, operations):
    """Rate and latencies of the workload, and what the flash saw."""
    device.sh("sync")
    before = device.stats()
    said = device.sh(f"mkdir -p /mnt/w && {WORKLOAD} --dir /mnt/w --operations {operations} --json - 2>/dev/null")
    metrics = json.loads(said)["runs"][0]["foreground"]
    after = device.stats()
    device.sh("rm -rf /mnt/w && sync")
    return common.rates(metrics, before, after, operations)


def stacked(inside, stack, args):
    device = Flash(inside, args.profile, "--attach=ublk", PEERS_FLASH_MIB, PEERS_HOME_MIB, args.log_mib)
    device.sh(stack[1].format(node="/tmp/device"))
    device.sh(f"{MKE2FS} /tmp/device && mount -t ext4 /tmp/device /mnt")
    rows = {"fresh": overwrites(device, args.operations)}
    if args.fill:
        overwrites(device, args.fill)
        rows["filled"] = overwrites(device, args.operations)
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


def peers(args):
    results = {}
    tools = unpacked("bcache-tools", os.path.join(cache_of(args.syncline), "bcache-tools"))
    programs = [args.syncline, lab(args.syncline), *PEERS_PROGRAMS, os.path.join(tools, "usr/sbin/make-bcache")]
    for stack in STACKS:
        if args.only and stack[0] not in args.only:
            continue
        # A guest of its own for each: nothing that one leaves in the kernel's memory helps another.
        with Guest(cache_of(args.syncline), programs, PEERS_MODULES, instruction_ns=args.instruction_ns) as inside:
            kernel_name = inside.sh("uname -r").strip()
            results[stack[0]] = stacked(inside, stack, args)
            print(f"{stack[0]}: {results[stack[0]]['fresh']['per_s']:.1f} fsyncs/s", file=sys.stderr, flush=True)
    print(f"Linux {kernel_name} in a guest, {args.profile}, log {args.log_mib} MiB, {args.operations} operations,"
          f" {args.instruction_ns} ns an instruction")
    for field in ("fresh", "filled"):
        if any(field in rows for rows in results.values()):
            print("\n".join(table(results, field)))
    common.store(args.json, "guest-peers", kernel=kernel_name, settings=vars(args), stacks=results)


def takeover(args):
    program = os.path.join(os.path.dirname(os.path.abspath(args.syncline)), "taken_over")
    if not os.path.exists(program):
        raise Missing("build taken_over: cargo build -p syncline-fuzz-targets")
    for package in KERNELS:
        with tempfile.NamedTemporaryFile(suffix=".img") as image:
            subprocess.run([args.syncline, "mkfs", "--force", "--size", "16M", image.name], check=True, stdout=subprocess.DEVNULL)
            modules = ["virtio_pci", "virtio_blk", "fuse"]
            with Guest(cache_of(args.syncline), [program], modules, disk=image.name, packages=[package]) as inside:
                inside.sh("mkdir -p /mnt/dir && taken_over mount -o sandbox=strict /dev/vda /mnt/dir")
                attempts = [line.rsplit(": ", 1) for line in inside.sh("taken_over attack /mnt/dir").splitlines()]
                done = [name for name, outcome in attempts if outcome == "done"]
                inside.sh("echo kept > /mnt/dir/file && taken_over umount /mnt/dir")
                print(f"Linux {inside.sh('uname -r').strip()}: {len(attempts) - len(done)} of {len(attempts)} attempts refused")
        if done or len(attempts) < 60:
            raise Failed(f"{package}: done: {', '.join(done) or 'too few attempts'}")


def spellings(nr):
    """A name and another spelling of it."""
    name = [f"Straße {nr}", f"Ångström {nr}", f"ΣΊΣΥΦΟΣ {nr}", f"A rather long name of file {nr}"][nr % 4]
    other = name.replace("ß", "SS").casefold().upper()
    return name, unicodedata.normalize("NFD", other) if nr % 3 == 0 else other


def casefold(args):
    names = [spellings(nr) for nr in range(400)]
    for package in KERNELS:
        with tempfile.NamedTemporaryFile(suffix=".img") as image, tempfile.TemporaryDirectory() as mount:
            run = lambda *command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            run(args.syncline, "mkfs", "--force", "--size", "32M", "-b", "1024", "-O", "casefold", image.name)

            @contextlib.contextmanager
            def mounted():
                run(args.syncline, "mount", image.name, mount)
                try:
                    yield os.path.join(mount, "d")
                finally:
                    run(args.syncline, "umount", mount)

            with mounted() as folder:
                os.mkdir(folder)
                run("chattr", "+F", folder)
                for name, _ in names[:300]:
                    with open(os.path.join(folder, name), "x", encoding="utf-8") as file:
                        print(name, file=file)
            with Guest(cache_of(args.syncline), [], ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"], disk=image.name, packages=[package]) as inside:
                inside.sh("mount -t ext4 /dev/vda /mnt")
                for nr, (name, other) in enumerate(names):
                    if nr >= 300:
                        inside.sh(f'echo "{name}" > "/mnt/d/{name}"')
                    elif nr % 10 == 0:
                        inside.sh(f'rm "/mnt/d/{other}"')
                    elif inside.sh(f'cat "/mnt/d/{other}"').strip() != name:
                        raise Failed(f"{package}: {other} has not the text of {name}")
                release = inside.sh("umount /mnt && uname -r").strip()
            with mounted() as folder:
                left = [nr for nr in range(len(names)) if nr >= 300 or nr % 10]
                found = [nr for nr, (_, other) in enumerate(names) if os.path.exists(os.path.join(folder, other))]
                if found != left or len(os.listdir(folder)) != len(left):
                    raise Failed(f"{package}: {len(found)} of {len(left)} names are found")
                for nr in left[::2]:
                    os.remove(os.path.join(folder, names[nr][1]))
            run("e2fsck", "-fn", image.name)
            run(args.syncline, "check", image.name)
            print(f"Linux {release}: {len(left)} names found by both in other spellings, the image is clean")


# A database, journals and other files, each synced: each is written in its place at the end, and the log before.
LIVES_WORK = ("for round in $(seq 20); do"
              " dd if=/dev/urandom of=/mnt/a.db bs=4k count=8 seek=$((round * 8)) conv=notrunc,fsync;"
              " dd if=/dev/urandom of=/mnt/b$round.db-journal bs=4k count=8 conv=fsync;"
              " dd if=/dev/urandom of=/mnt/photo$round bs=64k count=4 conv=fsync; done")
LIVES = ["none", "short", "medium", "long", "extreme"]
GROUPS = "/sys/bus/pseudo/drivers/scsi_debug/group_number_stats"
TRACING = "/sys/kernel/tracing"


def scsi_groups(inside):
    """Writes by lifetime, as scsi_debug counts their groups."""
    inside.sh("rmmod scsi_debug; insmod /modules/scsi_debug.ko dev_size_mb=256 && until [ -b /dev/sda ]; do usleep 50000; done")
    lives_worked(inside, "/dev/sda", f"echo 0 > {GROUPS}")
    counts = dict(map(int, line.split()[:2]) for line in inside.sh(f"cat {GROUPS}").splitlines())
    # Group 1 is the hint for "none", which nobody gives.
    return [counts.get(group, 0) for group in (0, 2, 3, 4, 5)]


def nvme_streams(inside):
    """Writes by lifetime, by the placement handle in the commands that the kernel sends."""
    event = f"{TRACING}/events/nvme/nvme_setup_cmd/enable"
    inside.sh(f"mount -t tracefs tracefs {TRACING}; until [ -b /dev/nvme0n1 ]; do usleep 50000; done; cat /sys/block/nvme0n1/queue/max_write_streams")
    lives_worked(inside, "/dev/nvme0n1", f"echo 8192 > {TRACING}/buffer_size_kb; echo 1 > {event}")
    # Data placement is directive 2; its handle, from 0 on, is the upper half of the word that has hints of datasets, too.
    sent = re.findall(r"nvme_cmd_write .*?ctrl=0x([0-9a-f]+), dsmgmt=(\d+)", inside.sh(f"cat {TRACING}/trace"))
    streams = [(int(word) >> 16) + 1 if int(control, 16) >> 4 & 15 == 2 else 0 for control, word in sent]
    return [streams.count(stream) for stream in range(len(LIVES))]


def lives_worked(inside, node, begin):
    inside.sh(f"syncline mkfs --force {node} > /tmp/made && syncline mount {node} /mnt")
    inside.sh(f"{begin}; {LIVES_WORK} 2>/tmp/dd")
    inside.sh("syncline umount /mnt")


def lives(args):
    packages = [args.kernel] if args.kernel else KERNELS
    with tempfile.NamedTemporaryFile() as disk:
        disk.truncate(512 << 20)
        placing = ["-device", "nvme-subsys,id=placing,fdp=on,fdp.runs=8M,fdp.nrg=1,fdp.nruh=5", "-device", "nvme,serial=lives,subsys=placing",
                   "-drive", f"file={disk.name},format=raw,if=none,id=placed", "-device", "nvme-ns,drive=placed,fdp.ruhs=0-4"]
        for name, counted, modules, devices in [("scsi_debug", scsi_groups, ["sd_mod", "scsi_debug"], []), ("nvme", nvme_streams, ["nvme"], placing)]:
            try:
                with Guest(cache_of(args.syncline), [args.syncline], ["fuse", *modules], packages=packages, devices=devices) as inside:
                    release = inside.sh("uname -r").strip()
                    if name == "nvme" and inside.run("grep -qv '^0' /sys/block/nvme*/queue/max_write_streams")[0] != 0:
                        raise Missing(f"Linux {release} has no write streams")
                    writes = counted(inside)
            except Missing as missing:
                print(f"{name}: left out: {missing}")
                continue
            print(f"Linux {release}, {name}: writes {', '.join(f'{life} {count}' for life, count in zip(LIVES, writes))}")
            if not all(writes[1:]):
                raise Failed(f"{name}: a lifetime does not reach the device")


def main():
    top = common.parser(__doc__)
    kinds = top.add_subparsers(dest="what", required=True)

    def kind(name):
        return kinds.add_parser(name, parents=[common.parser(None, "syncline")], add_help=False)

    found = kind("blocks")
    found.add_argument("--ways", nargs="+", default=["ublk", "nbd", "fuse"], choices=["ublk", "nbd", "fuse"])
    found.add_argument("--cuts", type=int, default=10)
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--profile", default="nexus7-emmc")
    found.add_argument("--instruction-ns", type=int, choices=[1, 2, 4, 8])
    found = kind("nfs")
    found.add_argument("--kills", type=int, default=5)
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--only", action="append", choices=PARTS)
    found = kind("peers")
    found.add_argument("--profile", default="nexus7-emmc")
    found.add_argument("--log-mib", type=int, default=32)
    found.add_argument("--operations", type=int, default=300)
    found.add_argument("--fill", type=int, default=0, help="operations before a second turn that finds the log full; 0: no second turn")
    found.add_argument("--instruction-ns", type=int, default=1, choices=[1, 2, 4, 8])
    found.add_argument("--only", nargs="+", choices=[name for name, _ in STACKS])
    kind("takeover")
    kind("casefold")
    kind("lives").add_argument("--kernel")
    args = top.parse_args()
    return {"blocks": blocks, "nfs": nfs, "peers": peers, "takeover": takeover, "casefold": casefold, "lives": lives}[args.what](args)


if __name__ == "__main__":
    common.main(main)
