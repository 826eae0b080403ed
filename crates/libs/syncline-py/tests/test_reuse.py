"""Reuse distances by a second algorithm, by parts, against the simulator, and samples against the whole."""

import concurrent.futures
import json
import os
import subprocess

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("pyarrow")

from syncline import sweeps
from syncline.sweeps import Plan, reuse


def by_list(pages):
    stack, found = [], []
    for page in pages.tolist():
        if page in stack:
            at = stack.index(page)
            found.append(len(stack) - 1 - at)
            stack.pop(at)
        else:
            found.append(-1)
        stack.append(page)
    return np.array(found, dtype=np.int64)


def skewed(pages, accesses, exponent, seed=1):
    weights = np.cumsum(1 / np.arange(1, pages + 1) ** exponent)
    draws = np.random.default_rng(seed).random(accesses) * weights[-1]
    return np.searchsorted(weights, draws).astype(np.uint64)


@pytest.mark.parametrize("pages, accesses", [(1, 0), (1, 1), (7, 50), (100, 1000), (300, 777)])
def test_distances_are_those_of_a_list(pages, accesses):
    trace = np.random.default_rng(accesses).integers(0, pages, accesses).astype(np.uint64)
    whole = by_list(trace)
    assert np.array_equal(reuse.distances(trace), whole)
    for parts in (1, 2, 3, 7):
        cuts = np.array_split(trace, parts)
        assert np.array_equal(reuse.merged(cuts, map(reuse.part, cuts)), whole)


def test_parts_on_an_executor_give_the_whole_curve():
    trace = skewed(5000, 50_000, 0.8)
    whole = reuse.curve(trace)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        parts = reuse.curve(trace, parts=5, executor=pool)
    assert [whole.miss_ratio(n) for n in range(0, 5000, 100)] == [parts.miss_ratio(n) for n in range(0, 5000, 100)]


def write(path, pages):
    """A block trace: reads of single pages."""
    lines = "".join(f"{at * 1e-3:.3f},R,{page * 8},4096\n" for at, page in enumerate(pages.tolist()))
    path.with_suffix(".csv").write_text(lines)
    command = [os.environ["SYNCLINE_LAB"], "trace", "import", "--columns", "time_s,op,offset_sectors,len_bytes"]
    subprocess.run([*command, str(path.with_suffix(".csv")), "-o", str(path)], check=True, capture_output=True)


@pytest.mark.skipif(not os.environ.get("SYNCLINE_LAB"), reason="SYNCLINE_LAB names no program to run")
def test_the_curve_is_that_of_the_simulator_and_samples_are_near(tmp_path):
    path = tmp_path / "skewed.trace"
    write(path, skewed(20_000, 60_000, 0.5))
    sizes = ["500p", "2000p", "8000p"]
    plan = Plan(traces=[str(path)], policies=["lru"], sizes=sizes, samples=[1.0, 0.2])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        rows = sweeps.sweep(plan, executor=pool).to_pylist()
        whole = sweeps.sweep(Plan(traces=[str(path)], policies=["lru"], sizes=sizes), executor=pool).to_pylist()
    curve = reuse.curve(reuse.accesses(path))
    for row, size in zip(whole, (500, 2000, 8000)):
        assert row["error"] is None
        assert row["misses"] == round(curve.miss_ratio(size) * curve.accesses)
    for row, exact in zip([r for r in rows if r["sample"] == 1.0], whole):
        assert row["hits"] == exact["hits"]
    for row, exact in zip([r for r in rows if r["sample"] == 0.2], whole):
        sample = json.loads(row["document"])["sample"]
        assert sample["accesses"] == 60_000 and 0 < sample["accesses_sampled"] < 20_000
        assert abs(sample["hit_ratio_estimate"] - exact["hit_ratio"]) < 0.03


def test_a_sample_of_one_percent_is_within_half_a_point():
    trace = skewed(2_000_000, 3_000_000, 0.6)
    whole, sample = reuse.curve(trace), reuse.curve(trace, rate=0.01)
    assert sample.sampled < 0.02 * whole.accesses
    for pages in (100_000, 200_000, 500_000, 1_000_000):
        assert abs(whole.miss_ratio(pages) - sample.miss_ratio(pages)) < 0.005, pages


def test_other_traces_and_small_caches_are_refused(tmp_path):
    samples = os.path.join(os.path.dirname(__file__), *[".."] * 4, "samples")
    with pytest.raises(ValueError, match="a trace of `syscall` cannot be sampled"):
        reuse.accesses(os.path.join(samples, "mail.calls.trace"))
    with pytest.raises(ValueError, match="is 3 pages; sample more"):
        sweeps.sampling.scaled_pages("1M", 0.01, 1000)
