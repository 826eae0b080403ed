"""What the scripts share: programs, commands, results, images, emulated flash, mounts, web servers."""
import argparse
import contextlib
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

# A checkout stays as it is.
sys.dont_write_bytecode = True

ROOT = pathlib.Path(__file__).resolve().parents[2]
MKE2FS = "mke2fs -q -t ext4 -b 4096 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "
MOUNTED_SECONDS = 120
# Whether the kernel offers FUSE over io_uring (Linux 6.14).
URING = "/sys/module/fuse/parameters/enable_uring"
# Exit code where something is not there, as tests have it elsewhere.
MISSING = 77


class Missing(Exception):
    """A program or a part of the system that is not there."""


class Failed(Exception):
    """What went wrong, for the person who runs the script."""


def main(run):
    """Runs the script; what it raises is its last line."""
    try:
        sys.exit(run())
    except (Missing, Failed) as why:
        print(f"{pathlib.Path(sys.argv[0]).stem}: {why}", file=sys.stderr)
        sys.exit(MISSING if isinstance(why, Missing) else 1)


def parser(doc, *names):
    """A parser of a script whose figures go to --json; `names` are its positional arguments."""
    found = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in names:
        found.add_argument(name, type=os.path.abspath if name == "syncline" else str)
    found.add_argument("--json", help="write the figures as JSON")
    return found


def store(path, name, **fields):
    """For `cargo xtask figures`, which takes one of the fields; nothing without a path."""
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"schema": f"syncline.{name}/1"} | fields, file, indent=1)


def lab(syncline):
    """The program of the laboratory, which lies beside `syncline`."""
    return str(pathlib.Path(syncline).absolute().with_name("syncline-lab"))


def bench_words(workload, *options):
    """The words of `syncline-lab` that run one workload, as `sqlite/insert`; `create` has one test without a name."""
    return ["bench", *workload.removesuffix("/4k-fsync").split("/"), *map(str, options)]


def call(*words, **how):
    """Runs a program that must succeed; its output without the last newline."""
    words = [str(word) for word in words]
    if shutil.which(words[0]) is None:
        raise Missing(f"{words[0]} is not installed")
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, **how)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        raise Failed(f"{words[0]}: {' '.join(said[-3:])}")
    return done.stdout.strip()


def document(*words):
    """The JSON document of a command."""
    return json.loads(call(*words, "--json", "-"))


def bench(program, workload, *options):
    """The runs of a benchmark in this process."""
    return document(program, *bench_words(workload, *options))["runs"]


def need(*programs):
    """The path of the first of these programs that is installed."""
    for name in programs:
        found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/lib/dovecot")
        if found:
            return found
    raise Missing(f"{programs[0]} is not installed")


def need_mounts(*programs):
    """Root, FUSE, loop devices, and these programs."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse") or not os.path.exists("/dev/loop-control"):
        raise Missing("needs root, /dev/fuse and loop devices; run it on a machine that has them")
    for program in programs:
        need(program)


def wait_until(true, what, seconds=MOUNTED_SECONDS, step=0.02):
    """Waits for a condition, or says what did not come."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise Failed(what)
        time.sleep(step)


def make_image(path, megabytes):
    """A sparse file with an ext4."""
    with open(path, "wb") as file:
        file.truncate(megabytes << 20)
    # Blocks as of a large image, whatever this one has: a symbolic link may be as long as a block.
    call("mke2fs", "-qF", "-t", "ext4", "-b", "4096", "-E", "nodiscard", path)


def judge(image):
    """Nothing, or the first complaint of e2fsck."""
    found = subprocess.run(["e2fsck", "-fn", image], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if found.returncode == 0:
        return ""
    lines = [line for line in found.stdout.splitlines() if line and not line.startswith(("e2fsck", "Pass"))]
    return lines[0] if lines else f"e2fsck: exit code {found.returncode}"


def busy(path):
    """Whether a process has this file open."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if any(os.readlink(f"/proc/{pid}/fd/{fd}") == path for fd in os.listdir(f"/proc/{pid}/fd")):
                return True
    return False


def unmount(mnt, source):
    """Unmounts what is mounted; a FUSE server writes back after the mount is gone."""
    if os.path.ismount(mnt):
        call("umount", mnt)
        wait_until(lambda: not busy(source), f"{source} is still in use", 600)


@contextlib.contextmanager
def flash(syncline, profile, *options):
    """A served flash device in real time: its directory, and its node with --attach. Its file is `flash` in the directory."""
    with tempfile.TemporaryDirectory(prefix="flash") as directory:
        node = call(lab(syncline), "flash", "serve", profile, directory, *options)
        try:
            yield directory, node
        finally:
            if node:
                subprocess.run(["losetup", "-d", node], check=False)
            # The kernel lets go of a loop device a moment later.
            ended = ["umount", directory] if os.geteuid() == 0 else [lab(syncline), "flash", "detach", directory]
            wait_until(lambda: subprocess.run(ended, capture_output=True).returncode == 0, f"{directory} is still in use", 60, 0.1)


def stats(directory):
    """The counts of a served device."""
    with open(os.path.join(directory, "stats"), encoding="utf-8") as file:
        return json.load(file)


def rates(metrics, before, after, operations):
    """The rate of a benchmark's foreground, and what its device saw meanwhile."""
    counts = {key: (after[key] - before[key]) / operations
              for key in ("write_requests", "written_bytes", "flushes", "nand_page_programs")}
    rate = metrics.get("transactions_per_s") or operations / metrics["duration_s"]
    return {"per_s": rate, "latency_us_p50": metrics.get("latency_us_p50"), "latency_us_p99": metrics.get("latency_us_p99"), **counts}


@contextlib.contextmanager
def offered(uring):
    """The kernel's offer of FUSE over io_uring, if it is wanted."""
    if not uring:
        yield
        return
    try:
        with open(URING) as file:
            before = file.read()
    except FileNotFoundError:
        raise Missing(f"{URING}: this kernel has no FUSE over io_uring; it needs Linux 6.14") from None
    try:
        with open(URING, "w") as file:
            file.write("Y")
        yield
    finally:
        with open(URING, "w") as file:
            file.write(before)


@contextlib.contextmanager
def mounted(syncline, profile, system, *options):
    """A file system on a fresh flash device, made by `system[1]` and mounted by `system[2]`: the names of its parts."""
    kernel = "{node}" in system[1] + system[2]
    with flash(syncline, profile, *options, *["--attach=loop"] * kernel) as (directory, node), tempfile.TemporaryDirectory() as mnt:
        names = {"node": node, "flash": os.path.join(directory, "flash"), "mnt": mnt, "syncline": syncline, "directory": directory}
        try:
            for command in filter(None, system[1:]):
                call(*(word.format(**names) for word in command.split()))
            wait_until(lambda: os.path.ismount(mnt), "it did not mount")
            yield names
        finally:
            unmount(mnt, node or names["flash"])


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        # A client that ends leaves connections.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def web(answer, send):
    """A web server on the loopback address that knows ranges; its address. `answer(path)` gives headers and bytes, `send(file, part)`
    writes a part of them."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            headers, body = answer(self.path)
            asked, whole = self.headers.get("Range", ""), len(body)
            first, last = 0, whole - 1
            if asked.startswith("bytes="):
                low, _, high = asked[6:].partition("-")
                first, last = int(low), min(int(high or last), last)
                headers = headers | {"Content-Range": f"bytes {first}-{last}/{whole}"}
            self.send_response(206 if asked else 200)
            for name, value in ({"Accept-Ranges": "bytes", "Content-Length": str(last + 1 - first)} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                send(self.wfile, memoryview(body)[first:last + 1])

        def log_message(self, *_):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
