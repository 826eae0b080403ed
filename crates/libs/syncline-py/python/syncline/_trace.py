"""Traces of storage activity as Arrow tables."""

import json
import os
from typing import Any, Optional

from . import _native
from ._study import Document, Path, file, run


class Trace:
    """A trace of any format that `syncline-lab trace` reads.

    It is an Arrow stream: `pyarrow.table(trace)`, `polars.DataFrame(trace)`, `pandas.DataFrame.from_arrow(trace)`.
    Records are read batch by batch; their buffers are handed over without a copy. Each use reads the file anew.
    """

    def __init__(self, path: Path, format: Optional[str] = None, *, drop_repeats: bool = False) -> None:
        """`format` names the file's format where its content does not tell."""
        self._file = file(path, format, drop_repeats)
        self.path = os.fspath(path)
        #: `syscall`, `page` or `block`; and the format or recorder that it comes from.
        self.kind, self.source = _native.trace_header(json.dumps(self._file))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> object:
        return _native.trace_stream(json.dumps(self._file))

    def stat(self) -> Document:
        """Sizes, sequentiality, synchronous share, reuse (`syncline-lab trace stat`)."""
        return run("trace_stat", **self._file)

    def __repr__(self) -> str:
        return f"syncline.Trace({self.path!r}, kind={self.kind!r}, source={self.source!r})"
