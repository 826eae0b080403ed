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
#: Seconds without a row after which an executor is asked how many workers it has, and from one question to the next.
ASK_S = 2
#: Seconds that a sweep waits where no worker is left.
NO_WORKER_S = 300


@dataclass
class Progress:
    """The state of a sweep: `rate_per_s` tasks a second, `left_s` seconds to go, peak memory of each worker.

    `no_worker_s`: how long the executor has had no worker at all; nothing while it has one, or does not tell.
    """

    total: int
    done: int = 0
    failed: int = 0
    rate_per_s: float = 0.0
    left_s: float | None = None
    memory_bytes: dict[str, int] = field(default_factory=dict)
    no_worker_s: float | None = None

    def line(self) -> str:
        """One line of text."""
        left = "" if self.left_s is None else f", {self.left_s:.0f} s left"
        memory = max(self.memory_bytes.values(), default=0) / 2**20
        failed = f", {self.failed} failed" if self.failed else ""
        if self.no_worker_s is not None:
            return f"{self.done} of {self.total}{failed}, no worker for {self.no_worker_s:.0f} s"
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
    no_worker_s=NO_WORKER_S,
):
    """Runs every combination of the axes; returns an Arrow table with a row each, in the order of the plan.

    `traces` may also be a `Plan`. `executor`: nothing for processes of this machine (`workers` of them), a
    `dask.distributed.Client`, `"tcp://HOST:PORT"`, `"ray"`, or anything with `submit`. With `output`, rows are stored in that
    directory as they come, and `resume` runs only what it lacks. `progress` is called with a `Progress` twice a second;
    without it, a line is shown on a terminal. A failed task is a row with `error`. Where Dask or Ray has no worker left, the
    sweep waits `no_worker_s` seconds for one. Raises `SweepError`.
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
                _Run(opened, results, version, len(tasks), progress, no_worker_s).run(todo)
        return results.table(tasks)
    finally:
        results.close()


class _Run:
    """One run of the tasks that are missing."""

    def __init__(self, executor, results: Results, version: str, total: int, progress, no_worker_s: float):
        self._executor, self._results, self._version = executor, results, version
        self._workers = executor.workers
        self._queue: collections.deque[Task] = collections.deque()
        self._suspects: collections.deque[Task] = collections.deque()
        #: Futures with their task, and the absence of workers in which it was submitted.
        self._running: dict[object, tuple[Task, float | None]] = {}
        self._lost: collections.Counter[str] = collections.Counter()
        self._ended: queue.SimpleQueue = queue.SimpleQueue()
        self._progress = Progress(total, done=total)
        self._tell = progress or (_show if sys.stderr.isatty() else None)
        self._absence = _Absence(executor, no_worker_s)

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
                self._absence.look(quiet=self._tell is None)
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
        state.no_worker_s = self._absence.seconds()
        if self._tell:
            self._tell(state)

    def _fill(self):
        # Two tasks a worker, so that none waits for the driver; at the end one, or a worker would have two and another none.
        while self._queue and len(self._running) < self._workers * (2 if len(self._queue) > 2 * self._workers else 1):
            self._submit(self._queue.popleft())
        if self._suspects and not self._running:
            self._submit(self._suspects.popleft())

    def _submit(self, task: Task):
        try:
            future = self._executor.submit(engine.run, task, self._version)
        except Exception as error:  # Each executor has classes of its own for having ended.
            text = f"the executor takes no task ({type(error).__name__}: {error})"
            raise SweepError(f"{text}; start it again, then resume: rows that are there are kept") from None
        self._running[future] = task, self._absence.since
        future.add_done_callback(self._ended.put)

    def _take(self, future):
        task, absence = self._running.pop(future)
        try:
            answer = future.result()
        except (ImportError, AttributeError) as error:
            last = str(error).strip().rpartition("\n")[2]  # Ray's begins with the trace of calls.
            raise SweepError(f"a worker has no such syncline: {last}; install one version everywhere") from None
        except Exception as error:  # `engine.run` answers whatever a task does: this is the executor's, and the task may not have run.
            if absence is not None and absence == self._absence.since:
                return self._queue.append(task)  # There was no worker that it could have harmed.
            return self._again(task, f"{type(error).__name__}: {error}")
        if "lost" in answer:
            return self._again(task, answer["lost"])
        if "refused" in answer:
            raise SweepError(answer["refused"])
        self._absence.over()
        self._keep(answer)

    def _keep(self, answer: dict):
        self._results.add(answer["row"])
        self._progress.done += 1
        self._progress.failed += answer["row"]["error"] is not None
        if "worker" in answer:
            self._progress.memory_bytes[answer["worker"]] = answer["memory_bytes"]

    def _again(self, task: Task, why: str):
        self._absence.doubt()
        self._lost[task.key] += 1
        lost = self._lost[task.key]
        if lost < LOST_AMONG_OTHERS_MAX:
            self._queue.append(task)
        elif lost < LOST_AMONG_OTHERS_MAX + LOST_ALONE_MAX:
            self._suspects.append(task)
        else:
            text = f"lost {lost} times, at last with no other task beside it: {why}; look at the memory"
            self._keep({"row": engine.row(task, self._version, None, text)})


class _Absence:
    """Whether an executor has a worker: it is asked only while no row comes."""

    def __init__(self, executor, limit_s: float):
        self._executor, self._limit_s = executor, limit_s
        #: When it was seen that there is no worker.
        self.since: float | None = None
        self._asked = time.monotonic()

    def over(self):
        """A row has come, or a worker is there."""
        self.since, self._asked = None, time.monotonic()

    def doubt(self):
        """A task was lost: the next look asks, whenever the last one did."""
        if self.since is None:
            self._asked = float("-inf")

    def seconds(self) -> float | None:
        """How long there has been no worker; nothing while there is one, or while nobody knows."""
        return None if self.since is None else time.monotonic() - self.since

    def look(self, quiet: bool):
        """Counts the workers, if it is time; `quiet` where no progress is shown. Raises `SweepError` at the limit."""
        now, count = time.monotonic(), getattr(self._executor, "count", None)
        if count is None or now - self._asked < ASK_S:
            return
        if count():
            return self.over()
        self._asked = time.monotonic()
        name, limit = self._executor.name, f"{self._limit_s:g} s"
        if self.since is None:
            self.since = now
            if quiet:
                print(f"syncline: {name} has no worker, waiting {limit}", file=sys.stderr, flush=True)
        if self.seconds() >= self._limit_s:
            raise SweepError(f"{name} has had no worker for {limit}; start workers, then resume: rows that are there are kept")


def _show(state: Progress):
    """Writes the state over the line of the terminal."""
    end = "\n" if state.done == state.total else ""
    sys.stderr.write(f"\r\033[K{state.line()}{end}")
    sys.stderr.flush()
