#!/usr/bin/env python3
"""Images that `syncline import` makes as an ordinary user, booted in qemu with Debian's kernel up to a login.

    boot_images.py SYNCLINE [--only KIND ...]

    busybox   an OCI image of two layers, made here of the static busybox of this machine; nothing is fetched but the kernel
    debian    the root file system that mmdebstrap makes, with systemd; fetched once, then kept beside the kernel

The image is the guest's root. root logs in, the shell answers and writes a file, the guest shuts down; e2fsck finds nothing, and the file is
in the image.
"""
import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import threading

import common
import guest
from common import Failed, Missing, call

MODULES = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"]
# Debian's kernel for virtual machines is a third of the other one.
KERNEL = ["linux-image-cloud-amd64", "linux-image-amd64"]
LOGIN_SECONDS = 300
MEMORY = "/dev/shm"
NOBODY = 65534
INITTAB = """::sysinit:/bin/mount -t proc proc /proc
::sysinit:/bin/mount -t devtmpfs dev /dev
ttyS1::respawn:/sbin/getty -L 115200 ttyS1 vt100
::shutdown:/bin/umount -a -r
"""


def layer(entries):
    """The bytes of a layer: names with contents, `None` for a directory, a tuple for a link's target."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, contents in entries:
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            if contents is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(contents, tuple):
                info.type, info.linkname = tarfile.SYMTYPE, contents[0]
            else:
                info.size = len(contents)
            archive.addfile(info, io.BytesIO(contents) if isinstance(contents, bytes) else None)
    return out.getvalue()


def layout(path, layers):
    """Writes an OCI layout with one image."""
    os.makedirs(os.path.join(path, "blobs", "sha256"))

    def blob(kind, contents):
        name = hashlib.sha256(contents).hexdigest()
        with open(os.path.join(path, "blobs", "sha256", name), "wb") as file:
            file.write(contents)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{name}", "size": len(contents)}

    def document(kind, value):
        return blob(kind, json.dumps(value).encode())

    ids = ["sha256:" + hashlib.sha256(each).hexdigest() for each in layers]
    config = document("config.v1+json", {"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": ids}})
    blobs = [blob("layer.v1.tar+gzip", gzip.compress(each)) for each in layers]
    manifest = document("manifest.v1+json", {"schemaVersion": 2, "config": config, "layers": blobs})
    for name, value in [("index.json", {"schemaVersion": 2, "manifests": [manifest]}), ("oci-layout", {"imageLayoutVersion": "1.0.0"})]:
        with open(os.path.join(path, name), "w", encoding="utf-8") as file:
            json.dump(value, file)


def busybox(scratch, _):
    """The argument of `import` that names BusyBox's image."""
    program = guest.static_busybox()
    with open(program, "rb") as file:
        base = [(name, None) for name in ("bin", "sbin", "etc", "dev", "proc", "root", "tmp")] + [("bin/busybox", file.read())]
    base += [(name, ("/bin/busybox",)) for name in call(program, "--list-full").splitlines() if name.startswith(("bin/", "sbin/"))
             and name != "bin/busybox"]
    base += [("sbin/init", ("/bin/busybox",)), ("etc/passwd", b"root:x:0:0::/:/bin/false\n"), ("etc/no-login", b"of the lower layer\n")]
    # Names that are there twice are kept once by a layer.
    upper = [("etc/passwd", b"root::0:0:root:/root:/bin/sh\n"), ("etc/inittab", INITTAB.encode()), ("etc/.wh.no-login", b"")]
    path = os.path.join(scratch, "oci")
    layout(path, [layer(dict(base).items()), layer(upper)])
    return f"oci:{path}"


def debian(_, cache):
    """An archive of Debian's root file system."""
    path = os.path.join(cache, "debian.tar")
    if not os.path.exists(path):
        if shutil.which("mmdebstrap") is None:
            raise Missing("needs mmdebstrap for a root file system; install it")
        os.makedirs(cache, exist_ok=True)
        hook = 'chroot "$1" passwd --delete root && chroot "$1" systemctl enable serial-getty@ttyS1'
        # The release of the kernel.
        release = platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
        call("mmdebstrap", "--variant=minbase", "--include=systemd-sysv,udev", "--dpkgopt=force-unsafe-io", f"--customize-hook={hook}",
             release, path + ".new.tar", env=os.environ | {"TMPDIR": MEMORY})
        os.rename(path + ".new.tar", path)
    return path


KINDS = {"busybox": busybox, "debian": debian}


def heard(process, word):
    """Reads until the guest says a word, which need not end a line."""
    said = b""
    timer = threading.Timer(LOGIN_SECONDS, process.kill)
    timer.start()
    try:
        while word not in said:
            part = process.stdout.read1(4096)
            if not part:
                raise Failed(f"the guest ended before it said {word.decode()}: {said[-600:].decode(errors='replace')}")
            said += part
    finally:
        timer.cancel()
    return said


def say(process, line):
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()


def boots(cache, image):
    """Boots an image up to a login and down again; the kernel's version."""
    with guest.Guest(cache, [], MODULES, disk=image, packages=KERNEL) as machine:
        process = machine.process
        try:
            version = machine.sh("uname -r").strip()
            machine.sh("mount -t ext4 /dev/vda /mnt")
        except Missing as why:
            raise Failed(why) from None
        say(process, "exec switch_root /mnt /sbin/init")
        heard(process, b"login: ")
        say(process, "root")
        heard(process, b"# ")
        # What the terminal echoes is not what the shell answers.
        say(process, "echo written by $((40 + 2)) > /etc/written; sync; cat /etc/written")
        heard(process, b"written by 42")
        say(process, "poweroff")
        timer = threading.Timer(LOGIN_SECONDS, process.kill)
        timer.start()
        process.stdout.read()
        timer.cancel()
        if process.wait() != 0:
            raise Failed("the guest did not shut down")
    call("e2fsck", "-fn", image)
    if call("debugfs", "-R", "cat /etc/written", image).splitlines()[-1] != "written by 42":
        raise Failed("what the guest wrote is not in the image")
    return version


def imported(program, source, image):
    """Makes the image as an ordinary user, who may not be able to read the archive."""
    how = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    words = [program, "import", "--spare", "64M", "--label", "root"]
    if os.path.isfile(source):
        with open(source, "rb") as archive:
            done = subprocess.run([*words, "-", image], stdin=archive, stdout=subprocess.DEVNULL, **how)
    else:
        done = subprocess.run([*words, source, image], stdout=subprocess.DEVNULL, **how)
    if done.returncode != 0 or os.stat(image).st_uid == 0:
        raise Failed("an ordinary user cannot make the image")


def main():
    top = common.parser(__doc__, "syncline")
    top.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    args = top.parse_args()
    if platform.machine() != "x86_64":
        raise Missing("needs an x86-64 machine, whose busybox the guest runs")
    cache = guest.cache_of(args.syncline)
    common.need("e2fsck", "debugfs")
    for kind in args.only:
        with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
            source, image = KINDS[kind](scratch, cache), os.path.join(scratch, "root.img")
            # For a user who may not enter the directory of builds.
            program = shutil.copy(args.syncline, os.path.join(scratch, "syncline"))
            os.chmod(scratch, 0o777)
            imported(program, source, image)
            print(f"{kind}: Linux {boots(cache, image)} booted it to a login", flush=True)


if __name__ == "__main__":
    common.main(main)
