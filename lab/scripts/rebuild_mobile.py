#!/usr/bin/env python3
"""Mixes page accesses of traces to the read and write counts of the informed-storage paper's W1-W3.

    rebuild_mobile.py SYNCLINE OUTPUT.csv --workload W3 SOURCE... [--new SOURCE]...
                      [--reads SOURCE]... [--seed N]

The paper's traces (004, Table 7) are not public. This makes stand-ins from any traces that
`syncline-lab trace` reads: each SOURCE becomes its page accesses (`syncline-lab trace export`), files one
after the other in the order of first access. Sessions of about 200 accesses of a source follow
each other, drawn from a seed: long sources more often, and so that reads and writes come in the
wanted proportion all along. A source that ends begins again, with its files where they were, or,
after --new, with new files, as a player downloads another video; --reads takes the reads of a
source only, its files being those of the same source named before. What exceeds a count is left
out at the end. The OUTPUT is a block trace that `syncline-lab cache` takes.
"""

import argparse
import csv
import os
import random
import sys
import tempfile

from common import call, lab

# Table 7: page reads and page writes.
WORKLOADS = {"W1": (23_666, 47_350), "W2": (67, 387_701), "W3": (134_910, 105_796)}
SESSION = 200


class Source:
    """The page accesses of a trace, over and over."""

    def __init__(self, syncline, path, new, reads_only, scratch):
        exported = os.path.join(scratch, "export.csv")
        call(lab(syncline), "trace", "export", "--to", "libcachesim-csv", "-o", exported, path)
        with open(exported, newline="", encoding="ascii") as lines:
            self.accesses = [(int(row["obj_id"]), row["op"] == "write")
                             for row in csv.DictReader(lines)
                             if row["op"] == "read" or not reads_only]
        if not self.accesses:
            sys.exit(f"{path}: no accesses; leave it out")
        self.name, self.new, self.at, self.turn = os.path.basename(path), new, 0, 0
        self.reads = sum(not write for _, write in self.accesses) / len(self.accesses)
        # Pages of each file, by the upper half of an id.
        self.sizes = {}
        for page, _ in self.accesses:
            file, index = page >> 32, page & 0xFFFF_FFFF
            self.sizes[file] = max(self.sizes.get(file, 0), index + 1)
        self.taken = 0

    def session(self, length):
        """The next accesses: a key of the file, its size, the page in it, whether it is written."""
        for _ in range(length):
            page, write = self.accesses[self.at]
            file = page >> 32
            yield (self.name, self.turn if self.new else 0, file), self.sizes[file], \
                page & 0xFFFF_FFFF, write
            self.taken += 1
            self.at += 1
            if self.at == len(self.accesses):
                self.at, self.turn = 0, self.turn + 1


def pick(draw, sources, wanted):
    """A source, so that the share of reads tends to what is still wanted."""
    above = [source for source in sources if source.reads >= wanted]
    below = [source for source in sources if source.reads < wanted]
    if not above or not below:
        group = sources
    else:
        high, low = mean(above), mean(below)
        group = above if draw.random() < (wanted - low) / (high - low) else below
    return draw.choices(group, [len(source.accesses) for source in group])[0]


def mean(group):
    """The share of reads of these sources, long ones counting more."""
    accesses = sum(len(source.accesses) for source in group)
    return sum(source.reads * len(source.accesses) for source in group) / accesses


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("syncline")
    arguments.add_argument("output")
    arguments.add_argument("sources", nargs="*", metavar="SOURCE")
    arguments.add_argument("--new", action="append", default=[], metavar="SOURCE")
    arguments.add_argument("--reads", action="append", default=[], metavar="SOURCE")
    arguments.add_argument("--workload", choices=sorted(WORKLOADS), required=True)
    arguments.add_argument("--seed", type=int, default=1)
    args = arguments.parse_intermixed_args()
    draw = random.Random(args.seed)
    left = dict(zip("RW", WORKLOADS[args.workload]))
    with tempfile.TemporaryDirectory() as scratch:
        def of(paths, new, reads_only):
            return [Source(args.syncline, path, new, reads_only, scratch) for path in paths]
        sources = of(args.sources, False, False) + of(args.new, True, False)
        sources += of(args.reads, False, True)
    for letter, other in (("R", 0.0), ("W", 1.0)):
        if left[letter] and all(source.reads == other for source in sources):
            sys.exit(f"no source has accesses of kind {letter}; add one")
    places, end, number, pages = {}, 0, 0, set()
    staged = args.output + ".tmp"
    with open(staged, "w", encoding="ascii") as out:
        while left["R"] or left["W"]:
            source = pick(draw, sources, left["R"] / (left["R"] + left["W"]))
            for key, size, index, write in source.session(draw.randrange(1, 2 * SESSION)):
                letter = "W" if write else "R"
                if not left[letter]:
                    continue
                left[letter] -= 1
                if key not in places:
                    places[key], end = end, end + size
                page = places[key] + index
                pages.add(page)
                out.write(f"0,{page * 8},4096,{letter},{number / 1000:.3f}\n")
                number += 1
    os.replace(staged, args.output)
    print(f"{args.workload}: {number} accesses to {len(pages)} pages, {end * 4096 >> 20} MiB")
    for source in sources:
        print(f"  {source.name}: {source.reads:.0%} reads of {len(source.accesses)} accesses, "
              f"taken {source.taken / len(source.accesses):.2f} times")


if __name__ == "__main__":
    main()
