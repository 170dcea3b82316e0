"""Small things that go wrong are one line, and are said before the work."""

import subprocess
import sys

import pytest

import musigma.evaluation.calibrate  # noqa: F401 - replaced in a test
from helpers.commands import write_photos
from musigma.cli.common import parse_size
from musigma.types import ConfigError

ESCAPE = "\033]0;owned\a"


@pytest.mark.parametrize("device", ["meta", "nonsense", "cuda:999"])
def test_devices_that_cannot_compute(musigma, weights, photos, tmp_path, device):
    words = ("upscale", photos, "-o", tmp_path / "out", "--model", weights, "--device", device)
    result = musigma(*words)
    assert result.code == 2
    (line,) = result.errors
    assert f"the device '{device}' cannot be used" in line


def test_an_empty_name_is_not_the_current_folder(musigma, weights, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(photos)
    result = musigma("upscale", "", "-o", tmp_path / "out", "--model", weights)
    assert result.code == 1
    assert result.errors == [
        "error: the name of an input is empty; give '.' for the current folder"
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", "bicubic", "--scale", 2, "--data", ""),
        ("calibrate", "WEIGHTS", "--data", "", "-o", "c.safetensors"),
        ("calibrate", "WEIGHTS", "--data", ".", "--low", "", "-o", "c.safetensors"),
        ("adapt", "", "-o", "adapted"),
        ("train", "smoke", "data=['']", "-o", "run"),
    ],
    ids=lambda words: " ".join(map(str, words[:4])),
)
def test_an_empty_name_of_images_is_not_the_current_folder(
    musigma, weights, photos, monkeypatch, words
):
    monkeypatch.chdir(photos)
    result = musigma(*(weights if word == "WEIGHTS" else word for word in words))
    assert result.code == 2
    expected = "error: the name of the images is empty; give '.' for the current folder"
    assert result.errors == [expected]


def test_json_needs_an_output(weights, photos, tmp_path):
    """With a closed standard output nothing is computed."""
    program = [sys.executable, "-m", "musigma", "upscale", photos, "--model", weights, "--json"]
    command = " ".join(f"'{word}'" for word in [*program, "-o", tmp_path / "out"])
    ended = subprocess.run(["sh", "-c", f"{command} >&-"], check=False, capture_output=True)
    assert ended.returncode == 2
    assert ended.stderr.decode().startswith("error: the standard output is closed")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("x.bin", "x.bin was not written: the name must end in .safetensors"),
        ("folder.safetensors", "FOLDER/folder.safetensors was not written: it is a folder"),
        (
            "file/new/x.safetensors",
            "FOLDER/file/new/x.safetensors was not written: no file can be made in FOLDER/file",
        ),
    ],
)
def test_a_name_for_weights_is_refused_before_the_work(
    musigma, weights, photos, tmp_path, monkeypatch, name, line
):
    def fail(*args, **kwargs):
        raise AssertionError("images were restored")

    module = sys.modules["musigma.evaluation.calibrate"]
    monkeypatch.setattr(module, "calibrate_with_groups", fail)
    (tmp_path / "folder.safetensors").mkdir()
    (tmp_path / "file").touch()
    result = musigma("calibrate", weights, "--data", photos, "-o", tmp_path / name)
    assert result.code == 2
    assert result.errors == [f"error: {line}".replace("FOLDER", str(tmp_path))]


def test_names_do_not_reach_the_terminal_raw(musigma, weights, photos, tmp_path):
    (photos / "a.png").rename(photos / f"{ESCAPE}.png")
    (photos / f"{ESCAPE}-bad.png").write_bytes(b"no picture")
    out = tmp_path / f"out{ESCAPE}"
    words = ("upscale", photos, photos / f"{ESCAPE}.txt", "-o", out, "--model", weights)
    result = musigma(*words, "--sigma")
    assert result.code == 1
    assert len(result.errors) == 2
    assert "\033" not in result.err + result.out
    assert "\a" not in result.err + result.out
    named = musigma("upscale", photos, "-o", out, "--model", f"m{ESCAPE}")
    assert named.code == 2
    assert "\033" not in named.err
    options = ("--method", "pooled-quantile", "--coverage", "0.5")
    weights_of = tmp_path / f"w{ESCAPE}.safetensors"
    (photos / f"{ESCAPE}-bad.png").unlink()
    fitted = musigma("calibrate", weights, "--data", photos, "-o", weights_of, *options)
    assert fitted.code == 0
    assert "\033" not in fitted.err + fitted.out


@pytest.mark.parametrize("box", ["9" * 5000 + ",0,1,1", "0,0,1e3,1", "nan,0,1,1", "٣,0,4,4"])
def test_a_box_that_is_none(musigma, photos, box):
    words = ("measure", photos / "a.png", "--scale", 2)
    for options in (("--box", box), ("--box", "0,0,1,1", "--minus", box)):
        result = musigma(*words, *options)
        assert result.code == 2
        (line,) = result.errors
        assert line.startswith("error: a box is x,y,width,height in whole pixels of the result")
        assert len(line) < 200


@pytest.mark.parametrize("seed", [-1, 2**63, 2**64])
def test_a_seed_that_generators_do_not_take(musigma, photos, tmp_path, seed):
    words = ("sample", photos / "a.png", "--scale", 2, "-o", tmp_path / "out", "--seed", seed)
    result = musigma(*words)
    assert result.code == 2
    assert result.errors == [f"error: a seed must lie from 0 to {2**63 - 1}, got {seed}"]
    assert not (tmp_path / "out").exists()


def test_a_folder_as_the_name_of_a_file(musigma, photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "large", 80, 96)
    words = ("audit", photos / "a.png", tmp_path / "large" / "a.png", "--page", ".")
    result = musigma(*words)
    assert result.code == 2
    (line,) = result.errors
    assert "Is a directory" in line
    assert not list(tmp_path.glob(".musigma*"))


@pytest.mark.parametrize("coverage", ["nan", "0", "1", "-1", "inf"])
def test_error_bars_of_an_impossible_coverage(musigma, photos, tmp_path, coverage):
    (tmp_path / "net.py").write_text("def double(x): return x.repeat_interleave(2, 2)\n")
    words = ("wrap", f"{tmp_path / 'net.py'}:double", "--data", photos, "--coverage", coverage)
    result = musigma(*words, "-o", tmp_path / "out.safetensors")
    assert result.code == 2
    (line,) = result.errors
    assert line.startswith("error: coverage must lie strictly between 0 and 1")


@pytest.mark.parametrize("size", ["9" * 30_000 + "x", "9" * 5000, "1" * 30 + "." + "1" * 30_000])
def test_long_sizes_are_refused_at_once(size):
    with pytest.raises(ConfigError, match=r"expected a size such as 2GiB or 500MB, got .{1,100}$"):
        parse_size(size)
