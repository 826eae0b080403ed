#!/usr/bin/env python3
"""Error of a sampled LRU miss ratio against the exact one, over traces, rates and seeds. Exact: the same on every machine.

    sample_error.py [--seeds N] [--json FILE]

Traces are generated (skewed draws of pages, a scan between draws, a loop, phases with hot sets of their own) and the samples of this
project. Caches are 1, 2, 5, 10, 20 and 50 per cent of the pages. Errors are points of the miss ratio; `p95` and `max` are over seeds and sizes,
of caches with at least 16 pages in the sample.
"""
import argparse
import glob
import os
import sys

import numpy as np

import suite

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "crates", "libs", "syncline-py", "python", "syncline"))

from sweeps import reuse

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
#: Fewest pages of a cache in a sample, as in `sweeps.sampling`.
PAGES_MIN = 16


def skewed(pages, accesses, exponent, seed=1):
    """Draws whose frequency falls with the rank to this power; 0 is uniform."""
    weights = np.cumsum(1 / np.arange(1, pages + 1) ** exponent)
    draws = np.random.default_rng(seed).random(accesses) * weights[-1]
    return np.searchsorted(weights, draws).astype(np.uint64)


def phases(pages, accesses, parts):
    """Skewed draws whose hot pages are others in each part."""
    size = accesses // parts
    moved = [(skewed(pages, size, 0.8, seed) + np.uint64(seed * 7919 * pages // 100)) % np.uint64(pages) for seed in range(parts)]
    return np.concatenate(moved)


def scans(pages, accesses):
    """A quarter of skewed draws, then pages in order, in turns of a tenth of the pages."""
    draws, parts, step = skewed(pages, accesses, 0.9), [], pages // 10
    for turn in range(accesses // (2 * step)):
        parts += [draws[turn * step : (turn + 1) * step], np.arange(step, dtype=np.uint64) + np.uint64(turn % 10 * step)]
    return np.concatenate(parts)


def traces():
    """Names and accesses."""
    for exponent in (0.0, 0.4, 0.6, 0.8, 1.0, 1.2):
        yield f"skewed {exponent}, 2 million pages", skewed(2_000_000, 3_000_000, exponent)
    yield "skewed 0.8, 200,000 pages", skewed(200_000, 2_000_000, 0.8)
    yield "phases, 500,000 pages", phases(500_000, 3_000_000, 5)
    yield "scans, 500,000 pages", scans(500_000, 3_000_000)
    yield "loop, 400,000 pages", np.tile(np.arange(400_000, dtype=np.uint64), 5)
    for path in sorted(glob.glob(os.path.join(ROOT, "samples", "*.pages.trace"))):
        yield os.path.basename(path).split(".")[0], reuse.accesses(path)


def measured(name, pages, rate, whole, seeds):
    """The errors of one trace at one rate."""
    known = reuse.distinct_pages(pages)
    distinct = len(known[0])
    sizes = [round(distinct * share) for share in SHARES if round(distinct * share) * rate >= PAGES_MIN]
    errors = []
    for seed in range(1, seeds + 1):
        chosen, weights = reuse.sample(pages, rate, seed, known)
        part = reuse.Curve(reuse.distances(chosen), weights, len(pages), rate)
        errors += [100 * abs(part.miss_ratio(size) - whole.miss_ratio(size)) for size in sizes]
    record = {"trace": name, "rate": rate, "pages": distinct, "accesses": len(pages), "seeds": seeds,
              "pages_sampled": round(distinct * rate), "sizes": len(sizes)}
    if errors:
        record |= {"error_p50": float(np.percentile(errors, 50)), "error_p95": float(np.percentile(errors, 95)),
                   "error_max": float(max(errors))}
    return record


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json")
    args = parser.parse_args()
    records = []
    for name, pages in traces():
        whole = reuse.curve(pages)
        for rate in (0.01, 0.1):
            records.append(measured(name, pages, rate, whole, args.seeds))
            print(records[-1])
    if args.json:
        suite.store(args.json, "sample-error", records)


if __name__ == "__main__":
    main()
