"""One task on a worker: a command's document, and the row made of it.

The document is exactly that of the command line (`syncline-lab cache --json -` and so on), which runs as a child process: a
crash or a lack of memory there is the error of one task. The program is `$SYNCLINE_LAB`, or `syncline-lab` in the path.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import shutil
import socket
import subprocess
import time

from . import sampling, schema, traces
from .errors import SweepError
from .plan import Task

#: Options of each command that are flags or take a value; for `bench`, all others are mount options.
OPTIONS = {what: set(kind["options"]) for what, kind in schema.kinds().items()}

#: Mode of `bench` where the options name none.
SYNC = "eager"

#: Longest part of standard error that becomes a row's error, bytes.
ERROR_BYTES_MAX = 2000


class TaskError(Exception):
    """A task failed; the message becomes its row's error."""


class Lost(Exception):
    """The process of a task was killed: by a lack of memory, or by somebody. The driver runs it again."""


#: Child processes that run now.
_children: dict[int, subprocess.Popen] = {}


def children() -> list[int]:
    """Process numbers of the commands that run for this process."""
    return list(_children)


def end_children():
    """Ends the commands that run for this process."""
    for child in list(_children.values()):
        child.kill()


def program() -> str:
    """The command-line program that runs tasks here."""
    named = os.environ.get("SYNCLINE_LAB") or shutil.which("syncline-lab")
    if not named:
        raise SweepError(
            f"{socket.gethostname()}: no program `syncline-lab` in the path; install it, or set SYNCLINE_LAB to it"
        )
    return named


@functools.lru_cache(maxsize=4)
def version(named: str) -> str:
    """The version that a program reports, with its commit where it knows it."""
    try:
        done = subprocess.run([named, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SweepError(f"{named}: {error}; set SYNCLINE_LAB to a program that runs") from None
    return done.stdout.strip()


def here() -> str:
    """The version that runs tasks in this process."""
    return version(program())


def run(task: Task, expected: str) -> dict:
    """Runs a task; the answer has `row`, `seconds`, `worker` and `memory_bytes`.

    A failed task is a row with an error. One whose process was killed answers with `lost`, and a worker whose version is not
    `expected` with `refused`.
    """
    worker = f"{socket.gethostname()}:{os.getpid()}"
    try:
        found = here()
    except SweepError as error:
        return {"refused": str(error), "worker": worker}
    if found != expected:
        text = f"worker {worker} runs `{found}`, the driver `{expected}`; install one version everywhere"
        return {"refused": text, "worker": worker}
    started = time.monotonic()
    document = error = None
    try:
        document = answer(task)
    except Lost as err:
        return {"lost": str(err), "worker": worker}
    except TaskError as err:
        error = str(err)
    except Exception as err:  # What fsspec and its file systems raise has no common class.
        error = f"{type(err).__name__}: {err}"
    usage = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "row": row(task, expected, document, error),
        "seconds": time.monotonic() - started,
        "worker": worker,
        "memory_bytes": max(usage) * 1024,
    }


def row(task: Task, by: str, document: dict | None, error: str | None) -> dict:
    """The row of a task: its configuration, its figures, and the document as canonical JSON."""
    named = {
        "key": task.key,
        "what": task.what,
        "trace": task.trace,
        "workload": task.workload,
        "policy": task.policy,
        "size": task.size,
        "device": task.device,
        "options": task.options,
        "seed": task.seed,
        "sample": task.sample,
        "version": by,
        "error": error,
        "document": None if document is None else json.dumps(document, sort_keys=True),
    }
    return {**named, **schema.metrics(task.what, document)}


def answer(task: Task) -> dict:
    """The document of one configuration. Raises `TaskError`."""
    if task.what == "cache" and task.sample is not None:
        return sampling.cache(task, command)
    path = None if task.location is None else traces.local(task.location)
    return command(task, path, task.size)


def command(task: Task, path: str | None, size: str | None) -> dict:
    """Runs the command on a trace that is a local file; the document names the trace as the plan does."""
    words = [program(), *arguments(task, path, size)]
    # A session of its own: Ctrl-C on a terminal is for the driver, which ends its children itself.
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1, start_new_session=True)
    _children[child.pid] = child
    try:
        said, complained = child.communicate()
    finally:
        del _children[child.pid]
    if child.returncode < 0:
        raise Lost(f"`syncline-lab {task.what}` was ended by signal {-child.returncode}")
    if child.returncode:
        text = complained.decode(errors="replace").strip()[-ERROR_BYTES_MAX:]
        raise TaskError(text.removeprefix("syncline-lab: "))
    document = json.loads(said)
    if task.what == "cache":
        document["trace"]["path"] = task.trace
    elif task.what == "replay":
        document["trace"] = task.trace
    elif task.what == "bench":
        # The workload `replay` runs in both modes, whatever it is told.
        sync = _options(task)[0].get("sync", SYNC)
        document["runs"] = [run for run in document["runs"] if run["config"]["sync"] == sync][:1]
    return document


def arguments(task: Task, path: str | None, size: str | None) -> list[str]:
    """Arguments of the command line for one configuration."""
    flags, rest = _options(task)
    words = [task.what]
    if task.what == "bench":
        # `create` has one test, which its command does not name.
        words += (task.workload or "replay").removesuffix("/4k-fsync").split("/")
        flags.setdefault("sync", SYNC)
        flags = {**flags, "seed": task.seed, "size": size, "policy": task.policy}
        if rest:
            words += ["-o", ",".join(rest)]
    elif task.what == "cache":
        flags = {**flags, "policy": task.policy, "size": size, "jobs": 1}
    elif task.what == "lifetime":
        flags = {**flags, "size": size}
    flags = {**flags, "trace": path, "device": task.device}
    for name, value in flags.items():
        if value is not None:
            words += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    return words + (["--json"] if task.what == "lifetime" else ["--json", "-"])


def _options(task: Task) -> tuple[dict, list[str]]:
    """Options that are the command's own, and for `bench` those of the mount."""
    flags, rest = {}, []
    for option in filter(None, task.options.split(",")):
        name, given, value = option.partition("=")
        if name in OPTIONS[task.what]:
            flags[name] = value if given else True
        elif task.what == "bench":
            rest.append(option)
        else:
            known = ", ".join(sorted(OPTIONS[task.what]))
            raise TaskError(f"unknown option `{name}` of `{task.what}`; known are {known}")
    return flags, rest
