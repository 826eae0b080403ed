"""fsspec file system: `fsspec.open("syncline://IMAGE/PATH")`, or `"syncline://PATH::IMAGE"`.

In the first form IMAGE ends where the URL names a file of this system. An image is opened once per process: all file systems on it share one `Volume`, which is closed when the last of
them is closed, or at exit.
"""

import os
import threading
from datetime import datetime, timezone
from typing import Any, Dict, List, Optional, Tuple

from fsspec import AbstractFileSystem
from fsspec.utils import stringify_path

from ._volume import Volume

_lock = threading.Lock()
_volumes: Dict[Tuple[int, str], Tuple[Volume, str]] = {}


def _forked() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def _shared(image: str, mode: str, options: str) -> Volume:
    """The volume of an image in this process."""
    key = (os.getpid(), os.path.realpath(image))
    with _lock:
        volume, known = _volumes.get(key, (None, ""))
        if volume is None or volume.closed:
            volume = Volume(image, mode, options)
            _volumes[key] = volume, options
        elif (volume.mode, known) != (mode, options):
            raise ValueError(
                f"{image!r} is open with mode {volume.mode!r} and options {known!r}; close that file system first"
            )
        return volume


def _split(url: str) -> Tuple[str, str]:
    """The image that a URL names and the path in it; no image if no part of the URL is a file."""
    for prefix in ("syncline://", "syncline::"):
        if url.startswith(prefix):
            path = url[len(prefix) :]
            ends = [at for at in range(1, len(path) + 1) if at == len(path) or path[at] == "/"]
            for at in ends:
                if os.path.exists(path[:at]) and not os.path.isdir(path[:at]):
                    return path[:at], path[at:]
            return "", path
    return "", url


class SynclineFileSystem(AbstractFileSystem):
    """Files of an ext4 image.

    Parameters
    ----------
    fo: str
        The image: a local file or block device. In a URL what stands before the path, or behind `::`.
    mode: str
        "r+" (default) or "r".
    options: str
        Mount options, as "sync=ordered", and "isolate" for images of strangers (`Volume`).
    auto_mkdir: bool
        Whether writing a file makes the directories above it.
    target_protocol, target_options:
        Of the chained URL; the image must be local.
    """

    protocol = "syncline"
    root_marker = "/"

    def __init__(
        self,
        fo: Any = "",
        mode: str = "r+",
        options: str = "",
        auto_mkdir: bool = True,
        target_protocol: Optional[str] = None,
        target_options: Optional[dict] = None,
        **kwargs: Any,
    ) -> None:
        if self._cached:
            return
        super().__init__(**kwargs)
        if target_protocol not in (None, "file", "local"):
            raise ValueError(f"an image cannot be opened over {target_protocol!r}; copy it to a local file first")
        if not fo:
            raise ValueError("no image; write syncline://IMAGE/PATH with an IMAGE that exists, or give fo=IMAGE")
        self.image = os.path.abspath(os.fspath(fo))
        self.mode = mode
        self.options = options
        self.auto_mkdir = auto_mkdir

    @property
    def volume(self) -> Volume:
        """The open volume."""
        return _shared(self.image, self.mode, self.options)

    def close(self) -> None:
        """Closes the volume, for all file systems on the image. The next use opens it again."""
        with _lock:
            volume, _ = _volumes.pop((os.getpid(), os.path.realpath(self.image)), (None, ""))
        if volume is not None:
            volume.close()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return "/" + _split(stringify_path(path))[1].strip("/")

    @classmethod
    def _get_kwargs_from_urls(cls, path: Any) -> Dict[str, Any]:
        image, _ = _split(stringify_path(path))
        return {"fo": image} if image else {}

    @classmethod
    def _parent(cls, path: Any) -> str:
        return cls._strip_protocol(path).rpartition("/")[0] or "/"

    def _info(self, path: str, name: Optional[str] = None) -> Dict[str, Any]:
        known = self.volume.stat(path, follow_symlinks=False)
        kinds = {0o040000: "directory", 0o100000: "file", 0o120000: "link"}
        out = {
            "name": path if name is None else name,
            "type": kinds.get(known.st_mode & 0o170000, "other"),
            "size": known.st_size if known.st_mode & 0o170000 == 0o100000 else 0,
            "mtime": known.st_mtime,
            "ino": known.st_ino,
            "mode": known.st_mode,
            "uid": known.st_uid,
            "gid": known.st_gid,
            "nlink": known.st_nlink,
            "islink": False,
        }
        if out["type"] == "link":
            out.update(islink=True, destination=self.volume.readlink(path))
            try:
                target = self.volume.stat(path)
            except OSError:
                return out
            out["type"] = kinds.get(target.st_mode & 0o170000, "other")
            out["size"] = target.st_size if out["type"] == "file" else 0
        return out

    def info(self, path: str, **kwargs: Any) -> Dict[str, Any]:
        try:
            return self._info(self._strip_protocol(path))
        except NotADirectoryError as err:
            raise FileNotFoundError(*err.args) from err

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        path = self._strip_protocol(path)
        known = self.info(path)
        if known["type"] != "directory":
            return [known] if detail else [path]
        above = path.rstrip("/")
        names = sorted(f"{above}/{name}" for name in self.volume.listdir(path))
        return [self._info(name) for name in names] if detail else names

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents:
            self.makedirs(path)
        else:
            self.volume.mkdir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.volume.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.volume.rmdir(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        self.volume.unlink(self._strip_protocol(path))

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        for one in path if isinstance(path, list) else [path]:
            for name in reversed(self.expand_path(one, recursive=recursive, maxdepth=maxdepth)):
                if self.isdir(name) and not self.volume.islink(name):
                    self.volume.rmdir(name)
                else:
                    self.volume.unlink(name)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.auto_mkdir:
            self.volume.makedirs(self._parent(target), exist_ok=True)
        if self.isdir(source):
            self.volume.makedirs(target, exist_ok=True)
            return
        with self.volume.open(source, "rb", 0) as reader, self.volume.open(target, "wb", 0) as writer:
            while data := reader.read(8 << 20):
                writer.write(data)

    def mv_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Renames."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.auto_mkdir:
            self.volume.makedirs(self._parent(target), exist_ok=True)
        self.volume.rename(source, target)

    def link(self, src: str, dst: str, **kwargs: Any) -> None:
        """Makes `dst` another name of the file `src`."""
        self.volume.link(self._strip_protocol(src), self._strip_protocol(dst))

    def symlink(self, src: str, dst: str, **kwargs: Any) -> None:
        """Makes a symbolic link at `dst` whose target is the text `src`."""
        self.volume.symlink(src, self._strip_protocol(dst))

    def lexists(self, path: str, **kwargs: Any) -> bool:
        try:
            self.volume.lstat(self._strip_protocol(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        with self.open(path, "wb" if truncate or not self.exists(path) else "ab"):
            pass
        self.volume.utime(self._strip_protocol(path))

    def created(self, path: str) -> datetime:
        return datetime.fromtimestamp(self._disk_times(path)[12] / 1e9, tz=timezone.utc)

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self._disk_times(path)[10] / 1e9, tz=timezone.utc)

    def _disk_times(self, path: str) -> List[int]:
        return self.volume._disk().stat(os.fsencode(self._strip_protocol(path)), True)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Optional[int] = None,
        autocommit: bool = True,
        cache_options: Optional[dict] = None,
        **kwargs: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        if self.auto_mkdir and set(mode) & set("wax"):
            self.volume.makedirs(self._parent(path), exist_ok=True)
        return self.volume.open(path, mode, block_size or -1)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def sync(self) -> None:
        """Makes everything on the image durable."""
        self.volume.sync()
