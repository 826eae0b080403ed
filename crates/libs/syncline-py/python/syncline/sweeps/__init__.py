"""Sweeps: every combination of traces, policies, sizes, devices and options, as rows of an Arrow table.

`sweep` runs a plan on processes of this machine, on Dask, on Ray or on anything with `submit`; `read` reads what it stored.
`docs/FLEETS.md` of the project has examples, and what a killed worker or driver costs.
"""

from .driver import Progress, sweep
from .errors import SweepError
from .plan import Plan, Task
from .results import read

__all__ = ["Plan", "Progress", "SweepError", "Task", "read", "sweep"]
