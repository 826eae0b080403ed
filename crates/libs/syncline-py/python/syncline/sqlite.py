"""SQLite databases inside an image: `syncline.sqlite.connect("card.img", "/app.db")`.

The databases go through `libsyncline_sqlite.so`, which the package `syncline` for Debian installs. The environment
variable SYNCLINE_SQLITE names another place. Python's `sqlite3` must be built with loadable extensions, as Debian's is.
"""

import os
import sqlite3
from typing import Any
from urllib.parse import quote

_LIBRARY = "/usr/lib/syncline/libsyncline_sqlite.so"
_loaded = False


def _load() -> None:
    """Loads the extension once for the process."""
    global _loaded
    if _loaded:
        return
    library = os.environ.get("SYNCLINE_SQLITE", _LIBRARY)
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        raise sqlite3.NotSupportedError("this Python's sqlite3 loads no extensions; use one that does, as Debian's python3")
    if not os.path.exists(library):
        raise FileNotFoundError(f"{library} is missing; install the package syncline, or name the file in SYNCLINE_SQLITE")
    with_extension = sqlite3.connect(":memory:")
    with_extension.enable_load_extension(True)
    with_extension.load_extension(library)
    with_extension.close()
    _loaded = True


def connect(image: "str | os.PathLike[str]", path: str, *, options: str = "", **arguments: Any) -> sqlite3.Connection:
    """Opens the database `path` of an image.

    `options` are mount options, as "sync=eager", and "isolate" for images of strangers (`Volume`); all databases of an image have the same. Other arguments are those of
    `sqlite3.connect`. The first connection opens the image, and the last one to close unmounts it.

    Raises sqlite3.OperationalError if the image or the database cannot be opened; the image may be in use.
    """
    _load()
    uri = f"file:{quote('/' + path.lstrip('/'))}?vfs=syncline&image={quote(os.path.abspath(os.fspath(image)))}"
    if options:
        uri += f"&options={quote(options)}"
    return sqlite3.connect(uri, uri=True, **arguments)
