"""The examples of the documents run."""

import pathlib
import re

import pytest

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENTS = [HERE.parent / "README.md", HERE.parents[3] / "docs" / "LIBRARIES.md"]
BLOCKS = [
    pytest.param(block, id=f"{path.name}-{at}")
    for path in DOCUMENTS
    for at, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.S))
]


def test_there_are_examples():
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("block", BLOCKS)
def test_example(block, tmp_path, monkeypatch):
    if "fsspec" in block:
        pytest.importorskip("fsspec")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "example", "exec"), {"__name__": "example"})
