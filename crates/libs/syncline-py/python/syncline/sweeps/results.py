"""Results of a sweep in a directory: Parquet, a file a batch, each written once.

```text
DIR/plan.json          the plan; `what` and the version are compared when a sweep goes on
DIR/part-NNNNN.parquet a batch: written under a temporary name, synced, renamed
DIR/rows.jsonl         finished rows that no part holds yet; emptied after a part is there
DIR/.lock              held by the driver that writes
```

A driver that is killed loses only what runs. A row may then be in a part and in `rows.jsonl`: `read` takes it once.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os

from . import schema
from .errors import SweepError

#: Rows of a part.
BATCH_ROWS = 1000


class Results:
    """The rows of one sweep; with no directory they stay in memory."""

    def __init__(self, directory, plan, version: str, resume: bool):
        self.directory = None if directory is None else os.fspath(directory)
        self.what, self.version = plan.what, version
        self.rows: dict[str, dict] = {}
        self._pending: list[dict] = []
        self._journal = self._lock = None
        if self.directory is not None:
            try:
                with _explained(self.directory):
                    self._open(plan, resume)
            except SweepError:
                self.close()
                raise

    def _open(self, plan, resume: bool):
        os.makedirs(self.directory, exist_ok=True)
        self._lock = open(os.path.join(self.directory, ".lock"), "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SweepError(f"{self.directory}: another sweep writes there; wait for it") from None
        path = os.path.join(self.directory, "plan.json")
        if os.path.exists(path):
            if not resume:
                raise SweepError(f"{self.directory}: has results; resume, or name a new directory")
            self._compare(path)
        _write(path, json.dumps({**plan.document(), "version": self.version}, indent=2).encode())
        for row in read_rows(self.directory, self.what):
            self.rows[row["key"]] = row
        in_parts = {row["key"] for row in _part_rows(self.directory)}
        self._pending = [row for key, row in self.rows.items() if key not in in_parts]
        self._journal = open(os.path.join(self.directory, "rows.jsonl"), "ab", buffering=0)
        self.flush()

    def _compare(self, path: str):
        with open(path, encoding="utf-8") as file:
            before = json.load(file)
        if before["what"] != self.what:
            raise SweepError(f"{self.directory}: holds a sweep of `{before['what']}`; name a new directory")
        if before["version"] != self.version:
            raise SweepError(
                f"{self.directory}: rows are by `{before['version']}`, this is `{self.version}`; "
                "resume with the same version, or name a new directory"
            )

    def add(self, row: dict):
        """Keeps a row; a second one of the same key is dropped."""
        if row["key"] in self.rows:
            return
        if self._journal is not None:
            with _explained(self.directory):
                line = json.dumps(row).encode() + b"\n"
                if self._journal.write(line) != len(line):
                    raise OSError(28, "no space left on device")
        self.rows[row["key"]] = row
        self._pending.append(row)
        if len(self._pending) >= BATCH_ROWS:
            self.flush()

    def flush(self):
        """Writes the rows that no part holds as one part, then empties the journal."""
        if self._journal is None:
            return
        with _explained(self.directory):
            if self._pending:
                number = len(_parts(self.directory))
                path = os.path.join(self.directory, f"part-{number:05}.parquet")
                _write(path, self._parquet(self._pending))
                self._pending = []
            self._journal.truncate(0)

    def _parquet(self, rows: list[dict]) -> bytes:
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.Table.from_pylist(rows, schema=schema.arrow(self.what))
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(table, sink, compression="zstd")
        return sink.getvalue().to_pybytes()

    def table(self, tasks):
        """The rows of these tasks that are there, in this order, as an Arrow table."""
        import pyarrow

        rows = [self.rows[task.key] for task in tasks if task.key in self.rows]
        return pyarrow.Table.from_pylist(rows, schema=schema.arrow(self.what))

    def close(self):
        """Lets other drivers write."""
        for file in (self._journal, self._lock):
            if file is not None:
                file.close()


class _explained:
    """Errors of the directory as the sweep's, with the next step."""

    def __init__(self, directory: str):
        self._directory = directory

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, OSError):
            text = error.strerror or str(error)
            raise SweepError(
                f"{self._directory}: {text}; make room or give access, then resume: rows that are there are kept"
            ) from None


def _write(path: str, data: bytes):
    """Writes a file that is there whole or not at all."""
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _parts(directory: str) -> list[str]:
    return sorted(glob.glob(os.path.join(glob.escape(directory), "part-*.parquet")))


def _part_rows(directory: str):
    import pyarrow.parquet

    for path in _parts(directory):
        yield from pyarrow.parquet.read_table(path, partitioning=None).to_pylist()


def read_rows(directory: str, what: str):
    """Every row of a directory once: parts first, then whole lines of the journal."""
    seen = set()
    for row in _part_rows(directory):
        if row["key"] not in seen:
            seen.add(row["key"])
            yield row
    try:
        with open(os.path.join(directory, "rows.jsonl"), "rb") as file:
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        lines = []
    for row in map(json.loads, lines):
        if row["key"] not in seen and row["what"] == what:
            seen.add(row["key"])
            yield row


def read(directory):
    """The rows of a sweep's directory as an Arrow table, sorted by key; the sweep may still run."""
    import pyarrow

    directory = os.fspath(directory)
    try:
        with open(os.path.join(directory, "plan.json"), encoding="utf-8") as file:
            what = json.load(file)["what"]
    except OSError as error:
        raise SweepError(f"{directory}: {error.strerror}; name a directory that a sweep wrote") from None
    rows = sorted(read_rows(directory, what), key=lambda row: row["key"])
    return pyarrow.Table.from_pylist(rows, schema=schema.arrow(what))
