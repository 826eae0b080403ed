"""Where tasks run: anything with `submit(function, *arguments)` that returns a future with `add_done_callback`.

`concurrent.futures`, `mpi4py.futures`, Parsl and a `dask.distributed.Client` fit as they are; Ray gets a small adapter. One that has
`count` and `name` is asked for its workers when no row comes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import os
import pickle
import socket
import urllib.parse
import uuid

from . import engine
from .errors import SweepError

#: How long a scheduler may take to answer, seconds.
CONNECT_S = 10
#: Port of Ray's client server where an address has none.
RAY_CLIENT_PORT = 10001


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


class _Call:
    """A call that takes place where it is unpickled.

    A worker that cannot import it then answers with an error. As the task itself it is unpickled before the task, and Dask's worker ends.
    """

    def __init__(self, function, arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


def _unpickled(data: bytes):
    """For Ray, which takes no built-in function."""
    import pickle

    return pickle.loads(data)


# By value: the worker may have no such module.
_unpickled.__module__ = "__main__"


class RayExecutor:
    """Tasks of Ray, as futures."""

    def __init__(self, address: str | None = None):
        import ray

        self._ray = ray
        self.name = f"Ray at {address or 'this machine'}"
        self._ours = not ray.is_initialized()
        if self._ours:
            if address:
                _knock(address)
            try:
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
            except Exception as error:
                raise SweepError(f"{self.name}: {error}; look at `ray status`") from None
        self.workers = max(1, self.count())
        self._remote = ray.remote(num_cpus=1, max_retries=3)(_unpickled)

    def count(self) -> int:
        """Processors of the nodes that are there."""
        return int(self._ray.cluster_resources().get("CPU", 0))

    def submit(self, function, *arguments):
        """Runs a call as a task that takes one processor."""
        return self._remote.remote(pickle.dumps(_Call(function, arguments))).future()

    def close(self):
        """Leaves the cluster, if this joined it."""
        if self._ours:
            self._ray.shutdown()


class DaskExecutor:
    """A Dask client; each task runs again where its worker was killed."""

    def __init__(self, client, ours: bool = False):
        self._client, self._ours = client, ours
        self.name = f"Dask at {client.scheduler.address}"
        self.workers = max(1, self.count())

    def count(self) -> int:
        """Threads of the workers that are there."""
        return sum(self._client.nthreads().values())

    def submit(self, function, *arguments):
        """Runs a call on one thread of a worker; the future is done when its result is here.

        A Dask future is finished before that: `result` would wait for a worker that was lost in between, and the driver with it.
        """
        call = pickle.dumps(_Call(function, arguments))
        future = self._client.submit(pickle.loads, call, key=f"syncline-{uuid.uuid4().hex}")
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


def _knock(address: str):
    """Connects to the port of `ray://HOST:PORT` once, since Ray's client tries for half a minute and does not say why."""
    place = urllib.parse.urlsplit(address)
    try:
        socket.create_connection((place.hostname or "", place.port or RAY_CLIENT_PORT), CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise SweepError(f"{address}: no Ray cluster answers ({error}); look at its address") from None


def dask_at(address: str) -> DaskExecutor:
    """Connects to a Dask scheduler, or says that there is none."""
    try:
        from dask.distributed import Client
    except ModuleNotFoundError:
        raise SweepError(f"{address}: Dask is not installed; pip install distributed") from None
    try:
        return DaskExecutor(Client(address, timeout=CONNECT_S), ours=True)
    except (OSError, TimeoutError) as error:
        said = f"no Dask scheduler answers ({error}); look at its address"
    except (TypeError, ValueError) as error:  # No port, an unknown protocol, TLS without keys.
        said = f"{error}; give tcp://HOST:PORT, or a Client of Dask"
    # The client that did not connect is a cycle. Collected while another one starts its loop, it would wait for the lock that the
    # start holds, and the start for its thread: ten seconds, then an AssertionError.
    gc.collect()
    raise SweepError(f"{address}: {said}")


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
