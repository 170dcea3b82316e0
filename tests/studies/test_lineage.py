"""Shipped files, evaluation records and training records lead to each other."""

import tomllib
from pathlib import Path

import pytest

from musigma.evaluation.record import Record
from musigma.model import load
from musigma.networks.weights_file import SHIPPED
from studies.paper.measurements import RESULTS, load_records
from studies.training_runs.run_key import key_of_record, run_key

EXCEPTIONS = tomllib.loads((RESULTS.parent / "untraceable.toml").read_text())


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    return dict(load_records().records)


@pytest.fixture(scope="module")
def runs(records) -> dict[str, list[str]]:
    """The names of the training records, by the key of their run."""
    found: dict[str, list[str]] = {}
    for name, record in records.items():
        if record.kind == "training":
            found.setdefault(key_of_record(record), []).append(name)
    return found


def test_no_two_training_records_tell_of_one_run(runs):
    assert [names for names in runs.values() if len(names) > 1] == []


def test_every_evaluation_of_ours_leads_to_one_training_record(records, runs):
    lost = [
        name
        for name, record in records.items()
        if record.kind == "evaluation" and record.model.get("training")
        if "members" not in record.model and key_of_record(record) not in runs
    ]
    assert sorted(lost) == sorted(EXCEPTIONS["no_training_record"])


def test_every_member_of_an_ensemble_leads_to_one_training_record(records, runs):
    ensembles = [record for record in records.values() if "members" in record.model]
    assert ensembles
    for record in ensembles:
        for digest in record.model["members"]:
            keys = {
                key_of_record(other)
                for other in records.values()
                if other.kind == "evaluation"
                if other.model["digest"] == digest and "members" not in other.model
            }
            assert len(keys) == 1
            assert keys <= runs.keys()


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.safetensors")), ids=lambda path: path.stem)
def test_every_shipped_file_leads_to_its_records(records, runs, path):
    model = load(path)
    (name,) = runs[run_key(model.metadata["training"])]
    assert records[name].model["digest"] == model.digest
    measured = [
        record
        for record in records.values()
        if record.kind == "evaluation" and record.model["digest"] == model.digest
    ]
    assert measured
    assert {key_of_record(record) for record in measured} == {key_of_record(records[name])}


def test_what_a_run_started_from_has_a_training_record(records):
    names = {Path(name).stem for name in records if name.startswith("training/")}
    digests = {record.model["digest"] for record in records.values() if record.kind == "training"}
    lost = []
    for name, record in records.items():
        start = record.model.get("recipe", {}).get("start_from", "")
        by_name = {Path(start).stem, f"{Path(start).stem}-s0"} & names
        if start and not by_name and record.model.get("start_digest") not in digests:
            lost.append(name)
    assert sorted(lost) == sorted(EXCEPTIONS["unknown_start"])


def test_records_of_uncommitted_trees_are_listed(records):
    dirty = [name for name, record in records.items() if "+" in record.provenance["commit"]]
    assert sorted(dirty) == sorted(EXCEPTIONS["uncommitted_tree"])


def test_benchmarks_of_unknown_weights_are_listed(records):
    digests = {load(path).digest for path in sorted(SHIPPED.glob("*.safetensors"))}
    lost = [
        name
        for name, record in records.items()
        if record.kind == "benchmark" and record.model["digest"]
        if record.model["digest"] not in digests
    ]
    assert sorted(lost) == sorted(EXCEPTIONS["unknown_weights"])


def test_a_key_depends_on_the_run_and_not_on_spelling():
    run = {"seed": 0, "steps": 9, "seconds": 1.5, "commit": "abcdef0123456789"}
    recipe = {"network": "edsr-baseline", "optimizer": "muon"}
    key = run_key(run | {"recipe": recipe})
    assert key == run_key(run | {"recipe": recipe, "commit": "abcdef0"})
    assert key == run_key(run | {"recipe": {"network": "edsr-baseline", "optimiser": "muon"}})
    assert key == run_key(run | {"recipe": recipe | {"sigma": False, "betas": [0.9, 0.999]}})
    assert key != run_key(run | {"recipe": recipe, "seed": 1})
    assert key != run_key(run | {"recipe": recipe | {"ema": 0.9}})
