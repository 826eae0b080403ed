#!/usr/bin/env python3
"""Databases that may lose time only: real programs on a mount under kills and power cuts, with `sync=periodic` and with `relaxed=*`.

    periodic_programs.py SYNCLINE [--blows N] [--only NAME ...] [--seed S] [--json FILE]

    each blow:  programs make transactions and say which are done -> at a random moment the serving process is killed, or the power of
                the emulated flash below it is cut and the process killed -> mount again -> each program opens what is there

A program is whole if it opens, its own check finds nothing, and of its transactions 1 to N none is missing up to the last that is
there. The loss is the time from the first answered transaction that is not there to the blow; with `sync=periodic` it may not exceed
the age of the last moment, which the mount is asked for right before the blow. What is damaged is made anew.

SQLite's modes MEMORY and OFF are left out: by its own account they do not survive a kill of the program.
Needs root and FUSE; a program that is not installed is left out, and the table says so.
"""
import contextlib
import ctypes
import ctypes.util
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

import capture
import common
from common import call, lab

# One moment a second; relaxed data reaches the device as often.
LEVELS = {
    "periodic": "sync=periodic,commit=1",
    "periodic, packed": "sync=periodic,commit=1,log=packed",
    "relaxed, ordered": "sync=ordered,commit=1,relaxed=*,dirty_expire_centisecs=100",
    "relaxed, eager": "sync=eager,commit=1,relaxed=*,dirty_expire_centisecs=100",
}
COMMIT_S = 1
# Blows after which all programs begin anew.
BLOWS_ANEW = 25
START_S_MAX = 60
FLASH = "nexus7-emmc:streams=4"


class Damaged(Exception):
    pass


def value(nr, size):
    return random.Random(nr).randbytes(size)


class Acks:
    """Transactions that were answered, with their time; in memory that no blow reaches."""

    def __init__(self, path):
        self.path, self.file = path, None

    def done(self, nr):
        if not self.file:
            self.file = open(self.path, "ab", buffering=0)
        self.file.write(f"{nr} {time.monotonic():.6f}\n".encode())

    @staticmethod
    def read(path):
        if not os.path.exists(path):
            return []
        with open(path, encoding="ascii") as file:
            rows = [line.split() for line in file.read().splitlines()]
        return [(int(row[0]), float(row[1])) for row in rows if len(row) == 2]


class Program:
    #: True for one that takes longer to start than others do much work in.
    starts_slowly = False
    #: False for one whose transactions are not counted.
    answers = True


class Sqlite(Program):
    def __init__(self, mode):
        self.name, self.mode = f"SQLite, {mode.upper()}", mode

    def missing(self):
        return None

    def open(self, where):
        return sqlite3.connect(os.path.join(where, "db"), isolation_level=None, timeout=60)

    def work(self, where, acks):
        db = self.open(where)
        db.execute(f"PRAGMA journal_mode = {self.mode}")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE IF NOT EXISTS t (k INTEGER PRIMARY KEY, v BLOB)")
        nr = db.execute("SELECT ifnull(max(k), 0) FROM t").fetchone()[0]
        while True:
            nr += 1
            db.execute("BEGIN")
            db.execute("INSERT INTO t VALUES (?, ?)", (nr, value(nr, 900)))
            db.execute("UPDATE t SET v = ? WHERE k = ?", (value(nr, 700), nr * 7 % 50))
            db.execute("COMMIT")
            acks.done(nr)

    def check(self, where):
        if not os.path.exists(os.path.join(where, "db")):
            return 0
        db = self.open(where)
        said = db.execute("PRAGMA integrity_check").fetchone()[0]
        if said != "ok":
            raise Damaged(said)
        if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return 0
        count, last = db.execute("SELECT count(*), ifnull(max(k), 0) FROM t").fetchone()
        if count != last:
            raise Damaged(f"{count} rows up to {last}")
        db.close()
        return last


class Lmdb(Program):
    def __init__(self, writemap):
        self.name, self.writemap = "LMDB, writemap" if writemap else "LMDB", writemap

    def missing(self):
        try:
            import lmdb  # noqa: F401
        except ImportError:
            return "python3-lmdb is not installed"
        return None

    def open(self, where):
        import lmdb
        return lmdb.open(where, map_size=64 << 20, writemap=self.writemap, sync=True, metasync=True)

    def work(self, where, acks):
        env = self.open(where)
        with env.begin() as txn:
            nr = int(txn.get(b"last", b"0"))
        while True:
            nr += 1
            with env.begin(write=True) as txn:
                txn.put(b"%09d" % nr, value(nr, 500))
                txn.put(b"%09d" % (nr * 7 % 50), value(nr, 900))
                txn.put(b"last", b"%d" % nr)
            acks.done(nr)

    def check(self, where):
        import lmdb
        if not os.path.exists(os.path.join(where, "data.mdb")):
            return 0
        try:
            env = self.open(where)
            with env.begin() as txn:
                last = int(txn.get(b"last", b"0"))
                found = {int(key) for key, _ in txn.cursor() if key != b"last"}
            env.close()
        except (lmdb.Error, ValueError) as error:
            raise Damaged(error) from error
        if not found.issuperset(range(1, last + 1)) or max(found, default=0) > max(last, 49):
            raise Damaged(f"keys are missing up to {last}")
        return last


class Rocksdb(Program):
    name = "RocksDB"

    def missing(self):
        return None if ctypes.util.find_library("rocksdb") else "librocksdb is not installed"

    def open(self, where):
        lib = ctypes.CDLL(ctypes.util.find_library("rocksdb"))
        for name in ("options_create", "open", "writeoptions_create", "readoptions_create", "writebatch_create", "get", "create_iterator",
                     "iter_key"):
            getattr(lib, f"rocksdb_{name}").restype = ctypes.c_void_p
        options = ctypes.c_void_p(lib.rocksdb_options_create())
        lib.rocksdb_options_set_create_if_missing(options, 1)
        lib.rocksdb_options_set_paranoid_checks(options, 1)
        # Small, so that tables are written and compacted all the time.
        lib.rocksdb_options_set_write_buffer_size(options, ctypes.c_size_t(256 << 10))
        error = ctypes.c_char_p()
        db = lib.rocksdb_open(options, where.encode(), ctypes.byref(error))
        if error.value:
            raise Damaged(error.value.decode())
        return lib, ctypes.c_void_p(db)

    def get(self, lib, db, key):
        error, size = ctypes.c_char_p(), ctypes.c_size_t()
        options = ctypes.c_void_p(lib.rocksdb_readoptions_create())
        found = lib.rocksdb_get(db, options, key, ctypes.c_size_t(len(key)), ctypes.byref(size), ctypes.byref(error))
        if error.value:
            raise Damaged(error.value.decode())
        return ctypes.string_at(found, size.value) if found else None

    def work(self, where, acks):
        lib, db = self.open(where)
        options = ctypes.c_void_p(lib.rocksdb_writeoptions_create())
        lib.rocksdb_writeoptions_set_sync(options, ctypes.c_ubyte(1))
        nr = int(self.get(lib, db, b"last") or b"0")
        while True:
            nr += 1
            batch = ctypes.c_void_p(lib.rocksdb_writebatch_create())
            for key, data in ((b"%09d" % nr, value(nr, 900)), (b"%09d" % (nr * 7 % 50), value(nr, 700)), (b"last", b"%d" % nr)):
                lib.rocksdb_writebatch_put(batch, key, ctypes.c_size_t(len(key)), data, ctypes.c_size_t(len(data)))
            error = ctypes.c_char_p()
            lib.rocksdb_write(db, options, batch, ctypes.byref(error))
            lib.rocksdb_writebatch_destroy(batch)
            if error.value:
                sys.exit(1)
            acks.done(nr)

    def check(self, where):
        if not os.path.exists(os.path.join(where, "CURRENT")):
            return 0
        lib, db = self.open(where)
        last = int(self.get(lib, db, b"last") or b"0")
        options = ctypes.c_void_p(lib.rocksdb_readoptions_create())
        lib.rocksdb_readoptions_set_verify_checksums(options, ctypes.c_ubyte(1))
        walk = ctypes.c_void_p(lib.rocksdb_create_iterator(db, options))
        lib.rocksdb_iter_seek_to_first(walk)
        found, size, error = set(), ctypes.c_size_t(), ctypes.c_char_p()
        lib.rocksdb_iter_valid.restype = ctypes.c_ubyte
        while lib.rocksdb_iter_valid(walk):
            key = ctypes.string_at(lib.rocksdb_iter_key(walk, ctypes.byref(size)), size.value)
            found.add(key)
            lib.rocksdb_iter_next(walk)
        lib.rocksdb_iter_get_error(walk, ctypes.byref(error))
        lib.rocksdb_iter_destroy(walk)
        lib.rocksdb_close(db)
        if error.value:
            raise Damaged(error.value.decode())
        if any(b"%09d" % nr not in found for nr in range(1, last + 1)):
            raise Damaged(f"keys are missing up to {last}")
        return last


class Git(Program):
    name = "git"
    starts_slowly = True

    def missing(self):
        return None if shutil.which("git") else "git is not installed"

    def git(self, where, *words):
        environment = dict(os.environ, HOME=where, GIT_CONFIG_NOSYSTEM="1", LC_ALL="C")
        command = ["git", "-C", where, "-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "core.fsync=all", *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    def work(self, where, acks):
        if not os.path.exists(os.path.join(where, ".git", "HEAD")):
            self.git(where, "init", "-q", ".")
        # Left by a git that was killed, as its manual says.
        for top, _, names in os.walk(os.path.join(where, ".git")):
            for name in names:
                if name.endswith(".lock"):
                    os.remove(os.path.join(top, name))
        said = self.git(where, "rev-list", "--count", "HEAD")
        nr = int(said.stdout) if said.returncode == 0 else 0
        while True:
            nr += 1
            with open(os.path.join(where, f"file{nr % 20}"), "wb") as file:
                file.write(value(nr, 3000))
            self.git(where, "add", "-A")
            if self.git(where, "commit", "-q", "-m", str(nr)).returncode:
                sys.exit(1)
            acks.done(nr)
            if nr % 40 == 0:
                self.git(where, "repack", "-q", "-a", "-d")

    def check(self, where):
        if not os.path.exists(os.path.join(where, ".git", "HEAD")):
            if os.path.exists(os.path.join(where, ".git", "refs", "heads", "master")):
                raise Damaged("no HEAD")
            return 0
        checked = self.git(where, "fsck", "--full", "--strict", "--no-dangling")
        if checked.returncode or "error" in checked.stderr:
            raise Damaged((checked.stderr or checked.stdout).strip().splitlines()[0])
        if self.git(where, "status", "--porcelain").returncode:
            raise Damaged("git status fails")
        said = self.git(where, "log", "--format=%s")
        if said.returncode:
            if "does not have any commits" in said.stderr:
                return 0
            raise Damaged(said.stderr.strip().splitlines()[0])
        numbers = [int(line) for line in said.stdout.split()]
        if numbers != list(range(len(numbers), 0, -1)):
            raise Damaged("commits are missing")
        return len(numbers)


class Server(Program):
    """A database server; subclasses start it, send it SQL, and check it."""

    server = None

    def setup(self, where):
        raise NotImplementedError

    def work(self, where, acks):
        with self.started(where):
            nr = self.last()
            with self.session() as session:
                while True:
                    nr += 1
                    session.stdin.write(self.transaction(nr))
                    session.stdin.flush()
                    line = session.stdout.readline()
                    if line.strip() != f"done{nr}":
                        sys.exit(1)
                    acks.done(nr)

    def check(self, where):
        if not os.path.exists(os.path.join(where, "made")):
            return 0
        with self.started(where):
            last, count = self.last(), int(self.sql("SELECT count(*) FROM t"))
            if last != count:
                raise Damaged(f"{count} rows up to {last}")
            self.verify()
            return last

    def last(self):
        return int(self.sql("SELECT coalesce(max(k), 0) FROM t"))

    @contextlib.contextmanager
    def started(self, where):
        # Sockets are not for the mount.
        with tempfile.TemporaryDirectory(prefix="server") as work:
            os.chmod(work, 0o777)
            self.work_dir = work
            if not os.path.exists(os.path.join(where, "made")):
                shutil.rmtree(where)
                os.mkdir(where)
                self.setup(where)
            self.start(where)
            try:
                until = time.monotonic() + 120
                while True:
                    try:
                        self.sql("SELECT 1")
                        break
                    except Damaged as error:
                        if self.server.poll() is not None:
                            raise Damaged(f"the server ends: {self.log()}") from error
                        if time.monotonic() > until:
                            raise
                        time.sleep(0.1)
                if not os.path.exists(os.path.join(where, "made")):
                    self.sql("CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR(900))" + self.engine)
                    with open(os.path.join(where, "made"), "w", encoding="ascii") as file:
                        os.fsync(file.fileno())
                yield
            finally:
                self.stop()

    def stop(self):
        self.server.send_signal(signal.SIGINT if self.fast_end else signal.SIGTERM)
        try:
            self.server.wait(60)
        except subprocess.TimeoutExpired:
            self.server.kill()

    def log(self):
        with contextlib.suppress(OSError), open(os.path.join(self.work_dir, "log"), encoding="utf-8", errors="replace") as file:
            return " | ".join(file.read().splitlines()[-4:])
        return ""

    def sql(self, text):
        done = subprocess.run([*self.client(), *self.batch, text], capture_output=True, text=True)
        if done.returncode:
            raise Damaged(done.stderr.strip()[-300:])
        return done.stdout.strip()

    def session(self):
        return subprocess.Popen(self.client(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


class Postgres(Server):
    name, engine, batch, fast_end = "PostgreSQL", "", ["-c"], True

    def programs(self):
        versions = sorted(os.listdir("/usr/lib/postgresql")) if os.path.isdir("/usr/lib/postgresql") else []
        return f"/usr/lib/postgresql/{versions[-1]}/bin" if versions else None

    def missing(self):
        return None if self.programs() and shutil.which("psql") else "postgresql is not installed"

    def as_user(self):
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--"]

    def setup(self, where):
        shutil.chown(where, "postgres")
        data = os.path.join(where, "data")
        made = subprocess.run([*self.as_user(), f"{self.programs()}/initdb", "-D", data, "-A", "trust", "--data-checksums"],
                              capture_output=True, text=True, cwd="/")
        if made.returncode:
            raise Damaged(made.stderr.strip()[-300:])

    def start(self, where):
        data = os.path.join(where, "data")
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(data, "postmaster.pid"))
        with open(os.path.join(self.work_dir, "log"), "wb") as log:
            self.server = subprocess.Popen(
                [*self.as_user(), f"{self.programs()}/postgres", "-D", data, "-k", self.work_dir, "-c", "listen_addresses="],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")

    def client(self):
        return ["psql", "-h", self.work_dir, "-U", "postgres", "-d", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1"]

    def transaction(self, nr):
        return (f"BEGIN; INSERT INTO t VALUES ({nr}, repeat('{nr % 10}', 900)); UPDATE t SET v = repeat('x', 700) WHERE k = {nr * 7 % 50};"
                f" COMMIT;\n\\echo done{nr}\n")

    def verify(self):
        self.sql("CREATE EXTENSION IF NOT EXISTS amcheck")
        self.sql("SELECT bt_index_parent_check(c.oid, true) FROM pg_class c JOIN pg_am a ON c.relam = a.oid "
                 "WHERE a.amname = 'btree' AND c.relpersistence = 'p'")
        dumped = subprocess.run(["pg_dump", "-h", self.work_dir, "-U", "postgres", "postgres"], capture_output=True, text=True)
        if dumped.returncode:
            raise Damaged(dumped.stderr.strip()[-300:])


class Mariadb(Server):
    name, engine, batch, fast_end = "MariaDB", " ENGINE=InnoDB", ["-e"], False

    def missing(self):
        return None if shutil.which("mariadbd") and shutil.which("mariadb-install-db") else "mariadb-server is not installed"

    def setup(self, where):
        shutil.chown(where, "mysql")
        made = subprocess.run(["mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={where}/data", "--skip-test-db",
                               "--auth-root-authentication-method=normal", "--innodb-log-file-size=16M"], capture_output=True, text=True)
        if made.returncode:
            raise Damaged((made.stderr or made.stdout).strip()[-300:])

    def start(self, where):
        self.server = subprocess.Popen(
            ["mariadbd", "--no-defaults", "--user=mysql", f"--datadir={where}/data", f"--socket={self.work_dir}/socket", "--skip-networking",
             f"--pid-file={self.work_dir}/pid", "--innodb-flush-method=fsync", "--innodb-flush-log-at-trx-commit=1", "--skip-log-bin",
             "--innodb-log-file-size=16M", "--innodb-buffer-pool-size=32M", f"--log-error={self.work_dir}/log"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def client(self):
        return ["mariadb", "--no-defaults", f"--socket={self.work_dir}/socket", "-u", "root", "-N", "--unbuffered", "-D", "mysql"]

    def transaction(self, nr):
        return (f"BEGIN; INSERT INTO t VALUES ({nr}, repeat('{nr % 10}', 900)); UPDATE t SET v = repeat('x', 700) WHERE k = {nr * 7 % 50};"
                f" COMMIT; SELECT 'done{nr}';\n")

    def verify(self):
        said = self.sql("CHECK TABLE t EXTENDED")
        if not said.endswith("OK"):
            raise Damaged(said)


class Chromium(Program):
    """A browser's profile: the browser comes to the last page on it, and each of its databases is whole. No transactions are counted."""

    name = "Chromium profile"
    answers = False

    def missing(self):
        return None if shutil.which("chromium") else "chromium is not installed"

    def work(self, where, acks):
        while True:
            with tempfile.TemporaryDirectory() as work:
                capture.browse(where, work, 0.3, stay_ms=100)

    def check(self, where):
        profile = os.path.join(where, "profile")
        for top, _, names in os.walk(profile):
            for name in names:
                path = os.path.join(top, name)
                if name.startswith("Singleton"):
                    os.remove(path)
                elif os.path.isfile(path) and open(path, "rb").read(15) == b"SQLite format 3":
                    self.whole(path)
        with tempfile.TemporaryDirectory() as work:
            try:
                capture.browse(where, work, 0.1, stay_ms=100)
            except RuntimeError as error:
                raise Damaged(error) from error
        return 0

    def whole(self, path):
        db = sqlite3.connect(path)
        said = db.execute("PRAGMA integrity_check").fetchone()[0]
        db.close()
        if said != "ok":
            raise Damaged(f"{os.path.basename(path)}: {said}")


# Those of a group share a mount and its blows.
GROUPS = [
    [*(Sqlite(mode) for mode in ("delete", "truncate", "persist", "wal")), Lmdb(False), Lmdb(True), Rocksdb(), Git()],
    [Postgres(), Mariadb()],
    [Chromium()],
]


class Mount:
    """A mount of an image, or of an emulated flash device whose power can be cut."""

    def __init__(self, syncline, options, cut):
        self.syncline, self.options = syncline, options
        self.work = tempfile.mkdtemp(prefix="periodic", dir="/dev/shm")
        self.image, self.mnt, self.flash = (os.path.join(self.work, name) for name in ("image", "mnt", "flash"))
        os.chmod(self.work, 0o755)
        os.mkdir(self.mnt)
        common.make_image(self.image, 4 << 10)
        self.source, self.cut, self.server = self.image, cut, None
        if cut:
            os.mkdir(self.flash)
            call(lab(syncline), "flash", "serve", FLASH, self.flash, "--image", self.image)
            self.source = os.path.join(self.flash, "flash")
        self.mount()

    def mount(self):
        command = [self.syncline, "mount", "-f", "-o", f"{self.options},allow_other", self.source, self.mnt]
        self.server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        common.wait_until(lambda: self.server.poll() is not None or os.path.ismount(self.mnt), "no mount")
        if self.server.poll() is not None:
            raise common.Failed(f"mount {self.options} failed")

    def moment(self):
        """Age of the last moment and the longest time that one took, in seconds; none without `sync=periodic`."""
        moments = json.loads(os.getxattr(self.mnt, "user.syncline.status"))["moments"]
        return moments and ((moments["age_ms"] + 1) / 1e3, moments["commit_ms_max"] / 1e3)

    def strike(self):
        if self.cut:
            call(lab(self.syncline), "flash", "cut", self.flash)
        self.server.kill()
        at = time.monotonic()
        self.server.wait()
        return at

    def again(self):
        subprocess.run(["umount", "-l", self.mnt], check=True)
        if self.cut:
            call(lab(self.syncline), "flash", "on", self.flash)
        self.mount()

    def end(self):
        if self.server and self.server.poll() is None:
            self.server.kill()
            self.server.wait()
        subprocess.run(["umount", "-l", self.mnt], capture_output=True)
        if self.cut:
            subprocess.run(["umount", self.flash], capture_output=True)
        shutil.rmtree(self.work, ignore_errors=True)


def kill_group(child):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def checked(program, where):
    """What a check says, in a process of its own: what is damaged may end it. A check without an end is damage, too."""
    command = [sys.executable, os.path.abspath(__file__), "--check", program.name, where]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                             start_new_session=True)
    try:
        said = child.communicate(timeout=240)[0]
        return json.loads(said) if child.returncode == 0 else ["damaged", f"the check ends with {child.returncode}"]
    except subprocess.TimeoutExpired:
        return ["damaged", "no end of the check"]
    finally:
        kill_group(child)


def check_here(program, where):
    try:
        return ["whole", program.check(where)]
    except (Damaged, sqlite3.Error, OSError, ValueError) as error:
        return ["damaged", f"{type(error).__name__}: {error}"]


def begin_anew(mount, programs):
    """Removes all data, so that databases stay small and young ones are struck as well."""
    for program in programs:
        shutil.rmtree(os.path.join(mount.mnt, program.name.replace(", ", "-")), ignore_errors=True)


@contextlib.contextmanager
def working(mount, programs, acks_dir):
    """The programs at work. Each has done something before the next one starts: those that start slowly come first."""
    children = []
    try:
        for program in sorted(programs, key=lambda program: not program.starts_slowly):
            where = os.path.join(mount.mnt, program.name.replace(", ", "-"))
            os.makedirs(where, exist_ok=True)
            path = os.path.join(acks_dir, program.name)
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
            command = [sys.executable, os.path.abspath(__file__), "--work", program.name, where, path]
            children.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                             start_new_session=True))
            until = time.monotonic() + START_S_MAX
            while program.answers and not os.path.exists(path) and time.monotonic() < until:
                time.sleep(0.01)
        yield
    finally:
        for child in children:
            kill_group(child)


def blow(mount, programs, tallies, rng, acks_dir):
    with working(mount, programs, acks_dir):
        time.sleep(rng.uniform(0.2, 3.5))
        asked, moment = time.monotonic(), mount.moment()
        at = mount.strike()
    mount.again()
    for program in programs:
        where = os.path.join(mount.mnt, program.name.replace(", ", "-"))
        tally = tallies[program.name]
        tally["blows"] += 1
        os.makedirs(where, exist_ok=True)
        answered = [(nr, when) for nr, when in Acks.read(os.path.join(acks_dir, program.name)) if when <= at]
        result, said = checked(program, where)
        tally["answered"] += len(answered)
        if result == "damaged":
            tally["damaged"] += 1
            tally["said"].append(said[:200])
            shutil.rmtree(where, ignore_errors=True)
            continue
        lost = [when for nr, when in answered if nr > said]
        tally["lost_transactions"] += len(lost)
        loss_s = at - lost[0] if lost else 0
        tally["loss_s_max"] = max(tally["loss_s_max"], round(loss_s, 3))
        if moment:
            age_s, commit_s = moment[0] + at - asked, moment[1]
            tally["age_s_max"] = max(tally["age_s_max"], round(age_s, 3))
            tally["commit_s_max"] = max(tally["commit_s_max"], round(commit_s, 3))
            tally["older"] += loss_s > age_s


def strike(syncline, programs, level, cut, blows, seed):
    rng = random.Random(seed)
    tallies = {program.name: {"blows": 0, "damaged": 0, "answered": 0, "lost_transactions": 0, "loss_s_max": 0.0,
                              "age_s_max": 0.0, "commit_s_max": 0.0, "older": 0, "said": []}
               for program in programs}
    mount = Mount(syncline, LEVELS[level], cut)
    try:
        with tempfile.TemporaryDirectory(prefix="acks") as acks:
            for nr in range(blows):
                if nr % BLOWS_ANEW == 0:
                    begin_anew(mount, programs)
                blow(mount, programs, tallies, rng, acks)
                print(f"{level}, {'power cut' if cut else 'kill'} {nr + 1}/{blows}: "
                      + "; ".join(f"{name} {t['damaged']} damaged, {t['loss_s_max']} s" for name, t in tallies.items()), file=sys.stderr)
    finally:
        mount.end()
    return tallies


def main():
    if sys.argv[1:2] in (["--work"], ["--check"]):
        name, where = sys.argv[2:4]
        program = next(p for group in GROUPS for p in group if p.name == name)
        if sys.argv[1] == "--work":
            program.work(where, Acks(sys.argv[4]))
        print(json.dumps(check_here(program, where)))
        return
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--blows", type=int, default=10, help="kills and power cuts of each program at each level")
    parser.add_argument("--only", nargs="*", help="parts of the names of programs")
    parser.add_argument("--levels", nargs="*", default=list(LEVELS), choices=list(LEVELS))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    common.need_mounts("mke2fs")
    # Ends what runs.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    rows, worst = [], 0
    for group in GROUPS:
        programs = [p for p in group if not args.only or any(part.lower() in p.name.lower() for part in args.only)]
        for program in list(programs):
            why = program.missing()
            if why:
                rows.append({"program": program.name, "why": why})
                programs.remove(program)
        for level in args.levels if programs else []:
            for cut in (False, True):
                for name, tally in strike(args.syncline, programs, level, cut, args.blows, args.seed).items():
                    rows.append({"program": name, "level": level, "blow": "power cut" if cut else "kill", **tally})
                    if level.startswith("periodic"):
                        worst += tally["damaged"] + tally["older"]
    for row in rows:
        print(f"{row['program']:<18}" + (row["why"] if "why" in row else
              f"{row['level']:<18}{row['blow']:<10} {row['blows']:>4} blows, {row['damaged']:>3} damaged, {row['answered']:>7} answered, "
              f"{row['lost_transactions']:>6} lost, at most {row['loss_s_max']:.2f} s; last moment at most {row['age_s_max']:.2f} s before, "
              f"a commit {row['commit_s_max']:.2f} s"))
    common.store(args.json, "periodic-programs", commit_s=COMMIT_S, results=rows)
    if worst:
        raise common.Failed("databases with sync=periodic are damaged, or lost more than the last moment's age")


if __name__ == "__main__":
    common.main(main)
