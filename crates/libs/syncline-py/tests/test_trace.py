"""Traces as Arrow streams."""

import gc
import pathlib

import pytest

import syncline

SAMPLES = pathlib.Path(__file__).resolve().parents[4] / "samples"
BLOCKS = SAMPLES / "git.blocks.trace"
pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.compute")


def test_a_trace_is_a_table():
    trace = syncline.Trace(BLOCKS)
    assert trace.kind == "block" and trace.source and "git.blocks.trace" in repr(trace)
    table = pyarrow.table(trace)
    statistics = trace.stat()["statistics"]
    assert table.num_rows == statistics["records"]
    writes = table.filter(pyarrow.compute.equal(table["op"], "write"))
    assert pyarrow.compute.sum(writes["len_bytes"]).as_py() == statistics["write"]["bytes"]
    assert table.schema.field("sync").type == pyarrow.bool_() and table["time_ns"].null_count == 0


def test_it_equals_the_file_that_it_comes_from():
    parquet = pytest.importorskip("pyarrow.parquet")
    stored = parquet.read_table(BLOCKS)
    table = pyarrow.table(syncline.Trace(BLOCKS))
    for name in stored.column_names:
        known = stored[name].to_pylist()
        # A mark that is not set is absent in the file.
        known = [bool(mark) for mark in known] if stored.schema.field(name).type == pyarrow.bool_() else known
        assert table[name].to_pylist() == known, name


def test_foreign_formats_and_streams(tmp_path):
    text = tmp_path / "some.spc"
    text.write_text("".join(f"0,{n * 8},4096,{'rw'[n % 2]},{n}.0\n" for n in range(70_000)))
    trace = syncline.Trace(text, "spc")
    reader = pyarrow.RecordBatchReader.from_stream(trace)
    first = reader.read_next_batch()
    assert first.num_rows == 65_536 and reader.read_next_batch().num_rows == 70_000 - 65_536
    # A stream that nobody reads to its end.
    reader = pyarrow.RecordBatchReader.from_stream(trace)
    del reader
    capsule = trace.__arrow_c_stream__()
    del capsule
    gc.collect()


def test_damage_is_an_error(tmp_path):
    damaged = tmp_path / "damaged.trace"
    bytes = bytearray(BLOCKS.read_bytes())
    bytes[64:4096] = b"\xff" * (4096 - 64)
    damaged.write_bytes(bytes)
    with pytest.raises((OSError, ValueError, pyarrow.ArrowException)):
        pyarrow.table(syncline.Trace(damaged))
    with pytest.raises(FileNotFoundError):
        syncline.Trace(tmp_path / "none")


def test_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(syncline.Trace(BLOCKS))
    assert frame.height == syncline.Trace(BLOCKS).stat()["statistics"]["records"]
