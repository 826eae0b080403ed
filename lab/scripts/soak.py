"""Soaks a mount in little memory: mixed load, figures of the serving process, then a kill and a comparison.

    cargo xtask run soak [--minutes 60 --options log=packed]

The process that serves is in a memory cgroup (version 1 or 2) with a limit; cache=16M. Programs make, overwrite,
append to, rename, truncate, sync, read back and remove files all the while, each in its own directory, and note
outside of the mount what a sync has acknowledged. Every second: memory and open descriptors of the server.
At the end it is killed under load, the image is mounted again, and what was acknowledged must be there; `e2fsck -fn` judges.
One table; exit code 1 if anything is missing, or memory or descriptors grow from the middle third to the last one.
"""

import json
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import tempfile
import time

import common
from common import Failed

CACHE = "16M"
FILES = 60
FILE_BYTES_MAX = 400_000
# Growth that is noise: pages of stacks and heap that come and go.
GROWTH_KIB_MAX = 2048
GROWTH_DESCRIPTORS_MAX = 4


class Memory:
    """A cgroup with a limit, of either version."""

    def __init__(self, megabytes):
        unified = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
        above, limit = ("/sys/fs/cgroup", "memory.max") if unified else ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        self.path = os.path.join(above, f"syncline-soak-{os.getpid()}")
        try:
            os.mkdir(self.path)
            with open(os.path.join(self.path, limit), "w", encoding="ascii") as file:
                file.write(str(megabytes << 20))
        except OSError as err:
            raise common.Missing(f"{self.path}: no memory cgroup ({err}); run as root where cgroups can be made")

    def enter(self):
        with open(os.path.join(self.path, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))

    def remove(self):
        os.rmdir(self.path)


def contents(seed, length):
    return random.Random(seed).randbytes(length)


class Worker:
    """One program. Its ledger has a line for each state that a sync acknowledged: name, seed, length; and one that
    takes it back before anything is done that may undo it."""

    def __init__(self, number, directory, ledger, mode):
        self.rng, self.directory, self.ledger = random.Random(number), directory, ledger
        self.durable = mode != "periodic"
        self.live, self.done = {}, 0
        os.makedirs(directory)

    def note(self, *words):
        self.ledger.write(json.dumps(words) + "\n")
        self.ledger.flush()

    def write(self, name, path):
        seed, length = self.rng.randrange(1 << 40), self.rng.randrange(FILE_BYTES_MAX)
        self.note("changing", name)
        with open(path, "wb") as file:
            file.write(contents(seed, length))
            if self.rng.random() < 0.5:
                file.flush()
                os.fsync(file.fileno())
                if self.durable:
                    self.note("kept", name, seed, length)
        self.live[name] = (seed, length)

    def step(self):
        name = f"f{self.rng.randrange(FILES)}"
        path = os.path.join(self.directory, name)
        what = self.rng.random()
        if what < 0.5 or name not in self.live:
            self.write(name, path)
        elif what < 0.75:
            with open(path, "rb") as file:
                if file.read() != contents(*self.live[name]):
                    self.note("wrong", f"{name} read wrong")
        elif what < 0.85:
            other = f"f{self.rng.randrange(FILES)}"
            self.note("changing", name)
            self.note("changing", other)
            os.rename(path, os.path.join(self.directory, other))
            self.live[other] = self.live.pop(name)
        else:
            self.note("changing", name)
            os.unlink(path)
            del self.live[name]
        self.done += 1

    def run(self, stop):
        try:
            while not stop.is_set():
                self.step()
        except OSError as err:
            # Of the kill, which comes after `stop`.
            if not stop.is_set():
                self.note("wrong", str(err))
        self.note("operations", self.done)


def work(number, directory, path, stop, mode):
    with open(path, "w", encoding="utf-8") as ledger:
        Worker(number, directory, ledger, mode).run(stop)


def acknowledged(path):
    """What must be there, complaints, and the operations done."""
    kept, wrong, done = {}, [], 0
    with open(path, encoding="utf-8") as text:
        for line in text:
            words = json.loads(line)
            if words[0] == "kept":
                kept[words[1]] = words[2:]
            elif words[0] == "changing":
                kept.pop(words[1], None)
            elif words[0] == "operations":
                done += words[1]
            else:
                wrong.append(words[1])
    return kept, wrong, done


def figures(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as text:
        rss = next(int(line.split()[1]) for line in text if line.startswith("VmRSS"))
    return rss, len(os.listdir(f"/proc/{pid}/fd"))


def serve(program, options, image, directory, memory):
    server = subprocess.Popen([program, "mount", "-f", "-o", options, image, directory], preexec_fn=memory and memory.enter,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for _ in range(3000):
        if os.path.ismount(directory):
            return server
        if server.poll() is not None:
            raise Failed(f"the mount ended: {server.stderr.read()}")
        time.sleep(0.02)
    raise Failed("no mount within a minute")


def grew(samples, most):
    third = len(samples) // 3
    middle, last = statistics.median(samples[third:2 * third]), statistics.median(samples[2 * third:])
    return last - middle > most, middle, last


def soak(mode, args, memory, place):
    image, directory = os.path.join(place, f"{mode}.img"), os.path.join(place, "mnt")
    os.makedirs(directory, exist_ok=True)
    common.make_image(image, 512)
    options = ",".join(filter(None, [f"sync={mode},cache={CACHE}", args.options]))
    server = serve(args.syncline, options, image, directory, memory)
    stop = multiprocessing.Event()
    ledgers = [os.path.join(place, f"{mode}-{number}.ledger") for number in range(args.workers)]
    workers = []
    for number, path in enumerate(ledgers):
        arguments = (number, os.path.join(directory, f"w{number}"), path, stop, mode)
        workers.append(multiprocessing.Process(target=work, args=arguments))
        workers[-1].start()
    rss, descriptors, end = [], [], time.monotonic() + args.minutes * 60
    while time.monotonic() < end and server.poll() is None:
        found = figures(server.pid)
        rss.append(found[0])
        descriptors.append(found[1])
        time.sleep(1)
    ended = server.poll()
    stop.set()
    server.send_signal(signal.SIGKILL)
    server.wait()
    for process in workers:
        process.join()
    subprocess.run(["umount", "-l", directory], check=True)
    again = serve(args.syncline, options, image, directory, None)
    complaints, checked, operations = [], 0, 0
    for number, path in enumerate(ledgers):
        kept, wrong, done = acknowledged(path)
        complaints += wrong
        operations += done
        for name, (seed, length) in kept.items():
            checked += 1
            try:
                with open(os.path.join(directory, f"w{number}", name), "rb") as file:
                    if file.read() != contents(seed, length):
                        complaints.append(f"w{number}/{name} is not what was synced")
            except FileNotFoundError:
                complaints.append(f"w{number}/{name} was synced and is gone")
    common.call(args.syncline, "umount", directory)
    again.wait()
    complaints += filter(None, [common.judge(image)])
    if ended is not None:
        where = "; an image in a tmpfs counts as memory, set TMPDIR" if ended == -signal.SIGKILL else ""
        raise Failed(f"{mode}: the serving process ended by itself ({ended}){where}")
    memory_grew, middle, last = grew(rss, GROWTH_KIB_MAX)
    more_open, few, many = grew(descriptors, GROWTH_DESCRIPTORS_MAX)
    if memory_grew:
        complaints.append(f"memory grew from {middle} to {last} KiB")
    if more_open:
        complaints.append(f"descriptors grew from {few} to {many}")
    print(f"{mode:9} {operations:10} {max(rss) / 1024:8.1f} {middle / 1024:8.1f} {last / 1024:8.1f} {few:5.0f} {many:5.0f} "
          f"{checked:8}  {'as synced, clean' if not complaints else complaints[0]}", flush=True)
    return complaints


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--minutes", type=float, default=60, help="of each mode")
    parser.add_argument("--modes", default="eager,ordered,periodic", help="values of sync=")
    parser.add_argument("--options", default="", help="more mount options")
    parser.add_argument("--megabytes", type=int, default=64, help="memory of the serving process")
    parser.add_argument("--workers", type=int, default=4, help="programs at a time")
    parser.add_argument("--uring", action="store_true", help="offer io_uring to the mounts (Linux 6.14)")
    args = parser.parse_args()
    common.need_mounts("mke2fs", "e2fsck")
    failed = False
    memory = Memory(args.megabytes)
    try:
        with tempfile.TemporaryDirectory() as place, common.offered(args.uring):
            print(f"{'':9} {'operations':>10} {'MiB max':>8} {'middle':>8} {'end':>8} {'files':>5} {'end':>5} {'checked':>8}")
            for mode in args.modes.split(","):
                failed |= bool(soak(mode, args, memory, place))
    finally:
        memory.remove()
    return 1 if failed else 0


if __name__ == "__main__":
    common.main(main)
