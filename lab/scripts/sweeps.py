#!/usr/bin/env python3
"""What sweeps and fleets cost, and what they lose. Real time but for `scale` and `sample`, which are the same on every machine.

    sweeps.py kills SYNCLINE [--rows N] [--every S] [--executors local,dask,ray] [--json FILE]
        a sweep of N configurations with 2 workers; every S seconds one is killed: a task's process (local), a worker's of Dask or Ray.
        Rows that are absent, there twice or failed are counted in the table and in the directory
    sweeps.py cost SYNCLINE [--tasks N] [--rounds N] [--idle] [--executors local,dask,ray] [--json FILE]
        a program that sleeps a second and then gives a document stands for SYNCLINE, so that a machine with other work on it measures the
        sweep and not its processors: seconds of N such tasks on 1 worker and on 2; the processor time of the driver for each of 2000
        tasks that end at once (`driver`); and real tasks of about a second of work on 1 and on 2 (`work`), not with --idle
    sweeps.py nodes SYNCLINE [--nodes N] [--rows N] [--executors dask,ray] [--json FILE]
        root: each node is a network namespace on a bridge with the scheduler and the driver. When a third of the rows are there, the link of
        one node goes down and its processes are killed, as a power cut. The rows must be those of local processes, each once.
        `noticed_s` is the longest time without a new row from then on
    sweeps.py records SYNCLINE [--devices N] [--records N] [--memory MB] [--directory DIR] [--json FILE]
        a device's day is a generated trace of system calls of six programs. DEVICES of them are imported into partitions one after the
        other (only the import counts), then each query of docs/FLEETS.md runs in DuckDB; `rss` is the peak of the process in MB. Needs
        pyarrow, duckdb and about 8 bytes of disk a record
    sweeps.py scale [--costs docs/figures/sweep-cost.json] [--json FILE]
        the schedule of a sweep on up to 1000 workers, simulated from the measured costs, see schedule.py
    sweeps.py sample [--seeds N] [--json FILE]
        points of the miss ratio between a sampled LRU curve and the exact one, over generated traces and samples/, rates and seeds. Caches
        are 1, 2, 5, 10, 20 and 50 per cent of the pages; `p95` and `max` are over seeds and sizes, of caches with at least 16 pages in the
        sample

kills, cost and nodes need the Python package with `sweeps`, `distributed` and `ray`, or PYTHONPATH with its source.
"""
import collections
import contextlib
import glob
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import common
import schedule
from common import Missing, lab

TRACE = str(common.ROOT / "samples" / "rlbench.pages.trace")
#: Tasks without work, for the cost of the driver.
EMPTY_TASKS = 2000


@contextlib.contextmanager
def executor(kind, workers, environment=None):
    """An executor of so many workers, and a function that names the processes of its workers."""
    if kind == "local":
        from syncline.sweeps import engine
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
    from syncline import sweeps

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
    """Sweeps with kills; counts rows that are lost or there twice."""
    from syncline.sweeps import Plan

    plan = Plan(what="bench", workloads=["sqlite/insert"], devices=["nexus7-emmc"], seeds=list(range(args.rows)),
                options=["operations=200"])
    records = []
    for kind in args.executors.split(","):
        records.append(killed_sweep(plan, kind, args.every))
        print(records[-1], flush=True)
    return records


def standing_in(program, place, seconds):
    """A program that answers as `program` does, after so many seconds."""
    document = common.document(program, "cache", "--trace", TRACE, "--policy", "lru", "--size", "64K")
    version = common.call(program, "--version")
    path, answer = (os.path.join(place, f"{name}-{seconds}") for name in ("program", "document"))
    with open(answer, "w", encoding="utf-8") as file:
        json.dump(document, file)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "{version}"; exit; }}\nsleep {seconds}\nexec cat "{answer}"\n')
    os.chmod(path, 0o755)
    return path


def operations_of_a_second(program):
    """How many operations of the benchmark take a second of processor time here."""
    tried, before = 10_000, os.times()
    common.bench(program, "sqlite/insert", "--device", "nexus7-emmc", "--sync", "eager", "--operations", tried)
    after = os.times()
    return int(tried / (after.children_user + after.children_system - before.children_user - before.children_system))


def timed(plan, kind, workers):
    """Seconds of a sweep, once its workers are there, and the processor time of this process."""
    from syncline import sweeps
    from syncline.sweeps import Plan

    environment = {"SYNCLINE_LAB": os.environ["SYNCLINE_LAB"]}
    warm = Plan(traces=[TRACE], policies=["clock"], sizes=[f"{16 + n}p" for n in range(2 * workers)])
    with executor(kind, workers, environment) as (pool, _):
        sweeps.sweep(warm, executor=pool)
        began, worked = time.monotonic(), time.process_time()
        table = sweeps.sweep(plan, executor=pool)
        ended = time.monotonic() - began, time.process_time() - worked
    assert table.column("error").null_count == table.num_rows, table.column("error").to_pylist()[:3]
    return ended


def cost(args):
    """Overhead and speed-up of tasks of a second, and the work of the driver for each."""
    from syncline.sweeps import Plan, engine

    records = []
    with tempfile.TemporaryDirectory(prefix="sweep") as place:
        second, none = (standing_in(lab(args.syncline), place, seconds) for seconds in (1, 0))
        tasks = Plan(traces=[TRACE], policies=["lru"], sizes=[f"{64 + n}p" for n in range(args.tasks)])
        empty = Plan(traces=[TRACE], policies=["lru"], sizes=[f"{64 + n}p" for n in range(EMPTY_TASKS)])
        work = Plan(what="bench", workloads=["sqlite/insert"], devices=["nexus7-emmc"],
                    seeds=list(range(1, args.tasks + 1)), options=[f"operations={operations_of_a_second(lab(args.syncline))}"])
        for kind in args.executors.split(","):
            found = collections.defaultdict(list)

            def take(name, program, plan, workers, value):
                os.environ["SYNCLINE_LAB"] = program
                engine.version.cache_clear()
                found[name].append(timed(plan, kind, workers)[value])

            for _ in range(args.rounds):
                for workers in (1, 2):
                    take(f"waiting_s_{workers}", second, tasks, workers, 0)
                    if not args.idle:
                        take(f"work_s_{workers}", lab(args.syncline), work, workers, 0)
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


BRIDGE, NODE, NETWORK = "sweepbr", "sweepnode", "10.87.213"
DRIVER = f"{NETWORK}.1"
DASK_PORT, RAY_PORT = 8786, 6379
#: How long a scheduler of Dask waits for a word of a worker (its own default: 5 minutes).
ENVIRONMENT = {
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "15s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "15s",
    # Nobody else is on the bridge.
    "RAY_AUTH_MODE": "disabled",
}


def ip(*words, check=True):
    subprocess.run(["ip", *words], check=check, stdout=subprocess.DEVNULL, stderr=None if check else subprocess.DEVNULL)


@contextlib.contextmanager
def network(nodes):
    """A bridge with the driver's address, and a namespace for each node."""
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{DRIVER}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for node in range(nodes):
            name, link = f"{NODE}{node}", f"sweepv{node}"
            ip("netns", "add", name)
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", link, "master", BRIDGE, "up")
            for words in (("addr", "add", f"{address(node)}/24", "dev", "eth0"), ("link", "set", "eth0", "up"), ("link", "set", "lo", "up")):
                ip("-n", name, *words)
        yield
    finally:
        for node in range(nodes):
            end_node(node)
            ip("netns", "delete", f"{NODE}{node}", check=False)
        ip("link", "delete", BRIDGE, check=False)


def address(node):
    return f"{NETWORK}.{10 + node}"


def end_node(node):
    """Kills every process of a node."""
    listed = subprocess.run(["ip", "netns", "pids", f"{NODE}{node}"], capture_output=True, text=True)
    for process in map(int, listed.stdout.split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def cut(node):
    """A power cut of a node."""
    ip("link", "set", f"sweepv{node}", "down")
    end_node(node)


def start(words, place, node=None):
    """Begins a service, here or on a node; it sees files of its own below /tmp/ray and /dev/shm there."""
    if node is not None:
        own = os.path.join(place, f"node{node}")
        os.makedirs(own)
        text = f"mkdir -p /tmp/ray && mount --bind {own} /tmp/ray && mount -t tmpfs tmpfs /dev/shm && exec \"$@\""
        words = ["ip", "netns", "exec", f"{NODE}{node}", "unshare", "-m", "sh", "-c", text, "sh", *words]
    log = open(os.path.join(place, "services.log"), "ab")
    return subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **ENVIRONMENT}, start_new_session=True)


def answering(port, service, place):
    """Waits until a service listens, or says why it does not."""
    until = time.monotonic() + 60
    while service.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection((DRIVER, port), timeout=1):
            return
        time.sleep(0.2)
    with open(os.path.join(place, "services.log"), errors="replace") as file:
        raise SystemExit(f"nothing listens at port {port}:\n{file.read()[-2000:]}")


@contextlib.contextmanager
def dask(nodes, place):
    """A scheduler here, and a worker on each node."""
    import distributed

    url = f"tcp://{DRIVER}:{DASK_PORT}"
    tool = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    started = [start([*tool, "--host", DRIVER, "--port", str(DASK_PORT), "--no-dashboard"], place)]
    tool = [sys.executable, "-m", "distributed.cli.dask_worker", url, "--nthreads", "1", "--no-dashboard"]
    for node in range(nodes):
        started.append(start([*tool, "--host", address(node), "--local-directory", place], place, node))
    try:
        with distributed.Client(url, timeout=60) as client:
            client.wait_for_workers(nodes, timeout=60)
            yield client
    finally:
        end(started)


@contextlib.contextmanager
def ray(nodes, place):
    """A head without processors here, and a node with one in each namespace."""
    import ray as library

    tool = os.path.join(os.path.dirname(sys.executable), "ray")
    more = ["--block", "--disable-usage-stats"]
    head = [tool, "start", "--head", f"--node-ip-address={DRIVER}", f"--port={RAY_PORT}", "--num-cpus=0", "--include-dashboard=false"]
    started = [start([*head, *more], place)]
    answering(RAY_PORT, started[0], place)
    for node in range(nodes):
        joined = [tool, "start", f"--address={DRIVER}:{RAY_PORT}", f"--node-ip-address={address(node)}", "--num-cpus=1"]
        started.append(start([*joined, *more], place, node))
    try:
        library.init(address=f"{DRIVER}:{RAY_PORT}", log_to_driver=False, logging_level="ERROR")
        until = time.monotonic() + 90
        while library.cluster_resources().get("CPU", 0) < nodes:
            if time.monotonic() > until:
                raise SystemExit(f"only {library.cluster_resources().get('CPU', 0):.0f} of {nodes} nodes joined")
            time.sleep(0.5)
        yield "ray"
    finally:
        library.shutdown()
        end(started)
        # Else the next program that asks for Ray looks for this cluster.
        with contextlib.suppress(OSError):
            os.unlink("/tmp/ray/ray_current_cluster")


def end(services):
    """Ends services, with what they began."""
    for service in services:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(service.pid, signal.SIGTERM)
    for service in services:
        try:
            service.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(service.pid, signal.SIGKILL)
            service.wait()


def swept(kind, cluster, plan, nodes, expected, output):
    """Runs the plan, cuts the last node off, and counts the rows."""
    from syncline import sweeps

    total = len(plan.tasks())
    times, was_cut = [], []

    def look(state):
        now = time.monotonic()
        if not times or state.done > times[-1][1]:
            times.append((now, state.done))
        if not was_cut and state.done >= total // 3:
            cut(nodes - 1)
            was_cut.append(now)

    began = time.monotonic()
    table = sweeps.sweep(plan, executor=cluster, output=output, progress=look)
    seconds = time.monotonic() - began
    there = collections.Counter(row["key"] for row in sweeps.results._part_rows(output))
    wanted = {task.key for task in plan.tasks()}
    after = [was_cut[0]] + [at for at, _ in times if at > was_cut[0]] if was_cut else []
    return {
        "executor": kind,
        "nodes": nodes,
        "rows": total,
        "cut": len(was_cut),
        "seconds": seconds,
        "noticed_s": max((b - a for a, b in zip(after, after[1:])), default=0.0),
        "lost": len(wanted - set(there)) + total - table.num_rows,
        "doubled": sum(there.values()) - len(there),
        "failed": table.num_rows - table.column("error").null_count,
        "same_as_local": table.equals(expected),
    }


def nodes(args):
    from syncline import sweeps

    for tool in ("ip", "unshare"):
        common.need(tool)
    if os.geteuid() != 0:
        raise Missing("namespaces need root; run it as root")
    os.environ.update(ENVIRONMENT)
    plan = sweeps.Plan(traces=[TRACE], policies=["lru", "clock"], sizes=[f"{16 + n}p" for n in range(args.rows // 2)])
    expected, records = sweeps.sweep(plan), []
    for kind in args.executors.split(","):
        with tempfile.TemporaryDirectory(prefix="nodes") as place, network(args.nodes):
            with {"dask": dask, "ray": ray}[kind](args.nodes, place) as cluster:
                records.append(swept(kind, cluster, plan, args.nodes, expected, os.path.join(place, "out")))
        print(records[-1], flush=True)
    if any(record["lost"] or record["doubled"] or not record["same_as_local"] or not record["cut"] for record in records):
        common.store(args.json, "sweep-nodes", results=records)
        raise common.Failed("rows are missing, doubled or others than of local processes")
    return records


PROGRAMS = ["messenger", "browser", "mail", "camera", "launcher", "system"]
ENDINGS = ["db", "db-wal", "jpg", "xml", "tmp", ""]
OPERATIONS = ["write", "read", "fsync", "stat"]
FILES = 2000
DAY_NS = 86_400 * 10**9
#: Records of a row group that is generated at once.
GROUP = 1 << 20
BEGAN = 1767225600


def groups(records, seed):
    """The records of one device's day, a table for each group."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    draws = np.random.default_rng(seed)
    names = pa.array([f"/data/{PROGRAMS[n % len(PROGRAMS)]}/{n}.{ENDINGS[n % 5]}".rstrip(".") for n in range(FILES)])
    programs, operations = pa.array(PROGRAMS), pa.array(OPERATIONS)
    done = 0
    while done < records:
        n = min(GROUP, records - done)
        file = (FILES * draws.random(n) ** 3).astype(np.int32)
        operation = draws.choice(len(OPERATIONS), n, p=[0.45, 0.3, 0.1, 0.15]).astype(np.int32)
        moved = pa.array(operation > 1)
        length = pa.array(np.where(draws.random(n) < 0.8, 4096, 65536))
        offset = pa.array(draws.integers(0, 1 << 14, n) * 4096)
        none = pa.nulls(n, pa.int64())
        time_ns = np.sort(draws.integers(DAY_NS * done // records, DAY_NS * (done + n) // records, n))
        yield pa.table({
            "time_ns": pa.array(time_ns),
            "op": pa.DictionaryArray.from_arrays(operation, operations),
            "process": pa.array(1000 + file % len(PROGRAMS), pa.int64()),
            "process_name": pa.DictionaryArray.from_arrays(file % len(PROGRAMS), programs),
            "file": pa.DictionaryArray.from_arrays(file, names),
            "inode": pa.array(file, pa.int64()),
            "offset_bytes": pc.if_else(moved, none, offset),
            "len_bytes": pc.if_else(moved, none, length),
            "latency_ns": pa.array(draws.integers(500, 50_000, n)),
        })
        done += n


def write_trace(path, records, seed):
    """A trace file of ours, by pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = {"syncline.trace.version": "1", "syncline.trace.kind": "syscall", "syncline.trace.source": "generated"}
    writer = None
    for table in groups(records, seed):
        columns = [pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in table.schema]
        table = table.cast(pa.schema(columns))
        if writer is None:
            writer = pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.add_key_value_metadata(metadata)
        writer.write_table(table, row_group_size=1 << 17)
    writer.close()


def measured(words):
    """Seconds, the peak of resident memory in MB, and the output of a program that must not fail."""
    began = time.monotonic()
    child = subprocess.Popen(words, stdout=subprocess.PIPE)
    said = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{words[0]} failed with {child.returncode}")
    return time.monotonic() - began, usage.ru_maxrss / 1024, said


def again(args):
    """The words that run this script once more."""
    return [sys.executable, os.path.abspath(__file__), "records", args.syncline, "--records", str(args.records)]


def imported(args, place, output):
    """Imports each device's day; returns seconds and the highest peak of memory."""
    trace, seconds, peak = os.path.join(place, "day.trace"), 0.0, 0.0
    for device in range(args.devices):
        # In a process of its own: the peak of a child begins with its parent's memory.
        subprocess.run([*again(args), "--generate", f"{device}:{trace}"], check=True)
        words = [lab(args.syncline), "trace", "import", trace, "--to", "parquet", "--device-name", f"card-{device:03}", "--start", str(BEGAN)]
        took, rss, _ = measured([*words, "-o", output])
        os.unlink(trace)
        seconds, peak = seconds + took, max(peak, rss)
        print(f"card {device}: {took:.1f} s, {rss:.0f} MB", file=sys.stderr)
    return seconds, peak


def queries():
    """Title and text of each query of the document."""
    with open(common.ROOT / "docs" / "FLEETS.md") as file:
        return re.findall(r"\n([^\n]+):\n\n```sql\n(.*?)```", file.read(), re.S)


def query(text, memory_mb):
    """Runs one query in this process and prints how many rows it gave."""
    import duckdb

    connection = duckdb.connect(config={"memory_limit": f"{memory_mb}MB", "threads": 2})
    print(len(connection.execute(text).fetchall()))


def records(args):
    if args.query:
        query(args.query, args.memory)
        sys.exit()
    if args.generate:
        seed, path = args.generate.split(":", 1)
        write_trace(path, args.records, int(seed))
        sys.exit()
    total, found = args.devices * args.records, []
    with tempfile.TemporaryDirectory(prefix="records", dir=args.directory) as place:
        output = os.path.join(place, "records")
        seconds, peak = imported(args, place, output)
        stored = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(output) for name in names)
        found.append({"what": "import", "records": total, "seconds": seconds, "rss_mb": peak, "bytes": stored})
        print(found[-1])
        os.chdir(place)
        for title, text in queries():
            took, rss, rows = measured([*again(args), "--memory", str(args.memory), "--query", text])
            found.append({"what": title, "records": total, "seconds": took, "rss_mb": rss, "rows": int(rows)})
            print(found[-1])
        os.chdir(common.ROOT)
    return found


def scale(args):
    """The plan for each executor whose costs were measured."""
    with open(args.costs, encoding="utf-8") as file:
        measured = json.load(file)["records"]
    records = []
    for cost in measured:
        # Processes of one machine do not become a thousand.
        if cost["executor"] != "local":
            records += schedule.plans(cost)
            print(*records[-len(schedule.TASK_S):], sep="\n")
    return records


#: Sizes of caches, of the pages.
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
#: Fewest pages of a cache in a sample, as in `sweeps.sampling`.
PAGES_MIN = 16


def skewed(pages, accesses, exponent, seed=1):
    """Draws whose frequency falls with the rank to this power; 0 is uniform."""
    import numpy as np

    weights = np.cumsum(1 / np.arange(1, pages + 1) ** exponent)
    draws = np.random.default_rng(seed).random(accesses) * weights[-1]
    return np.searchsorted(weights, draws).astype(np.uint64)


def phases(pages, accesses, parts):
    """Skewed draws whose hot pages are others in each part."""
    import numpy as np

    size = accesses // parts
    moved = [(skewed(pages, size, 0.8, seed) + np.uint64(seed * 7919 * pages // 100)) % np.uint64(pages) for seed in range(parts)]
    return np.concatenate(moved)


def scans(pages, accesses):
    """A quarter of skewed draws, then pages in order, in turns of a tenth of the pages."""
    import numpy as np

    draws, parts, step = skewed(pages, accesses, 0.9), [], pages // 10
    for turn in range(accesses // (2 * step)):
        parts += [draws[turn * step : (turn + 1) * step], np.arange(step, dtype=np.uint64) + np.uint64(turn % 10 * step)]
    return np.concatenate(parts)


def traces(reuse):
    """Names and accesses."""
    import numpy as np

    for exponent in (0.0, 0.4, 0.6, 0.8, 1.0, 1.2):
        yield f"skewed {exponent}, 2 million pages", skewed(2_000_000, 3_000_000, exponent)
    yield "skewed 0.8, 200,000 pages", skewed(200_000, 2_000_000, 0.8)
    yield "phases, 500,000 pages", phases(500_000, 3_000_000, 5)
    yield "scans, 500,000 pages", scans(500_000, 3_000_000)
    yield "loop, 400,000 pages", np.tile(np.arange(400_000, dtype=np.uint64), 5)
    for path in sorted(glob.glob(str(common.ROOT / "samples" / "*.pages.trace"))):
        yield os.path.basename(path).split(".")[0], reuse.accesses(path)


def errors_of(reuse, name, pages, rate, whole, seeds):
    """The errors of one trace at one rate."""
    import numpy as np

    known = reuse.distinct_pages(pages)
    distinct = len(known[0])
    sizes = [round(distinct * share) for share in SHARES if round(distinct * share) * rate >= PAGES_MIN]
    errors = []
    for seed in range(1, seeds + 1):
        chosen, weights = reuse.sample(pages, rate, seed, known)
        part = reuse.Curve(reuse.distances(chosen), weights, len(pages), rate)
        errors += [100 * abs(part.miss_ratio(size) - whole.miss_ratio(size)) for size in sizes]
    record = {"trace": name, "rate": rate, "pages": distinct, "accesses": len(pages), "seeds": seeds,
              "pages_sampled": round(distinct * rate), "sizes": len(sizes)}
    if errors:
        record |= {"error_p50": float(np.percentile(errors, 50)), "error_p95": float(np.percentile(errors, 95)),
                   "error_max": float(max(errors))}
    return record


def sample(args):
    # Without the package's native part.
    sys.path.insert(0, str(common.ROOT / "crates/libs/syncline-py/python/syncline"))
    from sweeps import reuse

    records = []
    for name, pages in traces(reuse):
        whole = reuse.curve(pages)
        for rate in (0.01, 0.1):
            records.append(errors_of(reuse, name, pages, rate, whole, args.seeds))
            print(records[-1])
    return records


def main():
    top = common.parser(__doc__)
    kinds = top.add_subparsers(dest="what", required=True)

    def kind(name, *names):
        return kinds.add_parser(name, parents=[common.parser(None, *names)], add_help=False)

    found = kind("kills", "syncline")
    found.add_argument("--rows", type=int, default=10_000)
    found.add_argument("--every", type=float, default=20.0)
    found.add_argument("--executors", default="local,dask")
    found = kind("cost", "syncline")
    found.add_argument("--tasks", type=int, default=20)
    found.add_argument("--idle", action="store_true", help="leave out the tasks that work, on a machine that is busy")
    found.add_argument("--rounds", type=int, default=3)
    found.add_argument("--executors", default="local,dask")
    found = kind("nodes", "syncline")
    found.add_argument("--nodes", type=int, default=3)
    found.add_argument("--rows", type=int, default=600)
    found.add_argument("--executors", default="dask,ray")
    found = kind("records", "syncline")
    found.add_argument("--devices", type=int, default=100)
    found.add_argument("--records", type=int, default=10_000_000)
    found.add_argument("--memory", type=int, default=1000)
    found.add_argument("--directory")
    # Of the processes that this script starts.
    found.add_argument("--query", help="run this query and count its rows")
    found.add_argument("--generate", help="SEED:FILE, write the trace of a day")
    kind("scale").add_argument("--costs", default=common.ROOT / "docs/figures/sweep-cost.json")
    kind("sample").add_argument("--seeds", type=int, default=20)
    args = top.parse_args()
    if "syncline" in args:
        # The package runs it.
        os.environ["SYNCLINE_LAB"] = lab(args.syncline)
    run, name = {"kills": (kills, "sweep-measure"), "cost": (cost, "sweep-measure"), "nodes": (nodes, "sweep-nodes"),
                 "records": (records, "sweep-records"), "scale": (scale, "sweep-scale"), "sample": (sample, "sample-error")}[args.what]
    common.store(args.json, name, results=run(args))


if __name__ == "__main__":
    common.main(main)
