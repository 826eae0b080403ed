#!/usr/bin/env python3
"""The units and udev rules of the packages, in a guest of Debian with systemd, udev and a user at seat0.

    guest_units.py SYNCLINE [--suite NAME ...] [--fuservicemount FILE] [--only CASE ...]

"boot" finds what the cases before it leave, so it needs all of them.

    mount     syncline-mount@: the mount is there when `systemctl start` returns; the server is killed, a program keeps the mount busy,
              the mount is ended by hand
    fstab     a line of /etc/fstab, through its .mount unit and `mount`; an image whose journal has to be recovered
    buffer    syncline-buffer@ with ublk and an ext4 on it; the server is killed, and asked to end while the ext4 is mounted
    watch     syncline-watch@ records what a disk gets
    service   syncline.socket: fuservicemount3 mounts for an ordinary user; left out where libfuse has it not (--fuservicemount)
    card      a USB disk appears, is mounted for the user at the seat, is written to, ended by hand, pulled out and put in again; once
              with the service, once without; the user logs out and in
    system    the same with SYNCLINE_MOUNT
    security  the exposure of each unit, as `systemd-analyze security` has it
    boot      shut down with everything mounted: images are clean, and what depends on a mount ends before it and begins after it

The root file system is mmdebstrap's, kept beside the kernel of `guest.py`, with what packaging/install.sh installs above it.
"""
import base64
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tarfile
import tempfile

import common
import guest
from common import Failed, Missing, call

MODULES = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "fuse", "loop", "ublk_drv", "xhci_pci", "usb_storage", "sd_mod"]
PACKAGES = "systemd-sysv,udev,dbus,libpam-systemd,fuse3,e2fsprogs,acl,util-linux,mount,procps,polkitd"
USER, NUMBER = "alice", 1000
# The emulated processor of a busy machine.
BOOT_SECONDS = 400
PATIENCE = 100
DISKS = {"card": 64, "fstab": 64, "data": 64, "log": 32, "stick": 64}
BY_ID = "/dev/disk/by-id/virtio-"
# Files of the guest. The shell is the one of guest.py: it reads lines of the second serial line.
FILES = {
    "etc/shell": "echo ready\nwhile IFS= read -r line; do eval \"$line\"; echo \"ended $?\"; done\n",
    "etc/systemd/system/shell.service": """[Unit]
After=systemd-user-sessions.service
[Service]
ExecStart=/bin/sh -c 'stty -F /dev/ttyS1 raw -echo; exec </dev/ttyS1 >/dev/ttyS1 2>&1; exec /bin/bash /etc/shell'
Environment=HOME=/root
[Install]
WantedBy=multi-user.target
""",
    # A program that needs a mount.
    "etc/systemd/system/worker.service": """[Unit]
Requires=syncline-mount@card.service
After=syncline-mount@card.service
[Service]
ExecStart=/bin/sh -c 'exec >>/mnt/card/worked; while echo; do sleep 1; done'
[Install]
WantedBy=multi-user.target
""",
    "etc/systemd/system/getty@tty1.service.d/login.conf":
        f"[Service]\nExecStart=\nExecStart=-/sbin/agetty --autologin {USER} --noclear %I linux\n",
    "etc/syncline/card.mount.conf": f"IMAGE={BY_ID}card\nDIR=/mnt/card\nOPTIONS=allow_other\n",
    "etc/syncline/stick.mount.conf": "IMAGE=/dev/disk/by-label/stick\nDIR=/mnt/stick\nOPTIONS=allow_other\n",
    **{f"etc/syncline/{way}.buffer.conf": f"DEVICE={BY_ID}data\nLOG={BY_ID}log\nDIR=/mnt/buffer\nWAY={way}\n" for way in ("fuse", "ublk")},
    "etc/fstab": f"{BY_ID}fstab /mnt/fstab fuse.syncline allow_other,nofail 0 0\n"
                 "/mnt/buffer/device /mnt/data ext4 loop,nofail,x-systemd.requires=syncline-buffer@fuse.service 0 0\n",
    "etc/udev/rules.d/65-card.rules": 'SUBSYSTEM=="block", ENV{ID_FS_TYPE}=="ext4", ENV{ID_BUS}=="usb", ENV{SYNCLINE_CARD}="1"\n',
    "var/log/journal/keep": "",
    **{f"mnt/{name}/keep": "" for name in ("card", "fstab", "data", "buffer", "stick")},
}
UNITS = ["syncline-mount@x.service", "syncline-buffer@x.service", "syncline-watch@x.service", "syncline@x.service"]


def base(cache, suite):
    """An archive of Debian's root file system, with a user."""
    path = os.path.join(cache, f"units-{suite}.tar")
    if not os.path.exists(path):
        if shutil.which("mmdebstrap") is None:
            raise Missing("needs mmdebstrap for a root file system; install it")
        os.makedirs(cache, exist_ok=True)
        call("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "--dpkgopt=force-unsafe-io",
             f'--customize-hook=chroot "$1" useradd -m -s /bin/bash -u {NUMBER} {USER}', suite, path + ".new.tar")
        os.rename(path + ".new.tar", path)
    return path


def installed(scratch, args):
    """An archive of what packages install, and of FILES."""
    build, root = os.path.join(scratch, "build"), os.path.join(scratch, "root")
    os.makedirs(build)
    for name in ("libsyncline_preload.so", "libsyncline_sqlite.so"):
        pathlib.Path(build, name).touch()
    for name, program in (("syncline", args.syncline), ("syncline-lab", common.lab(args.syncline))):
        call("strip", "-o", os.path.join(build, name), program)
    for script in ("install.sh", "install-lab.sh"):
        call("sh", common.ROOT / "packaging" / script, "/usr", root, build)
    shutil.rmtree(os.path.join(root, "usr/share"))
    for name, text in FILES.items():
        path = pathlib.Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    wants = pathlib.Path(root, "etc/systemd/system/multi-user.target.wants")
    wants.mkdir()
    (wants / "shell.service").symlink_to("/etc/systemd/system/shell.service")
    if args.fuservicemount:
        target = pathlib.Path(root, "usr/local/sbin/fuservicemount3")
        target.parent.mkdir(parents=True)
        shutil.copy(args.fuservicemount, target)
        # As libfuse installs it.
        target.chmod(0o4755)

    def owned(info):
        info.uid = info.gid = 0
        info.uname = info.gname = "root"
        return info

    path = os.path.join(scratch, "installed.tar")
    with tarfile.open(path, "w") as archive:
        for place, folders, files in os.walk(root):
            # Directories are Debian's, where some are links.
            for name in files + [name for name in folders if os.path.islink(os.path.join(place, name))]:
                full = os.path.join(place, name)
                archive.add(full, os.path.relpath(full, root), filter=owned)
    return path


class Debian(guest.Guest):
    """A guest whose systemd has started; `sticks` may be plugged in."""

    def __init__(self, cache, image, disks, sticks):
        self.place = tempfile.mkdtemp(prefix="guest-monitor-")
        devices = ["-qmp", f"unix:{self.place}/monitor,server=on,wait=off", "-device", "qemu-xhci,id=usb"]
        for nr, (name, file) in enumerate(disks.items()):
            # Behind the root, which is the first.
            devices += ["-drive", f"file={file},format=raw,if=none,id={name}",
                        "-device", f"virtio-blk-pci,drive={name},serial={name},addr={0x10 + nr:#x}"]
        for name, file in sticks.items():
            devices += ["-blockdev", f"driver=raw,node-name={name},file.driver=file,file.filename={file}"]
        # One processor: emulated, several have died while Linux changed its own code.
        super().__init__(cache, [], MODULES, disk=image, devices=devices, processors=1)
        self.sh("mount -t ext4 /dev/vda /mnt")
        self.process.stdin.write(b"exec switch_root /mnt /sbin/init\n")
        self.process.stdin.flush()
        self.until("ready", BOOT_SECONDS)
        self.run("udevadm settle; systemctl is-system-running --wait")
        self.monitor = socket.socket(socket.AF_UNIX)
        self.monitor.connect(f"{self.place}/monitor")
        self.answers = self.monitor.makefile()
        self.answers.readline()
        self.ask("qmp_capabilities")

    def __exit__(self, *about):
        super().__exit__(*about)
        shutil.rmtree(self.place, ignore_errors=True)

    def ask(self, what, **arguments):
        """A command of qemu's monitor."""
        self.monitor.sendall(json.dumps({"execute": what, "arguments": arguments}).encode() + b"\n")
        for line in self.answers:
            answer = json.loads(line)
            if "error" in answer:
                raise Failed(f"{what}: {answer['error']}")
            if "return" in answer:
                return answer["return"]
        raise Failed(f"{what}: qemu ended")

    def plug(self, stick):
        self.ask("device_add", driver="usb-storage", bus="usb.0", drive=stick, id="plugged", removable=True)
        self.wait("[ -b /dev/sda ]")
        self.sh("udevadm settle")

    def pull(self):
        self.ask("device_del", id="plugged")
        self.wait("[ ! -e /dev/sda ]")
        self.sh("udevadm settle")

    def power_off(self):
        self.process.stdin.write(b"systemctl poweroff --no-block\n")
        self.process.stdin.flush()
        self.process.stdout.read()
        self.process.wait()

    def wait(self, condition):
        """Waits until a command of the guest succeeds."""
        if self.run(f"for i in $(seq {PATIENCE}); do {{ {condition}; }} >/dev/null 2>&1 && break; sleep 0.5; [ $i != {PATIENCE} ]; done")[0] != 0:
            said = self.run("systemctl --failed --plain; journalctl -n 25 --no-pager")[1]
            raise Failed(f"in vain waited for `{condition}`; {said}")

    def user(self, command):
        """Output of a command of the user."""
        text = base64.b64encode(command.encode()).decode()
        return self.sh(f"echo {text} | base64 -d > /tmp/command; runuser -u {USER} -- env HOME=/home/{USER}"
                       f" XDG_RUNTIME_DIR=/run/user/{NUMBER} sh -e /tmp/command </dev/null")

    def is_in(self, unit, state):
        """Fails unless a unit is in this state: active, inactive, failed."""
        found = self.sh(f"systemctl show -P ActiveState {unit}").strip()
        if found != state:
            raise Failed(f"{unit} is {found}, not {state}: {self.run(f'systemctl status -l --no-pager {unit}')[1]}")

    def kill_main(self, unit):
        """Kills the server of a unit; the unit has another one then."""
        old = self.sh(f"systemctl show -P MainPID {unit}").strip()
        self.sh(f"[ {old} -gt 1 ] && kill -9 {old}")
        # A number is not used again so soon.
        self.wait(f"[ $(systemctl show -P MainPID {unit}) != {old} ] && [ $(systemctl show -P ActiveState {unit}) = active ]")

    def has(self, path, text):
        found = self.sh(f"cat {path}").strip()
        if found != text:
            raise Failed(f"{path} has {found!r}, not {text!r}")


def mount(inside):
    unit, file = "syncline-mount@card", "/mnt/card/file"
    inside.sh(f"systemctl start {unit} && mountpoint -q /mnt/card && echo one > {file} && sync {file}")
    inside.kill_main(unit)
    inside.has(file, "one")
    inside.sh("systemd-run --unit=busy --working-directory=/mnt/card -q sleep 100000")
    inside.kill_main(unit)
    inside.sh(f"systemctl stop busy; systemd-run --unit=busy --working-directory=/mnt/card -q sleep 100000; systemctl stop {unit}")
    inside.is_in(unit, "inactive")
    inside.sh(f"systemctl stop busy; e2fsck -fn {BY_ID}card && systemctl start {unit} && umount /mnt/card")
    inside.wait(f"[ $(systemctl show -P ActiveState {unit}) = inactive ]")
    inside.sh(f"e2fsck -fn {BY_ID}card && systemctl enable {unit} worker 2>/dev/null && systemctl start worker")


def fstab(inside):
    disk, file = f"{BY_ID}fstab", "/mnt/fstab/file"
    # At boot it was mounted.
    inside.sh(f"mountpoint -q /mnt/fstab && systemctl reload mnt-fstab.mount && systemctl stop mnt-fstab.mount && e2fsck -fn {disk}")
    inside.sh(f"mount /mnt/fstab && echo one > {file} && sync {file} && pkill -KILL -f 'mount --served.*/mnt/fstab' && umount -l /mnt/fstab")
    inside.sh("systemctl start mnt-fstab.mount")
    inside.has(file, "one")


def buffer(inside):
    file = "/mnt/data/file"
    # The number of a ublk device is the first that is free.
    mounts = {"fuse": "systemctl start mnt-data.mount", "ublk": "mount /dev/ublkb? /mnt/data"}
    for way, begin in reversed(mounts.items()):
        unit = f"syncline-buffer@{way}"
        inside.sh(f"! mountpoint -q /mnt/data || umount /mnt/data; systemctl stop 'syncline-buffer@*' && systemctl start {unit}")
        inside.sh(f"{begin} && echo one > {file} && sync {file}")
        inside.kill_main(unit)
        # systemd has, if it saw the device go.
        inside.sh("! mountpoint -q /mnt/data || umount /mnt/data")
        inside.wait(f"{begin} && mountpoint -q /mnt/data")
        inside.has(file, "one")
        # It is asked to end while the device is in use, and does when it is no more. What fstab mounts on it systemd ends first.
        inside.sh(f"echo two > {file} && systemctl stop --no-block {unit} && sleep 2; ! mountpoint -q /mnt/data || umount /mnt/data")
        inside.wait(f"[ $(systemctl show -P ActiveState {unit}) = inactive ]")
        inside.sh(f"e2fsck -fn {BY_ID}data && systemctl start {unit} && syncline buffer detach /mnt/buffer")
        inside.wait(f"[ $(systemctl show -P ActiveState {unit}) = inactive ]")
        inside.sh(f"systemctl start {unit} && {begin}")
        inside.has(file, "two")


def watch(inside):
    unit, traces = "syncline-watch@dev-vda", "/var/lib/syncline/watch/dev-vda"
    inside.sh(f"systemctl start {unit}")
    inside.wait(f"echo x > /var/x && sync /var/x && ls {traces}/*.trace*")
    inside.sh(f"systemctl stop {unit} && ls {traces}/*.trace")
    inside.is_in(unit, "inactive")


def service(inside):
    begin = f"fuservicemount3 card.img card -t syncline -o uid={NUMBER},gid={NUMBER}"
    inside.sh("systemctl enable --now syncline.socket")
    inside.user(f"cd; syncline mkfs --size 32M card.img; mkdir card; {begin}; echo one > card/file; sync card/file")
    if inside.sh("ps -o user= -C syncline --sort=user").split().count(USER):
        raise Failed("the service runs as the user")
    inside.sh("systemctl kill -s KILL 'syncline@*'")
    # It says that the journal has to be replayed.
    inside.user(f"cd; ! syncline umount card; {begin}; [ $(cat card/file) = one ]; syncline umount card; /sbin/e2fsck -fn card.img")
    inside.user(f"cd; {begin}; echo two > card/file")
    inside.sh("systemctl stop 'syncline@*'")
    inside.user("cd; ! ls card; syncline umount card; /sbin/e2fsck -fn card.img; [ $(syncline cat card.img:/file) = two ]")
    if inside.sh("systemctl list-units --plain --no-legend 'syncline@*'").strip():
        raise Failed("units of ended mounts remain")


def card(inside):
    unit, mounted = "syncline-card@sda", f"grep -q ' /home/{USER}/Cards/sda fuse.syncline ' /proc/mounts"
    inside.wait(f"[ -S /run/user/{NUMBER}/systemd/private ]")
    inside.plug("stick")
    inside.wait(mounted)
    inside.sh(f"getfacl -p /dev/sda | grep -q user:{USER}:rw-")
    inside.user("cd ~/Cards/sda; echo one > file; sync file")
    # Ended by hand it stays so, also when others have used the device.
    inside.user(f"systemctl --user stop {unit}")
    inside.sh("e2fsck -fn /dev/sda && syncline recover /dev/sda >/dev/null; udevadm settle")
    if inside.user(f"sleep 2; systemctl --user show -P ActiveState {unit}").strip() != "inactive":
        raise Failed("a card that was ended by hand is mounted again")
    inside.user(f"[ ! -e ~/Cards/sda ]; systemctl --user start {unit}; [ $(cat ~/Cards/sda/file) = one ]")
    # A program that goes on while the card is pulled out gets an error.
    inside.user("cd ~/Cards/sda; (exec > ~/ended 2>&1; while echo more > more && sync more; do :; done; echo error) & sleep 1")
    inside.pull()
    inside.wait(f"! {mounted} && [ ! -e /home/{USER}/Cards/sda ] && grep -q error /home/{USER}/ended")
    inside.wait("! pgrep -f '[s]yncline service|[m]ount --served.*/dev/sda'")
    if inside.user("systemctl --user --failed --plain --no-legend").strip():
        raise Failed("the unit of a card that was pulled out has failed")
    inside.plug("stick")
    inside.wait(mounted)
    inside.user("[ $(cat ~/Cards/sda/file) = one ]; echo two > ~/Cards/sda/file")
    # Who logs out ends it, who logs in has it again.
    session = inside.sh("loginctl --no-legend").split()[0]
    inside.sh(f"loginctl terminate-user {USER}")
    inside.wait(f"[ $(loginctl --no-legend | wc -l) = 1 ] && ! loginctl --no-legend | grep -q '^ *{session} '")
    inside.wait(mounted)
    inside.user(f"[ $(cat ~/Cards/sda/file) = two ]; systemctl --user stop {unit}")
    inside.sh("e2fsck -fn /dev/sda")
    inside.pull()


def card_served(inside):
    inside.sh("systemctl start syncline.socket")
    card(inside)


def card_alone(inside):
    inside.sh("systemctl stop syncline.socket")
    card(inside)


def system(inside):
    unit, file = "syncline-mount@stick", "/mnt/stick/file"
    inside.sh("sed -i s/SYNCLINE_CARD.*/SYNCLINE_MOUNT}=\\\"stick\\\"/ /etc/udev/rules.d/65-card.rules && udevadm control --reload")
    inside.plug("stick")
    inside.wait("mountpoint -q /mnt/stick")
    inside.sh(f"echo three > {file} && sync {file} && systemctl stop {unit} && e2fsck -fn /dev/sda && udevadm settle && sleep 2")
    inside.is_in(unit, "inactive")
    inside.sh(f"systemctl start {unit}")
    inside.pull()
    inside.wait("! mountpoint -q /mnt/stick")
    inside.plug("stick")
    inside.wait("mountpoint -q /mnt/stick")
    inside.has(file, "three")


def security(inside):
    exposures = {}
    for unit in UNITS:
        said = inside.sh(f"systemd-analyze security --no-pager {unit} | tail -n 1")
        exposures[unit.split("@")[0]] = re.search(r"([0-9.]+) [A-Z]+", said).group(1)
    return ", ".join(f"{unit}@ {number}" for unit, number in exposures.items())


def order(inside):
    """Of the shutdown before."""
    said = inside.sh("journalctl -b -1 --no-pager -o cat _PID=1").splitlines()
    last = {line: nr for nr, line in enumerate(said)}
    for first, then in [("Stopped worker.service", "Stopping syncline-mount@card"), ("Unmounted mnt-data.mount", "Stopping syncline-buffer@fuse")]:
        found = [max((nr for line, nr in last.items() if line.startswith(words)), default=None) for words in (first, then)]
        if None in found or found[0] > found[1]:
            raise Failed(f"`{first}` is not before `{then}`: {[line for line in said if 'top' in line or 'mount' in line][-40:]}")
    inside.sh("for name in card fstab data stick; do mountpoint -q /mnt/$name || exit 1; done")
    for unit in ("syncline-mount@card", "syncline-buffer@fuse", "worker"):
        inside.is_in(unit, "active")
    for name in ("card", "fstab"):
        inside.has(f"/mnt/{name}/file", "one")
    inside.has("/mnt/data/file", "two")
    failed = inside.sh("systemctl --failed --plain --no-legend").strip()
    if failed:
        raise Failed(f"failed: {failed}")


def tried(suite, scratch, args):
    cache = guest.cache_of(args.syncline)
    root = os.path.join(scratch, "root.img")
    call(args.syncline, "import", "--layers", "--spare", "512M", base(cache, suite), installed(scratch, args), root)
    files = {name: os.path.join(scratch, f"{name}.img") for name in DISKS}
    for name, megabytes in DISKS.items():
        call(args.syncline, "mkfs", "--force", "--size", f"{megabytes}M", "-L", name, files[name])
    log = ["buffer", "attach", "--create", "--force", "--log", files["log"], files["data"]]
    made = os.path.join(scratch, "served")
    os.mkdir(made)
    call(args.syncline, *log, "--as", "nbd", made)
    call(args.syncline, "buffer", "detach", made)
    sticks = {"stick": files.pop("stick")}
    failed = []

    def case(name, work, inside):
        if args.only and name not in args.only:
            return
        try:
            said = work(inside)
        except Failed as why:
            failed.append(name)
            said = f"failed: {why}"
            if "card" in name:
                inside.pull()
        print(f"{suite}: {name}: {said or 'as documented'}", flush=True)

    with Debian(cache, root, files, sticks) as inside:
        print(f"{suite}: Linux {inside.sh('uname -r').strip()}, {inside.sh('systemctl --version').splitlines()[0]}", flush=True)
        for name, work in [("mount", mount), ("fstab", fstab), ("buffer", buffer), ("watch", watch)]:
            case(name, work, inside)
        if args.fuservicemount:
            case("service", service, inside)
            case("card with the service", card_served, inside)
        else:
            print(f"{suite}: service: left out: needs fuservicemount3 of libfuse; give --fuservicemount")
        for name, work in [("card", card_alone), ("system", system), ("security", security)]:
            case(name, work, inside)
        inside.power_off()
    for name in ("card", "fstab", "data", "stick"):
        call("e2fsck", "-fn", (files | sticks)[name])
    with Debian(cache, root, files, sticks) as inside:
        inside.ask("device_add", driver="usb-storage", bus="usb.0", drive="stick", id="plugged", removable=True)
        inside.wait("mountpoint -q /mnt/stick")
        case("boot", order, inside)
        inside.power_off()
    if failed:
        raise Failed(f"{suite}: {', '.join(failed)}")


def main():
    top = common.parser(__doc__, "syncline")
    top.add_argument("--suite", nargs="+", default=["bookworm", "trixie"])
    top.add_argument("--fuservicemount", default=shutil.which("fuservicemount3", path="/usr/local/sbin:/usr/sbin"))
    top.add_argument("--only", nargs="+", help="these cases")
    args = top.parse_args()
    common.need("e2fsck", "strip")
    for suite in args.suite:
        with tempfile.TemporaryDirectory() as scratch:
            tried(suite, scratch, args)


if __name__ == "__main__":
    common.main(main)
