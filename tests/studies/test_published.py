"""Published numbers come from records, and every record can be traced."""

from pathlib import Path

import pytest

from musigma.evaluation.record import load_record
from studies.fill_documents import fill

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "studies" / "results"
DOCUMENTS = sorted((ROOT / "docs").glob("*.md"))
RECORDS = sorted(RESULTS.rglob("*.json"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_every_record_is_whole(path):
    record = load_record(path)
    assert record.provenance["commit"]
    assert record.provenance["device"]
    if record.kind in ("training", "evaluation"):
        assert len(record.data["hash"]) == 64
    if record.kind == "training":
        assert record.seed is not None
        assert record.model["recipe"]["seed"] == record.seed


@pytest.mark.parametrize("path", [ROOT / "README.md", *DOCUMENTS], ids=lambda path: path.name)
def test_tables_equal_the_records(path):
    text = path.read_text()
    assert text == fill(text, RESULTS), "run 'make tables'"
