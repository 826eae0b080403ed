"""Plots of documents for notebooks. They need matplotlib, and return its `Axes`.

A document of another command, and a figure that its runs lack, raise ValueError, which names those that there are.
"""

import textwrap
from typing import Any, Dict, List, Optional

from ._study import Document

#: Figures by the words of an axis; any other one is its name in words.
_QUANTITIES = {
    "hit_ratio": "hit ratio",
    "transactions_per_s": "transactions a second",
    "throughput_mb_per_s": "throughput, MB/s",
    "write_amplification": "write amplification (programmed to written bytes)",
    "written_bytes": "written to the device, bytes",
    "sequential_ratio": "share of bytes in sequential runs",
    "duration_s": "time, s",
    "elapsed_s": "elapsed time, s",
}
#: Parts of names that are units.
_UNITS = ("bytes", "us", "ms", "s", "sectors")
#: Lines of the first ten colours, and of the same ones again.
_STYLES = (
    {"marker": "o"},
    {"marker": "s", "linestyle": "dashed"},
    {"marker": "^", "linestyle": "dotted"},
)
#: Characters in a line of the label of a bar.
_LABEL_CHARACTERS = 34


def _quantity(figure: str) -> str:
    if figure in _QUANTITIES:
        return _QUANTITIES[figure]
    words = figure.split("_")
    units = [word for word in words if word in _UNITS]
    return " ".join(word for word in words if word not in units) + "".join(f", {unit}" for unit in units)


def _document(document: Any, command: str) -> List[Any]:
    """The runs of a document of `syncline.<command>`, after a look at its schema."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(schema, str) or schema.split("/")[0] != f"syncline.{command}":
        what = f"one of schema {schema}" if schema else f"a {type(document).__name__} without a schema"
        raise ValueError(f"plots.{command} draws what syncline.{command} returns, not {what}")
    return document.get("runs", [])


def _values(runs: List[Any], figure: str) -> List[float]:
    """This figure of every run."""
    known = sorted({name for run in runs for name, value in run.items() if isinstance(value, (int, float))})
    if not all(isinstance(run.get(figure), (int, float)) for run in runs):
        raise ValueError(f"not every run has a figure {figure!r}; choose of {', '.join(known)}")
    return [run[figure] for run in runs]


def _axes(axes: Optional[Any], height: Optional[float] = None) -> Any:
    if axes is not None:
        return axes
    try:
        from matplotlib import pyplot
    except ImportError as err:
        raise ImportError("plots need matplotlib; pip install matplotlib") from err
    # Room for every label, whatever its length.
    figure, axes = pyplot.subplots(layout="constrained")
    if height is not None:
        figure.set_figheight(max(height, figure.get_figheight()))
    return axes


def cache(document: Document, figure: str = "hit_ratio", *, axes: Optional[Any] = None) -> Any:
    """A line for each policy: `figure` of `syncline.cache` against the size of the cache, MiB."""
    runs = _document(document, "cache")
    lines: Dict[str, List[Any]] = {}
    page = document["settings"]["page_bytes"]
    for run, value in zip(runs, _values(runs, figure)):
        lines.setdefault(run["policy"], []).append((run["pages"] * page / (1 << 20), value))
    own = axes is None
    axes = _axes(axes)
    for number, (policy, points) in enumerate(lines.items()):
        # There are ten colours; further lines differ by their style.
        style = _STYLES[number // 10 % len(_STYLES)]
        axes.plot(*zip(*sorted(points)), color=f"C{number % 10}", label=policy, **style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda mib, _: f"{mib:g}")
    axes.set_xlabel("cache, MiB")
    axes.set_ylabel(_quantity(figure))
    axes.set_ylim(0, 1 if figure == "hit_ratio" else None)
    if lines and own:
        # Beside the lines, not over them.
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    elif lines:
        axes.legend()
    return axes


def bench(document: Document, figure: str = "transactions_per_s", *, axes: Optional[Any] = None) -> Any:
    """A bar for each run: `figure` of the foreground of `syncline.bench`."""
    runs = _document(document, "bench")
    parts = ("sync", "log", "journal_mode", "alloc")
    labels = [" ".join([run["workload"], *(str(run["config"][p]) for p in parts if run["config"].get(p))]) for run in runs]
    values = _values([run["foreground"] for run in runs], figure)
    axes = _axes(axes, 1 + 0.5 * len(runs))
    # By number, since two runs may have one label.
    axes.barh(range(len(runs)), values)
    axes.set_yticks(range(len(runs)), [textwrap.fill(label, _LABEL_CHARACTERS) for label in labels])
    axes.invert_yaxis()
    # Room for the label of a tick at the end.
    axes.set_xlim(0, 1.1 * max(values, default=0) or None)
    axes.set_xlabel(_quantity(figure))
    return axes


def lifetime(document: Document, *, axes: Optional[Any] = None) -> Any:
    """Erases of the blocks by percentile, of `syncline.lifetime`."""
    _document(document, "lifetime")
    names = ["min", "p1", "p25", "p50", "p75", "p99", "max"]
    erases = [document["erases_per_block"][name] for name in names]
    axes = _axes(axes)
    axes.plot(names, erases, marker="o", drawstyle="steps-mid")
    axes.set_xlabel("percentile of the blocks")
    axes.set_ylabel("erases of a block")
    axes.set_ylim(bottom=0)
    axes.yaxis.get_major_locator().set_params(integer=True)
    return axes


def wear(device: Any, *, axes: Optional[Any] = None) -> Any:
    """Histogram of the erases of the blocks of a `syncline.Device`."""
    erases = getattr(device, "erases", None)
    if erases is None:
        raise ValueError(f"plots.wear draws a syncline.Device, not a {type(device).__name__}")
    axes = _axes(axes)
    # A bar for each number of erases while these are few: there is no half of an erase.
    bins = [n - 0.5 for n in range(max(erases) + 2)] if max(erases) < 40 else "auto"
    axes.hist(erases, bins=bins)
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("erases of a block")
    axes.set_ylabel("blocks")
    return axes
