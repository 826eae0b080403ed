#!/usr/bin/env python3
"""Compares the verdicts of `syncline check` and `e2fsck -fn` on the images of e2fsprogs' tests.

    e2fsprogs_suite.py SYNCLINE CHECKOUT [--repairs] [--e2fsck PROGRAM] [--jobs N]

With --repairs it compares `syncline repair -y` and `e2fsck -fy`: whether `e2fsck -fn` is clean afterwards, and whether both keep the
same files. An error that our repair leaves and reports is counted, not wrong. An image that it calls clean and e2fsck does not (`errors`), a
file or byte that only e2fsck keeps (`lost`), and one that only we keep (`more`) are wrong, but for those of the kind `repair` in
suites/e2fsprogs.expected.

CHECKOUT is a checkout of e2fsprogs; nothing of it is in this repository. The script prints one line for each image that is judged
differently. The exit code is 1 if one of them is not in suites/e2fsprogs.expected. A newer e2fsck than the installed one is given with
--e2fsck.
"""
import concurrent.futures
import filecmp
import gzip
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile

import common
from common import Failed

EXPECTED = pathlib.Path(__file__).resolve().parent / "suites/e2fsprogs.expected"
EXCEPTIONS_MAX = 5
# e2fsck goes round for ever on some images, which it would write to in spite of -n.
SECONDS = 30
# Each round of a repair is a check.
REPAIR_SECONDS = 120
BLOCK = 64 << 10
FILE_MAX = 16 << 20


def unpack(packed, path):
    """Writes an image with holes where it has zeros."""
    with gzip.open(packed) as source, open(path, "wb") as image:
        while block := source.read(BLOCK):
            if block.count(0) == len(block):
                image.seek(len(block), os.SEEK_CUR)
            else:
                image.write(block)
        image.truncate(image.tell())


def verdict(command):
    """`clean`, `errors`, `refused` or `no end`, with the first line that says more."""
    try:
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "no end", ""
    said = (ran.stdout + ran.stderr).decode(errors="replace")
    if "unsupported feature" in said or ran.returncode == 4 and "unsupported:" in said:
        return "refused", said
    return ("clean" if ran.returncode == 0 else "errors"), said


def bound():
    """Files that are all holes but a few blocks do not fill the disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_MAX, FILE_MAX))


def files(image, place):
    """Names and contents of an image, without lost+found; of each file the first FILE_MAX bytes."""
    os.mkdir(place)
    command = ["debugfs", "-R", f"rdump / {place}", image]
    try:
        subprocess.run(command, capture_output=True, timeout=REPAIR_SECONDS, preexec_fn=bound)
    except subprocess.TimeoutExpired:
        pass
    found = pathlib.Path(place).rglob("*")
    return {path.relative_to(place) for path in found if "lost+found" not in path.parts}


def loses(ours, theirs):
    """True if a file has other bytes than e2fsck's, but for what e2fsck made zeros."""
    with open(ours, "rb") as own, open(theirs, "rb") as stock:
        while block := stock.read(BLOCK):
            mine = own.read(BLOCK).ljust(len(block), b"\0")
            if mine != block and any(byte and byte != other for byte, other in zip(block, mine)):
                return True
    return False


def differ(image, other):
    """`lost` or `more`, and the first file of which we keep less or only more than e2fsck does; else None."""
    ours, theirs = files(image, image + ".files"), files(other, other + ".files")
    more = None
    for name in sorted(theirs | ours):
        pair = [pathlib.Path(image + ".files", name), pathlib.Path(other + ".files", name)]
        is_file = all(not path.is_symlink() and path.is_file() for path in pair)
        differs = is_file and not filecmp.cmp(*pair, shallow=False)
        if name not in ours or differs and loses(*pair):
            return "lost", str(name)
        if not more and (name not in theirs or differs):
            more = "more", str(name)
    return more


def repairs(program, syncline, image):
    """Outcomes of e2fsck's repair and of ours, with the first line that says more."""
    other, undo = image + ".stock", image + ".undo"
    shutil.copyfile(image, other)
    verdict([program, "-fy", other])
    stock, _ = verdict([program, "-fn", other])
    command = [syncline, "repair", "-y", "--undo", undo, image]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=REPAIR_SECONDS)
    said = (ran.stderr + ran.stdout).decode(errors="replace")
    if ran.returncode not in (0, 1):
        return stock, "left" if ran.returncode in (4, 8) else f"exit {ran.returncode}", said
    own, _ = verdict([program, "-fn", image])
    if stock != "clean":
        # Nothing is asked where e2fsck's own repair leaves errors.
        return own, own, said
    if own == stock == "clean" and (found := differ(image, other)):
        return stock, *found
    return stock, own, said


def expectations():
    known = {"exception": set(), "newer": set(), "repair": set()}
    for line in EXPECTED.read_text().splitlines():
        if line and not line.startswith("#"):
            kind, name = line.split(":")[0].split()
            known[kind].add(name)
    if len(known["exception"]) > EXCEPTIONS_MAX:
        raise Failed(f"{EXPECTED.name} has more than {EXCEPTIONS_MAX} exceptions")
    return known


def main():
    parser = common.parser(__doc__, "syncline", "checkout")
    parser.add_argument("--e2fsck", default="e2fsck", help="another e2fsck than the installed one")
    parser.add_argument("--repairs", action="store_true", help="compare repairs, not verdicts")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="images at a time")
    args = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    program = shutil.which(args.e2fsck)
    if not program:
        raise Failed("there is no e2fsck; install e2fsprogs, or give --e2fsck")
    packed = sorted(pathlib.Path(args.checkout).glob("tests/*/image.gz"))
    if not packed:
        raise Failed(f"{args.checkout} has no tests/*/image.gz; give a checkout of e2fsprogs")
    known = expectations()
    known = {kind: names for kind, names in known.items() if (kind == "repair") == args.repairs}

    def judge(source):
        name = source.parent.name
        with tempfile.TemporaryDirectory(prefix="e2fsprogs-") as place:
            image = os.path.join(place, "image")
            unpack(source, image)
            if args.repairs:
                return name, *repairs(program, args.syncline, image)
            stock, _ = verdict([program, "-fn", image])
            own, said = verdict([args.syncline, "check", image])
        return name, stock, own, said

    agree, expected, wrong, silent = 0, 0, 0, 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name, stock, own, said in pool.map(judge, packed):
            if own == stock or stock == "no end":
                agree += own == stock
                silent += own != stock
                continue
            if own == "left":
                known.setdefault("left", set()).add(name)
            kind = next((kind for kind, names in known.items() if name in names), "wrong")
            wrong += kind == "wrong"
            expected += kind != "wrong"
            print(f"{name:<32} e2fsck {stock:<8} syncline {own:<8} {kind:<10} {said.splitlines()[0] if said else ''}"[:160])
    print(f"{agree} of {len(packed)} images are judged alike, {expected} otherwise as expected, {wrong} otherwise; "
          f"e2fsck does not end on {silent}")
    return 1 if wrong else 0


if __name__ == "__main__":
    common.main(main)
