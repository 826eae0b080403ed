"""What the runs of public test suites share: images, mounts, judgement, expectations.

A suite is a checkout that the user brings; nothing of it is in this repository. `Kernel` and `Mount` make a
file system on an image and mount it, the second with this project's program.
"""

import json
import os
import shutil
import subprocess
import sys

# Where mount(8) and umount(8) look for helpers.
HELPERS = ["/sbin/mount.fuse.syncline", "/sbin/umount.fuse.syncline"]

DF = """#!/bin/sh
{df} "$@" | sed 's/ fuse\\.syncline / {name} /'
"""


def fail(text, code=2):
    print(text, file=sys.stderr)
    sys.exit(code)


def need(programs, packages):
    missing = [name for name in programs if shutil.which(name) is None]
    if os.geteuid() != 0:
        fail("mounts and users of the suite need root; run it as root")
    if missing:
        fail(f"missing: {', '.join(missing)}; on Debian: apt install {packages}")


def run(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


class Helpers:
    """The links that mount(8) needs, for as long as the suite runs; those of somebody else are left."""

    def __init__(self, program):
        self.program = os.path.abspath(program)
        self.made = []

    def __enter__(self):
        for path in HELPERS:
            if os.path.lexists(path) and os.path.realpath(path) != os.path.realpath(self.program):
                fail(f"{path} is another program; remove it first")
            if not os.path.lexists(path):
                os.symlink(self.program, path)
                self.made.append(path)
        return self

    def __exit__(self, *_):
        for path in self.made:
            os.unlink(path)


def with_df(base, name):
    """A PATH on which df calls our mounts by the name that a suite knows."""
    path = os.path.join(base, "bin")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "df"), "w", encoding="utf-8") as script:
        script.write(DF.format(df=shutil.which("df"), name=f"{name:13}"))
    os.chmod(os.path.join(path, "df"), 0o755)
    return f"{path}:{os.environ['PATH']}"


def mount_options(mode):
    """Those of a column: a value of `sync=`, or one of these with the packed format of the log; `+OPTION` adds some."""
    mode, *more = mode.split("+")
    first = {"packed": "sync=eager,log=packed", "periodic-packed": "sync=periodic,log=packed"}.get(mode, f"sync={mode}")
    return ",".join([first] + more)


def store(path, name, results, **more):
    """For `cargo xtask figures`, which takes `results`."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"schema": f"syncline.{name}/1", "results": results} | more, file, indent=1)


def make_image(path, megabytes):
    if os.path.exists(path):
        os.unlink(path)
    run("truncate", "-s", f"{megabytes}M", path)
    # Blocks as of a large image, whatever this one has: a symbolic link may be as long as a block.
    run("mkfs.ext4", "-qF", "-b", "4096", path)


def judge(image):
    """Nothing, or the first complaint of e2fsck."""
    found = subprocess.run(["e2fsck", "-fn", image], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if found.returncode == 0:
        return ""
    lines = [line for line in found.stdout.splitlines() if line and not line.startswith(("e2fsck", "Pass"))]
    return lines[0] if lines else f"e2fsck: exit code {found.returncode}"


def expectations(path):
    """Lines `NAME reason`: what is known to fail, and why."""
    known = {}
    with open(path, encoding="utf-8") as text:
        for line in text:
            name, _, reason = line.strip().partition(" ")
            if name and not name.startswith("#"):
                if not reason:
                    fail(f"{path}: {name} has no reason; give one")
                known[name] = reason
    return known
