#!/usr/bin/env python3
"""SQLite's own TCL tests with databases in images, through the loadable extension: sqlite_suite.py EXTENSION SOURCE [TEST...].

SOURCE is an unpacked source of SQLite, as `apt-get source sqlite3` leaves it; nothing of it is in this repository.
Its test program is built once in target/sqlite-suite, with `sqlite_suite/vfs.c` as the default VFS. Every test runs in
a directory and with an image of its own; e2fsck judges the image afterwards. A failure that
`sqlite_suite/expected` names, with its reason, is expected; what also fails with SQLite's unix VFS is not counted.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import suite

HERE = pathlib.Path(__file__).resolve().parent / "sqlite_suite"
ROOT = HERE.parents[1]
BUILD = ROOT / "target/sqlite-suite"

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


def build(source):
    """The test program."""
    program = BUILD / "testfixture"
    made = BUILD / "made-of"
    key = f"{source}\n{(HERE / 'vfs.c').read_text()}"
    if program.exists() and made.exists() and made.read_text() == key:
        return program
    for name, package in (("tclsh8.6", "tcl"), ("cc", "build-essential")):
        if not shutil.which(name):
            suite.fail(f"missing: {name}; on Debian: apt install {package} tcl8.6-dev zlib1g-dev")
    BUILD.mkdir(parents=True, exist_ok=True)
    print("building SQLite's test program in target/sqlite-suite", flush=True)
    log = open(BUILD / "build.log", "w", encoding="utf-8")

    def step(*command):
        if subprocess.run(command, cwd=BUILD, stdout=log, stderr=log, check=False).returncode:
            suite.fail(f"{command[0]} failed; see {BUILD}/build.log (it needs tcl8.6-dev and zlib1g-dev)", 1)

    step(source / "configure", "--disable-readline", "--enable-all", "CFLAGS=-O1")
    step("make", "sqlite3.h", "sqlite3.c")
    step("cc", "-O1", "-Wall", "-Wextra", "-I.", "-I/usr/include/tcl8.6", "-c", HERE / "vfs.c", "-o", "suite.o")
    program.unlink(missing_ok=True)
    step("make", "testfixture", "OPTS=-DSQLITE_EXTRA_INIT=suite_init", f"TLIBS=-lm -lz -ldl {BUILD}/suite.o")
    made.write_text(key)
    return program


def patterns(path):
    """Lines `PATTERN reason`, of the failures that are expected; a pattern is a test's name with `*`."""
    return suite.expectations(path)


def run(program, source, name, options, image):
    """Runs a test; returns failures, the number of its cases, and what went wrong as a whole."""
    with tempfile.TemporaryDirectory(dir=options.dir) as work:
        env = dict(os.environ, LC_ALL="C")
        script = [str(source / "test" / f"{name}.test")]
        if image:
            path = pathlib.Path(work) / "card.img"
            suite.make_image(str(path), options.megabytes)
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
        if image and (complaint := suite.judge(str(path))):
            whole = f"{whole + '; ' if whole else ''}e2fsck: {complaint}"
        return failures, int(count[2]) if count else 0, whole


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extension", type=pathlib.Path)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("tests", nargs="*", help="default: the file-level parts")
    parser.add_argument("--options", default="", help="mount options, as sync=ordered")
    parser.add_argument("--seconds", type=int, default=600, help="limit of a test (600)")
    parser.add_argument("--megabytes", type=int, default=512, help="size of the image (512)")
    parser.add_argument("--dir", default="/dev/shm" if os.access("/dev/shm", os.W_OK) else None, help="for images")
    parser.add_argument("--keep", help="directory for the outputs of the tests")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_intermixed_args()
    if not (options.source / "test/tester.tcl").is_file():
        suite.fail(f"{options.source} is no source of SQLite; unpack one with: apt-get source sqlite3")
    options.extension, source = options.extension.resolve(), options.source.resolve()
    if not shutil.which("mkfs.ext4"):
        os.environ["PATH"] += ":/usr/sbin:/sbin"
    program = build(source)
    known = patterns(HERE / "expected")
    rows, totals = [], {"cases": 0, "failed": 0, "expected": 0, "unix": 0}
    for name in options.tests or FILE_LEVEL:
        if not (source / "test" / f"{name}.test").exists():
            continue
        failures, cases, whole = run(program, source, name, options, True)
        def reason(case):
            return next((pattern for pattern in known if fnmatch.fnmatchcase(case, pattern)), None)
        unexpected = [case for case in failures if not reason(case)]
        if whole and not reason(name):
            unexpected.append(name)
        also = set()
        if unexpected:
            theirs, _, theirs_whole = run(program, source, name, options, False)
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
    if options.json:
        options.json.write_text(json.dumps({"schema": "syncline.sqlite-suite/1", "totals": totals, "tests": rows}, indent=1) + "\n")
    print(f"{len(rows)} tests of SQLite, {totals['cases']} cases; {totals['expected']} failures expected with a reason, "
          f"{totals['unix']} also with the unix VFS")
    bad, skipped = totals["failed"], totals["expected"] + totals["unix"]
    print(f"{max(totals['cases'] - bad - skipped, 0)} passed, {bad} failed, {skipped} skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
