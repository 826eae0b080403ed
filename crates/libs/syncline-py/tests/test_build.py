"""Images made of entries."""

import errno
import hashlib
import io
import json
import os
import stat
import tarfile

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


def layer(*names):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(name)
            archive.addfile(info, io.BytesIO(name.encode()))
    return out.getvalue()


def layout(path, *layers):
    """An OCI image with these layers."""
    (path / "blobs" / "sha256").mkdir(parents=True)

    def blob(kind, contents):
        name = hashlib.sha256(contents).hexdigest()
        (path / "blobs" / "sha256" / name).write_bytes(contents)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{name}", "size": len(contents)}

    blobs = [blob("layer.v1.tar", each) for each in layers]
    config = {"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": [each["digest"] for each in blobs]}}
    manifest = {"schemaVersion": 2, "config": blob("config.v1+json", json.dumps(config).encode()), "layers": blobs}
    index = {"schemaVersion": 2, "manifests": [blob("manifest.v1+json", json.dumps(manifest).encode())]}
    (path / "index.json").write_text(json.dumps(index))
    (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return blobs


def test_a_container_image_an_archive_and_a_directory_become_images(tmp_path):
    blobs = layout(tmp_path / "oci", layer("etc/kept", "etc/gone"), layer("etc/.wh.gone", "etc/new"))
    (tmp_path / "tree.tar").write_bytes(layer("etc/kept", "etc/new"))
    (tmp_path / "tree" / "etc").mkdir(parents=True)
    for name in ("etc/kept", "etc/new"):
        (tmp_path / "tree" / name).write_text(name)
    sources = [f"oci:{tmp_path / 'oci'}", tmp_path / "tree.tar", os.fspath(tmp_path / "tree")]
    for number, source in enumerate(sources):
        path = tmp_path / f"{number}.img"
        size = syncline.build(path, source, spare=8 << 20, label="root", time_s=1_700_000_000)
        assert size == path.stat().st_size > 8 << 20
        assert syncline.check(path).is_clean
        with syncline.Volume(path, "r") as volume:
            assert sorted(volume.listdir("/etc")) == ["kept", "new"]
            assert volume.read_bytes("/etc/new") == b"etc/new"
        again = tmp_path / "again.img"
        syncline.build(again, source, spare=8 << 20, label="root", time_s=1_700_000_000)
        assert again.read_bytes() == path.read_bytes(), source
        again.unlink()
    path = tmp_path / "none.img"
    (tmp_path / "oci" / "blobs" / "sha256" / blobs[0]["digest"][7:]).write_bytes(layer("etc/kept", "etc/bad!"))
    for source, options, number in [
        (sources[0], {}, errno.EUCLEAN),
        (sources[0], {"platform": "linux/arm64"}, errno.EINVAL),
        (sources[0], {"platform": "linux"}, errno.EINVAL),
        (sources[1], {"platform": "linux/amd64"}, errno.EINVAL),
        (sources[1], {"size": 1 << 20, "spare": 1}, errno.EINVAL),
        (sources[1], {"hash_seed": "none"}, errno.EINVAL),
        (tmp_path / "nothing", {}, errno.EIO),
    ]:
        with pytest.raises(OSError) as raised:
            syncline.build(path, source, **options)
        assert raised.value.errno == number and not path.exists(), (source, options, raised.value)
    with pytest.raises(FileExistsError):
        syncline.build(tmp_path / "0.img", sources[1])
    with pytest.raises(ValueError):
        syncline.build(path, [], platform="linux/amd64")
