"""Every public name has a description, a test and an example in the documents."""

import inspect
import pathlib
import re

import pytest

import syncline
from syncline import plots

HERE = pathlib.Path(__file__).resolve().parent
TESTS = "".join(path.read_text() for path in HERE.glob("test_*.py") if path.name != pathlib.Path(__file__).name)
DOCUMENTS = [HERE.parent / "README.md", HERE.parents[3] / "docs" / "LIBRARIES.md"]
EXAMPLES = "".join(re.findall(r"```python\n(.*?)```", "".join(path.read_text() for path in DOCUMENTS), re.S))


def public():
    for name in syncline.__all__:
        yield name, getattr(syncline, name)
    for owner in (syncline.Volume, syncline.File, syncline.Device, syncline.Trace):
        for name, value in vars(owner).items():
            if not name.startswith("_"):
                yield name, value
    for name, value in vars(plots).items():
        if inspect.isfunction(value) and not name.startswith("_"):
            yield f"plots.{name}", value


@pytest.mark.parametrize("name, value", [pytest.param(*one, id=one[0]) for one in public()])
def test_name(name, value):
    assert inspect.getdoc(value), "no description"
    word = re.compile(r"\b" + re.escape(name) + r"\b")
    assert word.search(TESTS), "no test"
    # Results have no constructor to show.
    results = ("CheckReport", "Recovered", "StatFs", "File")
    assert name in results or word.search(EXAMPLES), "no example in README.md or LIBRARIES.md"
