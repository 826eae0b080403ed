"""Traces of any location as local files: each is copied once a worker.

A local path is used as it is. Everything else is fetched with fsspec into a directory of the process, which is removed at
its end.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading

_lock = threading.Lock()
_files: dict[str, str] = {}
_directory: str | None = None


def local(location: str) -> str:
    """The path of a local file with the bytes of `location`. Raises OSError and what the file system raises."""
    if "://" not in location:
        return location
    with _lock:
        if location not in _files:
            _files[location] = _fetch(location, len(_files))
        return _files[location]


def scratch() -> str:
    """The directory of this process for copies and samples."""
    global _directory
    if _directory is None:
        _directory = tempfile.mkdtemp(prefix="syncline-traces-")
        atexit.register(shutil.rmtree, _directory, ignore_errors=True)
    return _directory


def _fetch(location: str, number: int) -> str:
    import fsspec

    path = os.path.join(scratch(), f"{number}.trace")
    fs, remote = fsspec.core.url_to_fs(location)
    fs.get_file(remote, path)
    return path
