"""Columns of a row: the configuration, then the figures of its kind of sweep (`kinds.json`)."""

from __future__ import annotations

import functools
import json
from importlib import resources

#: Columns that all kinds have: name and Arrow type.
CONFIGURATION = {
    "key": "string",
    "what": "string",
    "trace": "string",
    "workload": "string",
    "policy": "string",
    "size": "string",
    "device": "string",
    "options": "string",
    "seed": "int64",
    "sample": "float64",
    "version": "string",
    "error": "string",
    "document": "string",
}


@functools.lru_cache(maxsize=1)
def kinds() -> dict:
    """Of each kind of sweep: `axes` in the order of the product, each with `True` if it is required; `options` of the
    command that are flags or take a value (for `bench`, all others are mount options); `columns`, the figures: name,
    Arrow type and place in the command's document. The program `syncline-lab sweep` reads the same file.
    """
    text = resources.files(__package__).joinpath("kinds.json").read_text()
    return json.loads(text)


def arrow(what: str):
    """The Arrow schema of a kind of sweep."""
    import pyarrow

    named = {**CONFIGURATION, **{name: kind for name, (kind, _) in kinds()[what]["columns"].items()}}
    types = {"string": pyarrow.string(), "int64": pyarrow.int64(), "float64": pyarrow.float64()}
    return pyarrow.schema([(name, types[kind]) for name, kind in named.items()])


def metrics(what: str, document: dict | None) -> dict:
    """The figures of a document; null where it has none, as without a device."""
    run = document
    if document is not None and "runs" in document:
        run = document["runs"][0]
    found = {}
    for name, (kind, place) in kinds()[what]["columns"].items():
        value = run
        for step in place.split("."):
            if isinstance(value, list):
                value = value[int(step)] if int(step) < len(value) else None
            elif isinstance(value, dict):
                value = value.get(step)
        found[name] = None if value is None else {"int64": int, "float64": float}[kind](value)
    return found
