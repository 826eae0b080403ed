#!/usr/bin/env python3
"""What a sweep costs beside its tasks, on each executor, and whether kills lose rows. Real time.

    sweep_measure.py SYNCLINE kills [--rows N] [--every S] [--executors local,dask,ray] [--json FILE]
    sweep_measure.py SYNCLINE cost [--tasks N] [--rounds N] [--idle] [--executors local,dask,ray] [--json FILE]

kills   a sweep of N configurations with 2 workers; every S seconds one is killed: a task's process (local), a worker's of Dask or Ray.
        Rows that are absent, there twice or failed are counted in the table and in the directory.
cost    a program that sleeps a second and then gives a document stands for SYNCLINE, so that a machine with other work on it measures the
        sweep and not its processors: seconds of N such tasks on 1 worker and on 2; the processor time of the driver for each of 2000 tasks
        that end at once (`driver`); and real tasks of about a second of work on 1 and on 2 (`work`), which need idle processors: not with --idle.

Needs the Python package with `sweeps`, `distributed` and `ray`, or PYTHONPATH with its source.
"""
import argparse
import collections
import contextlib
import os
import random
import signal
import statistics
import subprocess
import tempfile
import threading
import time

import suite
from syncline import sweeps
from syncline.sweeps import Plan, engine

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TRACE = os.path.join(ROOT, "samples", "rlbench.pages.trace")
#: Tasks without work, for the cost of the driver.
EMPTY_TASKS = 2000


@contextlib.contextmanager
def executor(kind, workers, environment=None):
    """An executor of so many workers, and a function that names the processes of its workers."""
    if kind == "local":
        from syncline.sweeps.executors import LocalProcesses

        local = LocalProcesses(workers)
        try:
            yield local, engine.children
        finally:
            local.close()
    elif kind == "dask":
        import dask
        import distributed

        # A worker that takes long to start, on a busy machine, is not given up.
        dask.config.set({"distributed.comm.timeouts.connect": "300s"})
        given = {"env": environment} if environment else {}
        with distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None, **given) as cluster:
            with distributed.Client(cluster) as client:
                client.wait_for_workers(workers)
                yield client, lambda: dask_workers(client, cluster)
    else:
        # A machine that is busy with other work is late with heartbeats; it is not dead.
        os.environ.setdefault("RAY_health_check_failure_threshold", "100")
        import ray

        ray.init("local", num_cpus=workers, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        try:
            yield "ray", ray_workers
        finally:
            ray.shutdown()


def dask_workers(client, cluster):
    """Processes of the workers that have joined: Dask gives one up that is killed while it starts."""
    # As the manager of a cluster does: a worker that was given up all the same gets a successor.
    cluster.scale(2)
    there = client.scheduler_info(n_workers=-1)["workers"]
    return [nanny.pid for nanny in cluster.workers.values() if nanny.pid is not None and nanny.worker_address in there]


def ray_workers():
    """Processes of Ray's workers below this one, without the agents, whose end is that of the node."""
    import psutil

    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            title = "".join(process.cmdline()[:1]).strip()
            if title.startswith("ray::") and not title.endswith("Agent"):
                found.append(process.pid)
    return found


def killed_sweep(plan, kind, every_s):
    """One sweep of a plan with a kill every so many seconds."""
    with tempfile.TemporaryDirectory(prefix="sweep") as output, executor(kind, 2) as (pool, processes):
        over, killed = threading.Event(), []

        def kill():
            while not over.wait(every_s):
                for _ in range(1000):
                    running = processes()
                    if running:
                        break
                    time.sleep(0.002)
                if not running:
                    continue
                victim = random.Random(len(killed)).choice(running)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    killed.append(victim)

        killer, began = threading.Thread(target=kill), time.monotonic()
        killer.start()
        try:
            table = sweeps.sweep(plan, executor=pool, output=output)
        finally:
            over.set()
            killer.join()
        seconds = time.monotonic() - began
        stored = [row["key"] for row in sweeps.results._part_rows(output)]
    wanted = {task.key for task in plan.tasks()}
    there = collections.Counter(stored)
    return {
        "executor": kind,
        "rows": len(wanted),
        "every_s": every_s,
        "kills": len(killed),
        "seconds": seconds,
        "lost": len(wanted - set(there)) + len(wanted) - table.num_rows,
        "doubled": len(stored) - len(there),
        "failed": table.num_rows - table.column("error").null_count,
    }


def kills(args):
    """Sweeps with kills; counts what is lost and what is there twice."""
    plan = Plan(what="bench", workloads=["sqlite/insert"], devices=["nexus7-emmc"], seeds=list(range(args.rows)),
                options=["operations=200"])
    records = []
    for kind in args.executors.split(","):
        records.append(killed_sweep(plan, kind, args.every))
        print(records[-1], flush=True)
    return records


def standing_in(syncline, place, seconds):
    """A program that answers as SYNCLINE does, after so many seconds."""
    document = subprocess.run(
        [syncline, "cache", "--trace", TRACE, "--policy", "lru", "--size", "64K", "--json", "-"], capture_output=True, check=True
    )
    version = subprocess.run([syncline, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    path, answer = (os.path.join(place, f"{name}-{seconds}") for name in ("program", "document"))
    with open(answer, "wb") as file:
        file.write(document.stdout)
    with open(path, "w") as file:
        file.write(f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "{version}"; exit; }}\nsleep {seconds}\nexec cat "{answer}"\n')
    os.chmod(path, 0o755)
    return path


def operations_of_a_second(syncline):
    """How many operations of the benchmark take a second of processor time here."""
    tried = 10_000
    words = [syncline, "bench", "sqlite/insert", "--device", "nexus7-emmc", "--sync", "eager", "--operations", str(tried), "--json", "-"]
    before = os.times()
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return int(tried / (after.children_user + after.children_system - before.children_user - before.children_system))


def timed(plan, kind, workers):
    """Seconds of a sweep, once its workers are there, and the processor time of this process."""
    environment = {"SYNCLINE": os.environ["SYNCLINE"]}
    warm = Plan(traces=[TRACE], policies=["clock"], sizes=[f"{16 + n}p" for n in range(2 * workers)])
    with executor(kind, workers, environment) as (pool, _):
        sweeps.sweep(warm, executor=pool)
        began, worked = time.monotonic(), time.process_time()
        table = sweeps.sweep(plan, executor=pool)
        ended = time.monotonic() - began, time.process_time() - worked
    assert table.column("error").null_count == table.num_rows, table.column("error").to_pylist()[:3]
    return ended


def cost(args):
    """Overhead and speed-up of tasks of a second, and what the driver does for each."""
    records = []
    with tempfile.TemporaryDirectory(prefix="sweep") as place:
        second, none = (standing_in(args.syncline, place, seconds) for seconds in (1, 0))
        tasks = Plan(traces=[TRACE], policies=["lru"], sizes=[f"{64 + n}p" for n in range(args.tasks)])
        empty = Plan(traces=[TRACE], policies=["lru"], sizes=[f"{64 + n}p" for n in range(EMPTY_TASKS)])
        work = Plan(what="bench", workloads=["sqlite/insert"], devices=["nexus7-emmc"],
                    seeds=list(range(1, args.tasks + 1)), options=[f"operations={operations_of_a_second(args.syncline)}"])
        for kind in args.executors.split(","):
            found = collections.defaultdict(list)

            def take(name, program, plan, workers, value):
                os.environ["SYNCLINE"] = program
                engine.version.cache_clear()
                found[name].append(timed(plan, kind, workers)[value])

            for _ in range(args.rounds):
                for workers in (1, 2):
                    take(f"waiting_s_{workers}", second, tasks, workers, 0)
                    if not args.idle:
                        take(f"work_s_{workers}", args.syncline, work, workers, 0)
                take("driver_s", none, empty, 2, 1)
            least = {name: min(values) for name, values in found.items()}
            record = {
                "executor": kind,
                "tasks": args.tasks,
                "task_s": 1,
                "overhead_percent_1": 100 * (least["waiting_s_1"] / args.tasks - 1),
                "overhead_percent_2": 100 * (2 * least["waiting_s_2"] / args.tasks - 1),
                "speedup_waiting": least["waiting_s_1"] / least["waiting_s_2"],
                "driver_us": 1e6 * least["driver_s"] / EMPTY_TASKS,
            }
            if not args.idle:
                record["speedup_work"] = statistics.median(a / b for a, b in zip(found["work_s_1"], found["work_s_2"]))
                record["work_task_s"] = least["work_s_1"] / args.tasks
            records.append(record)
            print(record, flush=True)
    return records


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("syncline")
    parser.add_argument("what", choices=["kills", "cost"])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--every", type=float, default=20.0)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--idle", action="store_true", help="leave out the tasks that work, on a machine that is busy")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--executors", default="local,dask")
    parser.add_argument("--json")
    args = parser.parse_args()
    args.syncline = os.path.abspath(args.syncline)
    os.environ["SYNCLINE"] = args.syncline
    records = {"kills": kills, "cost": cost}[args.what](args)
    if args.json:
        suite.store(args.json, "sweep-measure", records)


if __name__ == "__main__":
    main()
