"""Plots of documents for notebooks. They need matplotlib, and return its `Axes`."""

from typing import Any, Dict, List, Optional

from ._study import Document


def _axes(axes: Optional[Any]) -> Any:
    if axes is not None:
        return axes
    try:
        from matplotlib import pyplot
    except ImportError as err:
        raise ImportError("plots need matplotlib; pip install matplotlib") from err
    return pyplot.subplots()[1]


def cache(document: Document, figure: str = "hit_ratio", *, axes: Optional[Any] = None) -> Any:
    """A line for each policy: `figure` of `syncline.cache` against the size of the cache, MiB."""
    axes = _axes(axes)
    lines: Dict[str, List[Any]] = {}
    page = document["settings"]["page_bytes"]
    for run in document["runs"]:
        lines.setdefault(run["policy"], []).append((run["pages"] * page / (1 << 20), run[figure]))
    for policy, points in lines.items():
        axes.plot(*zip(*sorted(points)), marker="o", label=policy)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("cache, MiB")
    axes.set_ylabel(figure)
    axes.legend()
    return axes


def bench(document: Document, figure: str = "transactions_per_s", *, axes: Optional[Any] = None) -> Any:
    """A bar for each run: `figure` of the foreground of `syncline.bench`."""
    axes = _axes(axes)
    runs = document["runs"]
    parts = ("sync", "log", "journal_mode", "alloc")
    labels = [" ".join([run["workload"], *(str(run["config"][p]) for p in parts if run["config"].get(p))]) for run in runs]
    axes.barh(labels, [run["foreground"][figure] for run in runs])
    axes.invert_yaxis()
    axes.set_xlabel(figure)
    return axes


def lifetime(document: Document, *, axes: Optional[Any] = None) -> Any:
    """Erases of the blocks by percentile, of `syncline.lifetime`."""
    axes = _axes(axes)
    names = ["min", "p1", "p25", "p50", "p75", "p99", "max"]
    axes.plot(names, [document["erases_per_block"][name] for name in names], marker="o", drawstyle="steps-mid")
    axes.set_ylabel("erases of a block")
    return axes


def wear(device: Any, *, axes: Optional[Any] = None) -> Any:
    """Histogram of the erases of the blocks of a `syncline.Device`."""
    axes = _axes(axes)
    axes.hist(device.erases, bins="auto")
    axes.set_xlabel("erases")
    axes.set_ylabel("blocks")
    return axes
