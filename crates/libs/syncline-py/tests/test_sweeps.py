"""Sweeps: the command line's documents on each executor, kills, resumption, and what is refused."""

import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

pytest.importorskip("pyarrow")

import fsspec

from syncline import sweeps
from syncline.sweeps import Plan, SweepError, engine, executors, results

SAMPLES = pathlib.Path(__file__).resolve().parents[4] / "samples"
MAIL, RLBENCH = str(SAMPLES / "mail.pages.trace"), str(SAMPLES / "rlbench.pages.trace")

pytestmark = pytest.mark.skipif(not os.environ.get("SYNCLINE_LAB"), reason="SYNCLINE_LAB names no program to run")


def plan(**axes):
    given = {"traces": [MAIL, RLBENCH], "policies": ["lru", "clock"], "sizes": ["64K"], **axes}
    return Plan(**given)


@pytest.fixture(scope="module")
def expected():
    return sweeps.sweep(plan(), workers=1)


def test_rows_are_the_documents_of_the_command_line(expected):
    assert expected.num_rows == 4
    for row in expected.to_pylist():
        command = ["cache", "--trace", row["trace"], "--policy", row["policy"], "--size", row["size"], "--json", "-"]
        said = json.loads(subprocess.run([os.environ["SYNCLINE_LAB"], *command], capture_output=True, check=True).stdout)
        assert json.loads(row["document"]) == said
        assert row["hits"] == said["runs"][0]["hits"] and row["error"] is None


BLOCKS, CALLS = str(SAMPLES / "mail.blocks.trace"), str(SAMPLES / "mail.calls.trace")

#: Of each kind: the axes of a plan, and the same on the command line.
KINDS = {
    "cache": (
        dict(traces=[MAIL], policies=["clock"], sizes=["10%"], devices=["sd-2012"], options=["fsync,write_back=10"]),
        f"cache --trace {MAIL} --policy clock --size 10% --device sd-2012 --fsync --write-back 10 --json -",
    ),
    "replay": (
        dict(what="replay", traces=[BLOCKS], devices=["sd-2012"], options=["depth=4"]),
        f"replay --trace {BLOCKS} --device sd-2012 --depth 4 --json -",
    ),
    "lifetime": (
        dict(what="lifetime", traces=[BLOCKS], devices=["sd-2012"], sizes=["1G"], options=["passes=3"]),
        f"lifetime --trace {BLOCKS} --device sd-2012 --size 1G --passes 3 --json",
    ),
    "bench": (
        dict(what="bench", workloads=["sqlite/update"], devices=["sd-2012"], seeds=[3], options=["operations=20,sync=eager,noatime"]),
        "bench sqlite update --device sd-2012 --seed 3 --operations 20 --sync eager -o noatime --json -",
    ),
    "bench-calls": (
        dict(what="bench", traces=[CALLS], devices=["sd-2012"], sizes=[64], options=["sync=ordered"]),
        f"bench replay --trace {CALLS} --device sd-2012 --size 64 --sync ordered --json -",
    ),
}


@pytest.fixture(scope="module")
def kinds():
    """The table of one configuration of each kind, by processes of this machine."""
    return {name: sweeps.sweep(Plan(**axes), workers=1) for name, (axes, _) in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_the_document_of_the_command_line(kinds, kind):
    (row,) = kinds[kind].to_pylist()
    command = [os.environ["SYNCLINE_LAB"], *KINDS[kind][1].split()]
    said = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    if kind == "bench-calls":
        said["runs"] = [run for run in said["runs"] if run["config"]["sync"] == "ordered"]
    assert row["error"] is None and row["document"] == json.dumps(said, sort_keys=True)
    assert row["hits" if kind == "cache" else "written_bytes"] > 0


def same_on(executor, kinds):
    """Each kind gives on an executor what it gives here, bit for bit."""
    for name, (axes, _) in KINDS.items():
        assert sweeps.sweep(Plan(**axes), executor=executor).equals(kinds[name]), name


def test_threads_and_any_order_give_the_same_rows(expected, kinds):
    shuffled = plan(traces=[RLBENCH, MAIL], policies=["clock", "lru"])
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        table = sweeps.sweep(shuffled, executor=pool)
        same_on(pool, kinds)
    assert sorted(table.to_pylist(), key=lambda row: row["key"]) == sorted(
        expected.to_pylist(), key=lambda row: row["key"]
    )


def test_dask_gives_the_same_rows(expected, kinds):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, processes=False) as cluster:
        with distributed.Client(cluster) as client:
            assert sweeps.sweep(plan(), executor=client).equals(expected)
            same_on(client, kinds)
        assert sweeps.sweep(plan(), executor=cluster.scheduler_address).equals(expected)


def test_ray_gives_the_same_rows(expected, kinds):
    pytest.importorskip("ray", reason="Ray is not installed; its wheel has 80 MB")
    with executors.opened("ray", None) as opened:
        assert sweeps.sweep(plan(), executor="ray").equals(expected)
        same_on(opened, kinds)


def test_a_failed_task_is_a_row(tmp_path):
    broken = tmp_path / "broken.trace"
    broken.write_bytes(b"PAR1 is no trace")
    table = sweeps.sweep(plan(traces=[str(broken), MAIL, "absent.trace"], policies=["lru"]), workers=1)
    errors = table.column("error").to_pylist()
    assert errors[1] is None
    assert "broken.trace" in errors[0] and "absent.trace" in errors[2]


def test_resume_runs_only_what_is_missing(tmp_path, monkeypatch, expected):
    ran = []
    monkeypatch.setattr(engine, "run", lambda task, version, run=engine.run: ran.append(task.key) or run(task, version))
    pool = concurrent.futures.ThreadPoolExecutor(1)
    sweeps.sweep(plan(policies=["lru"]), executor=pool, output=tmp_path)
    with pytest.raises(SweepError, match="has results; resume"):
        sweeps.sweep(plan(), executor=pool, output=tmp_path)
    assert sweeps.sweep(plan(), executor=pool, output=tmp_path, resume=True).equals(expected)
    assert len(ran) == len(set(ran)) == 4
    assert len(list(tmp_path.glob("part-*.parquet"))) == 2
    assert sweeps.read(tmp_path).num_rows == 4


def test_rows_of_a_killed_driver_are_kept(tmp_path, expected):
    script = (
        "import os, sys\n"
        "from syncline import sweeps\n"
        "from syncline.sweeps import results\n"
        "add = results.Results.add\n"
        "def end(self, row):\n"
        "    add(self, row)\n"
        "    len(self.rows) == 3 and os.kill(os.getpid(), 9)\n"
        "results.Results.add = end\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        f"sweeps.sweep({[MAIL, RLBENCH]!r}, policies=['lru', 'clock'], sizes=['64K'],\n"
        f"    executor=ThreadPoolExecutor(1), output={str(tmp_path)!r})\n"
    )
    ended = subprocess.run([sys.executable, "-c", script])
    assert ended.returncode == -signal.SIGKILL
    assert sweeps.read(tmp_path).num_rows == 3
    assert sweeps.sweep(plan(), workers=1, output=tmp_path, resume=True).equals(expected)
    # Killed between the part and the emptying of the journal: no row is there twice.
    row = sweeps.read(tmp_path).to_pylist()[0]
    with open(tmp_path / "rows.jsonl", "ab") as file:
        file.write(json.dumps(row).encode() + b"\n" + b'{"key": "cut sho')
    assert sweeps.read(tmp_path).num_rows == 4


def test_killed_workers_lose_and_double_no_row(tmp_path):
    """A kill every ten rows. `SWEEP_ROWS` and `SWEEP_KILL_S` make it long: 10,000 rows, a kill every 20 s."""
    rows, every_s = int(os.environ.get("SWEEP_ROWS", "200")), float(os.environ.get("SWEEP_KILL_S", "0"))
    many = plan(traces=[RLBENCH], policies=["lru"], sizes=[f"{pages}p" for pages in range(16, 16 + rows)])
    killed, done, over = [], [], threading.Event()

    def kill():
        last = time.monotonic()
        while not over.wait(0.002):
            due = time.monotonic() - last >= every_s if every_s else len(done) >= 10 * len(killed)
            running = engine.children() if due else []
            if running:
                with contextlib.suppress(ProcessLookupError):  # It has ended since.
                    os.kill(random.Random(len(killed)).choice(running), signal.SIGKILL)
                    killed.append(running)
                    last = time.monotonic()

    class Counting(executors.LocalProcesses):
        def __init__(self):
            super().__init__(2)
            inner = self.submit
            self.submit = lambda *call: self.count(inner(*call))

        def count(self, future):
            future.add_done_callback(done.append)
            return future

    killer, local = threading.Thread(target=kill), Counting()
    killer.start()
    try:
        table = sweeps.sweep(many, executor=local, output=tmp_path)
    finally:
        over.set()
        killer.join()
        local.close()
    assert len(killed) >= min(4, rows // 10)
    assert table.num_rows == rows == len(set(table.column("key").to_pylist()))
    assert table.column("error").null_count == rows
    assert sweeps.read(tmp_path).num_rows == rows


def test_a_task_that_kills_its_worker_is_a_row_and_no_other_is(expected):
    fatal = expected.column("key")[2].as_py()

    class Dying(concurrent.futures.ThreadPoolExecutor):
        def submit(self, function, task, version):
            if task.key == fatal:
                failed = concurrent.futures.Future()
                failed.set_exception(BrokenProcessPool())
                return failed
            return super().submit(function, task, version)

    errors = sweeps.sweep(plan(), executor=Dying(1)).column("error").to_pylist()
    assert "lost 6 times" in errors.pop(2)
    assert errors == [None] * 3


def test_an_error_of_the_executor_is_no_row(expected):
    class Flaky(concurrent.futures.ThreadPoolExecutor):
        seen = set()

        def submit(self, function, task, version):
            if task.key not in self.seen:
                self.seen.add(task.key)
                failed = concurrent.futures.Future()
                failed.set_exception(OSError("the connection was closed"))
                return failed
            return super().submit(function, task, version)

    assert sweeps.sweep(plan(), executor=Flaky(1)).equals(expected)


def test_at_the_end_no_worker_has_two_tasks():
    """One of two workers would else have the last two, and the other none."""
    before, there = [], []

    class Counting(concurrent.futures.ThreadPoolExecutor):
        def submit(self, *call):
            before.append(len(there))
            future = super().submit(*call)
            there.append(future)
            future.add_done_callback(there.remove)
            return future

    with Counting(2) as pool:
        sweeps.sweep(plan(traces=[MAIL], policies=["lru"], sizes=[f"{16 + n}p" for n in range(10)]), executor=pool)
    assert len(before) == 10 and max(before[6:]) < 2


def test_an_executor_that_ends_is_one_error_and_the_rows_stay(tmp_path, expected):
    class Ending(concurrent.futures.ThreadPoolExecutor):
        left = 2

        def submit(self, *call):
            if not self.left:
                raise RuntimeError("the scheduler has gone")
            self.left -= 1
            return super().submit(*call)

    with pytest.raises(SweepError, match="takes no task .*the scheduler has gone.*; start it again, then resume"):
        with Ending(1) as pool:
            sweeps.sweep(plan(), executor=pool, output=tmp_path, progress=lambda state: None)
    assert sweeps.sweep(plan(), workers=1, output=tmp_path, resume=True).equals(expected)


def test_a_worker_lost_with_its_results_does_not_stop_the_driver(tmp_path):
    """Workers whose finished results are not fetched yet go; the others' rows come all the same."""
    distributed = pytest.importorskip("distributed")
    many = plan(traces=[RLBENCH], sizes=[f"{pages}p" for pages in range(16, 46)])
    ended = []

    def end_one(state):
        if state.done >= 10 and not ended:
            ended.append(state.done)
            nanny = next(iter(cluster.workers.values()))
            os.kill(nanny.pid, signal.SIGKILL)

    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            table = sweeps.sweep(many, executor=client, output=tmp_path, progress=end_one)
    assert ended and table.num_rows == 60 and table.column("error").null_count == 60


def test_an_interrupt_leaves_the_rows_that_are_there(tmp_path):
    def stop(state):
        if state.done:
            raise KeyboardInterrupt

    many = plan(sizes=[f"{pages}p" for pages in range(16, 200)])
    with pytest.raises(KeyboardInterrupt):
        sweeps.sweep(many, workers=1, output=tmp_path, progress=stop)
    assert 0 < sweeps.read(tmp_path).num_rows < len(many.tasks())


def test_traces_on_s3_are_fetched_once_a_worker(monkeypatch, expected):
    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    if sys.flags.dev_mode:
        # There aiohttp refuses moto's answers, which have the header Server twice.
        again = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "traces_on_s3"]
        done = subprocess.run(again, capture_output=True, text=True)
        assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
        return
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        s3 = fsspec.filesystem("s3", skip_instance_cache=True)
        s3.mkdir("traces")
        for path in (MAIL, RLBENCH):
            s3.put_file(path, f"traces/{os.path.basename(path)}")
        fetched = []
        one = sweeps.traces._fetch
        monkeypatch.setattr(sweeps.traces, "_fetch", lambda *a: fetched.append(a[0]) or one(*a))
        urls = [f"s3://traces/{os.path.basename(path)}" for path in (MAIL, RLBENCH)]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            table = sweeps.sweep(plan(traces=urls), executor=pool)
        assert sorted(fetched) == sorted(urls)
        assert sweeps.sweep(plan(traces=["s3://traces/*.trace"]), workers=1).equals(table)
    finally:
        server.stop()
    assert table.column("hits").equals(expected.column("hits"))


def test_other_versions_are_refused_by_name(tmp_path, monkeypatch):
    with pytest.raises(SweepError, match=r"worker .* runs `syncline-lab .*`, the driver `syncline 0.0.9`"):
        monkeypatch.setattr(engine, "here", lambda: "syncline 0.0.9")
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            sweeps.sweep(plan(), executor=pool)
    monkeypatch.undo()
    sweeps.sweep(plan(policies=["lru"], traces=[MAIL]), workers=1, output=tmp_path)
    document = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps({**document, "version": "syncline 0.0.9"}))
    with pytest.raises(SweepError, match="rows are by `syncline 0.0.9`"):
        sweeps.sweep(plan(), workers=1, output=tmp_path, resume=True)


def test_a_full_disk_is_one_error(tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(28, "No space left on device")

    pool = concurrent.futures.ThreadPoolExecutor(1)
    sweeps.sweep(plan(policies=["lru"]), executor=pool, output=tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(results, "_write", full)
        with pytest.raises(SweepError, match="No space left on device; make room"):
            sweeps.sweep(plan(), executor=pool, output=tmp_path, resume=True)
    assert sweeps.sweep(plan(), executor=pool, output=tmp_path, resume=True).num_rows == 4


def test_a_disk_that_fills_keeps_the_rows_before(tmp_path):
    """A limit of 16 KiB a file stands for the disk: the journal reaches it, the part does not."""
    trace, out = json.dumps(MAIL), tmp_path / "out"
    sizes = [f"{pages}p" for pages in range(16, 40)]
    (tmp_path / "plan.toml").write_text(f"traces = [{trace}]\npolicies = ['lru']\nsizes = {sizes}\n")
    words = [sys.executable, "-m", "syncline.sweeps", str(tmp_path / "plan.toml"), "-o", str(out)]
    limit = (16384, 16384)
    limited = f"import resource, runpy, sys; sys.argv = {words[2:]!r}; resource.setrlimit(resource.RLIMIT_FSIZE, {limit})"
    run = "runpy.run_module('syncline.sweeps', run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", f"{limited}; {run}"], capture_output=True, text=True)
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1, ended.stderr
    assert "; make room or give access, then resume" in ended.stderr
    kept = sweeps.read(out).num_rows
    assert 0 < kept < len(sizes)
    assert subprocess.run([*words, "--resume"], capture_output=True).returncode == 0
    assert sweeps.read(out).num_rows == len(sizes)


def test_without_the_program_the_error_names_it_and_the_next_step(tmp_path, monkeypatch):
    monkeypatch.delenv("SYNCLINE_LAB")
    monkeypatch.setenv("PATH", "")
    said = "no program `syncline-lab` in the path; install it, or set SYNCLINE_LAB to it"
    with pytest.raises(SweepError, match=said):
        sweeps.sweep(plan(), output=tmp_path / "out")
    (tmp_path / "plan.toml").write_text(f"traces = ['{MAIL}']\npolicies = ['lru']\nsizes = ['64K']\n")
    command = [sys.executable, "-m", "syncline.sweeps", str(tmp_path / "plan.toml"), "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1) and said in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text, said",
    [
        ('what = "fly"', "unknown sweep `fly`"),
        ('traces = ["a"]\npolicies = ["lru"]', "needs `sizes`"),
        ('what = "replay"\ntraces = ["a"]\ndevices = ["d"]\nsizes = ["4M"]', "has no `sizes`"),
        ('trace = ["a"]', "unknown key `trace`"),
        ('traces = ["*.none"]\npolicies = ["lru"]\nsizes = ["4M"]', "no trace has such a name"),
        ("traces = [", "mend the TOML"),
    ],
)
def test_plans_are_refused(tmp_path, text, said):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(SweepError, match=said):
        Plan.load(path).tasks()


def test_the_module_runs_a_plan(tmp_path):
    (tmp_path / "plan.toml").write_text(f"traces = ['{MAIL}', 'none.trace']\npolicies = ['lru']\nsizes = ['64K']\n")
    command = [sys.executable, "-m", "syncline.sweeps", str(tmp_path / "plan.toml"), "-o", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "2 rows in" in done.stdout
    assert "1 tasks failed, the first" in done.stderr and "none.trace" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "traces = ['*.pages.trace', 'none.trace']\npolicies = ['lru', 'clock']\nsizes = ['64K', '10%']\n"
        "devices = ['sd-2012']\noptions = ['', 'fsync,write_back=10', 'fly']",
        "what = 'replay'\ntraces = ['mail.blocks.trace']\ndevices = ['sd-2012', 'none']\noptions = ['', 'depth=4']",
        "what = 'lifetime'\ntraces = ['mail.blocks.trace']\ndevices = ['sd-2012']\nsizes = ['1G']\noptions = ['passes=2']",
        "what = 'bench'\nworkloads = ['sqlite/update']\ndevices = ['sd-2012']\nseeds = [1, 2]\n"
        "options = ['operations=20,noatime', 'operations=20,sync=ordered']",
        "what = 'bench'\ntraces = ['mail.calls.trace']\ndevices = ['sd-2012']\nsizes = [64]",
    ],
    ids=["cache", "replay", "lifetime", "bench", "bench-calls"],
)
def test_the_program_without_python_gives_the_same_rows(tmp_path, text):
    place = tmp_path / "é"
    place.mkdir()
    for path in SAMPLES.glob("[mr]*.trace"):
        (place / path.name).symlink_to(path)
    (place / "plan.toml").write_text(text)
    out = tmp_path / "out"
    words = [os.environ["SYNCLINE_LAB"], "sweep", place / "plan.toml", "-o", out]
    alone = {**os.environ, "PATH": "/nonexistent"}
    done = subprocess.run(words, env=alone, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    expected = sweeps.sweep(Plan.load(place / "plan.toml"), workers=2)
    order = [("key", "ascending")]
    assert sweeps.read(out).sort_by(order).equals(expected.sort_by(order))
    assert expected.column("error").null_count > 0
    # Python puts the rows into a part and runs none; the program then finds all of them there.
    again = sweeps.sweep(Plan.load(place / "plan.toml"), executor=_Idle(), output=out, resume=True)
    assert again.equals(expected) and list(out.glob("part-*.parquet"))
    assert (out / "rows.jsonl").read_bytes() == b""
    resumed = subprocess.run([*words, "--resume"], env=alone, capture_output=True, text=True)
    assert (resumed.returncode, resumed.stdout, resumed.stderr) == (done.returncode, done.stdout, done.stderr)
    assert (out / "rows.jsonl").read_bytes() == b""


class _Idle:
    def submit(self, *call):
        raise AssertionError("a row that is there was asked for")
