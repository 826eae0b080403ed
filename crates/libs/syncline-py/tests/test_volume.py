"""Volumes and files: what they do, and what wrong use raises."""

import errno
import gc
import gzip
import importlib.metadata
import io
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import typing

import pytest

import syncline
from syncline import Volume, _native


class raises:
    """`pytest.raises(OSError)` with this errno."""

    def __init__(self, number):
        self.number = number

    def __enter__(self):
        return self

    def __exit__(self, kind, value, _):
        assert isinstance(value, OSError), f"not raised: {errno.errorcode[self.number]}"
        assert value.errno == self.number, value
        self.text = str(value)
        return True


def test_disks_in_the_files_of_other_programs(image, tmp_path, isolate):
    with Volume(image) as volume:
        volume.write_bytes("/motd", b"hello")
        assert volume.write_text("/text", "ü\r\n") == 3 and volume.read_bytes("/text") == b"\xc3\xbc\r\n"
        assert volume.read_text("/text") == "ü\n" and volume.read_text("/text", "latin-1") == "Ã¼\n"
    top, packed = tmp_path / "top.qcow2", tmp_path / "card.img.gz"
    packed.write_bytes(gzip.compress(image.read_bytes(), 1))
    with Volume(packed, "r") as volume:
        assert volume.read_bytes("/motd") == b"hello"
    assert syncline.check(packed).is_clean
    for options in ("", isolate + ",ro"):
        with raises(errno.EOPNOTSUPP):
            Volume(packed, options=options)
    try:
        # What the image names is not opened.
        make = ["qemu-img", "create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd", top, "32M"]
        subprocess.run(make, check=True)
    except FileNotFoundError:
        pytest.skip("needs qemu-img")
    comma = image.rename(tmp_path / "ca,rd.img")
    for backing in ([comma], (str(comma),), iter([comma])):
        with Volume(top, "r", backing=backing) as volume:
            assert volume.read_bytes("/motd") == b"hello"
    with Volume(top, "r", f'backing="{comma}"') as volume:
        assert volume.read_bytes("/motd") == b"hello"
    with pytest.raises(TypeError, match="a list of files"):
        Volume(top, "r", backing=comma)
    for number, backing in ((errno.EOPNOTSUPP, []), (errno.ENOENT, [tmp_path / "none"]), (errno.EINVAL, [comma, top])):
        with raises(number):
            Volume(top, "r", backing=backing)


def test_the_end_of_a_helper_is_an_error(image, isolate):
    volume = Volume(image, options=isolate)
    volume.write_bytes("/kept", b"kept")
    volume.sync()
    lists = [path.read_text().split() for path in pathlib.Path("/proc/self/task").glob("*/children")]
    (helper,) = [number for numbers in lists for number in numbers if b"isolate" in _words(number)]
    os.kill(int(helper), signal.SIGKILL)
    with raises(errno.EIO):
        volume.stat("/kept")
    with raises(errno.EIO):
        volume.close()
    with Volume(image) as volume:
        assert volume.recovered.transactions > 0
        assert volume.read_bytes("/kept") == b"kept"


def _words(number):
    return pathlib.Path("/proc", number, "cmdline").read_bytes().split(b"\0")


def test_text_and_binary_files(volume):
    with volume.open("/t", "w", encoding="utf-8") as file:
        assert file.write("héllo\nworld\n") == 12
        file.fsync()
    with volume.open("/t", encoding="utf-8") as file:
        assert list(file) == ["héllo\n", "world\n"]
    with volume.open("/t", "ab") as file:
        file.write(b"more")
        file.fdatasync()
        assert file.stat().st_size == 17
    with volume.open("/t", "rb") as file:
        assert file.seek(-4, io.SEEK_END) == 13
        assert file.read() == b"more"
    with volume.open("/t", "r+b") as file:
        file.write(b"H")
        file.seek(0)
        assert file.read(2) == b"H\xc3"
        file.truncate(3)
    assert volume.read_bytes("/t") == b"H\xc3\xa9"
    assert volume.write_bytes("/t", bytearray(b"x" * 3_000_000)) == 3_000_000
    assert volume.read_bytes("/t") == b"x" * 3_000_000
    with volume.open("/x", "xb", 0, sync=True, permissions=0o600) as raw:
        assert isinstance(raw, io.RawIOBase)
        assert raw.write(memoryview(b"abcdef")[::1]) == 6
    with pytest.raises(FileExistsError):
        volume.open("/x", "xb")
    assert volume.stat("/x").st_mode == 0o100600


@pytest.mark.skipif(sys.version_info < (3, 11), reason="typing.get_overloads is of Python 3.11")
def test_types_of_open_are_those_of_its_files(volume):
    def words(literal):
        return [word for part in typing.get_args(literal) for word in (words(part) or [part])]

    seen = set()
    for variant in typing.get_overloads(Volume.open):
        hints = typing.get_type_hints(variant)
        raw = typing.get_args(hints["buffering"]) == (0,)
        for mode in words(hints["mode"]):
            if mode.startswith("x"):
                volume.unlink("/typed")
            elif not volume.exists("/typed"):
                volume.write_bytes("/typed", b"")
            with volume.open("/typed", mode, 0 if raw else -1) as file:
                assert type(file) is hints["return"], mode
            seen.add(mode)
    assert len(seen) == 24
    assert syncline.__version__ == importlib.metadata.version("syncline")


def test_raw_files(volume):
    with volume.open("/r", "w+b", buffering=0) as raw:
        assert raw.readable() and raw.writable() and raw.seekable()
        assert raw.write(b"0123456789") == 10
        assert raw.tell() == 10 and raw.seek(2) == 2
        room = bytearray(4)
        assert raw.readinto(room) == 4 and bytes(room) == b"2345"
        assert raw.read(100) == b"6789" and raw.read(1) == b""
        raw.seek(1 << 40)
        assert raw.read() == b""
        assert raw.truncate(5) == 5
        raw.allocate(0, 8192)
        raw.allocate(0, 4096, 3)
        assert raw.stat().st_size == 8192
        raw.seek(0)
        assert raw.readall() == bytes(8192)
    with volume.open("/r", "ab", 0) as raw:
        with pytest.raises(io.UnsupportedOperation):
            raw.read()
        raw.write(b"end")
        assert raw.tell() == 8195
    with volume.open("/r", "rb", 0) as raw:
        with pytest.raises(io.UnsupportedOperation):
            raw.write(b"")
        with pytest.raises(io.UnsupportedOperation):
            raw.truncate()
        with pytest.raises(io.UnsupportedOperation):
            raw.fileno()


def test_names(volume):
    volume.makedirs("/a/b/c")
    volume.makedirs("/a/b/c", exist_ok=True)
    with pytest.raises(FileExistsError):
        volume.mkdir("/a")
    volume.write_bytes("/a/f", b"1")
    volume.symlink("f", "/a/l")
    volume.link("/a/f", "/a/g")
    assert volume.readlink("/a/l") == "f" and volume.islink("/a/l") and volume.isfile("/a/l")
    assert sorted(volume.listdir("/a")) == ["b", "f", "g", "l"]
    with volume.scandir("/a") as entries:
        found = {entry.name: entry for entry in entries}
    assert sorted(found) == ["b", "f", "g", "l"] and list(entries) == []
    assert found["b"].is_dir() and not found["b"].is_file() and found["f"].is_file()
    assert found["l"].is_symlink() and not found["l"].is_file(follow_symlinks=False)
    assert found["f"].inode() == found["f"].stat().st_ino == volume.stat(found["f"]).st_ino
    assert volume.stat("/a/f").st_nlink == 2 and volume.lstat("/a/l").st_size == 1
    assert [(top, dirs) for top, dirs, _ in volume.walk("/a")] == [("/a", ["b"]), ("/a/b", ["c"]), ("/a/b/c", [])]
    volume.rename("/a/f", "/a/h")
    with pytest.raises(FileExistsError):
        volume.rename("/a/g", "/a/l", replace=False)
    volume.rename("/a/g", "/a/b", exchange=True)
    assert volume.isdir("/a/g") and volume.isfile("/a/b")
    volume.write_bytes("/a/h", b"2")
    volume.unlink("/a/b")
    volume.write_bytes("/a/b", b"other")
    volume.replace("/a/h", "/a/b")
    assert volume.read_bytes("/a/b") == b"2"
    assert not volume.exists("/a/h") and not volume.exists("/a/b/below")
    with raises(errno.ENOTEMPTY):
        volume.rmdir("/a")
    with pytest.raises(IsADirectoryError):
        volume.unlink("/a")
    with pytest.raises(IsADirectoryError):
        volume.open("/a")
    with pytest.raises(NotADirectoryError):
        volume.rmdir("/a/b")
    volume.remove("/a/b")
    volume.rmtree("/a")
    assert volume.listdir() == ["lost+found"]
    volume.write_bytes(pathlib.PurePosixPath("/p"), b"")
    volume.write_bytes(b"/bytes-\xff", b"")
    assert os.fsdecode(b"bytes-\xff") in volume.listdir(b"/")


def test_attributes(volume):
    volume.write_bytes("/f", b"")
    volume.chmod("/f", 0o4755)
    volume.chown("/f", 7)
    volume.chown("/f", gid=8)
    volume.utime("/f", (1.5, 2.5))
    known = volume.stat("/f")
    assert (known.st_mode, known.st_uid, known.st_gid) == (0o104755, 7, 8)
    assert (known.st_atime, known.st_mtime_ns) == (1.5, 2_500_000_000)
    volume.utime("/f", ns=(-1, 1))
    assert volume.stat("/f").st_atime_ns == -1
    volume.utime("/f")
    assert abs(volume.stat("/f").st_mtime - time.time()) < 60
    with pytest.raises(ValueError):
        volume.utime("/f", (1, 1), ns=(1, 1))
    with raises(errno.EINVAL):
        volume.utime("/f", ns=(1 << 100, 1))
    volume.setxattr("/f", "user.a", b"one")
    assert volume.getxattr("/f", "user.a") == b"one" and volume.listxattr("/f") == ["user.a"]
    with pytest.raises(FileExistsError):
        volume.setxattr("/f", "user.a", b"", os.XATTR_CREATE)
    with raises(errno.EINVAL):
        volume.setxattr("/f", "user.a", b"", 77)
    volume.removexattr("/f", "user.a")
    with raises(errno.ENODATA):
        volume.getxattr("/f", "user.a")
    space = volume.statfs()
    assert space.block_size >= 1024 and space.blocks > space.blocks_free > 0
    volume.truncate("/f", 100)
    assert volume.stat("/f").st_size == 100


def test_wrong_arguments(volume, tmp_path):
    for mode in ("", "rw", "z", "rr", "r+w", "rbt", "b", "+"):
        with pytest.raises(ValueError):
            volume.open("/f", mode)
    with pytest.raises(ValueError):
        volume.open("/f", "w", buffering=0)
    with pytest.raises(ValueError):
        volume.open("/f", "rb", encoding="utf-8")
    with pytest.raises(FileNotFoundError):
        volume.open("/f")
    with raises(errno.EINVAL):
        volume.open("/a\0b", "w")
    with pytest.raises(FileNotFoundError):
        volume.stat("")
    with raises(errno.ENAMETOOLONG):
        volume.mkdir("/" + "x" * 256)
    with raises(errno.EINVAL):
        volume.mkdir("/m", 1 << 20)
    with pytest.raises((TypeError, OverflowError)):
        volume.mkdir("/m", -1)
    with pytest.raises(TypeError):
        volume.stat(3)
    with volume.open("/f", "w+b", 0) as raw:
        for position in (-1, 1 << 63, 1 << 100):
            with pytest.raises(ValueError):
                raw.seek(position)
            with pytest.raises(ValueError):
                raw.truncate(position)
        with pytest.raises(ValueError):
            raw.seek(0, 9)
        with pytest.raises(ValueError):
            raw.allocate(-1, 1)
        with raises(errno.EINVAL):
            raw.allocate(0, 1, 2)
        raw.seek((1 << 63) - 1)
        with raises(errno.EINVAL):
            raw.write(b"x")
        raw.seek(1 << 62)
        with raises(errno.EFBIG):
            raw.write(b"x")
        with raises(errno.EFBIG):
            raw.truncate(1 << 62)
    with pytest.raises(ValueError):
        Volume(tmp_path / "card.img", "w")
    with pytest.raises(FileNotFoundError):
        Volume(tmp_path / "none.img")
    with raises(errno.EINVAL):
        Volume(tmp_path / "card.img", options="nonsense")
    for call in (Volume, syncline.check, syncline.recover, lambda path: syncline.mkfs(path, 1 << 24)):
        with raises(errno.EINVAL):
            call("a\0b")


def test_closed(image):
    volume = Volume(image)
    file = volume.open("/f", "wb")
    raw = volume.open("/g", "w+b", 0)
    file.write(b"buffered")
    file.flush()
    volume.symlink("f", "/l")
    entries = volume.scandir()
    found, later = {entry.name: entry for entry in volume.scandir()}, volume.walk()
    volume.close()
    volume.close()
    assert volume.closed and "closed" in repr(volume)
    for call in (volume.sync, volume.statfs, volume.listdir, lambda: volume.open("/f"), lambda: volume.recovered):
        with pytest.raises(ValueError):
            call()
    # Of a directory there is what was listed, and nothing of its files.
    assert {entry.name for entry in entries} == {"f", "g", "l", "lost+found"} and found["f"].is_file()
    for call in (found["f"].stat, found["l"].is_dir, lambda: found["l"].stat(follow_symlinks=False), volume.scandir):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(ValueError):
        next(later)
    raw.close()
    file.close()
    for call in (raw.read, raw.tell, raw.fsync, raw.stat, lambda: raw.write(b""), lambda: raw.seek(0)):
        with pytest.raises(ValueError):
            call()
    with Volume(image) as volume:
        assert volume.read_bytes("/f") == b"buffered"


def test_dropped_in_any_order(image):
    for seed in range(20):
        chance = random.Random(seed)
        things = [Volume(image)]
        for at in range(10):
            things.append(things[0].open(f"/{at}", "w+b", chance.choice([0, -1])))
            things[-1].write(b"x" * 5000)
        with pytest.warns(ResourceWarning):
            chance.shuffle(things)
            while things:
                things.pop()
            gc.collect()
        with Volume(image) as volume:
            for at in range(10):
                assert volume.read_bytes(f"/{at}") == b"x" * 5000
                volume.unlink(f"/{at}")
    assert syncline.check(image).is_clean


#: Opens the image that is named, until its input ends.
HOLDER = "import sys, syncline; volume = syncline.Volume(sys.argv[1]); print(flush=True); sys.stdin.read()"


def refused(image, *said):
    """Nothing opens the image; each error says who has it open."""
    calls = (Volume, lambda path: Volume(path, "r"), syncline.check, syncline.recover, lambda path: syncline.mkfs(path, force=True))
    for call in calls:
        with raises(errno.EBUSY) as raised:
            call(image)
        assert all(part in raised.text for part in said), raised.text


def test_in_use_by_another_process(image):
    command = [sys.executable, "-c", HOLDER, image]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"\n"
        name = pathlib.Path(f"/proc/{holder.pid}/comm").read_text().strip()
        refused(image, f"another program has it open: {name} (process {holder.pid}); close that first")
        holder.stdin.close()
    assert syncline.check(image).is_clean


def test_in_use_by_a_mount(image, tmp_path, isolate):
    program, directory = isolate.removeprefix("isolate="), tmp_path / "mounted"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs FUSE")
    directory.mkdir()
    subprocess.run([program, "mount", image, directory], check=True)
    try:
        refused(image, f"it is mounted on {directory}; unmount it with `syncline umount {directory}`")
    finally:
        subprocess.run([program, "umount", directory], check=True)
    assert syncline.check(image).is_clean


def test_in_use(image):
    with Volume(image):
        refused(image, "this program has it open already; close it first")
        with raises(errno.EBUSY):
            Volume(image)
        with raises(errno.EBUSY):
            Volume(image, "r")
        with raises(errno.EBUSY):
            syncline.check(image)
    with Volume(image, "r") as one, Volume(image, "r") as two:
        assert one.listdir() == two.listdir()
        with raises(errno.EROFS):
            one.mkdir("/d")
        with raises(errno.EROFS):
            one.open("/f", "w")


def test_a_process_that_dies_is_recovered_from(image):
    program = (
        "import os, sys, syncline\n"
        "volume = syncline.Volume(sys.argv[1])\n"
        "file = volume.open('/f', 'wb')\n"
        "file.write(b'durable')\n"
        "file.fsync()\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(image)], check=True)
    with Volume(image, "r") as volume:
        assert volume.recovered.transactions > 0 and volume.recovered.in_memory
        assert volume.read_bytes("/f") == b"durable"
    assert syncline.recover(image).transactions > 0
    assert syncline.recover(image) == (0, 0, 0, False)
    with Volume(image) as volume:
        assert volume.recovered == (0, 0, 0, False)
        assert volume.read_bytes("/f") == b"durable"


def test_fork(image):
    volume = Volume(image)
    raw = volume.open("/f", "w+b", 0)
    raw.write(b"parent")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for call in (lambda: volume.mkdir("/child"), lambda: raw.read(1), lambda: raw.write(b"child"), volume.sync):
                with raises(errno.EBADF):
                    call()
            with raises(errno.EBUSY):
                Volume(image)
            # What it inherited may be dropped and closed.
            raw.close()
            with raises(errno.EBADF):
                volume.close()
            gc.collect()
            code = 0
        finally:
            os.write(writer, b"0" if code == 0 else b"1")
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    os.close(writer)
    assert os.read(reader, 1) == b"0"
    os.close(reader)
    raw.write(b" goes on")
    raw.close()
    volume.close()
    with Volume(image) as volume:
        assert volume.read_bytes("/f") == b"parent goes on"
        assert not volume.exists("/child")


def test_threads(volume):
    failures = []

    def work(number):
        try:
            for turn in range(30):
                data = bytes([number, turn]) * 1500
                volume.write_bytes(f"/{number}", data)
                assert volume.read_bytes(f"/{number}") == data
        except BaseException as err:
            failures.append(err)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_interpreter_runs_during_a_sync(volume):
    """A thread that syncs does not hold the interpreter's lock."""
    turns, done = [0], threading.Event()

    def count():
        while not done.is_set():
            turns[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    for at in range(20):
        with volume.open(f"/{at}", "wb", 0) as raw:
            raw.write(bytes(1 << 20))
            raw.fsync()
    done.set()
    thread.join()
    assert turns[0] > 20


# The interrupt is pending when the call begins, and nothing but the call can hear it: `list` and `map` run no bytecode
# between the two, at which the interpreter would look.
INTERRUPTED = """
import _thread, sys
from functools import partial
from syncline import _native as n
def interrupted(call):
    list(map(partial.__call__, [partial(_thread.interrupt_main), call, partial(print, "went on")]))
"""


def test_ctrl_c_ends_a_check(image):
    program = INTERRUPTED + "interrupted(partial(n.check, sys.argv[1]))"
    ran = subprocess.run([sys.executable, "-c", program, str(image)], capture_output=True, text=True)
    assert ran.returncode != 0 and "KeyboardInterrupt" in ran.stderr and not ran.stdout, ran


@pytest.mark.parametrize("call", ["file.pwrite, 0, bytes(20 << 20)", "file.pread, 0, 20 << 20"])
def test_ctrl_c_ends_a_long_transfer(tmp_path, call):
    path = tmp_path / "card.img"
    Volume.create(path, 64 << 20).close()
    program = INTERRUPTED + f"""
disk = n.Disk(sys.argv[1], "")
file = disk.open(b"/f", "rwc", 0o644)
file.truncate({20 << 20 if "pread" in call else 0})
try:
    interrupted(partial({call}))
except KeyboardInterrupt:
    print("interrupted at", file.size() >> 20)
disk.close()
"""
    ran = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    # A write ends behind a part of 8 MiB.
    assert (ran.stdout, ran.stderr) == ("interrupted at 20\n" if "pread" in call else "interrupted at 8\n", "")
    assert syncline.check(path).is_clean


def test_no_space(image):
    with Volume(image) as volume:
        with raises(errno.ENOSPC):
            volume.write_bytes("/big", bytes(40 << 20))
        volume.unlink("/big")
    assert syncline.check(image).is_clean


def test_a_user_owns_the_root_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if os.geteuid() == 0:
        os.chown(tmp_path, 1000, 1001)
        os.setegid(1001)
        os.seteuid(1000)
    try:
        own = (os.geteuid(), os.getegid())
        syncline.mkfs("own.img", 16 << 20)
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
            os.setegid(0)
    with Volume("own.img") as volume:
        assert (volume.stat("/").st_uid, volume.stat("/").st_gid) == own


def test_images(tmp_path):
    path = tmp_path / "new.img"
    with Volume.create(path, 16 << 20, label="new") as volume:
        assert volume.listdir() == ["lost+found"]
    with pytest.raises(FileExistsError):
        syncline.mkfs(path, 16 << 20)
    syncline.mkfs(path, force=True)
    with pytest.raises(OSError):
        syncline.mkfs(tmp_path / "tiny.img", 1000)
    assert not (tmp_path / "tiny.img").exists()
    report = syncline.check(path)
    assert report.is_clean and report == ([], 0)
    with open(path, "r+b") as file:
        file.seek(4096 * 3)
        for _ in range(100):
            file.write(bytes(4096))
            file.seek(8192, io.SEEK_CUR)
    try:
        assert not syncline.check(path).is_clean
    except OSError as err:
        assert err.errno == errno.EUCLEAN
    (tmp_path / "text").write_text("no image")
    with pytest.raises(OSError):
        Volume(tmp_path / "text")


@pytest.mark.parametrize("durability, there", [("strict", b"two"), ("periodic", b"one")])
def test_durability(tmp_path, durability, there):
    path = tmp_path / "card.img"
    Volume.create(path, 64 << 20, durability=durability).close()
    program = """
import os, sys
from syncline import Volume
volume = Volume(sys.argv[1], options="commit=300", durability=sys.argv[2])
volume.write_bytes("/f", b"one")
volume.sync()
with volume.open("/f", "r+b", buffering=0) as file:
    file.write(b"two")
    file.fsync()
os._exit(7)
"""
    ran = subprocess.run([sys.executable, "-c", program, str(path), durability])
    assert ran.returncode == 7
    with Volume(path) as volume:
        assert volume.read_bytes("/f") == there
    with raises(errno.EINVAL):
        Volume(path, durability="none")


def test_without_a_thread(image):
    before = threading.active_count()
    with Volume(image, options="nobackground,sync=ordered") as volume:
        volume.write_bytes("/f", b"x")
        assert 0 <= volume.tick() <= 5
        assert threading.active_count() == before
        volume.sync()


def test_the_native_part_takes_nothing_wrong(image):
    disk = _native.Disk(str(image), "")
    with raises(errno.EINVAL):
        disk.open(b"/f", "", 0)
    with raises(errno.EINVAL):
        disk.open(b"/f", "rct", 0)
    with pytest.raises(TypeError):
        disk.open("/f", "r", 0)
    file = disk.open(b"/f", "rwc", 0o644)
    for call in (lambda: file.pread(-1, 1), lambda: file.pwrite(-1, b""), lambda: file.pread(1 << 64, 1)):
        with pytest.raises(OverflowError):
            call()
    with raises(errno.EINVAL):
        file.pwrite((1 << 64) - 1, b"x")
    with raises(errno.EINVAL):
        file.pread((1 << 64) - 1, 1 << 63)
    assert file.pread(0, (1 << 64) - 1) == b""
    disk.close()
    with raises(errno.EBADF):
        disk.close()
    with raises(errno.EBADF):
        file.close()
    assert not disk.is_open()


def test_results_have_names(image):
    assert isinstance(syncline.recover(image), syncline.Recovered) and isinstance(syncline.check(image), syncline.CheckReport)
    with syncline.Volume(image) as volume:
        assert isinstance(volume.statfs(), syncline.StatFs)
        with volume.open("/raw", "wb", buffering=0) as file:
            assert isinstance(file, syncline.File)


def contents(image, path="/y"):
    with Volume(image, "r") as volume:
        return volume.read_bytes(path)


def test_the_end_of_a_volume_writes_what_files_buffer(image):
    with Volume(image) as volume:
        text = volume.open("/y", "w")
        text.write("hello")
        binary = volume.open("/b", "wb")
        binary.write(b"bytes")
        detached = volume.open("/d", "w")
        detached.write("under a wrapper that is gone")
        under = detached.detach()
        raw = volume.open("/raw", "wb", 0)
        raw.write(b"raw")
    assert text.closed and binary.closed and under.closed and raw.closed
    text.close()
    assert contents(image) == b"hello" and contents(image, "/b") == b"bytes" and contents(image, "/raw") == b"raw"
    assert contents(image, "/d") == b"under a wrapper that is gone"
    with pytest.raises(ValueError):
        text.write("more")


def test_an_error_in_a_with_block_does_not_lose_what_was_written(image):
    with pytest.raises(KeyError):
        with Volume(image) as volume:
            file = volume.open("/y", "w")
            file.write("before the error")
            raise KeyError("x")
    assert file.closed and contents(image) == b"before the error"


def test_a_file_that_cannot_be_written_at_the_end_is_an_error(image):
    volume = Volume(image)
    more = volume.statfs().blocks_free * volume.statfs().block_size + (1 << 20)
    full = volume.open("/full", "wb", more + 1)
    full.write(bytes(more))
    kept = volume.open("/y", "w")
    kept.write("kept")
    with raises(errno.ENOSPC):
        volume.close()
    assert volume.closed and full.closed and kept.closed
    assert syncline.check(image).is_clean


@pytest.mark.filterwarnings("ignore:unclosed volume")
@pytest.mark.parametrize("first", ["volume", "file"])
def test_garbage_is_written_in_any_order(image, first):
    class Holder:
        pass

    holder = Holder()
    holder.itself = holder
    if first == "volume":
        holder.volume = Volume(image)
        holder.file = holder.volume.open("/y", "w")
    else:
        volume = Volume(image)
        holder.file = volume.open("/y", "w")
        holder.volume = volume
        del volume
    holder.file.write("garbage")
    del holder
    gc.collect()
    assert contents(image) == b"garbage"
    volume = Volume(image)
    file = volume.open("/y", "w")
    file.write("a volume of nobody")
    del volume
    del file
    assert contents(image) == b"a volume of nobody"


@pytest.mark.parametrize("last", ["", "raise SystemExit(0)", "del volume", "file = None", "import gc; gc.collect()"])
def test_the_end_of_the_interpreter_writes_what_files_buffer(image, last):
    program = f"""
import sys, syncline
volume = syncline.Volume(sys.argv[1])
file = volume.open("/y", "w")
file.write("at the end")
{last}
"""
    done = subprocess.run([sys.executable, "-c", program, str(image)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert contents(image) == b"at the end"
    assert syncline.check(image).is_clean
