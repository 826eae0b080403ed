"""Databases inside an image, in a Python whose sqlite3 loads extensions."""

import os
import pathlib
import subprocess
import sys

import pytest

import syncline

PROGRAM = """
import sqlite3, sys
import syncline.sqlite
image = sys.argv[1]
with syncline.sqlite.connect(image, "/a b?.db", options="sync=ordered", timeout=1) as db:
    db.execute("create table t (x)")
    db.execute("insert into t values (7)")
db.close()
again = syncline.sqlite.connect(image, "a b?.db")
assert again.execute("select x from t").fetchall() == [(7,)]
again.close()
try:
    syncline.sqlite.connect(image + ".missing", "a.db").execute("create table t (x)")
except sqlite3.OperationalError:
    print("refused")
"""


def interpreter():
    """A Python that loads extensions; None if there is none."""
    asked = "import sqlite3; sqlite3.Connection.enable_load_extension"
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run([python, "-c", asked], capture_output=True).returncode == 0:
            return python
    return None


def test_connect(image, monkeypatch):
    library = pathlib.Path(os.environ.get("SYNCLINE_LAB", "")).parent / "libsyncline_sqlite.so"
    python = interpreter()
    if python is None or not library.exists():
        pytest.skip("needs a Python that loads SQLite's extensions, and libsyncline_sqlite.so")
    site = str(pathlib.Path(syncline.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": site, "SYNCLINE_SQLITE": str(library)}
    ran = subprocess.run([python, "-c", PROGRAM, str(image)], env=env, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "refused\n"), ran.stderr
    assert syncline.check(image).is_clean
    with syncline.Volume(image, "r") as volume:
        assert "a b?.db" in volume.listdir("/")
    env["SYNCLINE_SQLITE"] = str(image) + ".missing"
    ran = subprocess.run([python, "-c", PROGRAM, str(image)], env=env, capture_output=True, text=True)
    assert "install the package syncline" in ran.stderr
