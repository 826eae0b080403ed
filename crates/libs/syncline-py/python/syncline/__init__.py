"""ext4 images and devices without a mount, and the measuring commands of `syncline`.

`Volume` opens an image; its methods are named as those of `os`, and `Volume.open` as the built-in `open`.
`build` makes an image of entries in one pass. `syncline.filesystem` has an fsspec file system
(`syncline://IMAGE/PATH`). `syncline.sqlite.connect` opens databases in an image. `cache`, `replay`, `lifetime`, `bench`
and `probe` return what the commands print with `--json`; `Device` is a simulated device, `Trace` an Arrow stream;
`syncline.plots` draws documents. `syncline.sweeps` runs the commands for every combination of their arguments, and
`syncline.fleet` tells how long many devices last.
"""

from importlib.metadata import version as _version

from ._build import Entry, build
from ._device import Device
from ._study import bench, cache, devices, lifetime, probe, replay
from ._trace import Trace
from ._volume import CheckReport, File, Recovered, StatFs, Volume, check, mkfs, recover

__all__ = [
    "CheckReport", "Device", "Entry", "File", "Recovered", "StatFs", "Trace", "Volume",
    "bench", "build", "cache", "check", "devices", "lifetime", "mkfs", "probe", "recover", "replay",
]

__version__ = _version("syncline")
