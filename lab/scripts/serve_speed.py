#!/usr/bin/env python3
"""A stream through `syncline serve --nfs` over loopback, beside the same stream through a FUSE mount.

    serve_speed.py SYNCLINE [--mib N] [--rounds N] [--memory DIR] [--json FILE]

    mount:  dd writes a file and syncs it; mounted again, dd reads it                        root or fusermount3
    serve:  nfs-cp writes a file, which the server makes durable; served again, nfs-cat reads it      package libnfs-utils

The image is in memory. Rounds take turns, so that a busy machine slows both; of each the best round counts, in MiB a second. Both
files are compared with what was written. nfs-cp has one request under way at a time, as the simplest of clients.
"""
import os
import signal
import subprocess
import tempfile
import time

import common
from common import Failed, call

SYSTEMS = ["mount", "serve"]


def timed(mib, command):
    """Runs it; MiB a second."""
    began = time.monotonic()
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return mib / (time.monotonic() - began)


class Bench:
    def __init__(self, program, directory, mib):
        self.program, self.mib = program, mib
        self.source, self.image, self.back = (os.path.join(directory, name) for name in ("source", "card.img", "back"))
        self.mnt = os.path.join(directory, "mnt")
        os.mkdir(self.mnt)
        with open(self.source, "wb") as file:
            for _ in range(mib):
                file.write(os.urandom(1 << 20))

    def new(self):
        call(self.program, "mkfs", "--force", "--size", f"{self.mib * 2 + 64}M", self.image)

    def mount(self):
        self.new()
        there, done = [self.program, "mount", self.image, self.mnt], [self.program, "umount", self.mnt]
        call(*there)
        write = timed(self.mib, f"dd if={self.source} of={self.mnt}/f bs=1M conv=fsync")
        call(*done)
        call(*there)
        read = timed(self.mib, f"dd if={self.mnt}/f of={self.back} bs=1M")
        call(*done)
        return write, read

    def serve(self):
        self.new()
        write = self.served(lambda url: f"nfs-cp {self.source} '{url}'")
        return write, self.served(lambda url: f"nfs-cat '{url}' > {self.back}")

    def served(self, command):
        server = subprocess.Popen([self.program, "serve", "--nfs", "127.0.0.1:0", self.image], stdout=subprocess.PIPE, text=True)
        try:
            port = server.stdout.readline().split("127.0.0.1:")[1].split(" ")[0]
            return timed(self.mib, command(f"nfs://127.0.0.1//f?nfsport={port}&mountport={port}"))
        finally:
            server.send_signal(signal.SIGTERM)
            if server.wait() != 0:
                raise Failed(f"the server ended with {server.returncode}")

    def round(self, system):
        rates = getattr(self, system)()
        if subprocess.run(["cmp", "-s", self.source, self.back]).returncode != 0:
            raise Failed(f"{system}: other bytes came back")
        return rates


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", default="/dev/shm")
    args = parser.parse_args()
    best = {system: {"write": 0.0, "read": 0.0} for system in SYSTEMS}
    with tempfile.TemporaryDirectory(dir=args.memory) as directory:
        bench = Bench(args.syncline, directory, args.mib)
        for _ in range(args.rounds):
            for system in SYSTEMS:
                for what, rate in zip(("write", "read"), bench.round(system)):
                    best[system][what] = max(best[system][what], round(rate, 1))
    for system, rates in best.items():
        print(f"{system:6} write {rates['write']:8.1f} MiB/s  read {rates['read']:8.1f} MiB/s")
    common.store(args.json, "serve-speed", mib_per_s=best)


if __name__ == "__main__":
    common.main(main)
