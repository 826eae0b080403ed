"""A Linux guest in qemu, for what the running kernel does not have: f2fs, ublk, nbd, dm-writecache, bcache, NFS.

    with Guest(cache, [program], disk=disk) as guest:  disk is a file: reads, writes and flushes of the guest reach it as its own
        guest.run("mount -t f2fs /dev/vda /mnt")       a shell command; its exit code and output

The kernel is Debian's package for cloud-less machines, 6.12 where apt has it, else the default one; it is fetched by apt and
unpacked into `cache`; nothing is installed. The initramfs has a static busybox, the needed modules, and the given programs with
their libraries. The guest has two serial lines: the console goes to a file, commands go through the other one.

On a busy machine an emulated timer comes late, and Linux would give up on it: `no_timer_check` says that it is there.

With `instruction_ns` time in the guest is virtual: an instruction of its one emulated processor takes so long, and a wait takes no
time of the host. What runs beside qemu changes no figure then.
"""
import glob
import lzma
import os
import re
import shutil
import subprocess
import tempfile
import threading

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
mkdir -p /dev/shm /mnt /tmp
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


class Missing(Exception):
    """Why there is no guest on this machine."""


def kernel(cache):
    """The directory of an unpacked kernel package: boot and lib."""
    root = os.path.join(cache, "kernel")
    if glob.glob(os.path.join(root, "boot", "vmlinuz-*")):
        return root
    if shutil.which("apt-get") is None:
        raise Missing("needs a kernel for a guest; on Debian apt fetches it")
    for package in KERNELS:
        depends = subprocess.run(["apt-cache", "depends", package], capture_output=True, text=True).stdout
        name = re.search(r"Depends: (linux-image-\S+)", depends)
        if name is not None:
            return unpacked(name.group(1), root)
    raise Missing(f"no package {KERNELS[-1]}; run apt-get update")


def unpacked(package, root):
    """Fetches a Debian package and unpacks it into `root`, which is returned."""
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
             for path in glob.glob(os.path.join(root, "lib/modules/**/*.ko*"), recursive=True)}
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


def initramfs(root, programs, modules):
    """The bytes of the guest's first file system. Programs come before busybox's of the same name."""
    busybox = shutil.which("busybox")
    if busybox is None or "not a dynamic" not in subprocess.run(["ldd", busybox], capture_output=True, text=True).stderr:
        raise Missing("needs a static busybox; install busybox-static")
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

    def __init__(self, cache, programs, modules=None, disk=None, processors=2, instruction_ns=None, network=False):
        """`instruction_ns` (1, 2, 4, ...): one processor, in virtual time. `network`: 10.0.2.2 is this machine's loopback interface."""
        if shutil.which("qemu-system-x86_64") is None:
            raise Missing("needs qemu-system-x86_64; install qemu-system-x86")
        os.makedirs(cache, exist_ok=True)
        root = kernel(cache)
        self.network = network
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
                   "-display", "none", "-kernel", glob.glob(os.path.join(root, "boot", "vmlinuz-*"))[0],
                   "-initrd", os.path.join(self.scratch, "initramfs"), "-append", "console=ttyS0 panic=-1 quiet no_timer_check",
                   "-serial", "file:" + os.path.join(self.scratch, "console"), "-serial", "stdio"]
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
