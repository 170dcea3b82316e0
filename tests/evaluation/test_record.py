"""A record holds what is needed to trace a number; a file that does not is refused."""

import copy
import json
import subprocess

import pytest
import torch

from musigma.evaluation import Record, denoising, load_record, provenance, super_resolution
from musigma.evaluation import record as records
from musigma.types import DataError

RECORD = {
    "kind": "evaluation",
    "model": {"name": "bicubic", "scale": 2, "params": 0, "digest": ""},
    "protocol": {"name": "sr-y"},
    "data": {"name": "Set5", "hash": "0" * 64},
    "result": {"psnr_y": 33.673},
    "provenance": {
        "commit": "0" * 40,
        "musigma": "0.1",
        "torch": "2.6",
        "python": "3.11",
        "device": "a processor",
        "date": "2026-01-01",
    },
}


def written(folder, content):
    path = folder / "record.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_saved_record_is_read_back(tmp_path):
    record = Record(**RECORD, seed=3, images={"baby": {"psnr_y": 37.0}})
    record.save(tmp_path / "new" / "record.json")
    assert load_record(tmp_path / "new" / "record.json") == record


@pytest.mark.parametrize(
    ("part", "key"), [(part, key) for part, keys in records.REQUIRED.items() for key in keys]
)
def test_a_missing_entry_of_a_record_is_named(tmp_path, part, key):
    for value in (None, "", "absent"):
        content = copy.deepcopy(RECORD)
        content[part][key] = value
        if value == "absent":
            del content[part][key]
        if (key, value) == ("digest", ""):
            continue  # a network without weights has no digest
        with pytest.raises(DataError, match=rf"record\.json lacks {part}\.{key}, without which"):
            load_record(written(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("no json", "is not a record"),
        ("[1, 2]", "is not a record"),
        ("{}", "is not a record"),
        (RECORD | {"colour": "red"}, "unexpected keyword argument 'colour'"),
        (RECORD | {"model": None}, "lacks model.name"),
        (RECORD | {"data": ["Set5"]}, "lacks data.name"),
        (RECORD | {"schema": 99}, "has schema 99; this version reads 2"),
        (RECORD | {"result": {}}, "holds no result"),
    ],
    ids=range(8),
)
def test_files_that_are_no_record_are_refused(tmp_path, content, line):
    with pytest.raises(DataError) as caught:
        load_record(written(tmp_path, content))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="could not be read"):
        load_record(tmp_path / "nowhere.json")


def test_provenance_says_where_a_number_was_made():
    source = provenance(torch.device("cpu"))
    assert {*records.REQUIRED["provenance"], "commit_source"} == source.keys()
    assert all(source.values())


def fake_git(monkeypatch, answers):
    def run(command, **_):
        if answers is None:
            raise FileNotFoundError("git")
        output = answers.get(command[3], "")
        return subprocess.CompletedProcess(command, 0 if output else 1, stdout=output)

    monkeypatch.delenv("MUSIGMA_COMMIT", raising=False)
    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"ls-files": "records.py\n", "rev-parse": "abc\n"}, "abc"),
        ({"ls-files": "records.py\n", "rev-parse": "abc\n", "status": " M a\n"}, "abc+"),
        # Installed into an environment that lies in the repository of another project.
        ({"rev-parse": "theirs\n"}, f"release {records.__version__}"),
        ({}, f"release {records.__version__}"),
        (None, f"release {records.__version__}"),
    ],
    ids=["clean", "changed", "other project", "no repository", "no git"],
)
def test_the_commit_of_a_record_comes_from_git_or_the_release(monkeypatch, answers, expected):
    fake_git(monkeypatch, answers)
    name, source = records.commit()
    assert name == expected
    assert source == ("release" if name.startswith("release") else "git")


def test_commit_of_files_without_their_history(monkeypatch):
    monkeypatch.setenv("MUSIGMA_COMMIT", "told")
    assert records.commit() == ("told", "environment")
    assert provenance(torch.device("cpu"))["commit_source"] == "environment"


def test_records_of_schema_1_compare_with_new_ones(tmp_path):
    former = copy.deepcopy(RECORD)
    former["schema"] = 1
    former["protocol"] = {
        "name": "sr-y",
        "degradation": "MATLAB imresize bicubic, 8 bits after each pass; HR cropped to a multiple",
        "scale": 2,
        "noise_std": 0.0,
        "noise_seed": 0,
        "channels": 3,
        "measured_on": "y",
        "shave": 2,
        "rounded": True,
    }
    former["model"]["calibration"] = {"kind": "expected", "coverage": 0.9}
    former["model"]["calibration_data"] = {"name": "crops", "hash": "h"}
    record = load_record(written(tmp_path, former))
    assert record.protocol == super_resolution(2).as_json()
    assert record.model["calibration"] == {
        "method": "conformal-risk-control",
        "coverage": 0.9,
        "data": {"name": "crops", "hash": "h"},
    }
    former["protocol"] |= {
        "name": "denoise",
        "degradation": "additive white Gaussian noise, not clipped, drawn once per image by name",
        "scale": 1,
        "noise_std": 25.0,
        "measured_on": "all",
        "shave": 0,
    }
    assert load_record(written(tmp_path, former)).protocol == denoising(25, channels=3).as_json()


def test_an_infinite_psnr_comes_back(tmp_path):
    content = RECORD | {"result": {"psnr_y": float("inf")}, "images": {"a": {"psnr_y": -1.5}}}
    Record(**content).save(tmp_path / "new.json")
    record = load_record(tmp_path / "new.json")
    assert record.result == {"psnr_y": float("inf")}
    assert record.images == {"a": {"psnr_y": -1.5}}
    former = RECORD | {"schema": 1, "result": {"psnr_y": None, "validation": {"psnr": None}}}
    record = load_record(written(tmp_path, former))
    assert f"{record.result['psnr_y']:.2f}" == "inf"
    assert record.result["validation"] == {"psnr": float("inf")}
