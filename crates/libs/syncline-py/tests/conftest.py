"""Images of their own for the tests."""

import os
import pathlib

import pytest

import syncline

_PROGRAM = pathlib.Path(os.environ.get("SYNCLINE_LAB", "")).parent / "syncline"


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "card.img"
    syncline.mkfs(path, 32 << 20)
    return path


@pytest.fixture
def isolate():
    """Options with which a helper process reads the image."""
    if not _PROGRAM.is_file():
        pytest.skip("no program syncline is beside the one that SYNCLINE_LAB names")
    return f"isolate={_PROGRAM}"


@pytest.fixture(params=["here", "isolate"])
def way(request):
    """Options with which this process reads the image, and with which a helper process does."""
    return "" if request.param == "here" else request.getfixturevalue("isolate")


@pytest.fixture
def volume(image, way):
    with syncline.Volume(image, options=way) as volume:
        yield volume
    assert syncline.check(image).is_clean
