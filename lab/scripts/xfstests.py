"""Runs a checkout of kdave/xfstests on mounts (FSTYP=fuse) and on the kernel's ext4.

    cargo xtask run xfstests XFSTESTS=CHECKOUT [TESTS="generic/451 generic/103"] [--modes eager,ordered --options log=packed]

Without TESTS: the group `quick` of generic; NNN-NNN is the part of it with these numbers. Each test runs alone, on the test image of its run and on a new scratch
image; `e2fsck -fn` judges both afterwards. One line a test, with seconds; exit code 1 if a test that ext4
passes fails on a mount and is not in lab/scripts/xfstests.expected. On Debian: apt install xfsprogs xfslibs-dev
automake libtool-bin autoconf gettext uuid-dev libacl1-dev libattr1-dev libaio-dev libcap-dev libgdbm-dev
liburing-dev attr acl bc gawk dbench psmisc quota; and users: useradd -m fsgqa; useradd fsgqa2; useradd 123456-fsgqa.
"""

import argparse
import collections
import os
import re
import signal
import subprocess
import sys
import tempfile

import suite

KNOWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "xfstests.expected")

Result = collections.namedtuple("Result", "what seconds note")


def build(checkout):
    if not os.path.exists(os.path.join(checkout, "ltp", "fsstress")):
        suite.run("make", cwd=checkout)


def quick(checkout, low=0, high=99999):
    tests = []
    with open(os.path.join(checkout, "tests", "generic", "group.list"), encoding="utf-8") as text:
        for line in text:
            words = line.split()
            if words and words[0].isdigit() and "quick" in words[1:] and low <= int(words[0]) <= high:
                tests.append(f"generic/{words[0]}")
    return tests


def chosen(checkout, words):
    tests = []
    for word in words:
        part = re.fullmatch(r"(\d+)-(\d+)", word)
        tests += quick(checkout, int(part[1]), int(part[2])) if part else [word]
    return tests or quick(checkout)


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
        suite.make_image(self.images[0], megabytes)

    def environment(self, checkout):
        devices = self.images
        suite.make_image(self.images[1], self.megabytes)
        if self.kind == "ext4":
            self.loops = [suite.run("losetup", "-f", "--show", image).stdout.strip() for image in self.images]
            devices = self.loops
        found = dict(os.environ, TEST_DEV=devices[0], TEST_DIR=self.dirs[0], SCRATCH_DEV=devices[1],
                     SCRATCH_MNT=self.dirs[1], RESULT_BASE=self.results, HOST_OPTIONS=os.path.join(checkout, "none"))
        if self.kind == "ext4":
            return dict(found, FSTYP="ext4")
        return dict(found, PATH=suite.with_df(os.path.dirname(self.results), "fuse"), FSTYP="fuse", FUSE_SUBTYP=".syncline",
                    MOUNT_OPTIONS=f"-o {self.options}", TEST_FS_MOUNT_OPTS=f"-o {self.options}")

    def leave(self):
        """Unmounts and detaches; gives the complaints of e2fsck."""
        for path in reversed(self.dirs):
            while os.path.ismount(path):
                subprocess.run(["umount", path], check=False, stderr=subprocess.DEVNULL)
                if os.path.ismount(path):
                    subprocess.run(["umount", "-l", path], check=False)
        for loop in self.loops:
            suite.run("losetup", "-d", loop)
        self.loops = []
        # On ext4 the suite judges by itself, and wipes scratch devices that a test does not use.
        said = [suite.judge(image) for image in self.images if self.kind != "ext4"]
        return "; ".join(filter(None, said))


def one(test, place, checkout, seconds_max):
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
    judged = place.leave()
    if judged:
        return Result("failed", seconds, f"e2fsck: {judged}")
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("checkout")
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--modes", default="eager", help="values of sync=, packed, periodic-packed; +OPTION adds to one")
    parser.add_argument("--options", default="", help="more mount options")
    parser.add_argument("--megabytes", type=int, default=1024, help="size of each image")
    parser.add_argument("--alone", action="store_true", help="mounts only, no ext4 beside them")
    parser.add_argument("--where-failed", action="store_true", help="ext4 beside them only where a mount fails")
    parser.add_argument("--json", help="write the figures as JSON")
    parser.add_argument("--seconds", type=int, default=900, help="longest test")
    args = parser.parse_args()
    suite.need(["mkfs.ext4", "e2fsck", "xfs_io", "losetup", "make"], "e2fsprogs xfsprogs mount make")
    checkout = os.path.abspath(args.checkout)
    build(checkout)
    tests = chosen(checkout, args.tests)
    known = suite.expectations(KNOWN)
    wrong = 0
    with suite.Helpers(args.program), tempfile.TemporaryDirectory() as base:
        os.chmod(base, 0o755)
        ext4 = None if args.alone else Place("ext4", "", base, args.megabytes)
        mounts = []
        for mode in args.modes.split(","):
            options = ",".join(filter(None, ["allow_other,allow_suid,allow_dev", suite.mount_options(mode), args.options]))
            mounts.append(Place(mode, options, base, args.megabytes))
        places = [ext4] + mounts if ext4 else mounts
        print(f"{'test':12} " + " ".join(f"{place.kind:>14}" for place in places), flush=True)
        rows = []
        try:
            for test in tests:
                found = {place.kind: one(test, place, checkout, args.seconds) for place in mounts}
                if ext4 and not (args.where_failed and all(result.what != "failed" for result in found.values())):
                    found["ext4"] = one(test, ext4, checkout, args.seconds)
                wrong += report(test, places, found, known)
                rows += [{"test": test, "mode": kind} | result._asdict() for kind, result in found.items()]
                if args.json:
                    suite.store(args.json, "xfstests", summary(rows, places, known), tests=rows)
        finally:
            for place in places:
                place.leave()
    for total in summary(rows, places, known):
        print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in total.items()))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
