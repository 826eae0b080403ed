#!/usr/bin/env python3
"""Runs public test suites on mounts and on the kernel's ext4. A suite is a checkout of the user; nothing of it is in this repository.

    suites.py pjdfstest SYNCLINE CHECKOUT [--modes packed,periodic] [--only PART]
        pjd/pjdfstest (C and shell). Each file of tests gets a new image, which `e2fsck -fn` judges afterwards. One table; exit code 1
        if an assertion fails on a mount that is not in suites/pjdfstest.expected. Needs autoconf, automake, gcc, make, openssl.
    suites.py xfstests SYNCLINE CHECKOUT [TEST ...] [--modes eager,ordered] [--options log=packed]
        kdave/xfstests (FSTYP=fuse). TEST: generic/NNN, a group of generic, or NNN-NNN, the part of the group `quick` with these numbers,
        which is what runs without TESTs. Each test runs alone, on the test image of its run and on a new scratch image; `e2fsck -fn`
        judges both afterwards. One line a test, with seconds; exit code 1 if a test that ext4 passes fails on a mount and is not in
        suites/xfstests.expected. On Debian: apt install xfsprogs xfslibs-dev automake libtool-bin autoconf gettext uuid-dev
        libacl1-dev libattr1-dev libaio-dev libcap-dev libgdbm-dev liburing-dev attr acl bc gawk dbench psmisc quota; and users:
        useradd -m fsgqa; useradd fsgqa2; useradd 123456-fsgqa.
    suites.py loads SYNCLINE CHECKOUT [--rounds N]
        the loads of those tests of kdave/xfstests that take long on a mount, by the suite's programs and xfs_io, on a new image of each
        kind in turn; the median counts. One line a load and kind: milliseconds, and how many times those of ext4.
    suites.py sqlite EXTENSION SOURCE [TEST ...] [--options sync=ordered]
        SQLite's own TCL tests with databases in images, through the loadable extension. SOURCE is unpacked by `apt-get source sqlite3`;
        its test program is built once in target/sqlite-suite, with suites/vfs.c as the default VFS. Every test runs in a directory and
        with an image of its own; e2fsck judges the image afterwards. A failure in suites/sqlite.expected is expected; a failure of
        SQLite's unix VFS, too, is not counted.
"""
import collections
import contextlib
import fnmatch
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

import common
from common import Failed, call, judge, make_image

HERE = pathlib.Path(__file__).resolve().parent / "suites"
# Where mount(8) and umount(8) look for helpers.
HELPERS = ["/sbin/mount.fuse.syncline", "/sbin/umount.fuse.syncline"]
DF = """#!/bin/sh
{df} "$@" | sed 's/ fuse\\.syncline / {name} /'
"""


class Helpers:
    """The links that mount(8) needs, for as long as the suite runs; those of somebody else are left."""

    def __init__(self, program):
        self.program = os.path.abspath(program)
        self.made = []

    def __enter__(self):
        for path in HELPERS:
            if os.path.lexists(path) and os.path.realpath(path) != os.path.realpath(self.program):
                raise Failed(f"{path} is another program; remove it first")
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


def through_uring(options):
    """Whether these options ask for FUSE over io_uring by name: then the kernel offers it."""
    return "uring=auto" in options.split(",")


@contextlib.contextmanager
def on(kind, program, options, image, directory):
    """The image mounted: by the kernel for `ext4`, else by the program, and through io_uring where the options name it."""
    with common.offered(through_uring(options)):
        call(*(["mount", "-o", "loop", image, directory] if kind == "ext4" else [program, "mount", "-o", options, image, directory]))
        try:
            if through_uring(options) and "through io_uring" not in call(program, "status", directory):
                raise Failed(f"a mount with {options} does not use io_uring")
            yield
        finally:
            call(*(["umount", directory] if kind == "ext4" else [program, "umount", directory]))


def expectations(name):
    """Lines `NAME reason`: what is known to fail, and why."""
    known = {}
    for line in (HERE / f"{name}.expected").read_text(encoding="utf-8").splitlines():
        name, _, reason = line.strip().partition(" ")
        if name and not name.startswith("#"):
            if not reason:
                raise Failed(f"{name} has no reason; give one")
            known[name] = reason
    return known


IMAGE_MB = 64
FILE_SECONDS_MAX = 600


def assertions(file, directory, environment):
    """The numbers of those that passed, of those that did not (a plan that was not kept is number 0), and of those that the
    suite itself expects to fail (`# TODO`)."""
    ran = subprocess.run(["sh", file], cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         text=True, timeout=FILE_SECONDS_MAX, check=False)
    plan = re.search(r"^1\.\.(\d+)", ran.stdout, re.M)
    lines = re.findall(r"^(not ok|ok) (\d+)(.*)", ran.stdout, re.M)
    good = [int(number) for word, number, _ in lines if word == "ok"]
    bad = [int(number) for word, number, rest in lines if word == "not ok" and "# TODO" not in rest]
    todo = [int(number) for word, number, rest in lines if word == "not ok" and "# TODO" in rest]
    if plan and len(lines) < int(plan[1]) and int(plan[1]) > 0:
        bad.append(0)
    return good, bad, todo


def pjdfstest(args):
    if not os.path.exists(os.path.join(args.checkout, "pjdfstest")):
        for command in (["autoreconf", "-ifs"], ["sh", "configure"], ["make", "pjdfstest"]):
            call(*command, cwd=args.checkout)
    # The tests run in another directory.
    root = pathlib.Path(args.checkout, "tests").resolve()
    files = sorted(str(path) for path in root.rglob("*.t") if args.only in str(path))
    if not files:
        raise Failed(f"{root}: no tests; give a checkout of pjd/pjdfstest")
    known, wrong, rows = expectations("pjdfstest"), 0, []
    kinds = [] if args.alone else ["ext4"]
    kinds += [mode for mode in args.modes.split(",") if mode != "none"]
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        image, directory = os.path.join(place, "image"), os.path.join(place, "mnt")
        os.mkdir(directory)
        # What the suite asks of ext4 it asks of a mount too.
        environment = dict(os.environ, PATH=with_df(place, "ext4"))
        print(f"{'':15} {'passed':>7} {'failed':>7} {'known':>6} {'todo':>5}  e2fsck", flush=True)
        for kind in kinds:
            options = ",".join(filter(None, ["allow_other,suid", mount_options(kind), args.options]))
            results = {}
            for file in files:
                make_image(image, IMAGE_MB)
                with on(kind, args.syncline, options, image, directory):
                    os.chmod(directory, 0o755)
                    tried = assertions(file, directory, environment)
                results[os.path.relpath(file, root)] = (*tried, judge(image))
            failed = [f"{file}:{nr}" for file, (_, bad, _, _) in results.items() for nr in bad]
            judged = {file: said for file, (_, _, _, said) in results.items() if said}
            new = [name for name in failed if name not in known]
            passed = sum(len(good) for good, _, _, _ in results.values())
            if not passed:
                raise Failed(f"{kind}: no test of {root} ran")
            todo = sum(len(tried) for _, _, tried, _ in results.values())
            print(f"{kind:15} {passed:7} {len(failed):7} {len(failed) - len(new):6} {todo:5}  "
                  f"{'clean' if not judged else f'{len(judged)} not clean'}", flush=True)
            rows.append({"mode": kind, "files": len(results), "passed": passed, "failed": len(failed),
                         "known": len(failed) - len(new), "todo": todo, "not_clean": len(judged)})
            for name in new:
                print(f"  {name}")
            for file, said in judged.items():
                print(f"  {file}: {said}")
            if kind != "ext4":
                wrong += len(new) + len(judged)
    common.store(args.json, "pjdfstest", results=rows)
    return 1 if wrong else 0


Result = collections.namedtuple("Result", "what seconds note")


def group(checkout, name, low=0, high=99999):
    tests = []
    with open(os.path.join(checkout, "tests", "generic", "group.list"), encoding="utf-8") as text:
        for line in text:
            words = line.split()
            if words and words[0].isdigit() and name in words[1:] and low <= int(words[0]) <= high:
                tests.append(f"generic/{words[0]}")
    return tests


def chosen(checkout, words):
    tests = []
    for word in words or ["quick"]:
        part = re.fullmatch(r"(\d+)-(\d+)", word)
        if part:
            tests += group(checkout, "quick", int(part[1]), int(part[2]))
        else:
            found = [word] if "/" in word else group(checkout, word)
            if not found:
                raise Failed(f"{word}: no group of generic; give one of {checkout}/tests/generic/group.list")
            tests += found
    return tests


class Place:
    """Images and directories of one kind of file system."""

    def __init__(self, kind, options, base, megabytes):
        self.kind, self.options, self.megabytes = kind, options, megabytes
        self.images = [os.path.join(base, f"{kind}-{name}.img") for name in ("test", "scratch")]
        self.dirs = [os.path.join(base, name) for name in ("test", "scratch")]
        self.results = os.path.join(base, f"results-{kind}")
        self.loops = []
        for path in self.dirs + [self.results]:
            os.makedirs(path, exist_ok=True)
        make_image(self.images[0], megabytes)

    def environment(self, checkout):
        devices = self.images
        make_image(self.images[1], self.megabytes)
        if self.kind == "ext4":
            self.loops = [call("losetup", "-f", "--show", image) for image in self.images]
            devices = self.loops
        found = dict(os.environ, TEST_DEV=devices[0], TEST_DIR=self.dirs[0], SCRATCH_DEV=devices[1],
                     SCRATCH_MNT=self.dirs[1], RESULT_BASE=self.results, HOST_OPTIONS=os.path.join(checkout, "none"))
        if self.kind == "ext4":
            return dict(found, FSTYP="ext4")
        return dict(found, PATH=with_df(os.path.dirname(self.results), "fuse"), FSTYP="fuse", FUSE_SUBTYP=".syncline",
                    MOUNT_OPTIONS=f"-o {self.options}", TEST_FS_MOUNT_OPTS=f"-o {self.options}")

    def leave(self, shut_down=False):
        """Unmounts and detaches; gives the complaints of e2fsck. What was shut down has a log to replay, as on ext4."""
        for path in reversed(self.dirs):
            while os.path.ismount(path):
                subprocess.run(["umount", path], check=False, stderr=subprocess.DEVNULL)
                if os.path.ismount(path):
                    subprocess.run(["umount", "-l", path], check=False)
        for loop in self.loops:
            call("losetup", "-d", loop)
        self.loops = []
        # On ext4 the suite judges by itself, and wipes scratch devices that a test does not use.
        if self.kind == "ext4":
            return ""
        for image in self.images if shut_down else []:
            subprocess.run(["e2fsck", "-y", "-E", "journal_only", image], check=False, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
        said = [judge(image) for image in self.images]
        return "; ".join(filter(None, said))


def tested(test, place, checkout, seconds_max):
    with common.offered(through_uring(place.options)):
        return judged(test, place, checkout, seconds_max)


def judged(test, place, checkout, seconds_max):
    child = subprocess.Popen(["./check", test] if place.kind == "ext4" else ["./check", "-fuse", test], cwd=checkout,
                             env=place.environment(checkout), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, start_new_session=True)
    try:
        out, _ = child.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, _ = child.communicate()
        place.leave()
        return Result("failed", seconds_max, "no end")
    line = next((line for line in out.splitlines() if line.startswith(test + " ")), "")
    took = re.findall(r"(\d+)s", line)
    seconds = int(took[-1]) if took else 0
    said = place.leave(shut_down=test in group(checkout, "shutdown"))
    if said:
        return Result("failed", seconds, f"e2fsck: {said}")
    if "[not run]" in line:
        return Result("not run", seconds, line.split("[not run]")[1].strip())
    if "[expunged]" in line:
        return Result("not run", seconds, "expunged")
    if re.search(r"^Passed all", out, re.M):
        return Result("pass", seconds, "")
    detail = line.split(" ", 1)[-1].strip() if line else (out.strip().splitlines() or [""])[-1]
    return Result("failed", seconds, detail)


def summary(rows, places, known):
    """One record a column: `failed` are new, `known` in xfstests.expected, `also_ext4` fail there, too."""
    totals = []
    beside = {row["test"] for row in rows if row["mode"] == "ext4" and row["what"] == "failed"}
    for place in places:
        mine = [row for row in rows if row["mode"] == place.kind]
        count = collections.Counter(row["what"] for row in mine)
        failed = {row["test"] for row in mine if row["what"] == "failed"}
        totals.append({"mode": place.kind, "tests": len(mine), "passed": count["pass"], "failed": len(failed - beside - set(known)),
                       "known": len(failed & set(known) - beside), "also_ext4": len(failed & beside),
                       "not_run": count["not run"]})
    return totals


def report(test, places, found, known):
    """Prints the line of a test; the number of mounts on which it fails and should not."""
    beside = found.get("ext4", Result("", 0, ""))
    line = " ".join(f"{found[place.kind].what + f' {found[place.kind].seconds}s' if place.kind in found else '':>14}" for place in places)
    wrong, notes = 0, [f"ext4: {beside.note}"] if beside.what == "failed" else []
    for kind, result in found.items():
        if kind == "ext4":
            continue
        if result.what == "failed":
            excused = test in known or beside.what == "failed"
            wrong += 0 if excused else 1
            notes.append(f"{kind}: {known.get(test, result.note)}{'' if excused else ' (NEW)'}")
        elif result.what == "not run" and beside.what == "pass":
            notes.append(f"{kind}: {result.note}")
    print(f"{test:12} {line}  {'; '.join(notes)}".rstrip(), flush=True)
    return wrong


def xfstests(args):
    checkout = os.path.abspath(args.checkout)
    if not os.path.exists(os.path.join(checkout, "ltp", "fsstress")):
        call("make", cwd=checkout)
    tests, known, wrong, rows = chosen(checkout, args.tests), expectations("xfstests"), 0, []
    with Helpers(args.syncline), tempfile.TemporaryDirectory() as base:
        os.chmod(base, 0o755)
        ext4 = None if args.alone else Place("ext4", "", base, args.megabytes)
        mounts = []
        for mode in args.modes.split(","):
            options = ",".join(filter(None, ["allow_other,allow_suid,allow_dev", mount_options(mode), args.options]))
            place = Place(mode, options, base, args.megabytes)
            with on(mode, args.syncline, options, place.images[0], place.dirs[0]):
                mounts.append(place)
        places = [ext4] + mounts if ext4 else mounts
        print(f"{'test':12} " + " ".join(f"{place.kind:>14}" for place in places), flush=True)
        try:
            for test in tests:
                found = {place.kind: tested(test, place, checkout, args.seconds) for place in mounts}
                if ext4 and not (args.where_failed and all(result.what != "failed" for result in found.values())):
                    found["ext4"] = tested(test, ext4, checkout, args.seconds)
                wrong += report(test, places, found, known)
                rows += [{"test": test, "mode": kind} | result._asdict() for kind, result in found.items()]
                common.store(args.json, "xfstests", results=summary(rows, places, known), tests=rows)
        finally:
            for place in places:
                place.leave()
    for total in summary(rows, places, known):
        print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in total.items()))
    return 1 if wrong else 0


# Name, test of the suite, command in the mounted directory.
LOADS = [
    ("append", "generic/069", ["{src}/append_writer", "300000"]),
    ("write", "generic/371", ["xfs_io", "-f", "-c", "pwrite -q 0 80M", "f"]),
    ("holes", "generic/346", ["{src}/holetest", "-f", "-w", "f", "64"]),
    ("fallocate", "generic/438", ["{src}/t_mmap_fallocate", "f", "64"]),
    ("direct", "generic/446", ["sh", "-c", "{direct}"]),
]
# Reads past the cache beside stores through a mapping, and holes that are punched.
DIRECT = """xfs_io -f -c 'truncate 256k' f
for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do xfs_io -d -c 'pread -q 0 128k' f & \
xfs_io -c 'mmap 0 128k' -c 'mwrite 0 128k' f; xfs_io -c 'fpunch 0 128k' f; wait; done"""

KINDS = ["ext4", "eager", "ordered", "eager+cache=2G", "eager+writeback_cache+cache=2G"]


def loads(args):
    src, rows = os.path.join(os.path.abspath(args.checkout), "src"), []
    with tempfile.TemporaryDirectory() as place:
        image, directory = os.path.join(place, "image"), os.path.join(place, "mnt")
        os.mkdir(directory)
        for name, test, command in LOADS:
            command = [word.format(src=src, direct=DIRECT) for word in command]
            taken = {kind: [] for kind in KINDS}
            for _ in range(args.rounds):
                for kind in KINDS:
                    make_image(image, 1024)
                    with on(kind, args.syncline, mount_options(kind), image, directory):
                        began = time.monotonic()
                        subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)
                        taken[kind].append((time.monotonic() - began) * 1000)
            median = {kind: statistics.median(times) for kind, times in taken.items()}
            for kind, milliseconds in median.items():
                rows.append({"load": name, "test": test, "kind": kind, "milliseconds": round(milliseconds, 1)})
                print(f"{test} {name:10} {kind:32} {milliseconds:9.1f} ms {milliseconds / median['ext4']:6.1f}", flush=True)
            common.store(args.json, "xfstests-loads", results=rows)


BUILD = common.ROOT / "target/sqlite-suite"
# Tests of files, locks, journals and errors of both. Without lock4, which waits for ever for the journal of another process:
# one process has an image.
FILE_LEVEL = """
    io ioerr ioerr2 ioerr3 ioerr4 ioerr5 ioerr6 sync sync2 diskfull avfs
    journal1 journal2 journal3 jrnlmode jrnlmode2 jrnlmode3 mjournal memjournal memjournal2 subjournal
    pager1 pager2 pager3 pager4 pageropt pagesize exclusive exclusive2 filefmt tempdb tempdb2 temptable temptable2
    crash crash2 crash3 crash4 crash5 crash6 crash7 crash8 writecrash
    wal wal2 wal3 wal4 wal5 wal6 wal7 wal8 wal9 wal64k walbak walblock walcksum walcrash walcrash2 walcrash3 walcrash4
    walhook walmode walnoshm waloverwrite walpersist walprotocol walprotocol2 walro walro2 walshared walvfs
    e_wal e_walauto e_walckpt e_walhook
    lock lock2 lock3 lock5 lock6 lock7 nolock superlock sharedlock
    trans trans2 trans3 rollback rollback2 savepoint savepoint2 savepoint4 savepoint5 savepoint6 savepoint7 avtrans
    attach attach2 attach3 attach4 atomic atomic2 backup backup2 backup4 backup5 backup_ioerr
    vacuum vacuum2 vacuum3 vacuum4 vacuum5 vacuum-into autovacuum incrvacuum incrvacuum2 incrvacuum_ioerr
    corrupt corrupt2 corrupt3 corrupt6 corrupt7 corruptA corruptB bigfile bigfile2 zerodamage delete_db cffault
    pagerfault pagerfault2 pagerfault3 rollbackfault savepointfault walfault walfault2 tempfault
""".split()


def fixture(source):
    """The test program."""
    program = BUILD / "testfixture"
    made = BUILD / "made-of"
    key = f"{source}\n{(HERE / 'vfs.c').read_text()}"
    if program.exists() and made.exists() and made.read_text() == key:
        return program
    for name, package in (("tclsh8.6", "tcl"), ("cc", "build-essential")):
        if not shutil.which(name):
            raise common.Missing(f"{name} is not installed; on Debian: apt install {package} tcl8.6-dev zlib1g-dev")
    BUILD.mkdir(parents=True, exist_ok=True)
    print("building SQLite's test program in target/sqlite-suite", flush=True)
    log = open(BUILD / "build.log", "w", encoding="utf-8")

    def step(*command):
        if subprocess.run(command, cwd=BUILD, stdout=log, stderr=log, check=False).returncode:
            raise Failed(f"{command[0]} failed; see {BUILD}/build.log (it needs tcl8.6-dev and zlib1g-dev)")

    step(source / "configure", "--disable-readline", "--enable-all", "CFLAGS=-O1")
    step("make", "sqlite3.h", "sqlite3.c")
    step("cc", "-O1", "-Wall", "-Wextra", "-I.", "-I/usr/include/tcl8.6", "-c", HERE / "vfs.c", "-o", "suite.o")
    program.unlink(missing_ok=True)
    step("make", "testfixture", "OPTS=-DSQLITE_EXTRA_INIT=suite_init", f"TLIBS=-lm -lz -ldl {BUILD}/suite.o")
    made.write_text(key)
    return program


def tcl(program, source, name, options, image):
    """Runs a test; returns failures, the number of its cases, and what went wrong as a whole."""
    with tempfile.TemporaryDirectory(dir=options.dir) as work:
        env = dict(os.environ, LC_ALL="C")
        script = [str(source / "test" / f"{name}.test")]
        if image:
            path = pathlib.Path(work) / "card.img"
            make_image(str(path), options.megabytes)
            (pathlib.Path(work) / "root/testdir").mkdir(parents=True)
            env.update(SUITE_EXTENSION=str(options.extension), SUITE_IMAGE=str(path), SUITE_ROOT=f"{work}/root/testdir")
            env.update(SUITE_OPTIONS=options.options)
            script.insert(0, str(HERE / "run.tcl"))
        else:
            (pathlib.Path(work) / "root").mkdir()
        output = pathlib.Path(work) / "output"
        with open(output, "wb") as into:
            child = subprocess.Popen([program, *script], cwd=f"{work}/root", env=env, stdout=into, stderr=subprocess.STDOUT,
                                     start_new_session=True)
            try:
                child.wait(options.seconds)
                whole = ""
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                child.wait()
                whole = f"not done in {options.seconds} s"
        text = output.read_text(errors="replace")
        if options.keep:
            pathlib.Path(options.keep).mkdir(parents=True, exist_ok=True)
            (pathlib.Path(options.keep) / f"{name}.{'image' if image else 'unix'}.txt").write_text(text)
        count = re.search(r"^(\d+) errors out of (\d+) tests", text, re.M)
        failed = re.search(r"^!Failures on these tests: (.*)$", text, re.M)
        failures = sorted(set(failed[1].split())) if failed else []
        if not count and not whole:
            whole = f"ended early, exit code {child.returncode}"
        if image and (complaint := judge(str(path))):
            whole = f"{whole + '; ' if whole else ''}e2fsck: {complaint}"
        return failures, int(count[2]) if count else 0, whole


def sqlite(args):
    if not (args.source / "test/tester.tcl").is_file():
        raise Failed(f"{args.source} is no source of SQLite; unpack one with: apt-get source sqlite3")
    args.extension, source = args.extension.resolve(), args.source.resolve()
    program, known = fixture(source), expectations("sqlite")
    rows, totals = [], {"cases": 0, "failed": 0, "expected": 0, "unix": 0}

    def reason(case):
        return next((pattern for pattern in known if fnmatch.fnmatchcase(case, pattern)), None)

    for name in args.tests or FILE_LEVEL:
        if not (source / "test" / f"{name}.test").exists():
            continue
        failures, cases, whole = tcl(program, source, name, args, True)
        unexpected = [case for case in failures if not reason(case)]
        if whole and not reason(name):
            unexpected.append(name)
        also = set()
        if unexpected:
            theirs, _, theirs_whole = tcl(program, source, name, args, False)
            also = set(theirs) | ({name} if theirs_whole else set())
        new = [case for case in unexpected if case not in also]
        expected = len(failures) + bool(whole) - len(unexpected)
        totals["cases"] += cases
        totals["failed"] += len(new)
        totals["expected"] += expected
        totals["unix"] += len(unexpected) - len(new)
        rows.append({"test": name, "cases": cases, "failed": new, "expected": expected, "whole": whole,
                     "unix": sorted(set(unexpected) & also)})
        note = f"; {whole}" if whole else ""
        print(f"{name:18}{cases:8} cases{expected:6} expected{len(new):6} failed  {' '.join(new[:12])}{note}", flush=True)
    common.store(args.json, "sqlite-suite", totals=totals, tests=rows)
    print(f"{len(rows)} tests of SQLite, {totals['cases']} cases; {totals['expected']} failures expected with a reason, "
          f"{totals['unix']} also with the unix VFS")
    bad, skipped = totals["failed"], totals["expected"] + totals["unix"]
    print(f"{max(totals['cases'] - bad - skipped, 0)} passed, {bad} failed, {skipped} skipped")
    return 1 if bad else 0


def main():
    top = common.parser(__doc__)
    suites = top.add_subparsers(dest="suite", required=True)

    def suite(name, *names):
        return suites.add_parser(name, parents=[common.parser(None, *names)], add_help=False)

    for name in ("pjdfstest", "xfstests"):
        found = suite(name, "syncline", "checkout")
        found.add_argument("--modes", default="eager" if name == "xfstests" else "eager,ordered",
                           help="values of sync=, packed, periodic-packed; +OPTION adds to one, +uring=auto has the kernel offer io_uring; "
                                "ext4 alone: none")
        found.add_argument("--options", default="", help="more mount options")
        found.add_argument("--alone", action="store_true", help="mounts only, no ext4 beside them")
    suites.choices["pjdfstest"].add_argument("--only", default="", help="files whose path has this in it")
    found.add_argument("tests", nargs="*")
    found.add_argument("--megabytes", type=int, default=1024, help="size of each image")
    found.add_argument("--where-failed", action="store_true", help="ext4 beside them only where a mount fails")
    found.add_argument("--seconds", type=int, default=900, help="longest test")
    suite("loads", "syncline", "checkout").add_argument("--rounds", type=int, default=3)
    found = suite("sqlite")
    found.add_argument("extension", type=pathlib.Path)
    found.add_argument("source", type=pathlib.Path)
    found.add_argument("tests", nargs="*", help="default: the file-level parts")
    found.add_argument("--options", default="", help="mount options, as sync=ordered")
    found.add_argument("--seconds", type=int, default=600, help="limit of a test (600)")
    found.add_argument("--megabytes", type=int, default=512, help="size of the image (512)")
    found.add_argument("--dir", default="/dev/shm" if os.access("/dev/shm", os.W_OK) else None, help="for images")
    found.add_argument("--keep", help="directory for the outputs of the tests")
    # Names of tests may follow options.
    args, more = top.parse_known_args()
    if more and ("tests" not in args or any(word.startswith("-") for word in more)):
        top.error(f"unknown arguments: {' '.join(more)}")
    if more:
        args.tests += more
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    run, programs = {
        "pjdfstest": (pjdfstest, ["e2fsck", "openssl", "autoreconf", "automake", "gcc", "make"]),
        "xfstests": (xfstests, ["e2fsck", "xfs_io", "losetup", "make"]),
        "loads": (loads, ["xfs_io"]),
        "sqlite": (sqlite, ["e2fsck"]),
    }[args.suite]
    if args.suite != "sqlite":
        common.need_mounts(*programs)
    return run(args)


if __name__ == "__main__":
    common.main(main)
