"""Folders in the form of the Hugging Face hub: written, read again, and refused where they lie."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

import musigma
from helpers.calibrations import calibration_of
from helpers.networks import build
from musigma import hub
from musigma.evaluation.record import Record
from musigma.model import Model, load
from musigma.networks.model_card import purpose_of
from musigma.types import ConfigError, WeightsError

IMAGE = torch.rand(1, 3, 9, 7, generator=torch.Generator().manual_seed(0))
CALIBRATION = calibration_of(num_images=12)


@pytest.fixture
def model(tmp_path) -> Model:
    """A small calibrated model from a file, so that it has a digest."""
    network = build("edsr-baseline", 2, sigma=True)
    model = Model(network=network, name="edsr-baseline", calibration=CALIBRATION)
    model.save(tmp_path / "small.safetensors", licence="CC0-1.0")
    return replace(load(tmp_path / "small.safetensors"), name="mine")


def record_of(model: Model, **result: float) -> Record:
    return Record(
        kind="evaluation",
        model={"name": model.name, "scale": 2, "params": 1, "digest": model.digest},
        protocol={"name": "sr-y", "scale": 2, "degradation": "area | jpeg(75)"},
        data={"name": "My photos: set 5", "hash": "0"},
        result={"psnr_y": 31.25, "coverage": 0.905, **result},
        provenance={},
    )


def front_matter(folder: Path) -> dict:
    _, front, _ = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front)


def test_what_is_saved_is_loaded_again(model, tmp_path):
    model.save_pretrained(tmp_path / "folder")
    names = sorted(path.name for path in (tmp_path / "folder").iterdir())
    assert names == ["README.md", "config.json", "model.safetensors"]
    again = musigma.Model.from_pretrained(tmp_path / "folder")
    assert (again.name, again.scale, again.digest) == ("mine", 2, model.digest)
    assert again.calibration == model.calibration
    assert again.metadata["licence"] == "CC0-1.0"
    for before, after in zip(model.predict(IMAGE), again.predict(IMAGE), strict=True):
        torch.testing.assert_close(before, after)


def test_a_folder_needs_no_further_package(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    model.save_pretrained(tmp_path / "folder")
    assert Model.from_pretrained(str(tmp_path / "folder")).scale == 2
    with pytest.raises(ConfigError, match=r"no folder someone/x2; .* pip install 'musigma\[hub\]'"):
        Model.from_pretrained("someone/x2")


def test_the_config_repeats_what_the_weights_say(model, tmp_path):
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architecture"] == "edsr-baseline"
    assert config["library_name"] == "musigma"
    assert config["calibration"]["coverage"] == 0.9
    (tmp_path / "config.json").unlink()  # the weights file describes itself
    assert Model.from_pretrained(tmp_path).name == "edsr-baseline"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": 4}, "config.json says scale = 4, but model.safetensors says 2"),
        ({"architecture": "imdn"}, 'says architecture = "imdn", but'),
        ({"settings": {"width": 1}}, "one of the two files was changed"),
    ],
)
def test_a_config_that_contradicts_the_weights_is_refused(model, tmp_path, change, message):
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(WeightsError, match=message):
        Model.from_pretrained(tmp_path)


@pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000, " " * (hub.MAX_CONFIG_BYTES + 1)])
def test_a_broken_config_is_one_line(model, tmp_path, text):
    model.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(WeightsError, match=r"config\.json") as caught:
        Model.from_pretrained(tmp_path)
    assert "\n" not in str(caught.value)


def test_the_card_has_the_results_in_the_form_of_the_hub(model, tmp_path):
    model.save_pretrained(tmp_path, results=[record_of(model, ause=float("inf"))])
    front = front_matter(tmp_path)
    assert (front["library_name"], front["pipeline_tag"]) == ("musigma", "image-to-image")
    (entry,) = front["model-index"][0]["results"]
    assert entry["dataset"] == {"name": "My photos: set 5", "type": "my-photos-set-5"}
    assert {metric["type"]: metric["value"] for metric in entry["metrics"]} == {
        "psnr": 31.25, "coverage": 0.905,
    }  # fmt: skip
    text = (tmp_path / "README.md").read_text()
    assert "at least 90 % of the true values" in text  # the promise
    assert "| My photos: set 5 | x2, inputs by area \\| jpeg(75) | PSNR on Y (dB) | 31.25 |" in text
    assert "CC0-1.0" in text


def test_the_package_of_the_hub_reads_the_card(model, tmp_path):
    huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    model.save_pretrained(tmp_path, results=[record_of(model)])
    card = huggingface_hub.ModelCard.load(tmp_path / "README.md")
    results = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert results == {"psnr": 31.25, "coverage": 0.905}
    assert card.data.model_name == "mine x2"


def test_results_of_other_weights_are_refused_and_nothing_is_written(model, tmp_path):
    other = replace(record_of(model), model={"digest": "f" * 64})
    with pytest.raises(ConfigError, match="measured with other weights than mine has"):
        model.save_pretrained(tmp_path / "folder", results=[other])
    assert not (tmp_path / "folder").exists()


def test_weights_without_calibration_and_licence_say_so(tmp_path):
    network = build("edsr-baseline", 2, sigma=False)
    Model(network=network, name="bare").save_pretrained(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "The weights are not calibrated." in text
    assert "does not state a license" in text
    assert "license" not in front_matter(tmp_path)
    assert "model-index" not in front_matter(tmp_path)


@pytest.mark.parametrize("source", ["photo", "./missing", "a/b/c", "../x", Path("a/b")])
def test_a_folder_that_is_missing(source):
    with pytest.raises(WeightsError, match="there is no folder"):
        Model.from_pretrained(source)


def test_a_folder_has_no_revision(tmp_path):
    with pytest.raises(ConfigError, match="is a folder, so it has no revision 'main'"):
        Model.from_pretrained(tmp_path, revision="main")


def test_a_folder_without_weights(tmp_path):
    with pytest.raises(WeightsError, match=r"model\.safetensors could not be read"):
        Model.from_pretrained(tmp_path)


def in_process(code: str, folder: Path) -> str:
    """Run code in a new process that may not use the network; what it prints."""
    import os
    import subprocess

    env = os.environ | {"HF_HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_repository_comes_by_the_package_of_the_hub(model, tmp_path):
    """A repository in the cache of the package, as a download leaves it; there is no network."""
    pytest.importorskip("huggingface_hub", reason="needs the extra hub")
    commit, cache = "0" * 40, tmp_path / "hub" / "models--someone--x2"
    model.save_pretrained(cache / "snapshots" / commit)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(commit)
    code = """
import musigma
print(musigma.Model.from_pretrained("someone/x2").name)
try:
    musigma.Model.from_pretrained("someone/x4")
except musigma.MusigmaError as error:
    print(error)
"""
    first, second, *further = in_process(code, tmp_path).splitlines()
    assert first == "mine"
    assert second.startswith("someone/x4 could not be fetched from the hub: ")
    assert not further


def test_texts_of_a_weights_file_bring_no_html_and_no_lines_into_the_card(model, tmp_path):
    licence = "free\n---\ntags: [mine]\n<script>alert(1)</script>"
    training = {"recipe": {"degrade": "<img src=x>\n# Title"}}
    stated = {**model.metadata, "licence": licence, "training": training}
    replace(model, metadata=stated).save_pretrained(tmp_path / "hub")
    card = (tmp_path / "hub" / "README.md").read_text()
    assert "free --- tags: [mine] &lt;script&gt;alert(1)&lt;/script&gt;\n" in card
    assert "degraded by &lt;img src=x&gt; # Title." in card


@pytest.mark.parametrize("levels", [["a", {}], {"a": 1}, "25", 25])
def test_noise_levels_of_any_kind_can_be_told(levels):
    text = purpose_of({"scale": 1, "training": {"recipe": {"noise_std": levels}}})
    assert text.startswith("removes Gaussian noise of level ")
