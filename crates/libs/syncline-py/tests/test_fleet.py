"""Fleets: composed wear against the simulator run for each device, draws, intervals and pictures."""

import json
import os
import pathlib
import subprocess

import pytest

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq

from syncline import fleet, sweeps
from syncline.fleet import DAYS, Fleet, Model, Usage, Wear, wilson

SAMPLES = pathlib.Path(__file__).resolve().parents[4] / "samples"
MAIL, PHONE = (str(SAMPLES / f"{name}.blocks.trace") for name in ("mail", "pocketdata"))
GIB = 1 << 30
TOLERANCE = 0.05

needs_program = pytest.mark.skipif(not os.environ.get("SYNCLINE_LAB"), reason="SYNCLINE_LAB names no program to run")


def day_of(usage, factor, path):
    """A trace of one day: runs of the traces in turn, over a day that is shorter the more the device is used."""
    parts = [pq.read_table(trace) for trace, count in usage.runs_per_day.items() for _ in range(int(count))]
    step_ns = int(86400e9 / factor / len(parts))
    at = parts[0].schema.get_field_index("time_ns")
    moved = []
    for number, part in enumerate(parts):
        times = part["time_ns"].to_numpy() + number * step_ns
        moved.append(part.set_column(at, part.schema.field(at), pa.array(times)))
    end = moved[-1].slice(moved[-1].num_rows - 1).set_column(at, parts[0].schema.field(at), pa.array([step_ns * len(parts)]))
    pq.write_table(pa.concat_tables(moved + [end]), path, compression="zstd")


@needs_program
def test_a_small_fleet_lives_as_long_as_its_devices_simulated_one_by_one(tmp_path):
    models = [Model("sd-2012", GIB, 3000, 0.5, levelling=1.0), Model("nexus7-emmc", GIB, 3000, 0.5, levelling=1.0)]
    usages = [Usage({MAIL: 3, PHONE: 3}, 0.5), Usage({PHONE: 5}, 0.5)]
    small = Fleet(models, usages, devices=8, seed=7)
    composed = small.simulate(small.wear("lifetime", size="1G", workers=2)).years[""]
    drawn, direct = small.draw(), []
    for at in range(small.devices):
        usage, model = usages[drawn.usage[at]], models[drawn.model[at]]
        path = tmp_path / f"{at}.trace"
        day_of(usage, drawn.factor[at], path)
        device = f"{model.device}:rated_cycles={round(drawn.cycles[at])}"
        command = ["lifetime", "--trace", path, "--device", device, "--size", "1G", "--passes", "3", "--json"]
        said = subprocess.run([os.environ["SYNCLINE_LAB"], *command], capture_output=True, check=True).stdout
        document = json.loads(said)
        days = document["duration_s"] / 86400 * drawn.factor[at]
        assert days == pytest.approx(3, rel=0.05)
        direct.append(document["lifetime"]["years_even"])
    assert len(set(drawn.model)) == len(set(drawn.usage)) == 2
    ratio = composed / np.array(direct)
    assert (abs(ratio - 1) < TOLERANCE).all(), ratio
    assert abs(np.median(composed) / np.median(direct) - 1) < TOLERANCE


def population(devices=20_000, **how):
    models = [Model("a", 32 * GIB, 3000, 0.75), Model("b", 16 * GIB, 1000, 0.25, weibull_shape=2)]
    return Fleet(models, [Usage({"t": 100})], options=["", "careful"], devices=devices, **how)


WEAR = Wear({("t", "a", ""): 4e8, ("t", "b", ""): 2e8, ("t", "a", "careful"): 1e8, ("t", "b", "careful"): 1e8})


def test_a_seed_gives_the_same_fleet():
    one, again, other = (population(seed=seed).simulate(WEAR) for seed in (3, 3, 4))
    assert np.array_equal(one.years[""], again.years[""])
    assert not np.array_equal(one.years[""], other.years[""])


def test_shares_and_means_are_those_of_the_population():
    drawn = population().draw()
    assert (drawn.model == 0).mean() == pytest.approx(0.75, abs=0.01)
    assert drawn.cycles[drawn.model == 0].mean() == pytest.approx(3000, rel=0.01)
    assert drawn.cycles[drawn.model == 1].std() == pytest.approx(1000 * 0.5227, rel=0.05)
    assert drawn.factor.mean() == pytest.approx(1, rel=0.02)


def test_without_any_spread_the_year_is_arithmetic():
    models = [Model("a", 32 * GIB, 3000, weibull_shape=1e6)]
    alike = Fleet(models, [Usage({"t": 100}, spread=0.0)], devices=100)
    years = alike.simulate(WEAR).years[""]
    assert years == pytest.approx(32 * GIB * 3000 * 0.9 / (100 * 4e8 * DAYS), rel=1e-4)


def test_half_of_the_devices_are_worn_out_at_the_median():
    survival = population().simulate(WEAR)
    assert survival.worn_out(survival.median_years("careful"), "careful")[0] == pytest.approx(0.5, abs=1e-3)
    assert survival.of("b").median_years() == survival.median_years(device="b") < survival.median_years(device="a")
    assert WEAR.per_day("a", Usage({"t": 100}), "") == 100 * 4e8


def test_an_option_is_worth_years_and_devices():
    survival = population().simulate(WEAR)
    value = survival.value("careful", "", year=5)
    broken = [survival.worn_out(5, option)[0] for option in ("", "careful")]
    assert value["broken_per_100000_less"] == pytest.approx(1e5 * (broken[0] - broken[1]))
    assert value["broken_per_100000_less_from"] < value["broken_per_100000_less"] < value["broken_per_100000_less_to"]
    assert value["median_years_gained"] > 0
    assert survival.value("", "careful", year=5)["broken_per_100000_less"] == -value["broken_per_100000_less"]


def test_intervals_hold_the_share_as_often_as_they_say():
    random, inside = np.random.default_rng(5), 0
    for count in random.binomial(400, 0.03, size=2000):
        share, low, high = wilson(int(count), 400)
        assert 0 <= low <= share <= high <= 1
        inside += low <= 0.03 <= high
    assert 0.93 < inside / 2000 < 0.97
    assert wilson(0, 0) == (0.0, 0.0, 1.0)


def test_tables_and_pictures(tmp_path):
    survival = population().simulate(WEAR)
    table = survival.table(years=(1, 5))
    assert table.num_rows == 8 and table.column("worn_out").to_pylist()[1] == survival.worn_out(5, "", "a")[0]
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = survival.plot(by_device=True)
    assert len(axes.lines) == 4 and all((np.diff(line.get_ydata()) <= 0).all() for line in axes.lines)
    axes.figure.savefig(tmp_path / "survival.png")
    assert (tmp_path / "survival.png").stat().st_size > 10_000


@needs_program
def test_a_part_that_cannot_be_simulated_is_named():
    broken = Fleet([Model("no-such-card", GIB, 3000)], [Usage({MAIL: 1})], devices=10)
    with pytest.raises(sweeps.SweepError, match="on no-such-card: "):
        broken.wear("lifetime", size="1G")
