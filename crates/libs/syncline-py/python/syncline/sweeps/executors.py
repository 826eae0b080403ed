"""Where tasks run: anything with `submit(function, *arguments)` that returns a future with `add_done_callback`.

`concurrent.futures`, `mpi4py.futures`, Parsl and a `dask.distributed.Client` fit as they are; Ray gets a small adapter.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os

from . import engine
from .errors import SweepError

#: How long a scheduler may take to answer, seconds.
CONNECT_S = 10


class LocalProcesses:
    """Threads of this process, each of which waits for one child process: `engine.command` runs every task in one."""

    def __init__(self, workers: int | None = None):
        self.workers = workers or len(os.sched_getaffinity(0))
        self._pool = concurrent.futures.ThreadPoolExecutor(self.workers, "syncline-sweep")
        self.submit = self._pool.submit

    def close(self):
        """Ends the children that still run, then the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        engine.end_children()
        self._pool.shutdown(wait=True)


class RayExecutor:
    """Tasks of Ray, as futures."""

    def __init__(self, address: str | None = None):
        import ray

        self._ray = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            try:
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
            except Exception as error:
                raise SweepError(f"Ray at {address or 'this machine'}: {error}; look at `ray status`") from None
        self.workers = int(ray.cluster_resources().get("CPU", 1))
        self._remote = {}

    def submit(self, function, *arguments):
        """Runs a call as a task that takes one processor."""
        if function not in self._remote:
            self._remote[function] = self._ray.remote(num_cpus=1, max_retries=3)(function)
        return self._remote[function].remote(*arguments).future()

    def close(self):
        """Leaves the cluster, if this joined it."""
        if self._ours:
            self._ray.shutdown()


class DaskExecutor:
    """A Dask client; each task runs again where its worker was killed."""

    def __init__(self, client, ours: bool = False):
        self._client, self._ours = client, ours
        threads = client.nthreads()
        self.workers = max(1, sum(threads.values()))

    def submit(self, function, *arguments):
        """Runs a call on one thread of a worker; the future is done when its result is here.

        A Dask future is finished before that: `result` would wait for a worker that was lost in between, and the driver with it.
        """
        future = self._client.submit(function, *arguments, pure=False)
        return asyncio.run_coroutine_threadsafe(self._gathered(future), self._client.loop.asyncio_loop)

    async def _gathered(self, future):
        return await self._client.gather(future, asynchronous=True)

    def close(self):
        """Leaves the cluster, if this joined it."""
        if self._ours:
            self._client.close()


class Other:
    """An executor of the caller, who also closes it."""

    def __init__(self, executor):
        self._executor = executor
        self.workers = getattr(executor, "_max_workers", None) or os.cpu_count() or 1
        self.submit = executor.submit

    def close(self):
        """Does nothing."""


def dask_at(address: str) -> DaskExecutor:
    """Connects to a Dask scheduler, or says that there is none."""
    try:
        from dask.distributed import Client
    except ModuleNotFoundError:
        raise SweepError(f"{address}: Dask is not installed; pip install distributed") from None
    try:
        return DaskExecutor(Client(address, timeout=CONNECT_S), ours=True)
    except (OSError, TimeoutError) as error:
        raise SweepError(f"{address}: no Dask scheduler answers ({error}); look at its address") from None


@contextlib.contextmanager
def opened(executor, workers: int | None):
    """The executor that a caller names: nothing or `local`, `ray`, `ray://HOST`, a scheduler's address, or an object."""
    if executor is None or executor == "local":
        found = LocalProcesses(workers)
    elif isinstance(executor, str):
        if executor == "ray" or executor.startswith("ray://"):
            try:
                found = RayExecutor(None if executor == "ray" else executor)
            except ModuleNotFoundError:
                raise SweepError(f"{executor}: Ray is not installed; pip install ray") from None
        elif "://" in executor:
            found = dask_at(executor)
        else:
            raise SweepError(f"unknown executor `{executor}`; choose local, ray, ray://HOST or tcp://HOST:PORT of Dask")
    elif type(executor).__module__.split(".")[0] == "distributed" and hasattr(executor, "scheduler_info"):
        found = DaskExecutor(executor)
    elif hasattr(executor, "submit"):
        found = Other(executor)
    else:
        raise SweepError(f"{type(executor).__name__} has no `submit`; give an executor of concurrent.futures, or Dask's")
    try:
        yield found
    finally:
        if executor is None or isinstance(executor, str):
            found.close()
