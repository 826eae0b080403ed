"""Plans: the configurations of a sweep, as a cartesian product.

A configuration has a key, a digest of everything that its result depends on. Results are stored and resumed by key, so a
plan may grow, and its order does not matter.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import json
import os
from dataclasses import asdict, dataclass, field, fields

from . import schema
from .errors import SweepError

#: Axes that each kind of sweep takes, in the order of the product; those with `True` are required.
AXES = {what: dict(kind["axes"]) for what, kind in schema.kinds().items()}

#: Name of a task's field for each axis.
FIELDS = {
    "traces": "trace",
    "workloads": "workload",
    "policies": "policy",
    "sizes": "size",
    "devices": "device",
    "options": "options",
    "seeds": "seed",
    "samples": "sample",
}


@dataclass(frozen=True)
class Task:
    """One configuration; its result is one row."""

    what: str
    trace: str | None = None
    workload: str | None = None
    policy: str | None = None
    size: str | None = None
    device: str | None = None
    options: str = ""
    seed: int | None = None
    sample: float | None = None
    #: Location that a worker opens: `trace` made absolute. No part of the key.
    location: str | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits: the digest of all fields that the result depends on."""
        named = {name: value for name, value in asdict(self).items() if name != "location"}
        text = json.dumps(named, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class Plan:
    """The axes of a sweep, and what it runs: `cache`, `replay`, `lifetime` or `bench`.

    Sizes, devices and options are written as on the command line: `4M`, `10%`, `sd-2012:log_blocks=4`. Options are the
    command's, by commas: `fsync,write_back=10` for `cache`, `passes=10` for `lifetime`; for `bench` they are mount options,
    and `sync`, `log`, `journal_mode`, `mtime_update`, `operations`, `fill` and so on of the command.
    """

    what: str = "cache"
    traces: list[str] = field(default_factory=list)
    workloads: list[str] = field(default_factory=list)
    policies: list[str] = field(default_factory=list)
    sizes: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    #: Directory that relative traces start from.
    directory: str = "."

    def __post_init__(self):
        if self.what not in AXES:
            raise SweepError(f"unknown sweep `{self.what}`; choose one of {', '.join(AXES)}")
        for name in FIELDS:
            values = getattr(self, name)
            one = isinstance(values, (str, int, float, os.PathLike))
            values = [values] if one else list(values or [])
            values = [os.fspath(v) if isinstance(v, os.PathLike) else v for v in values]
            if name == "sizes":
                values = [str(v) for v in values]
            setattr(self, name, values)
            if values and name not in AXES[self.what]:
                raise SweepError(f"a sweep of `{self.what}` has no `{name}`; leave it out")
        for sample in self.samples:
            if not 0 < sample <= 1:
                raise SweepError(f"a sample of {sample} is no share; give one above 0, up to 1")
        for name, required in AXES[self.what].items():
            if required and not getattr(self, name):
                raise SweepError(f"a sweep of `{self.what}` needs `{name}`; name at least one")
        if self.what == "bench" and bool(self.traces) == bool(self.workloads):
            raise SweepError("a sweep of `bench` needs either `traces` of system calls or `workloads`")

    @classmethod
    def load(cls, path) -> "Plan":
        """Reads a TOML file; relative traces start from its directory. Unknown keys are refused by name."""
        try:
            import tomllib
        except ModuleNotFoundError:
            import tomli as tomllib
        try:
            with open(path, "rb") as file:
                document = tomllib.load(file)
        except OSError as error:
            raise SweepError(f"{path}: {error.strerror}; name a plan that can be read") from None
        except tomllib.TOMLDecodeError as error:
            raise SweepError(f"{path}: {error}; mend the TOML") from None
        known = {f.name for f in fields(cls)} - {"directory"}
        unknown = sorted(set(document) - known)
        if unknown:
            raise SweepError(f"{path}: unknown key `{unknown[0]}`; known are {', '.join(sorted(known))}")
        return cls(**document, directory=os.path.dirname(os.path.abspath(path)))

    def document(self) -> dict:
        """The plan as a JSON document, without the directory."""
        return {"schema": "syncline.sweep-plan/1", "what": self.what, **{name: getattr(self, name) for name in FIELDS}}

    def tasks(self) -> list[Task]:
        """All configurations, in the order of the axes; those named twice are there once."""
        axes = []
        for name in AXES[self.what]:
            values = self._traces() if name == "traces" else [{FIELDS[name]: value} for value in getattr(self, name)]
            axes.append(values or [{}])
        found = {}
        for parts in itertools.product(*axes):
            task = Task(what=self.what, **{name: value for part in parts for name, value in part.items()})
            found.setdefault(task.key, task)
        return list(found.values())

    def _traces(self) -> list[dict]:
        named = []
        directory = os.path.abspath(self.directory)
        for trace in self.traces:
            if "://" in trace:
                named += [{"trace": url, "location": url} for url in _remote(trace)]
            elif not glob.has_magic(trace):
                named.append({"trace": trace, "location": os.path.join(directory, trace)})
            else:
                found = sorted(glob.glob(os.path.join(glob.escape(directory), trace), recursive=True))
                if not found:
                    raise SweepError(f"{trace}: no trace has such a name; mend the pattern")
                whole = os.path.isabs(trace)
                named += [{"trace": p if whole else os.path.relpath(p, directory), "location": p} for p in found]
        return named


def _remote(url: str) -> list[str]:
    """The locations that a remote pattern names."""
    if not glob.has_magic(url.split("://", 1)[1]):
        return [url]
    import fsspec

    fs, path = fsspec.core.url_to_fs(url)
    scheme = url.split("://", 1)[0]
    found = sorted(fs.glob(path))
    if not found:
        raise SweepError(f"{url}: no trace has such a name; mend the pattern")
    return [f"{scheme}://{one.lstrip('/')}" for one in found]
