"""The arithmetic of the scaling plan, `lab/scripts/schedule.py`, on schedules whose time is known."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "lab/scripts"))

import schedule
from schedule import Costs, Schedule

FREE = dict(overhead_s=0.0, fetch_s=0.0, loss_s=float("inf"), spread=0.0)


def test_workers_share_the_tasks_where_nothing_costs():
    ran = Schedule(10, 400, 2.0, Costs(0.0, **FREE))
    assert ran.done == 400 and ran.seconds == pytest.approx(400 / 10 * 2)


def test_the_driver_bounds_the_rate():
    ran = Schedule(1000, 40_000, 1.0, Costs(0.002, **FREE))
    assert ran.seconds == pytest.approx(40_000 * 0.002, rel=0.01)
    assert ran.driver_busy_s == pytest.approx(40_000 * 0.002)
    # With few workers it is not the driver that they wait for.
    assert Schedule(10, 400, 1.0, Costs(0.002, **FREE)).seconds == pytest.approx(40, rel=0.01)


def test_the_last_worker_waits_for_all_traces_before_its_own():
    ran = Schedule(100, 100, 1.0, Costs(0.0, **{**FREE, "fetch_s": 0.5}))
    # A worker is idle again a second after it began; a hundred tasks need no more than the first ones with a trace.
    assert ran.link_busy_s == 50
    busy = Schedule(4, 4, 10.0, Costs(0.0, **{**FREE, "fetch_s": 0.5}))
    assert busy.seconds == pytest.approx(4 * 0.5 + 10)


def test_overhead_and_losses_are_time_of_workers():
    ran = Schedule(1, 100, 1.0, Costs(0.0, **{**FREE, "overhead_s": 0.25}))
    assert ran.seconds == pytest.approx(125)
    lost = Schedule(1, 100, 1.0, Costs(0.0, **{**FREE, "loss_s": 1.0}))
    assert lost.seconds == pytest.approx(150)


def test_a_plan_names_the_bend_and_what_bends_it():
    driver = schedule.plan("x", 1, Costs(0.01, **FREE))
    assert driver["limit"] == "driver" and 50 <= driver["bend"] <= 100
    assert driver["tasks_per_s_1000"] == pytest.approx(100, rel=0.02)
    traces = schedule.plan("x", 10, Costs(1e-6, **{**FREE, "fetch_s": 1.0}))
    assert traces["limit"] == "traces" and traces["bend"] < 1000
    nothing = schedule.plan("x", 10, Costs(1e-6, **FREE))
    assert (nothing["limit"], nothing["bend"]) == ("none", 1000)
    assert nothing["efficiency_1000"] > 99
