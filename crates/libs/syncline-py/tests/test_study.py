"""The measuring commands: the same documents as the command line's, and plots of them."""

import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest

import syncline

ROOT = pathlib.Path(__file__).resolve().parents[4]
SAMPLES = ROOT / "samples"
BLOCKS = SAMPLES / "git.blocks.trace"
PAGES = SAMPLES / "git.pages.trace"
CALLS = SAMPLES / "git.calls.trace"


def command_line(*arguments):
    """The document of the binary, where the test run has one (SYNCLINE_LAB)."""
    program = os.environ.get("SYNCLINE_LAB")
    if not program:
        pytest.skip("SYNCLINE_LAB names no binary to compare with")
    return json.loads(subprocess.run([program, *map(str, arguments)], check=True, capture_output=True).stdout)


@pytest.mark.parametrize(
    "call, arguments",
    [
        (lambda: syncline.cache(PAGES, policy=["lru", "min"], size="10%", device="sd-2012"),
         ["cache", "--trace", PAGES, "--policy", "lru,min", "--size", "10%", "--device", "sd-2012", "--json", "-"]),
        (lambda: syncline.replay(BLOCKS, "sd-2012", depth=4),
         ["replay", "--trace", BLOCKS, "--device", "sd-2012", "--depth", "4", "--json", "-"]),
        (lambda: syncline.lifetime(BLOCKS, "sd-2012", passes=2),
         ["lifetime", "--trace", BLOCKS, "--device", "sd-2012", "--passes", "2", "--json"]),
        (lambda: syncline.bench("fileio/random-overwrite-fsync", size=64, operations=20),
         ["bench", "fileio", "random-overwrite-fsync", "--size", "64", "--operations", "20", "--json", "-"]),
        (lambda: syncline.bench("replay", sync="ordered", trace=[CALLS], size=256),
         ["bench", "replay", "--sync", "ordered", "--trace", CALLS, "--size", "256", "--json", "-"]),
        (lambda: syncline.probe("sd-2012", size=16 << 20, bytes=1 << 20, sustain=0),
         ["probe", "sd-2012", "--size", "16M", "--bytes", "1M", "--sustain", "0", "--json", "-"]),
        (lambda: syncline.Trace(CALLS).stat(), ["trace", "stat", CALLS, "--json", "-"]),
        (syncline.devices, ["devices", "--json"]),
    ],
    ids=["cache", "replay", "lifetime", "bench", "bench-replay", "probe", "stat", "devices"],
)
def test_documents_are_those_of_the_command_line(call, arguments):
    assert call() == command_line(*arguments)


def test_figures_without_the_command_line():
    found = syncline.cache(PAGES, policy="lru", size="5%,50%")
    small, large = (run["hit_ratio"] for run in found["runs"])
    assert found["schema"] == "syncline.cache/1" and 0 < small <= large < 1
    played = syncline.replay(BLOCKS, "nexus7-emmc")
    assert played["clock"] == "virtual" and played["elapsed_s"] > 0
    worn = syncline.lifetime(BLOCKS)
    assert worn["programmed_bytes"] >= worn["written_bytes"] > 0
    assert [d["name"] for d in syncline.devices()["devices"]].count("sd-2012") == 1


def test_in_a_directory(tmp_path):
    played = syncline.replay(SAMPLES / "rlbench.calls.trace", dir=tmp_path)
    assert played["dir"] == str(tmp_path) and played["calls"] > 0 and not list(tmp_path.iterdir())
    run, = syncline.bench("create", dir=tmp_path, operations=3)["runs"]
    assert run["metrics"]["operations"] == 3


def test_mistakes_are_exceptions(tmp_path):
    with pytest.raises(FileNotFoundError):
        syncline.cache(tmp_path / "none")
    with pytest.raises(ValueError, match="policy"):
        syncline.cache(PAGES, policy="novel")
    with pytest.raises(ValueError, match="no size of a cache"):
        syncline.cache(PAGES, size="0")
    with pytest.raises(ValueError, match="play them with dir, or "):
        syncline.replay(CALLS, "sd-2012")
    with pytest.raises(ValueError, match="devices"):
        syncline.lifetime(BLOCKS, "novel")
    with pytest.raises(ValueError, match="block trace"):
        syncline.lifetime(CALLS)
    with pytest.raises(ValueError, match="depth"):
        syncline.replay(BLOCKS, "sd-2012", depth=0)
    with pytest.raises(ValueError, match="unknown field"):
        syncline._study.run("bench", novel=1)
    with pytest.raises(ValueError):
        syncline.bench("novel")
    damaged = tmp_path / "damaged.trace"
    damaged.write_bytes(BLOCKS.read_bytes()[:-9])
    with pytest.raises(OSError):
        syncline.replay(damaged, "sd-2012")
    precious = tmp_path / "precious"
    precious.write_bytes(b"x" * (1 << 20))
    with pytest.raises(ValueError, match="overwrite"):
        syncline.replay(BLOCKS, precious)
    assert precious.read_bytes() == b"x" * (1 << 20)


def test_other_threads_run_meanwhile():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(syncline.lifetime(BLOCKS, passes=20)))
    thread.start()
    turns = 0
    while thread.is_alive():
        turns += 1
        time.sleep(0.001)
    assert seen and turns > 3


def test_ctrl_c_ends_a_run():
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        syncline.lifetime(BLOCKS, passes=1_000_000)
    assert time.monotonic() - begin < 20


def test_complaints_are_warnings(tmp_path):
    text = tmp_path / "some.spc"
    text.write_text("0,20941264,8192,W,0.551706\nnonsense\n0,20939840,8192,W,0.554041\n")
    with pytest.warns(UserWarning) as said:
        syncline.cache(text, format="spc", policy="lru", size="1p")
    assert "1 lines could not be parsed" in str(said[0].message) and "nonsense" in str(said[1].message)


def test_device():
    device = syncline.Device("sd-2012", 64 << 20, precondition=50)
    assert device.write(0, 4096) >= 0 and device.flush() > 0
    assert device.read(0, 4096) > 0 and device.discard(0, 8192) >= 0 and device.write(0, 512, fua=True) > 0
    now = device.time_us
    device.idle(1000)
    assert device.time_us == pytest.approx(now + 1000) and device.size == 64 << 20
    report = device.report()
    assert report["counters"]["flushes"] == 1 and report["wear"]["erases_max"] == max(device.erases)
    same = [syncline.Device("sd-2012", 64 << 20).write(n << 14, 16384) for n in range(8)]
    assert same == [syncline.Device("sd-2012", 64 << 20).write(n << 14, 16384) for n in range(8)]
    for wrong in (
        lambda: device.read(64 << 20, 1), lambda: device.write(-1, 1), lambda: device.idle(float("nan")),
        lambda: syncline.Device("novel"), lambda: syncline.Device(size=1 << 60), lambda: syncline.Device(size=0),
        lambda: syncline.Device(precondition=96),
    ):
        with pytest.raises((ValueError, OverflowError)):
            wrong()


def drawn_whole(axes):
    """All of it, with the texts around it, is within the picture."""
    axes.figure.canvas.draw()
    box, (width, height) = axes.get_tightbbox(), axes.figure.canvas.get_width_height()
    return min(box.x0, box.y0) >= 0 and box.x1 <= width and box.y1 <= height


def test_plots():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from syncline import plots

    hits = syncline.cache(PAGES, policy="lru,sieve", size="5%,50%")
    axes = plots.cache(hits)
    lines = axes.get_lines()
    assert [line.get_label() for line in lines] == ["lru", "sieve"] and len(lines[0].get_xdata()) == 2
    assert (axes.get_ylim(), axes.get_ylabel()) == ((0, 1), "hit ratio") and drawn_whole(axes)
    document = syncline.bench("create", size=64, operations=5)
    axes = plots.bench(document)
    assert len(axes.patches) == len(document["runs"]) and axes.get_xlim()[0] == 0 and drawn_whole(axes)
    assert axes.get_xlabel() == "transactions a second"
    assert plots.bench(document, "latency_us_p99").get_xlabel() == "latency p99, us"
    worn = syncline.lifetime(BLOCKS)
    axes = plots.lifetime(worn)
    assert len(axes.get_lines()) == 1 and axes.get_ylim()[0] == 0 and drawn_whole(axes)
    axes = plots.wear(syncline.Device(size=64 << 20))
    assert axes.get_xlabel() == "erases of a block" and drawn_whole(axes)

    for wrong in ({}, {"schema": "syncline.bench/1"}, [], None, worn):
        with pytest.raises(ValueError, match="plots.cache draws what syncline.cache returns, not "):
            plots.cache(wrong)
    with pytest.raises(ValueError, match="syncline.lifetime returns, not one of schema syncline.cache/1"):
        plots.lifetime(hits)
    with pytest.raises(ValueError, match="no.* 'hits_per_day'; choose of .*hit_ratio"):
        plots.cache(hits, "hits_per_day")
    with pytest.raises(ValueError, match="'speed'; choose of .*transactions_per_s"):
        plots.bench(document, "speed")
    with pytest.raises(ValueError, match="draws a syncline.Device, not a dict"):
        plots.wear(hits)


def test_errors_name_arguments_of_python():
    with pytest.raises(ValueError, match="'sd-2o12'; nearest: sd-2012, .*; `syncline.devices\\(\\)` lists all"):
        syncline.bench("create", "sd-2o12")
    with pytest.raises(ValueError, match="^device: invalid type: sequence, expected a string; see `help` of the function$"):
        syncline.bench("create", ["sd-2012"])


def test_many_policies_look_different_and_their_names_hide_none():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from syncline import plots

    runs = [{"policy": f"p{n}", "pages": pages, "hit_ratio": 0.6} for n in range(13) for pages in (256, 1024)]
    axes = plots.cache({"schema": "syncline.cache/1", "settings": {"page_bytes": 4096}, "runs": runs})
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.get_lines()}
    assert len(looks) == 13 and drawn_whole(axes)
    key = axes.get_legend().get_window_extent()
    assert key.x0 >= axes.get_window_extent().x1 and key.x1 <= axes.figure.canvas.get_width_height()[0]


def test_long_names_are_whole_on_a_plot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from syncline import plots

    config = {"sync": "eager", "log": "packed", "journal_mode": "persist", "alloc": "hot_zones"}
    run = {"workload": "fileio/sequential-overwrite-fsync", "config": config, "foreground": {"transactions_per_s": 7}}
    axes = plots.bench({"schema": "syncline.bench/1", "runs": [run] * 30})
    assert drawn_whole(axes) and len(axes.patches) == 30 and len(axes.get_yticklabels()) == 30
