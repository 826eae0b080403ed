"""Exact reuse distances of a trace, and the miss ratios of every size of an LRU cache that they give.

The distance of an access is the number of other pages since the last access to its page: LRU of `n` pages hits below `n`.
With `p(i)` the access before to the same page, it is `i - p(i) - 1` less the accesses before `i` whose own `p` is above
`p(i)`: a count of inversions, made level by level with arrays.

A trace may be cut into parts, whose distances are counted on many workers (`part`) and put together exactly (`merged`): an
access whose page comes first in its part has the distance it has in the sequence of the LRU stack before, then the first
accesses of the part (as in PARDA, Niu et al., IPDPS 2012).
"""

from __future__ import annotations

#: Bytes of a page.
PAGE_BYTES = 4096


def kind_of(file) -> str:
    """The kind of a trace file, `page` or `block`. Raises ValueError for another one, or a file that is no trace."""
    metadata = file.schema_arrow.metadata or {}
    kind = metadata.get(b"syncline.trace.kind", b"").decode()
    if kind not in ("page", "block"):
        raise ValueError(f"a trace of `{kind or 'no kind'}` cannot be sampled; import it, and take its pages or blocks")
    return kind


def expand(table, kind: str):
    """Pages of the reads and writes in a table: page numbers, the row of each, and a number of the file it belongs to.

    Files get the hash of their name, so that the number is the same in every part of a trace; block traces have one.
    """
    import numpy as np
    import pyarrow.compute as pc

    chosen = pc.is_in(table["op"], value_set=_strings(["read", "write"]))
    rows = np.flatnonzero(chosen.to_numpy(zero_copy_only=False))
    offset = table["offset_bytes"].fill_null(0).to_numpy()[rows]
    length = table["len_bytes"].fill_null(0).to_numpy()[rows]
    first = offset // PAGE_BYTES
    count = np.where(length > 0, (offset + length - 1) // PAGE_BYTES - first + 1, 0)
    total = int(count.sum())
    within = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
    owner = np.zeros(len(rows), dtype=np.uint64)
    if kind == "page" and "file" in table.column_names:
        owner = _name_hashes(table["file"])[rows]
    return np.repeat(first, count) + within, np.repeat(rows, count), np.repeat(owner, count)


def _strings(values):
    import pyarrow as pa

    return pa.array(values, pa.string())


def _name_hashes(column):
    """A 64-bit number of each name; 0 for none."""
    import hashlib

    import numpy as np

    coded = column.combine_chunks().dictionary_encode()
    names = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in coded.dictionary.to_pylist()]
    numbers = np.array([int.from_bytes(name, "little") for name in names] + [0], dtype=np.uint64)
    return numbers[coded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False).astype(np.int64)]


def hashed(pages, owner):
    """A hash of each page, 64 bits: the finaliser of splitmix64, so that neighbours are apart."""
    import numpy as np

    with np.errstate(over="ignore"):
        x = pages.astype(np.uint64) + owner * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def in_sample(pages, owner, rate: float):
    """Tells for each page if it is in the sample of this rate."""
    import numpy as np

    return hashed(pages, owner) <= np.uint64(min(int(rate * 2**64), 2**64 - 1))


def accesses(path):
    """The pages of a trace in order, as one array of 64-bit numbers: memory is 8 bytes an access."""
    import numpy as np
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    kind = kind_of(file)
    parts = []
    for group in range(file.num_row_groups):
        pages, _, owner = expand(file.read_row_group(group), kind)
        parts.append(hashed(pages, owner))
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def previous(pages):
    """For each access, the access before to the same page, or -1."""
    import numpy as np

    order = np.argsort(pages, kind="stable")
    found = np.full(len(pages), -1, dtype=np.int64)
    same = pages[order[1:]] == pages[order[:-1]]
    found[order[1:][same]] = order[:-1][same]
    return found


def distances(pages):
    """The reuse distance of each access; -1 for the first one to a page. O(n log n) time, O(n) memory."""
    import numpy as np

    before = previous(pages)
    at = np.flatnonzero(before >= 0)
    result = np.full(len(pages), -1, dtype=np.int64)
    result[at] = at - before[at] - 1 - _larger_before(before[at])
    return result


def _larger_before(values):
    """For each of distinct values, how many before it are larger. Halves by rank, from the highest bit to the lowest."""
    import numpy as np

    n = len(values)
    rank = np.empty(n, dtype=np.int64)
    rank[np.argsort(values)] = np.arange(n)
    counted = np.zeros(n, dtype=np.int64)
    order = np.arange(n)
    for bit in reversed(range(max(1, (n - 1).bit_length()))):
        ranks = rank[order]
        group = ranks >> (bit + 1)
        high = (ranks >> bit) & 1
        ones = np.cumsum(high)
        # Groups are consecutive and ascending: a group begins at its smallest rank.
        first = np.minimum(group << (bit + 1), n - 1)
        before_group = np.where(first > 0, ones[first - 1], 0)
        low = high == 0
        counted[order[low]] += (ones - before_group)[low]
        # The next level: in each group, those with the bit clear first, each half in its order.
        order = order[np.argsort(ranks >> bit, kind="stable")]
    return counted


def part(pages):
    """Distances within one part of a trace, where its first accesses are, and its LRU stack. Runs on a worker."""
    import numpy as np

    found = distances(pages)
    last = len(pages) - 1 - np.unique(pages[::-1], return_index=True)[1]
    return {"distances": found, "firsts": np.flatnonzero(found < 0), "stack": pages[np.sort(last)]}


def merged(cuts, answers):
    """The distances of a whole trace from its parts and their answers, in order. Exact."""
    import numpy as np

    whole = []
    stack = np.zeros(0, np.uint64)
    for pages, one in zip(cuts, answers):
        found = one["distances"].copy()
        sequence = np.concatenate([stack, pages[one["firsts"]]])
        found[one["firsts"]] = distances(sequence)[len(stack) :]
        whole.append(found)
        stack = np.concatenate([stack[~np.isin(stack, one["stack"])], one["stack"]])
    return np.concatenate(whole)


class Curve:
    """Miss ratios of an LRU cache of every size."""

    def __init__(self, found, weights, accesses: int, rate: float):
        import numpy as np

        #: Accesses of the trace, and those that were looked at.
        self.accesses, self.sampled = accesses, len(found)
        #: Share of the pages that was looked at.
        self.rate = rate
        again = found >= 0
        by_distance = np.bincount(found[again], weights=weights[again])
        self._cold = float(weights[~again].sum())
        self._hits = np.concatenate([[0.0], np.cumsum(by_distance)])

    def miss_ratio(self, pages: int) -> float:
        """Misses of a cache of so many pages over accesses; of a sample, the estimate."""
        hits = self._hits[min(round(pages * self.rate), len(self._hits) - 1)]
        return float(self._cold + self._hits[-1] - hits) / max(self.accesses, 1)


def curve(pages, rate: float = 1.0, parts: int = 1, executor=None, seed: int = 1) -> Curve:
    """The miss ratio curve of LRU for accesses (`accesses`), from a sample and by parts where asked.

    With an executor (anything with `submit`) parts run there. Each `seed` takes another sample. A sample's accesses are weighted by how often a page is
    asked for: classes of pages of the same frequency (within a factor of 1.4) count as much as in the whole trace, and a
    class of which no page is in the sample counts as hits, since such classes are few and hot. The error falls with
    the pages in the sample; `docs/FLEETS.md` has the case that a test holds.
    """
    import numpy as np

    total, weights = len(pages), None
    if rate < 1:
        pages, weights = sample(pages, rate, seed)
    cuts = np.array_split(pages, parts)
    if executor is None:
        answers = map(part, cuts)
    else:
        answers = [future.result() for future in [executor.submit(part, cut) for cut in cuts]]
    found = merged(cuts, answers)
    return Curve(found, np.ones(total) if weights is None else weights, total, rate)


def distinct_pages(pages):
    """The distinct pages, the place among them of each access, and how often each is asked for."""
    import numpy as np

    return np.unique(pages, return_inverse=True, return_counts=True)


def sample(pages, rate: float, seed: int = 1, distinct=None):
    """The accesses to the pages of a sample, and the weight of each. `distinct`: `distinct_pages`, if they are known."""
    import numpy as np

    distinct, which, count = distinct or distinct_pages(pages)
    # A seed of its own: the pages may be hashes already.
    kept = in_sample(distinct, np.uint64(seed), rate)
    classes = np.floor(np.log2(count) * 2).astype(np.int64)
    whole = np.bincount(classes, weights=count)
    sampled = np.bincount(classes[kept], weights=count[kept], minlength=len(whole))
    weight = whole / np.maximum(sampled, 1)
    chosen = kept[which]
    return pages[chosen], weight[classes[which[chosen]]]
