#!/usr/bin/env python3
"""Images of container images: `syncline import oci:DIR` beside tar, which unpacks the same layers one after the other, with a warm cache.

    bench_layers.py SYNCLINE [--tree DIR] [--disk DIR] [--memory DIR] [--rounds N] [--json FILE]

The tree (--tree, /usr/share) is parted into three layers of about the same size, each plain, with gzip and with zstd. The last layer also
has 500 files of the first again, and removes 500. By turns: import into an image in --memory (/dev/shm) and on --disk (/var/tmp), and
tar x of the layers into --memory, which leaves whiteouts as files. Prints seconds, the best of the rounds, and the largest resident size;
the load of the machine is printed and stored.
"""
import hashlib
import json
import os
import subprocess
import tarfile
import tempfile

import common
from bench_import import best_of
from common import call

PACKERS = {"plain": ("cat", ""), "gzip": ("gzip -nc", "+gzip"), "zstd": ("zstd -qc", "+zstd")}
REPLACED = REMOVED = 500


def parts(tree):
    """The regular files and links of a tree in three lists of about the same size, sorted."""
    found = []
    for path, dirs, files in sorted(os.walk(tree)):
        names = files + [name for name in dirs if os.path.islink(os.path.join(path, name))]
        found += [os.path.relpath(os.path.join(path, name), tree) for name in sorted(names)]
    sizes = [os.lstat(os.path.join(tree, name)).st_size + 1024 for name in found]
    lists, sum_so_far = [[], [], []], 0
    for name, size in zip(found, sizes):
        lists[min(2, sum_so_far * 3 // sum(sizes))].append(name)
        sum_so_far += size
    return lists


def make_layers(tree, scratch):
    """The uncompressed layers."""
    lists, paths = parts(tree), []
    lists[2] += [name for name in lists[0] if os.path.isfile(os.path.join(tree, name))][:REPLACED]
    for number, names in enumerate(lists):
        path = os.path.join(scratch, f"{number}.tar")
        paths.append(path)
        with tempfile.NamedTemporaryFile("w") as listed:
            listed.write("\0".join(names))
            listed.flush()
            call("tar", "--numeric-owner", "-C", tree, "-cf", path, "--null", "-T", listed.name)
    with tarfile.open(paths[2], "a") as last:
        for name in lists[0][-REMOVED:]:
            head, tail = os.path.split(name)
            last.addfile(tarfile.TarInfo(os.path.join(head, f".wh.{tail}")))
    return paths


def layout(layers, scratch, name):
    """An OCI layout of these layers; its directory, and the stored layers."""
    command, suffix = PACKERS[name]
    root = os.path.join(scratch, name)
    blobs = os.path.join(root, "blobs", "sha256")
    os.makedirs(blobs)

    def digest(path):
        with open(path, "rb") as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()

    def blob(media_type, data=None, path=None):
        if path is None:
            path = os.path.join(blobs, "new")
            with open(path, "wb") as file:
                file.write(json.dumps(data).encode())
        named = digest(path)
        os.rename(path, os.path.join(blobs, named.split(":")[1]))
        return {"mediaType": media_type, "digest": named, "size": os.path.getsize(os.path.join(blobs, named.split(":")[1]))}

    described, stored = [], []
    for path in layers:
        packed = os.path.join(blobs, "packed")
        with open(path, "rb") as source, open(packed, "wb") as target:
            subprocess.run(command.split(), stdin=source, stdout=target, check=True)
        described.append(blob(f"application/vnd.oci.image.layer.v1.tar{suffix}", path=packed))
        stored.append(os.path.join(blobs, described[-1]["digest"].split(":")[1]))
    rootfs = {"type": "layers", "diff_ids": [digest(path) for path in layers]}
    config = blob("application/vnd.oci.image.config.v1+json", {"os": "linux", "architecture": "amd64", "rootfs": rootfs})
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = blob(kind, {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": described})
    for file, data in (("index.json", {"schemaVersion": 2, "manifests": [manifest]}), ("oci-layout", {"imageLayoutVersion": "1.0.0"})):
        with open(os.path.join(root, file), "w") as out:
            json.dump(data, out)
    return root, stored


def measure(args, root, stored, name):
    """The best round of each step."""
    memory, disk = os.path.join(args.scratch, "made"), os.path.join(args.on_disk, "made")
    option = {"gzip": "-z ", "zstd": "--zstd "}.get(name, "")
    unpack = " && ".join(f"tar {option}-xf {path} -C {memory}" for path in stored)
    steps = [
        ("import", memory, [args.syncline, "import", f"oci:{root}", memory]),
        ("import, disk", disk, [args.syncline, "import", f"oci:{root}", disk]),
        ("tar x", memory, ["sh", "-c", unpack]),
    ]
    return best_of(args.rounds, name, steps)


def main():
    parser = common.parser(__doc__, "syncline")
    parser.add_argument("--tree", default="/usr/share")
    parser.add_argument("--memory", default="/dev/shm", help="a directory in memory, with 8 GiB free")
    parser.add_argument("--disk", default="/var/tmp", help="a directory on a disk, with 2 GiB free")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    records = []
    with tempfile.TemporaryDirectory(prefix="layers", dir=args.memory) as args.scratch, \
            tempfile.TemporaryDirectory(prefix="layers", dir=args.disk) as args.on_disk:
        layers = make_layers(args.tree, args.scratch)
        for name in PACKERS:
            root, stored = layout(layers, args.scratch, name)
            for step, row in measure(args, root, stored, name).items():
                records.append({"layers": name, "step": step} | row | {"load": round(load, 2)})
    print(f"load {load:.2f}, {os.cpu_count()} processors")
    for record in records:
        print(f"{record['layers']:<9}{record['step']:<16}{record['seconds']:>8.2f} s{record['mib']:>9.1f} MiB")
    common.store(args.json, "import", records=records)


if __name__ == "__main__":
    common.main(main)
