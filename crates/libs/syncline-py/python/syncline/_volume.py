"""`Volume`, its files, and the functions on images."""

import atexit
import io
import os
import stat as stat_bits
import warnings
import weakref
from typing import Any, Iterable, Iterator, List, Literal, NamedTuple, Optional, Tuple, Union, overload

from . import _native

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Buffer = Union[bytes, bytearray, memoryview]
_Text = Literal["r", "rt", "r+", "w", "wt", "w+", "a", "at", "a+", "x", "xt", "x+"]
_Read = Literal["rb"]
_Write = Literal["wb", "ab", "xb"]
_Both = Literal["r+b", "rb+", "w+b", "wb+", "a+b", "ab+", "x+b", "xb+"]
_Binary = Union[_Read, _Write, _Both]

_CHUNK = 8 << 20

#: Volumes that the end of the interpreter closes.
_open: "weakref.WeakSet[Volume]" = weakref.WeakSet()


class StatFs(NamedTuple):
    """Space and inodes, in blocks of `block_size` bytes."""

    block_size: int
    blocks: int
    blocks_free: int
    blocks_available: int
    files: int
    files_free: int
    name_len: int


class Recovered(NamedTuple):
    """What an open had to recover; all 0 if the image was closed before."""

    transactions: int
    blocks: int
    orphans: int
    #: The journal was replayed in memory, the image is as it was (read-only volumes).
    in_memory: bool = False


class CheckReport(NamedTuple):
    """What `check` found."""

    findings: List[str]
    #: Findings that are not listed.
    more: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings and not self.more


def _stat_result(known: List[int]) -> os.stat_result:
    mode, ino, nlink, uid, gid, size, blocks, blksize, rdev, atime, mtime, ctime, crtime = known
    names = {"atime": atime, "mtime": mtime, "ctime": ctime}
    more = {f"st_{name}": ns / 1e9 for name, ns in names.items()}
    more.update({f"st_{name}_ns": ns for name, ns in names.items()})
    more.update(st_blocks=blocks, st_blksize=blksize, st_rdev=rdev)
    whole = [ns // 1_000_000_000 for ns in (atime, mtime, ctime)]
    return os.stat_result((mode, ino, 0, nlink, uid, gid, size, *whole), more)


class File(io.RawIOBase):
    """An open file without a buffer. `Volume.open` makes one, and buffers it."""

    def __init__(self, native: _native.File, name: str, mode: str, flags: str, volume: "Volume") -> None:
        super().__init__()
        self._native = native
        # A volume that nobody else holds is not dropped before its files have written what they buffer.
        self._volume = volume
        self.name = name
        self.mode = mode
        self._readable = "r" in flags
        self._writable = "w" in flags or "a" in flags
        self._appends = "a" in flags
        self._position = native.size() if self._appends else 0

    def _open(self) -> _native.File:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._native

    def readable(self) -> bool:
        self._open()
        return self._readable

    def writable(self) -> bool:
        self._open()
        return self._writable

    def seekable(self) -> bool:
        self._open()
        return True

    def _may_read(self) -> _native.File:
        native = self._open()
        if not self._readable:
            raise io.UnsupportedOperation("not readable")
        return native

    def _may_write(self) -> _native.File:
        native = self._open()
        if not self._writable:
            raise io.UnsupportedOperation("not writable")
        return native

    def read(self, size: Optional[int] = -1) -> bytes:  # type: ignore[override]
        """At most `size` bytes from the position on; without a size all to the end."""
        native = self._may_read()
        if size is None or size < 0:
            return self.readall()
        data = native.pread(self._position, size)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """All bytes from the position to the end."""
        native = self._may_read()
        # In parts, so that Ctrl-C is heard.
        parts = []
        while True:
            data = native.pread(self._position, _CHUNK)
            self._position += len(data)
            if not data:
                return b"".join(parts) if len(parts) != 1 else parts[0]
            parts.append(data)

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer; returns how many bytes, 0 at the end."""
        native = self._may_read()
        with memoryview(buffer).cast("B") as view:
            data = native.pread(self._position, len(view))
            view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def write(self, data: Any) -> int:
        """Writes at the position, or at the end if the file appends; returns how many bytes."""
        native = self._may_write()
        raw = data if type(data) is bytes else bytes(memoryview(data).cast("B"))
        if self._appends:
            at, done = native.append(raw)
        else:
            at, done = self._position, native.pwrite(self._position, raw)
        self._position = at + done
        return done

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        native = self._open()
        if whence == io.SEEK_SET:
            position = offset
        elif whence == io.SEEK_CUR:
            position = self._position + offset
        elif whence == io.SEEK_END:
            position = native.size() + offset
        else:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        if not 0 <= position < 1 << 63:
            raise ValueError(f"position {position} is not in a file; give 0 to 2^63 - 1")
        self._position = position
        return position

    def tell(self) -> int:
        self._open()
        return self._position

    def truncate(self, size: Optional[int] = None) -> int:
        native = self._may_write()
        size = self._position if size is None else size
        if not 0 <= size < 1 << 63:
            raise ValueError(f"size {size} is not of a file; give 0 to 2^63 - 1")
        native.truncate(size)
        return size

    def allocate(self, offset: int, length: int, mode: int = 0) -> None:
        """Allocates, punches or zeroes a range; `mode` as of fallocate(2)."""
        if offset < 0 or length < 0:
            raise ValueError("offset or length is negative; give 0 or more")
        self._may_write().allocate(mode, offset, length)

    def fsync(self) -> None:
        """Makes the file durable."""
        self._open().sync(False)

    def fdatasync(self) -> None:
        """Makes what is needed to read the file back durable."""
        self._open().sync(True)

    def stat(self) -> os.stat_result:
        """Attributes, as `os.fstat`."""
        return _stat_result(self._open().stat())

    def close(self) -> None:
        if self.closed:
            return
        try:
            super().close()
        finally:
            native = self.__dict__.get("_native")
            if native is not None:
                try:
                    native.close()
                except OSError as err:
                    # A volume that was closed, or opened before a fork, has ended its files.
                    if err.errno != 9:
                        raise


    def __del__(self) -> None:
        # The native file ends when it is dropped, after the finalizers of the buffers above it.
        pass


class _Buffered:
    """fsync of a buffered file."""

    raw: File
    #: A `TextFile` closes it.
    _wrapped = False

    def __del__(self) -> None:
        if not self._wrapped:
            self.close()  # type: ignore[attr-defined]

    def fsync(self) -> None:
        """Writes the buffer and makes the file durable."""
        self.flush()  # type: ignore[attr-defined]
        self.raw.fsync()

    def fdatasync(self) -> None:
        """Writes the buffer and makes what is needed to read the file back durable."""
        self.flush()  # type: ignore[attr-defined]
        self.raw.fdatasync()

    def stat(self) -> os.stat_result:
        """Attributes, as `os.fstat`, with the buffer written."""
        self.flush()  # type: ignore[attr-defined]
        return self.raw.stat()


class BufferedReader(_Buffered, io.BufferedReader):
    """A file opened with `rb`."""


class BufferedWriter(_Buffered, io.BufferedWriter):
    """A file opened with `wb`, `ab` or `xb`."""


class BufferedRandom(_Buffered, io.BufferedRandom):
    """A file opened with `+b`."""


class TextFile(io.TextIOWrapper):
    """A file opened as text."""

    def detach(self) -> Any:
        """Separates the binary buffer and returns it."""
        buffered = super().detach()
        buffered._wrapped = False  # type: ignore[attr-defined]
        return buffered

    def fsync(self) -> None:
        """Writes the buffer and makes the file durable."""
        self.flush()
        self.buffer.fsync()  # type: ignore[attr-defined]


def _flags(mode: str) -> Tuple[str, bool]:
    """The letters of the native open, and whether it is text."""
    letters = set(mode)
    kinds = letters & set("rwax")
    if len(mode) != len(letters) or letters - set("rwaxbt+") or len(kinds) != 1 or letters >= {"b", "t"}:
        raise ValueError(f"invalid mode: {mode!r}")
    flags = {"r": "r", "w": "wct", "a": "ac", "x": "wcx"}[kinds.pop()]
    if "+" in letters:
        flags += "w" if "r" in flags else "r"
    return flags, "b" not in letters


class DirEntry:
    """An entry of a directory, as `os.DirEntry`: its kind needs no look at the file."""

    def __init__(self, volume: "Volume", directory: str, name: bytes, ino: int, kind: int) -> None:
        self.name = os.fsdecode(name)
        self.path = _join(directory, self.name)
        self._volume, self._ino, self._kind = volume, ino, kind

    def inode(self) -> int:
        """The inode number."""
        return self._ino

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Attributes, as `os.stat`."""
        return self._volume.stat(self.path, follow_symlinks=follow_symlinks)

    def _is(self, kind: int, follow_symlinks: bool) -> bool:
        if self._kind == stat_bits.S_IFLNK and follow_symlinks:
            return stat_bits.S_IFMT(self._volume._mode(self.path)) == kind
        return self._kind == kind

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory, or a link to one."""
        return self._is(stat_bits.S_IFDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file, or a link to one."""
        return self._is(stat_bits.S_IFREG, follow_symlinks)

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return self._kind == stat_bits.S_IFLNK

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class Entries:
    """The iterator of `Volume.scandir`, which `with` may close."""

    def __init__(self, entries: Iterable[DirEntry]) -> None:
        self._entries = iter(list(entries))

    def __iter__(self) -> "Entries":
        return self

    def __next__(self) -> DirEntry:
        return next(self._entries)

    def __enter__(self) -> "Entries":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration."""
        self._entries = iter(())


class Volume:
    """An ext4 image or block device.

    `mode` is "r+" to read and write, or "r": nothing is written then, and a journal that has to be replayed is
    replayed in memory. `options` is a list of mount options, as "sync=ordered,cache=16M". `durability` is "strict":
    what was synced stays, or "periodic": a sync returns at once, and after a crash the whole volume is as it was at one
    moment, at most `commit=` seconds (5) before; `Volume.sync` and the close make everything durable.

    With mode "r" the image may be a qcow2, VHD, VHDX, VMDK or Android sparse image, also in several files, or compressed;
    then it is unpacked into a file without a name in `$TMPDIR`. `backing` names the files that a qcow2 is over, the next
    one first; the names in an image are never opened.

    The option "isolate" is for images of strangers: a process of the program `syncline`, which gives up its rights,
    reads the image. Where it ends, calls raise `OSError` with EIO. "isolate=/path/of/syncline" names the program.

    One process at a time may write to an image; `BlockingIOError` and `OSError` with EBUSY say that another has
    it. A volume is a context manager; leaving it closes the volume. Threads may share it.

    The close writes what files still buffer and closes them. A volume and files that nobody holds any more are written
    and closed in the right order by the garbage collector, and at the end of the interpreter.
    """

    def __init__(
        self,
        path: Path,
        mode: str = "r+",
        options: str = "",
        durability: Optional[str] = None,
        *,
        backing: Iterable[Path] = (),
    ) -> None:
        if isinstance(backing, (str, bytes, os.PathLike)):
            raise TypeError("backing is a list of files")
        if mode not in ("r", "r+"):
            raise ValueError(f"invalid mode: {mode!r}; give 'r' or 'r+'")
        self._native: Optional[_native.Disk] = None
        self._pid = os.getpid()
        self.name = os.fsdecode(path)
        self.mode = mode
        options = options if durability is None else f"{options},durability={durability}"
        options = f"{options},ro" if mode == "r" else options
        self._files: "weakref.WeakSet[io.IOBase]" = weakref.WeakSet()
        self._native = _native.Disk(self.name, options, [os.fsdecode(file) for file in backing])
        _open.add(self)

    @classmethod
    def create(
        cls,
        path: Path,
        size: Optional[int] = None,
        *,
        label: Optional[str] = None,
        force: bool = False,
        options: str = "",
        durability: Optional[str] = None,
    ) -> "Volume":
        """Makes an image, as `mkfs`, and opens it."""
        mkfs(path, size, label=label, force=force)
        return cls(path, options=options, durability=durability)

    def _disk(self) -> _native.Disk:
        if self._native is None:
            raise ValueError("operation on closed volume")
        return self._native

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.mode
        return f"<syncline.Volume {self.name!r} {state}>"

    def __enter__(self) -> "Volume":
        self._disk()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self, _warn: Any = warnings.warn, _getpid: Any = os.getpid) -> None:
        if getattr(self, "_native", None) is None or self._pid != _getpid():
            return
        # The native volume closes when it is dropped. That is after the finalizers of all files that buffer something,
        # also where the collector finds volume and files at once.
        _warn(f"unclosed volume {self.name!r}", ResourceWarning, source=self)

    def close(self) -> None:
        """Writes what files buffer, ends them, writes everything and leaves a clean image. A closed volume stays closed.

        Raises the first error of a file that could not be written, when all else is done.
        """
        if self._native is None:
            return
        failed = self._close_files() if self._pid == os.getpid() else None
        native, self._native = self._native, None
        try:
            if native is not None:
                native.close()
        finally:
            if failed is not None:
                raise failed

    def _close_files(self) -> Optional[OSError]:
        """Closes every file, the outermost of each first; the first error."""
        failed = None
        layers = list(self._files)
        layers.sort(key=lambda file: 0 if isinstance(file, TextFile) else 2 if isinstance(file, File) else 1)
        for file in layers:
            try:
                file.close()
            except OSError as err:
                failed = failed or err
            except ValueError:
                # Detached: what it wrapped is in the list.
                pass
        return failed

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._native is None

    @property
    def recovered(self) -> Recovered:
        """What the open had to recover."""
        return Recovered(*self._disk().recovered())

    def sync(self) -> None:
        """Makes everything durable."""
        self._disk().sync()

    def tick(self) -> float:
        """Does what is due in the background (option `nobackground`); in how many seconds to call again."""
        return self._disk().tick() / 1000

    def statfs(self) -> StatFs:
        """Space and inodes."""
        return StatFs(*self._disk().statfs())

    @overload
    def open(
        self,
        path: Path,
        mode: _Text = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        *,
        sync: bool = False,
        permissions: int = 0o644,
    ) -> "TextFile": ...
    @overload
    def open(
        self, path: Path, mode: _Binary, buffering: Literal[0], *, sync: bool = False, permissions: int = 0o644
    ) -> File: ...
    @overload
    def open(
        self, path: Path, mode: _Read, buffering: Literal[-1, 1] = -1, *, sync: bool = False, permissions: int = 0o644
    ) -> "BufferedReader": ...
    @overload
    def open(
        self, path: Path, mode: _Write, buffering: Literal[-1, 1] = -1, *, sync: bool = False, permissions: int = 0o644
    ) -> "BufferedWriter": ...
    @overload
    def open(
        self, path: Path, mode: _Both, buffering: Literal[-1, 1] = -1, *, sync: bool = False, permissions: int = 0o644
    ) -> "BufferedRandom": ...
    @overload
    def open(
        self,
        path: Path,
        mode: str,
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        *,
        sync: bool = False,
        permissions: int = 0o644,
    ) -> Any: ...
    def open(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        *,
        sync: bool = False,
        permissions: int = 0o644,
    ) -> Any:
        """Opens a file, as the built-in `open`. With `sync` every write of the raw file is durable when it returns."""
        flags, text = _flags(mode)
        if text and buffering == 0:
            raise ValueError("can't have unbuffered text I/O")
        if not text and (encoding is not None or errors is not None or newline is not None):
            raise ValueError("binary mode takes no encoding, errors or newline argument")
        native = self._disk().open(_bytes(path), flags + ("s" if sync else ""), permissions)
        raw = File(native, os.fsdecode(path), mode, flags, self)
        self._files.add(raw)
        if buffering == 0:
            return raw
        try:
            if stat_bits.S_ISDIR(raw.stat().st_mode):
                raise IsADirectoryError(21, "is a directory", os.fsdecode(path))
            size = buffering if buffering > 1 else 128 << 10
            if raw._readable and raw._writable:
                buffered: Any = BufferedRandom(raw, size)  # type: ignore[abstract]
            elif raw._writable:
                buffered = BufferedWriter(raw, size)
            else:
                buffered = BufferedReader(raw, size)
            self._files.add(buffered)
            if not text:
                return buffered
            wrapped = TextFile(buffered, encoding, errors, newline, line_buffering=buffering == 1)
            buffered._wrapped = True
            self._files.add(wrapped)
            return wrapped
        except BaseException:
            raw.close()
            raise

    def read_bytes(self, path: Path) -> bytes:
        """The contents of a file."""
        with self.open(path, "rb", 0) as file:
            return file.readall()

    def write_bytes(self, path: Path, data: Buffer) -> int:
        """Replaces the contents of a file."""
        with self.open(path, "wb", 0) as file:
            view, done = memoryview(data).cast("B"), 0
            while done < len(view):
                count = file.write(view[done:])
                if count == 0:
                    raise OSError(28, "no space left on the volume; delete files or grow the image")
                done += count
            return done

    def read_text(self, path: Path, encoding: Optional[str] = None) -> str:
        """Contents of a file, as text."""
        with self.open(path, encoding=encoding) as file:
            return file.read()

    def write_text(self, path: Path, data: str, encoding: Optional[str] = None) -> int:
        """Replaces the contents of a file; its lines end as in `data`."""
        with self.open(path, "w", encoding=encoding, newline="") as file:
            return file.write(data)

    def listdir(self, path: Path = "/") -> List[str]:
        """Names of a directory, as `os.listdir`."""
        return [os.fsdecode(name) for name, _, _ in self._disk().list(_bytes(path))]

    def scandir(self, path: Path = "/") -> "Entries":
        """Entries of a directory, as `os.scandir`."""
        top = os.fsdecode(path)
        return Entries(DirEntry(self, top, *found) for found in self._disk().list(_bytes(path)))

    def walk(self, top: Path = "/") -> Iterator[Tuple[str, List[str], List[str]]]:
        """As `os.walk`, from the top; links are not followed."""
        directories, files = [], []
        for name, _, kind in self._disk().list(_bytes(top)):
            (directories if kind == stat_bits.S_IFDIR else files).append(os.fsdecode(name))
        yield os.fsdecode(top), directories, files
        for name in directories:
            yield from self.walk(_join(os.fsdecode(top), name))

    def stat(self, path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        """Attributes, as `os.stat`."""
        return _stat_result(self._disk().stat(_bytes(path), follow_symlinks))

    def lstat(self, path: Path) -> os.stat_result:
        """Attributes of a link itself."""
        return self.stat(path, follow_symlinks=False)

    def _mode(self, path: Path, follow: bool = True) -> int:
        try:
            return self.stat(path, follow_symlinks=follow).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def exists(self, path: Path) -> bool:
        """Whether the path leads to something."""
        return self._mode(path) != 0

    def isdir(self, path: Path) -> bool:
        """Whether it is a directory, or a link to one."""
        return stat_bits.S_ISDIR(self._mode(path))

    def isfile(self, path: Path) -> bool:
        """Whether it is a regular file, or a link to one."""
        return stat_bits.S_ISREG(self._mode(path))

    def islink(self, path: Path) -> bool:
        """Whether it is a symbolic link."""
        return stat_bits.S_ISLNK(self._mode(path, False))

    def mkdir(self, path: Path, mode: int = 0o755) -> None:
        """Makes a directory."""
        self._disk().mkdir(_bytes(path), mode)

    def makedirs(self, path: Path, mode: int = 0o755, exist_ok: bool = False) -> None:
        """Makes a directory and those above it."""
        text = os.fsdecode(path)
        above = text.rstrip("/").rpartition("/")[0]
        if above and not self.exists(above):
            self.makedirs(above, mode, True)
        try:
            self.mkdir(text, mode)
        except FileExistsError:
            if not exist_ok or not self.isdir(text):
                raise

    def rmdir(self, path: Path) -> None:
        """Removes an empty directory."""
        self._disk().rmdir(_bytes(path))

    def unlink(self, path: Path) -> None:
        """Removes a name of anything but a directory."""
        self._disk().unlink(_bytes(path))

    remove = unlink

    def rmtree(self, path: Path) -> None:
        """Removes a directory with everything in it."""
        text = os.fsdecode(path)
        for name, _, kind in self._disk().list(_bytes(path)):
            below = _join(text, os.fsdecode(name))
            self.rmtree(below) if kind == stat_bits.S_IFDIR else self.unlink(below)
        if text.strip("/"):
            self.rmdir(text)

    def rename(self, source: Path, target: Path, *, replace: bool = True, exchange: bool = False) -> None:
        """Renames, in place of what has the name. `exchange` swaps the two."""
        flags = 2 if exchange else 0 if replace else 1
        self._disk().rename(_bytes(source), _bytes(target), flags)

    replace = rename

    def link(self, source: Path, target: Path) -> None:
        """Gives a file one more name."""
        self._disk().link(_bytes(source), _bytes(target))

    def symlink(self, source: Path, target: Path) -> None:
        """Makes `target` a symbolic link to `source`, as `os.symlink`."""
        self._disk().symlink(_bytes(source), _bytes(target))

    def readlink(self, path: Path) -> str:
        """The target of a symbolic link."""
        return os.fsdecode(self._disk().readlink(_bytes(path)))

    def truncate(self, path: Path, size: int) -> None:
        """Sets the size of a file."""
        with self.open(path, "r+b", 0) as file:
            file.truncate(size)

    def chmod(self, path: Path, mode: int, *, follow_symlinks: bool = True) -> None:
        """Sets permission bits."""
        self._disk().chmod(_bytes(path), follow_symlinks, mode)

    def chown(self, path: Path, uid: int = -1, gid: int = -1, *, follow_symlinks: bool = True) -> None:
        """Sets owner and group; -1 keeps one."""
        ids = [None if number == -1 else number for number in (uid, gid)]
        self._disk().chown(_bytes(path), follow_symlinks, *ids)

    def utime(
        self,
        path: Path,
        times: Optional[Tuple[float, float]] = None,
        *,
        ns: Optional[Tuple[int, int]] = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets access and modification time, as `os.utime`."""
        if times is not None and ns is not None:
            raise ValueError("give times or ns, not both")
        if times is not None:
            ns = (int(times[0] * 1_000_000_000), int(times[1] * 1_000_000_000))
        self._disk().utime(_bytes(path), follow_symlinks, ns)

    def getxattr(self, path: Path, name: Path, *, follow_symlinks: bool = True) -> bytes:
        """The value of an extended attribute."""
        return self._disk().getxattr(_bytes(path), follow_symlinks, _bytes(name))

    def setxattr(
        self, path: Path, name: Path, value: Buffer, flags: int = 0, *, follow_symlinks: bool = True
    ) -> None:
        """Sets an extended attribute; flags are `os.XATTR_CREATE` and `os.XATTR_REPLACE`."""
        self._disk().setxattr(_bytes(path), follow_symlinks, _bytes(name), bytes(value), flags)

    def listxattr(self, path: Path, *, follow_symlinks: bool = True) -> List[str]:
        """Names of the extended attributes."""
        return [os.fsdecode(name) for name in self._disk().listxattr(_bytes(path), follow_symlinks)]

    def removexattr(self, path: Path, name: Path, *, follow_symlinks: bool = True) -> None:
        """Removes an extended attribute."""
        self._disk().removexattr(_bytes(path), follow_symlinks, _bytes(name))


def _bytes(path: Path) -> bytes:
    return os.fsencode(path)


def _join(above: str, name: str) -> str:
    return f"{above.rstrip('/')}/{name}"


def mkfs(path: Path, size: Optional[int] = None, *, label: Optional[str] = None, force: bool = False) -> None:
    """Makes an ext4 with the defaults of mke2fs 1.47: in a new file of `size` bytes, or in the file or device that is there.

    `FileExistsError` if something is there, unless `force`. The root directory belongs to the caller; `Volume.chown`
    changes that.
    """
    _native.mkfs(os.fsdecode(path), size, label, force)


def check(path: Path) -> CheckReport:
    """Checks an image that nobody writes to. `OSError` with EUCLEAN if it cannot even be opened."""
    return CheckReport(*_native.check(os.fsdecode(path)))


def recover(path: Path) -> Recovered:
    """Replays the journal and finishes deletions, as an open does."""
    return Recovered(*_native.recover(os.fsdecode(path)))


@atexit.register
def _close_all() -> None:
    for volume in list(_open):
        if volume._pid == os.getpid() and not volume.closed:
            warnings.warn(f"unclosed volume {volume.name!r}", ResourceWarning, source=volume)
            volume.close()
