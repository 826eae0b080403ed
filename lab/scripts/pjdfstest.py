"""Runs a checkout of pjd/pjdfstest (C and shell) on mounts of both sync modes and on the kernel's ext4.

    cargo xtask run pjdfstest PJDFSTEST=CHECKOUT [--modes packed,periodic --only chown]

Each file of tests gets a new image, which `e2fsck -fn` judges afterwards. One table; exit code 1 if an
assertion fails on a mount that is not in lab/scripts/pjdfstest.expected. Needs autoconf, automake, gcc, make, openssl.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

import suite

KNOWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pjdfstest.expected")
IMAGE_MB = 64
FILE_SECONDS_MAX = 600


def build(checkout):
    if os.path.exists(os.path.join(checkout, "pjdfstest")):
        return
    suite.need(["autoreconf", "automake", "gcc", "make"], "autoconf automake gcc make")
    for command in (["autoreconf", "-ifs"], ["./configure"], ["make", "pjdfstest"]):
        suite.run(*command, cwd=checkout)


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


def on(kind, program, options, files, root, place):
    """Results by file: (passed, failed, expected to fail, complaint of e2fsck)."""
    image, directory = os.path.join(place, "image"), os.path.join(place, "mnt")
    os.makedirs(directory, exist_ok=True)
    # What the suite asks of ext4 it asks of a mount too.
    environment = dict(os.environ, PATH=suite.with_df(place, "ext4"))
    results = {}
    for file in files:
        suite.make_image(image, IMAGE_MB)
        if kind == "ext4":
            suite.run("mount", "-o", "loop", image, directory)
        else:
            suite.run(program, "mount", "-o", options, image, directory)
        try:
            os.chmod(directory, 0o755)
            tried = assertions(file, directory, environment)
        finally:
            if kind == "ext4":
                suite.run("umount", directory)
            else:
                suite.run(program, "umount", directory)
        results[os.path.relpath(file, root)] = (*tried, suite.judge(image))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("checkout")
    parser.add_argument("--modes", default="eager,ordered", help="values of sync=, packed, periodic-packed, or ext4 alone: none")
    parser.add_argument("--alone", action="store_true", help="mounts only, no ext4 beside them")
    parser.add_argument("--json", help="write the figures as JSON")
    parser.add_argument("--options", default="", help="more mount options")
    parser.add_argument("--only", default="", help="files whose path has this in it")
    args = parser.parse_args()
    suite.need(["mkfs.ext4", "e2fsck", "openssl", "mount"], "e2fsprogs openssl mount")
    build(args.checkout)
    root = os.path.join(os.path.abspath(args.checkout), "tests")
    files = sorted(os.path.join(at, name) for at, _, names in os.walk(root) for name in names
                   if name.endswith(".t") and args.only in os.path.join(at, name))
    if not files:
        suite.fail(f"{root}: no tests; give a checkout of pjd/pjdfstest")
    known = suite.expectations(KNOWN)
    kinds = [] if args.alone else ["ext4"]
    kinds += [mode for mode in args.modes.split(",") if mode != "none"]
    wrong, rows = 0, []
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        print(f"{'':15} {'passed':>7} {'failed':>7} {'known':>6} {'todo':>5}  e2fsck", flush=True)
        for kind in kinds:
            options = ",".join(filter(None, ["allow_other,suid", suite.mount_options(kind), args.options]))
            results = on(kind, args.program, options, files, root, place)
            failed = [f"{file}:{nr}" for file, (_, bad, _, _) in results.items() for nr in bad]
            judged = {file: said for file, (_, _, _, said) in results.items() if said}
            new = [name for name in failed if name not in known]
            passed = sum(len(good) for good, _, _, _ in results.values())
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
    if args.json:
        suite.store(args.json, "pjdfstest", rows)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
