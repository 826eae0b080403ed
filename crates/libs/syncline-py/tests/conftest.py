"""Images of their own for the tests."""

import pytest

import syncline


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "card.img"
    syncline.mkfs(path, 32 << 20)
    return path


@pytest.fixture
def volume(image):
    with syncline.Volume(image) as volume:
        yield volume
    assert syncline.check(image).is_clean
