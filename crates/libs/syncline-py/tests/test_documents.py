"""The examples of the documents run."""

import os
import pathlib
import re

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]
DOCUMENTS = [HERE.parent / "README.md", ROOT / "docs" / "LIBRARIES.md", ROOT / "docs" / "FLEETS.md"]
BLOCKS = [
    pytest.param(block, id=f"{path.name}-{at}")
    for path in DOCUMENTS
    for at, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.S))
]


def test_there_are_examples():
    assert len(BLOCKS) >= 6


@pytest.mark.parametrize("block", BLOCKS)
def test_example(block, tmp_path, monkeypatch):
    if "fsspec" in block:
        pytest.importorskip("fsspec")
    if "samples/" in block:
        pytest.importorskip("pyarrow")
        (tmp_path / "samples").symlink_to(ROOT / "samples")
        if not os.environ.get("SYNCLINE_LAB"):
            pytest.skip("SYNCLINE_LAB names no program to run")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "example", "exec"), {"__name__": "example"})
