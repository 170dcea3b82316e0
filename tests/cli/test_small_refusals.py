"""Small things that go wrong are one line, and are said before the work."""

import subprocess
import sys

import pytest

import musigma.evaluation.calibrate  # noqa: F401 - replaced in a test

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


def test_json_needs_an_output(weights, photos, tmp_path):
    """With a closed standard output nothing is computed."""
    program = [sys.executable, "-m", "musigma", "upscale", photos, "--model", weights, "--json"]
    command = " ".join(f"'{word}'" for word in [*program, "-o", tmp_path / "out"])
    ended = subprocess.run(["sh", "-c", f"{command} >&-"], check=False, capture_output=True)
    assert ended.returncode == 2
    assert ended.stderr.decode().startswith("error: the standard output is closed")
    assert not (tmp_path / "out").exists()


def test_a_name_for_weights_is_refused_before_the_work(
    musigma, weights, photos, tmp_path, monkeypatch
):
    def fail(*args, **kwargs):
        raise AssertionError("images were restored")

    module = sys.modules["musigma.evaluation.calibrate"]
    monkeypatch.setattr(module, "calibrate_with_groups", fail)
    words = ("calibrate", weights, "--data", photos, "-o", tmp_path / "x.bin")
    result = musigma(*words)
    assert result.code == 2
    assert result.errors == ["error: x.bin was not written: the name must end in .safetensors"]


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
