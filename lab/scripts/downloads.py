#!/usr/bin/env python3
"""Programs that download a file, unmodified, and what they download from: on this machine alone.

    downloads.py [--size MIB] [--library libsyncline_preload.so] [--kill] [NAME ...]

    single stream     curl                                      \\
    parts             aria2c, 16 connections                     > a web server: each connection has its rate
    BitTorrent        aria2c, transmission-cli, qbittorrent-nox  > peers that speak BEP 3: each tells of its pieces in
                                                                   a random order, as peers do that download themselves

Each program downloads `film.iso`, which is compared with what was served; with --library it is a FlashLite log while
the program runs, with --kill the program is killed half way and started again. A program that is not installed is
named and left out. For `capture.py`, `fetch` with one of `CLIENTS`; `wrap` is put before the program's words.
"""
import argparse
import contextlib
import hashlib
import json
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import common
from common import Missing, need

NAME = "film.iso"
PIECE = 256 << 10
PEERS = 8
# Pieces that a peer has told of and nobody has asked for.
OFFER = 16
PART = 64 << 10
TIMEOUT_S = 600


def content(size_bytes):
    return random.Random(41).randbytes(size_bytes)


class Gate:
    """Bytes that are served, all connections together, until the client is to be killed."""

    def __init__(self, left):
        self.left, self.over, self.change = left, False, threading.Condition()

    def take(self, count):
        with self.change:
            self.left -= count
            while self.left < 0 and not self.over:
                self.change.wait(1)

    def shut(self):
        return self.left < 0

    def close(self):
        with self.change:
            self.over = True
            self.change.notify_all()


class Rate:
    """Holds one connection to so many bytes a second, and to the gate."""

    def __init__(self, bytes_s, gate):
        self.bytes_s, self.gate, self.due = bytes_s, gate, time.monotonic()

    def wait(self, count):
        if self.gate:
            self.gate.take(count)
        self.due = max(self.due, time.monotonic() - 0.05) + count / self.bytes_s
        time.sleep(max(0, self.due - time.monotonic()))


def bencode(value):
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, bytes):
        return b"%d:%s" % (len(value), value)
    if isinstance(value, dict):
        return b"d" + b"".join(bencode(key) + bencode(value[key]) for key in sorted(value)) + b"e"
    raise TypeError(value)


class Torrent:
    def __init__(self, body):
        self.body, self.pieces = body, -(-len(body) // PIECE)
        sums = b"".join(hashlib.sha1(body[at:at + PIECE]).digest() for at in range(0, len(body), PIECE))
        info = {b"name": NAME.encode(), b"length": len(body), b"piece length": PIECE, b"pieces": sums}
        self.hash = hashlib.sha1(bencode(info)).digest()
        # A tracker that is not there; peers come by themselves.
        self.file = bencode({b"announce": b"http://127.0.0.1:9/announce", b"info": info})


class Peers:
    """Peers that go to a client at `port` and serve it until they are closed."""

    def __init__(self, torrent, port, bytes_s, gate):
        self.torrent, self.port, self.bytes_s, self.gate = torrent, port, bytes_s, gate
        self.asked, self.over = set(), threading.Event()
        self.threads = [threading.Thread(target=self.peer, args=(number,), daemon=True) for number in range(PEERS)]
        for thread in self.threads:
            thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def peer(self, number):
        while not self.over.wait(0.2):
            # The client is not there yet, does not know the torrent yet, or went away.
            with contextlib.suppress(OSError, struct.error):
                # An address of its own: clients take one connection from each.
                with socket.create_connection(("127.0.0.1", self.port), 2, (f"127.0.0.{number + 2}", 0)) as line:
                    self.talk(line, number)

    def talk(self, line, number):
        torrent, rate = self.torrent, Rate(self.bytes_s, self.gate)
        hello = b"\x13BitTorrent protocol"
        line.sendall(hello + bytes(8) + torrent.hash + b"-SL0002-%012d" % number)
        theirs = bytearray()
        while len(theirs) < 68 and (more := line.recv(68 - len(theirs))):
            theirs += more
        if theirs[:20] != hello or theirs[28:48] != torrent.hash:
            raise OSError("another torrent")

        def say(kind, *parts):
            text = b"".join(parts)
            line.sendall(struct.pack(">IB", len(text) + 1, kind) + text)

        def tell(piece):
            say(4, struct.pack(">I", piece))

        say(5, bytes(-(-torrent.pieces // 8)))
        say(1)
        untold, offered, got = list(range(torrent.pieces)), set(), bytearray()
        random.Random(number).shuffle(untold)
        while not self.over.is_set():
            offered -= self.asked
            while untold and len(offered) < OFFER:
                tell(untold[-1])
                offered.add(untold.pop())
            if not select.select([line], [], [], 0.05)[0]:
                continue
            more = line.recv(1 << 16)
            if not more:
                return
            got += more
            while len(got) >= 4 and len(got) >= 4 + int.from_bytes(got[:4], "big"):
                length = int.from_bytes(got[:4], "big")
                message, got = bytes(got[4:4 + length]), got[4 + length:]
                kind = message[0] if message else None
                if kind == 5:
                    # What it has from before it will not ask for.
                    self.asked |= {n for n in range(torrent.pieces) if message[1 + n // 8] << n % 8 & 0x80}
                elif kind == 4:
                    self.asked.add(int.from_bytes(message[1:5], "big"))
                elif kind == 6:
                    piece, begin, count = struct.unpack(">III", message[1:13])
                    self.asked.add(piece)
                    rate.wait(count)
                    at = piece * PIECE + begin
                    say(7, message[1:9], torrent.body[at:at + count])


def free_port():
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return line.getsockname()[1]


class Run:
    """A program that runs until it ends by itself, or until `until()` says that it has what it wants."""

    def __init__(self, words, wrap, work, until=None):
        env = dict(os.environ, HOME=work, XDG_CONFIG_HOME=work, XDG_DATA_HOME=work, XDG_CACHE_HOME=work)
        with open(os.path.join(work, "said"), "ab") as said:
            self.program = subprocess.Popen([*wrap, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=env,
                                            cwd=work)
        self.until = until

    def wait(self, kill=None):
        """Waits for the end; with `kill()` true the program is killed before. True if it ended by itself."""
        end = time.monotonic() + TIMEOUT_S
        asked = False
        while self.program.poll() is None:
            if kill and kill():
                self.program.kill()
                self.program.wait()
                return False
            if self.until and not asked and self.until():
                self.program.send_signal(signal.SIGINT)
                asked = True
            if time.monotonic() > end:
                self.program.kill()
                self.program.wait()
                raise RuntimeError("the download takes too long")
            time.sleep(0.05)
        return True


@contextlib.contextmanager
def serves_web(_work, body, bytes_s, gate):
    def send(file, whole):
        rate = Rate(bytes_s, gate)
        for at in range(0, len(whole), PART):
            part = whole[at:at + PART]
            rate.wait(len(part))
            file.write(part)

    with common.web(lambda _: ({}, body), send) as address:
        yield f"{address}/{NAME}"


@contextlib.contextmanager
def serves_torrent(work, body, bytes_s, gate):
    torrent, port = Torrent(body), free_port()
    path = os.path.join(work, "film.torrent")
    with open(path, "wb") as file:
        file.write(torrent.file)
    with Peers(torrent, port, bytes_s, gate):
        yield path, port


def curl(url, directory, work, wrap):
    """curl, a single stream."""
    return Run([need("curl"), "-sS", "-C", "-", "-o", os.path.join(directory, NAME), url], wrap, work)


def aria2(url, directory, work, wrap):
    """aria2c, 16 connections to a web server."""
    words = ["--no-conf", "-q", "-x16", "-s16", "-k1M", "--auto-save-interval=1", "-c", "-d", directory, "-o", NAME, url]
    return Run([need("aria2c"), *words], wrap, work)


def aria2_torrent(source, directory, work, wrap):
    """aria2c, BitTorrent."""
    torrent, port = source
    words = ["--no-conf", "-q", "--seed-time=0", f"--listen-port={port}", "--enable-dht=false", "--bt-enable-lpd=false",
             "--enable-peer-exchange=false", "--auto-save-interval=1", "-c", "-d", directory, torrent]
    return Run([need("aria2c"), *words], wrap, work)


def transmission(source, directory, work, wrap):
    """transmission-cli, BitTorrent."""
    torrent, port = source
    need("transmission-cli")
    # Pieces in memory; its own default is 4 MiB.
    cache_mib = 4 if os.path.getsize(torrent) > 4000 else 1
    settings = {"dht-enabled": False, "lpd-enabled": False, "pex-enabled": False, "utp-enabled": False,
                "port-forwarding-enabled": False, "peer-limit-per-torrent": 60, "umask": 18, "cache-size-mb": cache_mib,
                "rename-partial-files": True, "encryption": 0, "ratio-limit-enabled": False}
    with open(os.path.join(work, "settings.json"), "w", encoding="utf-8") as file:
        json.dump(settings, file)
    done, script = os.path.join(work, "done"), os.path.join(work, "finish.sh")
    with open(script, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\n: >{done}\n")
    os.chmod(script, 0o755)
    words = ["transmission-cli", "-g", work, "-w", directory, "-p", str(port), "-f", script, "-M", "-et", torrent]
    return Run(words, wrap, work, lambda: os.path.exists(done))


def qbittorrent(source, directory, work, wrap):
    """qbittorrent-nox, BitTorrent."""
    torrent, port = source
    need("qbittorrent-nox")
    control = free_port()
    config = os.path.join(work, "qBittorrent", "config")
    os.makedirs(config, exist_ok=True)
    with open(os.path.join(config, "qBittorrent.conf"), "w", encoding="utf-8") as file:
        file.write(f"""[LegalNotice]
Accepted=true
[BitTorrent]
Session\\DHTEnabled=false
Session\\LSDEnabled=false
Session\\PeXEnabled=false
Session\\Port={port}
Session\\BTProtocol=TCP
Session\\MultiConnectionsPerIp=true
[Preferences]
WebUI\\Address=127.0.0.1
WebUI\\LocalHostAuth=false
WebUI\\Port={control}
""")

    def whole():
        with contextlib.suppress(OSError, ValueError):
            with urllib.request.urlopen(f"http://127.0.0.1:{control}/api/v2/torrents/info", timeout=2) as answer:
                found = json.load(answer)
                return bool(found) and found[0]["progress"] == 1
        return False

    words = ["qbittorrent-nox", f"--profile={work}", f"--save-path={directory}", "--skip-dialog=true", torrent]
    return Run(words, wrap, work, whole)


# name: how it is served, the connections, the program
CLIENTS = {
    "curl": (serves_web, 1, curl),
    "aria2": (serves_web, 16, aria2),
    "aria2-torrent": (serves_torrent, PEERS, aria2_torrent),
    "transmission": (serves_torrent, PEERS, transmission),
    "qbittorrent": (serves_torrent, PEERS, qbittorrent),
}


def same(name, directory, body):
    with open(os.path.join(directory, NAME), "rb") as file:
        if hashlib.sha256(file.read()).digest() != hashlib.sha256(body).digest():
            raise RuntimeError(f"{name}: the file is another one than was served")


def fetch(name, directory, work, body, bytes_s, wrap=(), kill=None):
    """The whole file by one client, all its connections together at `bytes_s`; killed once when half of it was
    served and `kill()` says so."""
    serves, connections, client = CLIENTS[name]
    for gate in [Gate(len(body) // 2), None] if kill else [None]:
        with serves(work, body, bytes_s // connections, gate) as source:
            run = client(source, directory, work, list(wrap))
            ended = run.wait(gate and (lambda: gate.shut() and kill()))
            if gate:
                gate.close()
        if gate and ended:
            raise RuntimeError(f"{name} ended before it was to be killed; see {work}/said")
    if run.program.returncode not in (0, -signal.SIGINT):
        raise RuntimeError(f"{name} ended with {run.program.returncode}; see {work}/said")
    same(name, directory, body)


def length(path):
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def try_client(name, args, body, directory, work):
    """One client; what is to be said of it."""
    wrap, report = [], os.path.join(work, "report")
    if args.library:
        wrap = ["env", f"LD_PRELOAD={os.path.abspath(args.library)}", f"SYNCLINE_PRELOAD_RULES=log {NAME}*",
                f"SYNCLINE_PRELOAD_REPORT={report}"]

    def begun():
        # More than the head of a log.
        return any(length(os.path.join(directory, found)) > 1 << 18 for found in os.listdir(directory)
                   if found.endswith(".flashlite") or not args.library)

    fetch(name, directory, work, body, args.rate << 20, wrap, begun if args.kill else None)
    text = f"{name}: {len(body) >> 20} MiB, whole"
    if args.library:
        left = [found for found in os.listdir(directory) if found.endswith(".flashlite")]
        if left:
            raise RuntimeError(f"{name}: {', '.join(left)} was left")
        logs = 0
        with contextlib.suppress(FileNotFoundError), open(report, encoding="utf-8") as lines:
            logs = sum(json.loads(line)["logs"] for line in lines)
        with open(os.path.join(work, "said"), encoding="utf-8", errors="replace") as said:
            ended = [line.strip() for line in said if line.startswith("syncline preload:")]
        text = "; ".join([text, f"{logs} logs", *ended])
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CLIENTS)}; all by default")
    parser.add_argument("--size", type=int, default=64, help="MiB")
    parser.add_argument("--rate", type=int, default=8, help="MiB a second, of all connections together")
    parser.add_argument("--library", help="libsyncline_preload.so")
    parser.add_argument("--kill", action="store_true", help="kill each program half way, once")
    parser.add_argument("--dir", help="where to download to")
    args = parser.parse_args()
    if args.library and not os.path.exists(args.library):
        # The loader would go on without it.
        parser.error(f"{args.library} is not there; cargo build --release -p syncline-preload")
    if unknown := set(args.names) - set(CLIENTS):
        print(f"downloads.py: no client {', '.join(sorted(unknown))}; see --help", file=sys.stderr)
        return 2
    body, failed = content(args.size << 20), 0
    for name in args.names or CLIENTS:
        with tempfile.TemporaryDirectory(prefix="downloads-", dir=args.dir) as place:
            directory, work = os.path.join(place, "files"), os.path.join(place, "work")
            os.mkdir(directory)
            os.mkdir(work)
            try:
                print(try_client(name, args, body, directory, work), flush=True)
            except Missing as err:
                print(f"{name}: left out, {err}", flush=True)
            except RuntimeError as err:
                failed = 1
                with contextlib.suppress(OSError), open(os.path.join(work, "said"), "rb") as said:
                    print(said.read()[-800:].decode(errors="replace"), file=sys.stderr)
                print(f"{name}: failed, {err}", file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
