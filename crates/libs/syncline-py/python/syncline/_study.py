"""The measuring commands of `syncline`; what they return is the document of `--json`.

Each function takes the options of the command of its name, with the same defaults. Lists may be one string.
Ctrl-C stops a run at its next operation. What the command line says on standard error are warnings.
"""

import json
import os
from typing import Any, Dict, List, Optional, Sequence, Union

from . import _native

Path = Union[str, "os.PathLike[str]"]
Document = Dict[str, Any]
Names = Union[str, Sequence[str]]


def run(command: str, **options: Any) -> Document:
    """Runs `command` with the fields of its request; those that are None are left to their defaults."""
    given = {name: value for name, value in options.items() if value is not None}
    document: Document = json.loads(_native.study(command, json.dumps(given)))
    return document


def names(value: Optional[Names]) -> Optional[List[str]]:
    """One name or several, as a list; a string may have commas, as on the command line."""
    if value is None:
        return None
    return value.split(",") if isinstance(value, str) else [str(one) for one in value]


def file(trace: Path, format: Optional[str] = None, drop_repeats: bool = False) -> Document:
    """A trace and how to read it."""
    os.stat(trace)
    return {"trace": os.fspath(trace), "drop_repeats": drop_repeats, **({"format": format} if format else {})}


def _path(value: Optional[Path]) -> Optional[str]:
    return None if value is None else os.fspath(value)


def cache(
    trace: Path,
    *,
    policy: Names = "all",
    size: Names = "4M,8M,16M,32M,64M",
    device: Optional[Names] = None,
    write_back: Optional[int] = None,
    fsync: bool = False,
    dense: bool = False,
    merge: int = 4096,
    after_cache: Optional[Path] = None,
    jobs: Optional[int] = None,
    format: Optional[str] = None,
    drop_repeats: bool = False,
) -> Document:
    """Compares page replacement policies on a trace (`syncline-lab cache`).

    `size` is in bytes (`4M`), pages (`1024p`) or a share of the pages that the trace touches (`10%`); `merge` is the
    longest request after the cache, bytes; `write_back` the share of dirty pages above which all are written, percent.
    """
    devices = [device] if isinstance(device, str) else names(device)
    return run(
        "cache", input=file(trace, format, drop_repeats), policy=names(policy), size=names(size), device=devices,
        write_back=write_back, fsync=fsync, dense=dense, merge=merge, after_cache=_path(after_cache), jobs=jobs,
    )


def replay(
    trace: Path,
    device: Optional[Path] = None,
    *,
    dir: Optional[Path] = None,
    timing: bool = False,
    depth: int = 1,
    dense: bool = False,
    overwrite: bool = False,
    yes: bool = False,
    format: Optional[str] = None,
    drop_repeats: bool = False,
) -> Document:
    """Plays a trace on a device profile, a file or block device, or in the directory `dir` (`syncline-lab replay`).

    Writing to a file or device destroys what is there: it wants `overwrite=True`, and `yes=True` as well if it is
    mounted or carries a file system.
    """
    return run(
        "replay", input=file(trace, format, drop_repeats), device=_path(device), dir=_path(dir), timing=timing,
        depth=depth, dense=dense, overwrite=overwrite, yes=yes,
    )


def lifetime(
    trace: Path,
    device: str = "nexus7-emmc",
    *,
    size: Optional[int] = None,
    precondition: int = 80,
    passes: int = 1,
    per_day: Optional[float] = None,
) -> Document:
    """Replays a block trace on a simulated device and estimates its lifetime (`syncline-lab lifetime`).

    `size` is the device's in bytes, by itself the power of two that holds the trace; `precondition` is in percent. The
    trace happens `per_day` times a day, by itself again and again with its own pauses; below half an hour it then has
    no lifetime.
    """
    os.stat(trace)
    return run(
        "lifetime", trace=os.fspath(trace), device=device, size=size, precondition=precondition, passes=passes,
        per_day=per_day,
    )


def bench(
    workloads: Names,
    device: str = "nexus7-emmc",
    *,
    sync: Names = "ordered,eager",
    log: Optional[Names] = None,
    journal_mode: Names = "delete",
    synchronous: str = "full",
    sqlite_fsync: bool = False,
    mtime_update: Optional[Names] = None,
    operations: Optional[int] = None,
    policy: str = "clock",
    alloc: Optional[Names] = None,
    fill: Sequence[int] = (),
    options: str = "",
    seed: int = 1,
    size: int = 2048,
    image: Optional[Path] = None,
    dir: Optional[Path] = None,
    trace: Sequence[Path] = (),
    contents: str = "noise",
    gap_max: int = 0,
) -> Document:
    """Runs workloads on a simulated device in virtual time, or in the directory `dir` (`syncline-lab bench`).

    `size` is that of the volume, MiB; `fill` in percent; `gap_max` in milliseconds; `contents` noise or same. The workload `replay` plays
    traces of system calls.
    """
    return run(
        "bench", workloads=names(workloads), device=device, sync=names(sync), log=names(log),
        journal_mode=names(journal_mode), synchronous=synchronous, sqlite_fsync=sqlite_fsync,
        mtime_update=names(mtime_update), operations=operations, policy=policy, alloc=names(alloc),
        fill=list(fill), options=options, seed=seed, size=size, image=_path(image), dir=_path(dir),
        trace=[os.fspath(one) for one in trace], contents=contents, gap_max=gap_max,
    )


def probe(
    target: Path,
    *,
    size: int = 256 << 20,
    requests: int = 1024,
    bytes: int = 64 << 20,
    seconds: int = 5,
    sustain: int = 512 << 20,
    precondition: int = 0,
    seed: int = 1,
    destroy: int = 0,
    fit: Optional[Path] = None,
    tries: int = 600,
) -> Document:
    """Measures a directory, file, block device or profile (`syncline-lab probe`). Sizes are in bytes.

    `destroy=2` overwrites what a file or block device holds. `fit` is a file for a profile with the same figures.
    """
    return run(
        "probe", target=os.fspath(target), size=size, requests=requests, bytes=bytes, seconds=seconds,
        sustain=sustain, precondition=precondition, seed=seed, destroy=destroy, fit=_path(fit), tries=tries,
    )


def devices() -> Document:
    """The device profiles that ship, with their sources (`syncline-lab devices --json`)."""
    return run("devices")
