"""Spatially hashed samples of a trace (SHARDS), for page caches of any policy.

A page is in the sample where the hash of its address is below a threshold; so all accesses to a page are there or none,
and reuse within the sample is that of the trace. The cache gets the same share of its size. Counts are then those of the
sample; `hit_ratio_estimate` divides by the accesses expected at that rate and counts the difference as hits, as SHARDS-adj
does (Waldspurger et al., FAST 2015, section 3.4).

Assumes a trace of pages or of block requests. Memory: a row group, and the sample.
"""

from __future__ import annotations

import os

from . import reuse, traces
from .reuse import PAGE_BYTES

#: Fewest pages of a cache in a sample: below, the estimate is noise.
PAGES_MIN = 16


def cache(task, command) -> dict:
    """The document of `syncline-lab cache` for a sample of the task's trace, with the estimate and what was sampled.

    `command(task, path, size)` runs the command. Raises ValueError for a size that the rate makes too small.
    """
    source = traces.local(task.location)
    path = os.path.join(traces.scratch(), f"sample-{task.key}.trace")
    try:
        accesses, sampled, touched = write_sample(source, path, task.sample)
        pages = scaled_pages(task.size, task.sample, touched)
        document = command(task, path, f"{pages}p")
    finally:
        if os.path.exists(path):
            os.unlink(path)
    run = document["runs"][0]
    expected = accesses * task.sample
    document["sample"] = {
        "rate": task.sample,
        "accesses": accesses,
        "accesses_sampled": sampled,
        "pages_sampled": touched,
        "hit_ratio_estimate": 1 - run["misses"] / expected if expected else 0.0,
    }
    return document


def scaled_pages(size: str, rate: float, touched: int) -> int:
    """Pages of a cache in a sample: the size as on the command line, times the rate; a share of what is touched stays."""
    if size.endswith("%"):
        return max(1, int(touched * float(size[:-1]) / 100))
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    if size.endswith("p"):
        whole = int(size[:-1])
    elif size[-1] in units:
        whole = int(float(size[:-1]) * units[size[-1]]) // PAGE_BYTES
    else:
        whole = int(size) // PAGE_BYTES
    pages = round(whole * rate)
    if pages < PAGES_MIN:
        least = f"{PAGES_MIN / rate:.0f}p"
        raise ValueError(f"{size} at a sample of {rate} is {pages} pages; sample more, or name a cache of {least}")
    return pages


def write_sample(source: str, target: str, rate: float) -> tuple[int, int, int]:
    """Writes the sampled accesses, a page each; returns accesses of the source, of the sample, and pages of the sample."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(source)
    keys = reuse.kind_of(file)
    accesses = sampled = 0
    touched = set()
    with pq.ParquetWriter(target, file.schema_arrow, compression="zstd") as writer:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            pages, rows, owner = reuse.expand(table, keys)
            accesses += len(pages)
            kept = reuse.in_sample(pages, owner, rate)
            sampled += int(kept.sum())
            touched.update(zip(owner[kept].tolist(), pages[kept].tolist()))
            part = table.take(pa.array(rows[kept]))
            for name, values in (("offset_bytes", pages[kept] * PAGE_BYTES), ("len_bytes", None)):
                values = np.full(len(part), PAGE_BYTES) if values is None else values
                at = part.schema.get_field_index(name)
                part = part.set_column(at, part.schema.field(at), pa.array(values, part.schema.field(at).type))
            writer.write_table(part)
    return accesses, sampled, len(touched)
