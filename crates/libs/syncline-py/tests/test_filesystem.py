"""The fsspec file system, with fsspec's own generic tests."""

import os
import pickle
import subprocess
import sys

import pytest

fsspec = pytest.importorskip("fsspec")

from fsspec.tests import abstract  # noqa: E402

import syncline  # noqa: E402
from syncline.filesystem import SynclineFileSystem  # noqa: E402


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, image, way):
        fs = SynclineFileSystem(str(image), options=way)
        yield fs
        fs.close()
        assert syncline.check(image).is_clean

    @pytest.fixture
    def fs_path(self):
        return "/test"

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


@pytest.fixture
def fs(image, way):
    fs = SynclineFileSystem(str(image), options=way)
    yield fs
    fs.close()
    SynclineFileSystem.clear_instance_cache()


def test_chained_urls(image):
    with fsspec.open(f"syncline://dir/file.txt::{image}", "w") as file:
        file.write("text")
    with fsspec.open(f"syncline://dir/file.txt::file://{image}", "r") as file:
        assert file.read() == "text"
    fs, path = fsspec.core.url_to_fs(f"syncline:///dir::{image}")
    assert isinstance(fs, SynclineFileSystem) and path == "/dir"
    assert fs.ls(path, detail=False) == ["/dir/file.txt"]
    fs.close()
    assert syncline.check(image).is_clean


def test_what_cannot_be_opened(image, tmp_path):
    with pytest.raises(ValueError):
        fsspec.open("syncline://a")
    with pytest.raises(ValueError):
        fsspec.open("syncline://a::memory://card.img")
    with pytest.raises(FileNotFoundError):
        SynclineFileSystem(str(tmp_path / "none.img")).ls("/")
    one, two = SynclineFileSystem(str(image)), SynclineFileSystem(str(image), options="sync=ordered")
    one.ls("/")
    with pytest.raises(ValueError):
        two.ls("/")
    one.close()
    two.ls("/")
    two.close()


def test_entries(fs):
    fs.pipe("/d/f", b"12345")
    fs.symlink("f", "/d/l")
    fs.symlink("nowhere", "/d/dangling")
    fs.link("/d/f", "/d/g")
    kinds = {entry["name"]: (entry["type"], entry["size"]) for entry in fs.ls("/d")}
    assert kinds["/d/f"] == kinds["/d/l"] == ("file", 5)
    assert kinds["/d/dangling"] == ("link", 0) and fs.lexists("/d/dangling")
    assert fs.info("/d")["type"] == "directory" and fs.info("/d/l")["destination"] == "f"
    assert not fs.exists("/d/f/below") and fs.ls("/d/f", detail=False) == ["/d/f"]
    assert fs.glob("/d/*") == ["/d/dangling", "/d/f", "/d/g", "/d/l"] and fs.du("/d") >= 15
    assert fs.modified("/d/f") >= fs.created("/d/f")
    fs.mv("/d/f", "/e/f")
    assert fs.cat("/e/f") == b"12345" and not fs.exists("/d/f")
    fs.touch("/e/f", truncate=False)
    assert fs.size("/e/f") == 5
    fs.touch("/e/f")
    assert fs.size("/e/f") == 0
    with pytest.raises(OSError):
        fs.rmdir("/d")
    with pytest.raises(FileExistsError):
        fs.makedirs("/d")
    fs.rm("/d", recursive=True)
    assert not fs.exists("/d")
    fs.sync()
    with fs.open("/big", "wb") as file:
        file.write(bytes(3 << 20))
    assert fs.cat_file("/big", 10, 20) == bytes(10) and fs.size("/big") == 3 << 20


def test_read_only_and_strict(image):
    fs = SynclineFileSystem(str(image), mode="r", auto_mkdir=False)
    assert fs.ls("/", detail=False) == ["/lost+found"]
    with pytest.raises(OSError):
        fs.pipe("/f", b"")
    fs.close()
    fs = SynclineFileSystem(str(image), auto_mkdir=False)
    with pytest.raises(FileNotFoundError):
        fs.pipe("/d/f", b"")
    fs.mkdir("/d", create_parents=False)
    fs.pipe("/d/f", b"")
    fs.close()


def test_pickled(fs):
    fs.pipe("/f", b"x")
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat("/f") == b"x" and again.volume is fs.volume


def test_closed_at_exit(image):
    program = "import fsspec, sys; fsspec.open('syncline://f::' + sys.argv[1], 'wb').open().write(b'kept')"
    subprocess.run([sys.executable, "-W", "error", "-c", program, str(image)], check=True)
    with syncline.Volume(image) as volume:
        assert volume.recovered.transactions == 0
        assert volume.read_bytes("/f") == b"kept"


def test_a_fork_has_no_volume(fs, image):
    fs.pipe("/f", b"x")
    pid = os.fork()
    if pid == 0:
        try:
            fs.ls("/")
        except OSError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert fs.cat("/f") == b"x"


def test_a_close_writes_what_files_buffer(image):
    fs = fsspec.filesystem("syncline", fo=str(image), skip_instance_cache=True)
    file = fs.open("/later", "wb")
    file.write(b"buffered")
    fs.close()
    assert file.closed and fs.cat_file("/later") == b"buffered"
    fs.close()


def test_a_url_names_the_image_and_the_path(image, tmp_path, monkeypatch):
    with fsspec.open(f"syncline://{image}/d/f", "w", options="sync=ordered") as file:
        file.write("text")
    fs, path = fsspec.core.url_to_fs(f"syncline://{image}/d", options="sync=ordered")
    assert (path, fs.ls(path, detail=False), fs.options) == ("/d", ["/d/f"], "sync=ordered")
    fs.close()
    monkeypatch.chdir(image.parent)
    relative, path = fsspec.core.url_to_fs(f"syncline://{image.name}", mode="r")
    assert path == "/" and relative.cat("/d/f") == b"text"
    relative.close()
    with pytest.raises(ValueError, match="no image"):
        fsspec.open("syncline://no-such.img/d/f").open()
    SynclineFileSystem.clear_instance_cache()
