"""Sweeps that cannot go on, or not all of them: one clear error each, and the rows before it stay."""

import concurrent.futures
import gc
import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys

import pytest

pytest.importorskip("pyarrow")

from syncline import sweeps
from syncline.sweeps import Plan, SweepError, driver, executors

SAMPLES = pathlib.Path(__file__).resolve().parents[4] / "samples"
MAIL = str(SAMPLES / "mail.pages.trace")
NO_RAY = "Ray is not installed; its wheel has 80 MB"

pytestmark = pytest.mark.skipif(not os.environ.get("SYNCLINE_LAB"), reason="SYNCLINE_LAB names no program to run")


def plan(rows=2, **axes):
    given = {"traces": [MAIL], "policies": ["lru"], "sizes": [f"{16 + n}p" for n in range(rows)], **axes}
    return Plan(**given)


def closed_port():
    """A port of this machine that nobody listens at."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]


def no_worker(executor, many, output, leave):
    """Runs a sweep whose workers `leave` after some rows; returns its error and what its progress said."""
    told = []

    def tell(state):
        told.append(state.line())
        if state.done and leave:
            leave.pop()()

    with pytest.raises(SweepError) as raised:
        sweeps.sweep(many, executor=executor, output=output, progress=tell, no_worker_s=3)
    return str(raised.value), told


def resumes(many, output):
    """Some rows are there and no more than all; the sweep goes on to its end."""
    there = sweeps.read(output).num_rows
    assert 0 < there < len(many.tasks())
    table = sweeps.sweep(many, output=output, resume=True)
    assert table.num_rows == table.column("error").null_count == len(many.tasks())


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(driver, "ASK_S", 0.2)


def test_a_sweep_whose_workers_of_dask_have_all_gone_says_so_and_ends(tmp_path, short):
    distributed = pytest.importorskip("distributed")
    many = plan(1000)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, processes=False) as cluster:
        with distributed.Client(cluster) as client:
            said, told = no_worker(client, many, tmp_path, [lambda: cluster.scale(0)])
    assert said.startswith("Dask at ") and "has had no worker for 3 s; start workers, then resume" in said
    assert any("no worker for 1 s" in line or "no worker for 2 s" in line for line in told), told[-9:]
    resumes(many, tmp_path)


def test_a_sweep_whose_nodes_of_ray_have_all_gone_says_so_and_ends(tmp_path, short):
    ray = pytest.importorskip("ray", reason=NO_RAY)
    psutil = pytest.importorskip("psutil")
    many = plan(1000)

    def end_node():
        for process in psutil.Process().children(recursive=True):
            if process.name() == "raylet":
                os.kill(process.pid, signal.SIGTERM)

    ray.init("local", num_cpus=2, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    try:
        said, told = no_worker("ray", many, tmp_path, [end_node])
    finally:
        ray.shutdown()
    assert said.startswith("Ray at ") and "has had no worker for 3 s; start workers, then resume" in said
    assert any("no worker for" in line for line in told), told[-9:]
    resumes(many, tmp_path)


class Coming:
    """An executor whose workers come at the question so many; until then tasks wait, or are lost at once."""

    name = "the cluster"
    workers = 1

    def __init__(self, questions, loses):
        self.questions, self.loses, self.asked, self.lost, self.waiting = questions, loses, 0, 0, []

    def submit(self, function, *given):
        future = concurrent.futures.Future()
        if self.asked >= self.questions:
            future.set_result(function(*given))
        elif self.loses:
            self.lost += 1
            future.set_exception(OSError("no node"))
        else:
            self.waiting.append((future, function, given))
        return future

    def count(self):
        self.asked += 1
        if self.asked < self.questions:
            return 0
        for future, function, given in self.waiting:
            future.set_result(function(*given))
        self.waiting = []
        return 1


@pytest.mark.parametrize("loses", [False, True], ids=["wait", "lost"])
def test_workers_that_come_late_end_the_wait_and_no_task_has_failed(short, monkeypatch, capsys, loses):
    coming = Coming(4, loses)
    monkeypatch.setattr(executors, "Other", lambda executor: executor)
    assert sweeps.sweep(plan(), executor=coming).column("error").null_count == 2
    assert coming.asked >= 4 and (coming.lost > 12 or not loses)
    assert capsys.readouterr().err == "syncline: the cluster has no worker, waiting 300 s\n"


def clients():
    """The Dask clients that there are."""
    distributed = sys.modules.get("distributed")
    return [found for found in gc.get_objects() if distributed and type(found) is distributed.Client]


@pytest.mark.parametrize(
    "address, said",
    [
        ("tcp://127.0.0.1:{port}", "tcp://127.0.0.1:.*: no Dask scheduler answers .*; look at its address"),
        ("tcp://127.0.0.1", "tcp://127.0.0.1: missing port .*; give tcp://HOST:PORT"),
        ("tpc://127.0.0.1:{port}", "unknown address scheme 'tpc' .*; give tcp://HOST:PORT"),
        ("tls://127.0.0.1:{port}", "TLS .*; give tcp://HOST:PORT, or a Client"),
        ("ray://127.0.0.1:{port}", "ray://127.0.0.1:.*: no Ray cluster answers .*refused.*; look at its address"),
        ("ray://127.0.0.1:none", "no Ray cluster answers .*; look at its address"),
        ("slurm", "unknown executor `slurm`"),
    ],
)
def test_a_scheduler_that_cannot_be_reached_is_one_error(tmp_path, monkeypatch, address, said):
    pytest.importorskip(*(("ray", None, NO_RAY) if address.startswith("ray") else ("distributed",)))
    monkeypatch.setattr(executors, "CONNECT_S", 1)
    gc.collect()
    before = clients()
    with pytest.raises(SweepError, match=said) as raised:
        sweeps.sweep(plan(), executor=address.format(port=closed_port()), output=tmp_path)
    assert "\n" not in str(raised.value)
    # None is left that a later collection would close while another one starts.
    assert len(clients()) <= len(before)
    # The directory is good for the sweep with the right address.
    assert sweeps.sweep(plan(), output=tmp_path, resume=True).num_rows == 2


def test_traces_that_cannot_be_read_are_rows_that_name_them(tmp_path):
    (tmp_path / "empty.trace").touch()
    cut = tmp_path / "cut.trace"
    cut.write_bytes(pathlib.Path(MAIL).read_bytes()[:-100])
    places = [str(tmp_path), str(tmp_path / "empty.trace"), str(cut), "memory://absent.trace", "fly://absent.trace", MAIL]
    errors = sweeps.sweep(plan(1, traces=places), workers=2).column("error").to_pylist()
    assert errors.pop() is None
    named = [tmp_path.name, "empty.trace", "cut.trace", "absent.trace", "fly"]
    for error, name in zip(errors, named, strict=True):
        assert error and name in error and "Traceback" not in error, (name, error)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("a disk that fills is a tmpfs of 64 KiB, whose mount needs root")
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_is_one_error_and_the_rows_before_it_stay(small_disk):
    many = plan(200)
    with pytest.raises(SweepError, match="No space left on device; make room or give access, then resume") as raised:
        sweeps.sweep(many, workers=2, output=small_disk / "out")
    assert str(small_disk) in str(raised.value)
    assert not list(small_disk.rglob("*.tmp"))
    subprocess.run(["mount", "-o", "remount,size=16m", small_disk], check=True)
    resumes(many, small_disk / "out")


def older(place):
    """A program that says that it is version 0.0.9."""
    program = place / "syncline-0.0.9"
    program.write_text('#!/bin/sh\necho "syncline 0.0.9"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def test_a_worker_of_dask_with_another_version_is_refused_by_name(tmp_path):
    distributed = pytest.importorskip("distributed")
    many, old = plan(400), older(tmp_path)
    # The worker of the right version begins alone; the other one joins when there are rows.
    right = {"cls": distributed.Nanny, "options": {"nthreads": 1, "dashboard": False}}
    other = {"cls": distributed.Nanny, "options": {"nthreads": 1, "dashboard": False, "env": {"SYNCLINE_LAB": old}}}
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False, "port": 0}}
    with distributed.SpecCluster(workers={"right": right}, scheduler=scheduler) as cluster:
        with distributed.Client(cluster) as client:
            client.wait_for_workers(1)

            def join(state):
                if state.done and "other" not in cluster.worker_spec:
                    cluster.worker_spec["other"] = other
                    cluster.sync(cluster._correct_state)
                    client.wait_for_workers(2)

            with pytest.raises(SweepError, match=r"worker \S+:\d+ runs `syncline 0.0.9`, the driver `syncline-lab "):
                sweeps.sweep(many, executor=client, output=tmp_path / "out", progress=join)
    resumes(many, tmp_path / "out")


def test_a_worker_of_ray_with_another_version_is_refused_by_name(tmp_path):
    ray = pytest.importorskip("ray", reason=NO_RAY)
    # Workers have the environment of their node, which starts here; the driver looks at its own at the sweep.
    script = (
        "import os, sys, ray\n"
        "from syncline import sweeps\n"
        "right = os.environ['SYNCLINE_LAB']\n"
        "os.environ['SYNCLINE_LAB'] = sys.argv[1]\n"
        "ray.init('local', num_cpus=1, log_to_driver=False, logging_level='ERROR', include_dashboard=False)\n"
        "os.environ['SYNCLINE_LAB'] = right\n"
        "try:\n"
        f"    sweeps.sweep([{MAIL!r}], policies=['lru'], sizes=['64K'], executor='ray')\n"
        "except sweeps.SweepError as error:\n"
        "    print('refused:', error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, older(tmp_path)], capture_output=True, text=True)
    refused = [line for line in done.stdout.splitlines() if line.startswith("refused: worker ")]
    assert len(refused) == 1 and "runs `syncline 0.0.9`, the driver `syncline-lab " in refused[0], done.stderr


@pytest.fixture
def without_sweeps(tmp_path):
    """An environment where another `syncline` hides the one that may be installed."""
    (tmp_path / "syncline").mkdir()
    (tmp_path / "syncline" / "__init__.py").touch()
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


NO_SUCH = "a worker has no such syncline: .*No module named 'syncline.sweeps'.*; install one version everywhere"


def test_workers_of_dask_without_the_package_are_one_error(without_sweeps):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster:
        words = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address]
        worker = subprocess.Popen([*words, "--nthreads", "1", "--no-dashboard"], env=without_sweeps, stderr=subprocess.DEVNULL)
        try:
            with distributed.Client(cluster) as client:
                client.wait_for_workers(1)
                with pytest.raises(SweepError, match=NO_SUCH):
                    sweeps.sweep(plan(), executor=client, no_worker_s=9)
        finally:
            worker.terminate()
            worker.wait()


def test_workers_of_ray_without_the_package_are_one_error(without_sweeps):
    ray = pytest.importorskip("ray", reason=NO_RAY)
    given = {"env_vars": {"PYTHONPATH": without_sweeps["PYTHONPATH"]}}
    ray.init("local", num_cpus=1, log_to_driver=False, logging_level="ERROR", include_dashboard=False, runtime_env=given)
    try:
        with pytest.raises(SweepError, match=NO_SUCH) as raised:
            sweeps.sweep(plan(), executor="ray", no_worker_s=9)
        assert "\n" not in str(raised.value)
    finally:
        ray.shutdown()


def test_the_error_of_a_plan_is_one_line_of_the_module(tmp_path):
    (tmp_path / "plan.toml").write_text(f"traces = [{json.dumps(MAIL)}]\npolicies = ['lru']\nsizes = ['64K']\n")
    words = [sys.executable, "-m", "syncline.sweeps", str(tmp_path / "plan.toml"), "-o", str(tmp_path / "out")]
    done = subprocess.run([*words, "--executor", f"ray://127.0.0.1:{closed_port()}"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and done.stderr.startswith("syncline: ray"), done.stderr
