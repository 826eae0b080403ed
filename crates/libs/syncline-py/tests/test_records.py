"""Records at rest: the queries of docs/FLEETS.md in DuckDB, and the same directory in Polars and Dask."""

import os
import pathlib
import re
import subprocess

import pytest

duckdb = pytest.importorskip("duckdb")

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES = HERE.parents[3] / "samples"
QUERIES = re.findall(r"```sql\n(.*?)```", (HERE.parents[3] / "docs" / "FLEETS.md").read_text(), re.S)

pytestmark = pytest.mark.skipif(not os.environ.get("SYNCLINE_LAB"), reason="SYNCLINE_LAB names no program to run")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    root = tmp_path_factory.mktemp("fleet")
    for device, app in (("card-1", "mail"), ("card-1", "pocketdata"), ("card-2", "mail")):
        trace = SAMPLES / f"{app}.calls.trace"
        words = ["trace", "import", trace, "--to", "parquet", "--device-name", device, "--app", app]
        command = [os.environ["SYNCLINE_LAB"], *words, "--start", "1767225600", "-o", root / "records"]
        subprocess.run(command, check=True, capture_output=True)
    return root


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_queries_of_the_document_run(records, number, monkeypatch):
    monkeypatch.chdir(records)
    assert duckdb.sql(QUERIES[number]).fetchall()


def test_there_are_queries():
    assert len(QUERIES) == 4


def test_queries_say_what_the_traces_hold(records, monkeypatch):
    import pyarrow.parquet as pq

    monkeypatch.chdir(records)
    by_app = {app: (mb, writes) for app, mb, writes in duckdb.sql(QUERIES[0]).fetchall()}
    for app, devices in (("mail", 2), ("pocketdata", 1)):
        rows = pq.read_table(SAMPLES / f"{app}.calls.trace").to_pylist()
        written = [row["len_bytes"] for row in rows if row["op"] == "write"]
        assert by_app[app] == (pytest.approx(devices * sum(written) / 1e6), devices * len(written))
    syncs = duckdb.sql(QUERIES[2]).fetchall()
    assert {(device, str(day), hour) for device, day, hour, _ in syncs} == {
        ("card-1", "2026-01-01", 0),
        ("card-2", "2026-01-01", 0),
    }


def test_polars_and_dask_read_the_same_rows(records):
    polars, dask = pytest.importorskip("polars"), pytest.importorskip("dask")
    found = duckdb.sql(f"SELECT count(*) FROM read_parquet('{records}/records/**/*.parquet', hive_partitioning = true)")
    count = found.fetchall()[0][0]
    lazy = polars.scan_parquet(records / "records" / "**" / "*.parquet", hive_partitioning=True)
    assert lazy.select(polars.len()).collect().item() == count
    assert set(lazy.select("device_name").unique().collect()["device_name"]) == {"card-1", "card-2"}
    import pyarrow.parquet as pq

    files = sorted((records / "records").rglob("*.parquet"))
    lengths = dask.compute(*[dask.delayed(lambda path: pq.read_table(path, partitioning=None).num_rows)(f) for f in files])
    assert sum(lengths) == count
