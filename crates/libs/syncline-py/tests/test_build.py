"""Images made of entries."""

import errno
import io
import stat

import pytest

import syncline
from syncline import Entry


def entries():
    yield Entry("/etc", stat.S_IFDIR | 0o750, uid=7, mtime_ns=1_500_000_000_123_456_789)
    yield Entry("/etc/hostname", data=b"card\n", xattrs={"user.source": b"test"})
    yield Entry("/usr/bin/tool", 0o755, data=io.BytesIO(bytes(range(256)) * 9000))
    yield Entry("/usr/bin/alias", target="tool")
    yield Entry("/usr/bin/same", link="/usr/bin/tool")
    yield Entry("/dev/null", stat.S_IFCHR | 0o666, rdev=1 << 8 | 3)


def test_entries_become_an_image(tmp_path):
    path = tmp_path / "root.img"
    size = syncline.build(path, entries(), label="root")
    assert size == path.stat().st_size < 1 << 23
    assert syncline.check(path).is_clean
    with syncline.Volume(path, "r") as volume:
        assert volume.read_bytes("/etc/hostname") == b"card\n"
        assert volume.getxattr("/etc/hostname", "user.source") == b"test"
        assert volume.read_bytes("/usr/bin/alias") == bytes(range(256)) * 9000
        assert volume.stat("/usr/bin/tool").st_nlink == 2
        found = volume.stat("/etc")
        assert (found.st_mode, found.st_uid) == (stat.S_IFDIR | 0o750, 7)
        assert found.st_mtime_ns == 1_500_000_000_123_456_789
        assert stat.S_ISCHR(volume.stat("/dev/null").st_mode)


def test_sizes_and_equal_bytes(tmp_path):
    def made(name, **options):
        path = tmp_path / name
        syncline.build(path, entries(), **options)
        return path.read_bytes()

    identity = {"uuid": bytes(range(16)), "hash_seed": "5c1e1f5e-0000-4000-8000-000000000002", "time_s": 1_700_000_000}
    assert made("a", **identity) == made("b", **identity) != made("c")
    assert len(made("d", size=64 << 20)) == 64 << 20
    assert len(made("e", spare="50%")) > len(made("f"))
    assert len(made("g", spare=8 << 20)) > 8 << 20


def test_what_fails_leaves_no_image(tmp_path):
    path = tmp_path / "none.img"

    def broken():
        yield Entry("/a")
        raise KeyError("mine")

    with pytest.raises(KeyError):
        syncline.build(path, broken())
    assert not path.exists()
    for wrong, number in [(Entry("/a/.."), errno.EINVAL), (Entry("/x", link="/y"), errno.ENOENT), (Entry("/" + "n" * 256), errno.ENAMETOOLONG)]:
        with pytest.raises(OSError) as raised:
            syncline.build(path, [wrong])
        assert raised.value.errno == number and not path.exists(), wrong
    with pytest.raises(OSError) as raised:
        syncline.build(path, [Entry("/big", data=bytes(9 << 20))], size=8 << 20)
    assert raised.value.errno == errno.ENOSPC and not path.exists()
    syncline.build(path, [])
    with pytest.raises(FileExistsError):
        syncline.build(path, [])
