#!/usr/bin/env python3
"""A sweep on nodes of Dask and Ray that are network namespaces of this machine, one of which is cut off in the middle. Root.

    sweep_nodes.py SYNCLINE [--nodes N] [--rows N] [--executors dask,ray] [--json FILE]

Each node is a namespace with an address of its own, on a bridge with the scheduler and the driver. When a third of the rows are there, the link of
one node goes down and then its processes are killed, as a power cut: nothing tells the others. The rows must be those of local processes, each once.
`noticed_s` is the longest time without a new row from then on. Needs iproute2, and the Python package with `sweeps`, `distributed` and `ray`.
"""
import argparse
import collections
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

import suite

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TRACE = os.path.join(ROOT, "samples", "rlbench.pages.trace")
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("syncline")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--executors", default="dask,ray")
    parser.add_argument("--json")
    args = parser.parse_args()
    suite.need(["ip", "unshare"], "iproute2 util-linux")
    os.environ["SYNCLINE"] = os.path.abspath(args.syncline)
    os.environ.update(ENVIRONMENT)
    from syncline import sweeps

    plan = sweeps.Plan(traces=[TRACE], policies=["lru", "clock"], sizes=[f"{16 + n}p" for n in range(args.rows // 2)])
    expected, records = sweeps.sweep(plan), []
    for kind in args.executors.split(","):
        with tempfile.TemporaryDirectory(prefix="nodes") as place, network(args.nodes):
            with {"dask": dask, "ray": ray}[kind](args.nodes, place) as cluster:
                records.append(swept(kind, cluster, plan, args.nodes, expected, os.path.join(place, "out")))
        print(records[-1], flush=True)
    if args.json:
        suite.store(args.json, "sweep-nodes", records)
    wrong = [record for record in records if record["lost"] or record["doubled"] or not record["same_as_local"] or not record["cut"]]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
