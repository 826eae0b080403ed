"""The driver: keeps the executor busy, stores each row when it is there, runs tasks of lost workers again."""

from __future__ import annotations

import collections
import queue
import sys
import time
from dataclasses import dataclass, field

from . import engine, executors
from .errors import SweepError
from .plan import Plan, Task
from .results import Results

#: Times that a task may lose its worker among others; then it runs with no other beside it.
LOST_AMONG_OTHERS_MAX = 3
#: Times that it may lose its worker alone; then it is a row with an error.
LOST_ALONE_MAX = 3
#: Seconds after which finished rows become a part, though it is small.
FLUSH_S = 60


@dataclass
class Progress:
    """The state of a sweep: `rate_per_s` tasks a second, `left_s` seconds to go, peak memory of each worker."""

    total: int
    done: int = 0
    failed: int = 0
    rate_per_s: float = 0.0
    left_s: float | None = None
    memory_bytes: dict[str, int] = field(default_factory=dict)

    def line(self) -> str:
        """One line of text."""
        left = "" if self.left_s is None else f", {self.left_s:.0f} s left"
        memory = max(self.memory_bytes.values(), default=0) / 2**20
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done} of {self.total}{failed}, {self.rate_per_s:.1f}/s{left}, {memory:.0f} MiB a worker"


def sweep(
    traces=(),
    *,
    what="cache",
    policies=(),
    sizes=(),
    devices=(),
    options=(),
    workloads=(),
    seeds=(),
    samples=(),
    executor=None,
    workers=None,
    output=None,
    resume=False,
    progress=None,
):
    """Runs every combination of the axes; returns an Arrow table with a row each, in the order of the plan.

    `traces` may also be a `Plan`. `executor`: nothing for processes of this machine (`workers` of them), a
    `dask.distributed.Client`, `"tcp://HOST:PORT"`, `"ray"`, or anything with `submit`. With `output`, rows are stored in that
    directory as they come, and `resume` runs only what it lacks. `progress` is called with a `Progress` twice a second;
    without it, a line is shown on a terminal. A failed task is a row with `error`. Raises `SweepError`.
    """
    plan = traces
    if not isinstance(plan, Plan):
        plan = Plan(what, traces, workloads, policies, sizes, devices, options, seeds, samples)
    tasks = plan.tasks()
    version = engine.here()
    results = Results(output, plan, version, resume)
    try:
        todo = [task for task in tasks if task.key not in results.rows]
        if todo:
            with executors.opened(executor, workers) as opened:
                _Run(opened, results, version, len(tasks), progress).run(todo)
        return results.table(tasks)
    finally:
        results.close()


class _Run:
    """One run of the tasks that are missing."""

    def __init__(self, executor, results: Results, version: str, total: int, progress):
        self._executor, self._results, self._version = executor, results, version
        self._window = 2 * executor.workers
        self._queue: collections.deque[Task] = collections.deque()
        self._suspects: collections.deque[Task] = collections.deque()
        self._running: dict[object, Task] = {}
        self._lost: collections.Counter[str] = collections.Counter()
        self._ended: queue.SimpleQueue = queue.SimpleQueue()
        self._progress = Progress(total, done=total)
        self._tell = progress or (_show if sys.stderr.isatty() else None)

    def run(self, todo: list[Task]):
        self._queue.extend(todo)
        self._progress.done -= len(todo)
        before, started = self._progress.done, time.monotonic()
        told = flushed = started
        try:
            while self._queue or self._suspects or self._running:
                self._fill()
                try:
                    self._take(self._ended.get(timeout=0.5))
                except queue.Empty:
                    pass
                now = time.monotonic()
                if now - told > 0.5:
                    told = now
                    self._update(before, now - started)
                if now - flushed > FLUSH_S:
                    flushed = now
                    self._results.flush()
            self._update(before, time.monotonic() - started)
        finally:
            for future in self._running:
                future.cancel()
            self._results.flush()

    def _update(self, before: int, elapsed_s: float):
        state = self._progress
        state.rate_per_s = (state.done - before) / max(elapsed_s, 1e-9)
        state.left_s = (state.total - state.done) / state.rate_per_s if state.rate_per_s else None
        if self._tell:
            self._tell(state)

    def _fill(self):
        while self._queue and len(self._running) < self._window:
            self._submit(self._queue.popleft())
        if self._suspects and not self._running:
            self._submit(self._suspects.popleft())

    def _submit(self, task: Task):
        try:
            future = self._executor.submit(engine.run, task, self._version)
        except Exception as error:  # Each executor has classes of its own for having ended.
            text = f"the executor takes no task ({type(error).__name__}: {error})"
            raise SweepError(f"{text}; start it again, then resume: rows that are there are kept") from None
        self._running[future] = task
        future.add_done_callback(self._ended.put)

    def _take(self, future):
        task = self._running.pop(future)
        try:
            answer = future.result()
        except (ImportError, AttributeError) as error:
            raise SweepError(f"a worker has no such syncline: {error}; install one version everywhere") from None
        except Exception as error:  # `engine.run` answers whatever a task does: this is the executor's, and the task may not have run.
            return self._again(task, f"{type(error).__name__}: {error}")
        if "lost" in answer:
            return self._again(task, answer["lost"])
        if "refused" in answer:
            raise SweepError(answer["refused"])
        self._keep(answer)

    def _keep(self, answer: dict):
        self._results.add(answer["row"])
        self._progress.done += 1
        self._progress.failed += answer["row"]["error"] is not None
        if "worker" in answer:
            self._progress.memory_bytes[answer["worker"]] = answer["memory_bytes"]

    def _again(self, task: Task, why: str):
        self._lost[task.key] += 1
        lost = self._lost[task.key]
        if lost < LOST_AMONG_OTHERS_MAX:
            self._queue.append(task)
        elif lost < LOST_AMONG_OTHERS_MAX + LOST_ALONE_MAX:
            self._suspects.append(task)
        else:
            text = f"lost {lost} times, at last with no other task beside it: {why}; look at the memory"
            self._keep({"row": engine.row(task, self._version, None, text)})


def _show(state: Progress):
    """Writes the state over the line of the terminal."""
    end = "\n" if state.done == state.total else ""
    sys.stderr.write(f"\r\033[K{state.line()}{end}")
    sys.stderr.flush()
