"""Images made of entries in one pass."""

import errno
import os
import stat
from dataclasses import dataclass, field
from typing import IO, Dict, Iterable, Optional, Union

from . import _native

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
_PART_BYTES = 1 << 20


@dataclass
class Entry:
    """One name of a tree. The type is in `mode`, as of `os.stat`; without type bits it is a file.

    `data` are the contents of a file: bytes, or a binary file that is read to its end. `target` is that of a symbolic link. `link` is
    the path of an earlier entry, of which this is one more name; nothing else is looked at then. Times are in nanoseconds.
    """

    path: Path
    mode: int = stat.S_IFREG | 0o644
    data: Union[bytes, IO[bytes]] = b""
    target: Optional[Path] = None
    link: Optional[Path] = None
    rdev: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    atime_ns: Optional[int] = None
    xattrs: Dict[str, bytes] = field(default_factory=dict)

    def _kind(self) -> str:
        if self.link is not None:
            return "link"
        if self.target is not None:
            return "symlink"
        kinds = {0: "file", stat.S_IFREG: "file", stat.S_IFDIR: "directory"}
        return kinds.get(stat.S_IFMT(self.mode), "special")


def _add(builder: _native.Builder, entry: Entry) -> None:
    kind = entry._kind()
    target = entry.link if kind == "link" else entry.target
    atime_ns = entry.mtime_ns if entry.atime_ns is None else entry.atime_ns
    builder.add(
        os.fsencode(entry.path),
        (kind, b"" if target is None else os.fsencode(target), entry.rdev),
        (entry.mode, entry.uid, entry.gid),
        (atime_ns, entry.mtime_ns),
        [(os.fsencode(name), value) for name, value in entry.xattrs.items()],
    )
    if kind != "file":
        return
    if isinstance(entry.data, (bytes, bytearray, memoryview)):
        builder.write(bytes(entry.data))
        return
    while part := entry.data.read(_PART_BYTES):
        builder.write(part)


def build(
    path: Path,
    entries: Union[Iterable[Entry], str, "os.PathLike[str]"],
    size: Optional[int] = None,
    *,
    spare: Union[int, str, None] = None,
    label: Optional[str] = None,
    inodes: Optional[int] = None,
    uuid: Optional[bytes] = None,
    hash_seed: Optional[str] = None,
    time_s: Optional[int] = None,
    platform: Optional[str] = None,
) -> int:
    """Makes an image with a tree in it, in one pass; returns its size in bytes. Directories that no entry names are made.

    Instead of entries it takes the path of a directory or of a tar archive, also a compressed one, or a container image, as
    `syncline import` does: "oci:DIR[:TAG]", "oci-archive:FILE[:TAG]", "docker-archive:FILE[:NAME]". `platform` chooses one of an image for
    several, as "linux/arm64". What cannot be kept of a file is a warning.

    The size is `size`, or as small as the tree allows, or with `spare` that and bytes or a part like "20%" for more. Below 8 MiB there is
    no journal, as with mke2fs: such an image can only be read. With `uuid` (16
    bytes), `hash_seed` (the text of a UUID) and `time_s`, equal entries give equal bytes. If it fails, no image is left.
    """
    percent = int(spare[:-1]) if isinstance(spare, str) and spare.endswith("%") else None
    spare_bytes = int(spare) if spare is not None and percent is None else None
    sizes, identity = (size, percent, spare_bytes), (None if uuid is None else list(uuid), hash_seed, time_s)
    if isinstance(entries, (str, os.PathLike)):
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(path))
        return _native.build_from((os.fspath(entries), os.fsdecode(path)), sizes, label, inodes, identity, platform)
    if platform is not None:
        raise ValueError("only a container image has a platform")
    builder = _native.Builder(os.fsdecode(path), sizes, label, inodes, identity)
    try:
        for entry in entries:
            _add(builder, entry)
        return builder.finish()
    finally:
        builder.close()
