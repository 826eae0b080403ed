"""The schedule of a sweep on up to 1000 workers, simulated from costs of a task. Exact: the same on every machine.

driver   one thread: takes a finished row and submits the next task, `driver_us` for both (measured: `sweeps.py cost`)
window   twice as many tasks are submitted as there are workers; a worker that ends one begins the next that is there
worker   a task takes its length, a tenth more or less by a draw, and the measured overhead
trace    1 GiB, fetched once a worker; all share a link of 10 Gbit/s, one after the other
losses   a worker is lost every 1000 hours of its own: half of the task, and the trace, are done again

A sweep has 40 tasks a worker, at least 400. Efficiency is the speed-up against one worker over the number of workers. `bend` is the largest of the
numbers of workers tried with 90 % or more, and `limit` is what works longest at the next: the driver, or the link of the traces.
"""
import heapq
import random
from dataclasses import dataclass

WORKERS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
TASK_S = (0.1, 1, 10, 60)
TASKS_A_WORKER, TASKS_MIN = 40, 400
#: Efficiency from which the plan still scales, per cent.
GOOD_PERCENT = 90


@dataclass(frozen=True)
class Costs:
    """Seconds of the driver and of a worker for each task, beside the task; the trace and the link; how often a worker is lost."""

    driver_s: float
    overhead_s: float = 0.0
    fetch_s: float = (1 << 30) / 1.25e9
    loss_s: float = 1000 * 3600.0
    spread: float = 0.1


class Schedule:
    """One sweep: `seconds`, and `driver_busy_s` and `link_busy_s` of them."""

    def __init__(self, workers, tasks, task_s, costs, seed=1):
        self._draws, self._task_s, self._costs = random.Random(seed), task_s, costs
        self._driver_free = self.driver_busy_s = 0.0
        #: Times at which workers have nothing to do: at first, when each has its trace.
        self._idle = [(n + 1) * costs.fetch_s for n in range(workers)]
        self.link_busy_s = workers * costs.fetch_s
        #: Times at which tasks are there for a worker, and at which tasks end.
        self._there, self._ends = [], []
        self.done = 0
        self._run(tasks, 2 * workers)

    def _drive(self, at, share):
        """The driver works for a share of a task's cost, from `at` or when it is free; returns when it is done."""
        work = share * self._costs.driver_s
        self._driver_free = max(self._driver_free, at) + work
        self.driver_busy_s += work
        return self._driver_free

    def _length_s(self):
        costs = self._costs
        length = self._task_s * self._draws.uniform(1 - costs.spread, 1 + costs.spread) + costs.overhead_s
        if self._draws.random() < length / costs.loss_s:
            self.link_busy_s += costs.fetch_s
            return 1.5 * length + costs.fetch_s
        return length

    def _begin(self):
        while self._there and self._idle:
            start = max(heapq.heappop(self._there), heapq.heappop(self._idle))
            heapq.heappush(self._ends, start + self._length_s())

    def _run(self, tasks, window):
        submitted = min(window, tasks)
        for _ in range(submitted):
            heapq.heappush(self._there, self._drive(0.0, 0.5))
        self._begin()
        while self._ends:
            now = heapq.heappop(self._ends)
            heapq.heappush(self._idle, now)
            taken = self._drive(now, 0.5)
            self.done += 1
            if submitted < tasks:
                submitted += 1
                heapq.heappush(self._there, self._drive(taken, 0.5))
            self._begin()
        self.seconds = self._driver_free


def plan(executor, task_s, costs):
    """The row of the table for tasks of this length."""
    found, one = {}, None
    for workers in WORKERS:
        tasks = max(TASKS_MIN, TASKS_A_WORKER * workers)
        ran = Schedule(workers, tasks, task_s, costs)
        rate = tasks / ran.seconds
        one = one or rate
        found[workers] = (100 * rate / one / workers, rate, ran.driver_busy_s / ran.seconds, ran.link_busy_s / ran.seconds)
    good = [workers for workers in WORKERS if found[workers][0] >= GOOD_PERCENT]
    beyond = [workers for workers in WORKERS if workers > good[-1]]
    _, _, driver, link = found[beyond[0] if beyond else WORKERS[-1]]
    return {
        "executor": executor,
        "task_s": task_s,
        **{f"efficiency_{workers}": found[workers][0] for workers in (2, 10, 100, 1000)},
        "tasks_per_s_1000": found[1000][1],
        "bend": good[-1],
        "limit": "none" if not beyond else "driver" if driver > link else "traces",
    }


def plans(cost):
    """The rows of an executor with these measured costs."""
    driver_s = cost["driver_us"] / 1e6
    overhead_s = max(cost["overhead_percent_1"], 0) / 100 * cost["task_s"]
    costs = Costs(driver_s, max(overhead_s - driver_s, 0))
    return [plan(cost["executor"], task_s, costs) for task_s in TASK_S]
