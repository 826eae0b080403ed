"""Every public name has a description, a test and an example in the documents."""

import inspect
import pathlib
import re

import pytest

import syncline
from syncline import fleet, plots, sweeps

HERE = pathlib.Path(__file__).resolve().parent
TESTS = "".join(path.read_text() for path in HERE.glob("test_*.py") if path.name != pathlib.Path(__file__).name)
DOCUMENTS = [HERE.parent / "README.md", *(HERE.parents[3] / "docs" / name for name in ("LIBRARIES.md", "FLEETS.md"))]
EXAMPLES = "".join(re.findall(r"```python\n(.*?)```", "".join(path.read_text() for path in DOCUMENTS), re.S))
# Results have no constructor to show.
RESULTS = ("CheckReport", "Recovered", "StatFs", "File", "Devices", "Survival", "Progress", "Task")


def functions_and_classes(module):
    for name, value in vars(module).items():
        ours = inspect.isfunction(value) or inspect.isclass(value)
        if ours and not name.startswith("_") and value.__module__ == module.__name__:
            yield name, value


def methods(owner):
    for name, value in vars(owner).items():
        if not name.startswith("_"):
            yield f"{owner.__name__}.{name}", value


def public():
    for module in (syncline, sweeps):
        for name in module.__all__:
            yield name, getattr(module, name)
    for owner in (syncline.Volume, syncline.File, syncline.Device, syncline.Trace):
        yield from methods(owner)
    for name, value in functions_and_classes(plots):
        yield f"plots.{name}", value
    for name, value in functions_and_classes(fleet):
        yield f"fleet.{name}", value
    # Fields of data classes are described with their class.
    for owner in (fleet.Fleet, fleet.Wear, fleet.Survival):
        yield from ((name, value) for name, value in methods(owner) if callable(value))
    try:
        from fsspec import AbstractFileSystem
        from syncline.filesystem import SynclineFileSystem
    except ImportError:                             # no fsspec
        return
    # What fsspec has itself is in its documents, and tested by its generic tests. `mv` calls `mv_file`.
    for name, value in methods(SynclineFileSystem):
        if not hasattr(AbstractFileSystem, name.split(".")[1]) and not name.endswith(".mv_file"):
            yield name, value


@pytest.mark.parametrize("name, value", [pytest.param(*one, id=one[0]) for one in public()])
def test_name(name, value):
    name = name.rpartition(".")[2]
    assert inspect.getdoc(value), "no description"
    word = re.compile(r"\b" + re.escape(name) + r"\b")
    assert name in RESULTS or word.search(TESTS), "no test"
    assert name in RESULTS or word.search(EXAMPLES), "no example in README.md, LIBRARIES.md or FLEETS.md"


def test_the_list_is_not_empty():
    assert len(list(public())) > 90
