"""Fleets: from wear of one run of a trace to the share of devices that are worn out, year by year.

```text
captured traces x device models x options ──sweep──> bytes programmed by a run of a trace (once each)
population: shares of models, capacities, rated cycles with a spread, usage mixes ──draws──> years of each device
```

A device is worn out when the bytes programmed on it reach its capacity times its rated cycles times `levelling`, the share
of the cycles that wear levelling gets out of its blocks. Rated cycles of a device are a draw of a Weibull distribution
whose mean is the model's figure; how much a device is used is a log-normal draw. Options are compared on the same draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from . import sweeps

#: Days of a year.
DAYS = 365.25


@dataclass(frozen=True)
class Model:
    """A kind of device in a fleet.

    `device` is a profile, with overrides, as on the command line. `weibull_shape` is the spread of the rated cycles: 2 is
    wide, 10 narrow. `levelling` is the share of the rated cycles that are used before the device fails, 0 to 1.
    """

    device: str
    capacity_bytes: int
    rated_cycles: float
    share: float = 1.0
    weibull_shape: float = 5.0
    levelling: float = 0.9


@dataclass(frozen=True)
class Usage:
    """A way that devices are used: runs of each trace a day, and how far devices differ (standard deviation of the
    logarithm of the factor; 0.5 means that two thirds of them are within a factor of 1.65)."""

    runs_per_day: dict[str, float]
    share: float = 1.0
    spread: float = 0.5


@dataclass
class Fleet:
    """A population, and what it runs.

    `options` are those of a `bench` sweep (mount options, `sync=`, `log=`), where traces are of system calls; with traces of
    block requests there is one option, the empty one, and wear comes from `lifetime` on a used device.
    """

    models: list[Model]
    usages: list[Usage]
    options: list[str] = field(default_factory=lambda: [""])
    devices: int = 100_000
    seed: int = 1

    def traces(self) -> list[str]:
        """Every trace once, in the order of the usages."""
        return list(dict.fromkeys(trace for usage in self.usages for trace in usage.runs_per_day))

    def wear(self, what: str = "bench", size: str = "2048", **how) -> "Wear":
        """Runs each (trace, device, option) once; `how` is passed to `sweep` (executor, output, resume).

        `size` is that of the simulated device: MiB for `bench`; bytes, or with K, M, G, for `lifetime`. Raises
        `SweepError` if one failed.
        """
        devices = list(dict.fromkeys(model.device for model in self.models))
        options = self.options
        if what == "lifetime" and options == [""]:
            # The first runs move what a used device is full of: more of them are the steady state.
            options = ["passes=20"]
        plan = sweeps.Plan(what, self.traces(), devices=devices, options=options, sizes=[size])
        table = sweeps.sweep(plan, **how)
        for row in table.to_pylist():
            if row["error"] is not None:
                raise sweeps.SweepError(f"{row['trace']} on {row['device']}: {row['error']}; mend the fleet's parts")
        return Wear.of(table, options=dict(zip(options, self.options)))

    def draw(self) -> "Devices":
        """Draws the devices. The same seed gives the same ones."""
        import numpy as np

        random = np.random.default_rng(self.seed)
        model = random.choice(len(self.models), self.devices, p=_shares(self.models))
        usage = random.choice(len(self.usages), self.devices, p=_shares(self.usages))
        spread = np.array([u.spread for u in self.usages])[usage]
        # Mean 1: a spread alone does not make a fleet busier.
        factor = np.exp(random.standard_normal(self.devices) * spread - spread**2 / 2)
        shape = np.array([m.weibull_shape for m in self.models])
        scale = np.array([m.rated_cycles / math.gamma(1 + 1 / m.weibull_shape) for m in self.models])
        return Devices(model, usage, factor, scale[model] * random.weibull(shape[model]))

    def simulate(self, wear: "Wear") -> "Survival":
        """Draws the devices and works out when each is worn out, with each option."""
        import numpy as np

        drawn = self.draw()
        bytes_max = drawn.cycles * np.array([m.capacity_bytes * m.levelling for m in self.models])[drawn.model]
        years = {}
        for option in self.options:
            daily = np.array([[wear.per_day(m.device, u, option) for u in self.usages] for m in self.models])
            with np.errstate(divide="ignore"):
                years[option] = bytes_max / (daily[drawn.model, drawn.usage] * drawn.factor * DAYS)
        return Survival(years, drawn.model, [m.device for m in self.models])


@dataclass(frozen=True)
class Devices:
    """Arrays, an element a device: numbers of its model and usage, factor of its use, cycles that its blocks stand."""

    model: object
    usage: object
    factor: object
    cycles: object


def _shares(parts):
    total = sum(part.share for part in parts)
    return [part.share / total for part in parts]


class Wear:
    """Bytes programmed on a device by one run of a trace, for each (trace, device, option)."""

    def __init__(self, programmed_bytes: dict):
        self.programmed_bytes = programmed_bytes

    @classmethod
    def of(cls, table, options: dict[str, str]) -> "Wear":
        """From the rows of a sweep; `options` maps those of the sweep to those of the fleet."""
        found = {}
        for row in table.to_pylist():
            programmed, passes = row["write_amplification"] * row["written_bytes"], 1
            if row["what"] == "lifetime":
                # The cycles are those of all blocks of the flash, spare ones too.
                programmed = row["cycles_used"] * row["size_bytes"]
            for option in row["options"].split(","):
                passes = int(option.partition("=")[2]) if option.startswith("passes=") else passes
            found[row["trace"], row["device"], options[row["options"]]] = programmed / passes
        return cls(found)

    def per_day(self, device: str, usage: Usage, option: str) -> float:
        """Bytes programmed a day by a device that is used so."""
        runs = usage.runs_per_day.items()
        return sum(count * self.programmed_bytes[trace, device, option] for trace, count in runs)


class Survival:
    """Years until each device is worn out, for each option; the same devices in each."""

    def __init__(self, years: dict, model, devices: list[str]):
        self.years, self._model, self._devices = years, model, devices

    def worn_out(self, year: float, option: str = "", device: str | None = None) -> tuple[float, float, float]:
        """Share of the devices worn out by a year, and its 95 % confidence interval (Wilson's)."""
        years = self._of(option, device)
        return wilson(int((years <= year).sum()), len(years))

    def median_years(self, option: str = "", device: str | None = None) -> float:
        """Years by which half of the devices are worn out."""
        import numpy as np

        return float(np.median(self._of(option, device)))

    def value(self, option: str, against: str, year: float, device: str | None = None) -> dict:
        """Worth of an option against another one: years of life at the median, and broken devices per 100,000 by a year.

        The interval of the latter is that of paired proportions (95 %), since both are of the same devices.
        """
        import numpy as np

        ours, theirs = self._of(option, device), self._of(against, device)
        saved, lost = (ours > year) & (theirs <= year), (ours <= year) & (theirs > year)
        difference = (saved.sum() - lost.sum()) / len(ours)
        error = 1.96 * math.sqrt(max((saved | lost).mean() - difference**2, 0) / len(ours))
        return {
            "median_years_gained": float(np.median(ours) - np.median(theirs)),
            "broken_per_100000_less": 1e5 * float(difference),
            "broken_per_100000_less_from": 1e5 * float(difference - error),
            "broken_per_100000_less_to": 1e5 * float(difference + error),
        }

    def of(self, device: str) -> "Survival":
        """The devices of one model alone."""
        years = {option: self._of(option, device) for option in self.years}
        return Survival(years, [0] * len(next(iter(years.values()))), [device])

    def table(self, years=range(1, 11)):
        """Shares by option, device and year, with their intervals, as an Arrow table."""
        import pyarrow

        rows = []
        for option in self.years:
            for device in dict.fromkeys(self._devices):
                for year in years:
                    share, low, high = self.worn_out(year, option, device)
                    named = {"option": option, "device": device, "year": float(year)}
                    rows.append({**named, "worn_out": share, "worn_out_from": low, "worn_out_to": high})
        return pyarrow.Table.from_pylist(rows)

    def plot(self, axes=None, years_max: float | None = None, by_device: bool = False):
        """Draws the share of devices alive against years, with matplotlib; returns the axes."""
        import matplotlib.pyplot as plt
        import numpy as np

        axes = axes or plt.subplots(figsize=(8, 4.5))[1]
        end = years_max or max(float(np.quantile(years, 0.99)) for years in self.years.values())
        at = np.linspace(0, end, 400)
        devices = list(dict.fromkeys(self._devices)) if by_device else [None]
        for option in self.years:
            for device in devices:
                years = np.sort(self._of(option, device))
                alive = 1 - np.searchsorted(years, at, side="right") / len(years)
                name = ", ".join(filter(None, [device, option or "as it is"]))
                axes.plot(at, 100 * alive, label=name)
        axes.set(xlabel="years", ylabel="devices alive, %", xlim=(0, end), ylim=(0, 101))
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        return axes

    def _of(self, option: str, device: str | None):
        years = self.years[option]
        if device is None:
            return years
        import numpy as np

        return years[np.array([name == device for name in self._devices])[self._model]]


def wilson(count: int, total: int) -> tuple[float, float, float]:
    """A share and its 95 % confidence interval; all of it for no devices."""
    if total == 0:
        return 0.0, 0.0, 1.0
    z = 1.959964
    share = count / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return share, max(0.0, middle - half), min(1.0, middle + half)
