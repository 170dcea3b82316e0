"""Published numbers come from records, and every record can be traced."""

from pathlib import Path

import pytest

from musigma.evaluation.records import load_record
from musigma.evaluation.tables import fill, read_records

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
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


@pytest.mark.parametrize("name", ["README.md", "docs/training.md"])
def test_tables_equal_the_records(name):
    text = (ROOT / name).read_text()
    assert text == fill(text, read_records(RESULTS)), "run 'make tables'"
