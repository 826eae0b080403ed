"""The examples of the documents run, and what they install is there."""

import importlib.metadata
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


def test_what_pip_installs_is_a_file_and_its_extras_exist():
    """The name alone is that of a stranger's package, or of none."""
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "samples").rglob("*.*ml")]
    sources = [*HERE.parent.rglob("*.*"), *(ROOT / "lab" / "src").rglob("*.rs")]
    texts = [path.read_text() for path in documents + sources if path.suffix in (".md", ".yml", ".toml", ".py", ".rs")]
    commands = [given for text in texts for given in re.findall(r"pip3? install\b([^`\n]*)", text)]
    ours = [given for given in commands if "syncline" in given]
    extras = [extra for given in ours for extra in re.findall(r"\[(\w+)\]", given)]
    assert len(ours) >= 3 and "sweeps" in extras
    assert [given for given in ours if ".whl" not in given or re.search(r"(?<![\w./-])syncline\b(?!-)", given)] == []
    assert set(extras) <= set(importlib.metadata.metadata("syncline").get_all("Provides-Extra"))


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
