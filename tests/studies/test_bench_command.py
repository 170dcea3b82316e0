"""``python -m studies bench infer``: what is printed and recorded of a measurement."""

import json

import pytest

from musigma.evaluation.record import load_record
from studies.bench import inference as bench


@pytest.fixture
def plain_only(monkeypatch):
    """Leave out the engines that take ten seconds to make."""
    monkeypatch.setattr(bench, "candidates", lambda *_, **__: [])


@pytest.mark.usefixtures("plain_only")
def test_a_record_of_one_engine(studies, musigma, weights, photos, tmp_path):
    record = tmp_path / "record.json"
    words = ["--model", weights, "--height", 9, "--width", 8, "--rounds", 2, "--device", "cpu"]
    result = studies("bench", "infer", *words, "--data", photos, "--record", record, "--json")
    assert result.code == 0
    found = json.loads(result.out)
    assert found["auto"] == found["fastest"] == "torch"
    assert found["timings"]["torch"]["times_faster"] == 1
    evaluated = musigma("evaluate", weights, "--data", photos, "--device", "cpu", "--json")
    expected = json.loads(evaluated.out)["psnr_y"]
    assert found["timings"]["torch"]["psnr_y"] == pytest.approx(expected, abs=1e-4)
    saved = load_record(record)
    assert saved.result == found
    assert (saved.protocol["height"], saved.protocol["width"]) == (9, 8)
    assert saved.data["num_images"] == 2


@pytest.mark.usefixtures("plain_only")
def test_without_data_there_is_no_psnr(studies, weights, monkeypatch):
    monkeypatch.delenv("MUSIGMA_DATA", raising=False)
    words = ["--model", weights, "--height", 9, "--width", 8, "--rounds", 1, "--device", "cpu"]
    result = studies("bench", "infer", *words)
    assert result.code == 0
    assert "no PSNR: 'Set5' is not a folder" in result.err
    assert "auto: torch, 1.0 times as fast as torch" in result.out


@pytest.mark.usefixtures("plain_only")
def test_a_denoiser_is_timed_and_measured(studies, musigma, photos, tmp_path):
    record = tmp_path / "record.json"
    words = ["--model", "drunet-small", "--height", 16, "--width", 16, "--rounds", 1]
    result = studies(
        "bench", "infer", *words, "--data", photos, "--device", "cpu", "--record", record
    )
    assert result.code == 0, result.err
    assert "psnr" in result.out
    level = ["--noise-std", 25, "--device", "cpu", "--json"]
    expected = json.loads(musigma("evaluate", "drunet-small", "--data", photos, *level).out)["psnr"]
    measured = load_record(record).result["timings"]["torch"]["psnr"]
    assert measured == pytest.approx(expected, abs=1e-4)
