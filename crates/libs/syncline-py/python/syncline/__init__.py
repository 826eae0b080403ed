"""ext4 images and devices without a mount.

`Volume` opens an image; its methods are named as those of `os`, and `Volume.open` as the built-in `open`.
`syncline.filesystem` has an fsspec file system (`syncline://PATH::IMAGE`), `syncline.sweeps` runs the commands of the
command line for every combination of their arguments, and `syncline.fleet` tells how long many devices last.
"""

from ._volume import CheckReport, File, Recovered, StatFs, Volume, check, mkfs, recover

__all__ = ["CheckReport", "File", "Recovered", "StatFs", "Volume", "check", "mkfs", "recover"]
