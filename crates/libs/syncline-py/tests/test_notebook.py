"""The notebook runs from the first cell to the last, on the shipped samples. `NOTEBOOK_PICTURES` keeps what it draws."""

import json
import os
import pathlib
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]
#: The notebook answers within this time.
LIMIT_S = 600


@pytest.mark.skipif(not os.environ.get("SYNCLINE_LAB"), reason="SYNCLINE_LAB names no program to run")
def test_four_cards(tmp_path, monkeypatch, capsys):
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("pyarrow")
    matplotlib.use("Agg")
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "docs" / "notebooks" / "four-cards.ipynb").read_text())
    names, began = {"__name__": "notebook"}, time.monotonic()
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    seconds = time.monotonic() - began
    said = capsys.readouterr().out
    best = [line for line in said.splitlines() if line.startswith("best: ")]
    assert len(best) == 1 and "sync=eager" in best[0]
    for card in names["cards"]:
        gained = names["survival"].value("sync=eager", "sync=ordered", 5, card)["median_years_gained"]
        assert gained > 0, card
    picture = tmp_path / "four-cards.png"
    names["figure"].savefig(picture, dpi=60)
    assert picture.stat().st_size > 10_000
    if os.environ.get("NOTEBOOK_PICTURES"):
        pathlib.Path(os.environ["NOTEBOOK_PICTURES"], picture.name).write_bytes(picture.read_bytes())
    with capsys.disabled():
        print(f"\nfour-cards.ipynb answers in {seconds:.1f} s of {LIMIT_S}: {best[0]}")
    assert seconds < LIMIT_S
