"""``musigma wrap``, and pictures that are restored with what it writes."""

import json

import numpy as np
import pytest
from PIL import Image

from helpers.foreign import write_function, write_onnx, write_pictures, write_torchscript
from musigma.model import load


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Enough pictures to learn from and to calibrate on."""
    return write_pictures(tmp_path_factory.mktemp("data") / "pictures", 28, side=40)


def test_a_network_is_wrapped_and_its_pictures_get_error_maps(musigma, pictures, tmp_path):
    pytest.importorskip("onnxruntime")
    network, output = write_onnx(tmp_path / "net.onnx"), tmp_path / "sigma.safetensors"
    words = ("--data", pictures, "--scale", 2, "--minutes", 0.02, "-o", output, "--device", "cpu")
    result = musigma("wrap", network, *words)
    assert result.code == 0, result.err
    assert "net.onnx enlarges by 2" in result.err
    assert "On average, at least 90 % of the true values" in result.err
    words = ("--model", output, "--network", network, "--sigma", "-o", tmp_path / "large")
    result = musigma("upscale", pictures / "00.png", *words, "--json")
    assert result.code == 0, result.err
    large = np.asarray(Image.open(tmp_path / "large" / "00.png"))
    small = np.asarray(Image.open(pictures / "00.png"))
    assert np.array_equal(large, small.repeat(2, axis=0).repeat(2, axis=1))
    assert (tmp_path / "large" / "00.interval.png").is_file()
    assert json.loads(result.out)
    words = ("--data", pictures, "--network", network)
    result = musigma("evaluate", output, *words, "--json")
    assert json.loads(result.out)["coverage"] > 0.8
    words = (*words, "--coverage", 0.8, "-o", tmp_path / "new.safetensors")
    assert musigma("calibrate", output, *words).code == 0
    assert load(tmp_path / "new.safetensors", network=network).calibration.coverage == 0.8


def test_torchscript_runs_only_with_the_option(musigma, pictures, tmp_path):
    network, output = write_torchscript(tmp_path / "net.pt"), tmp_path / "sigma.safetensors"
    words = ("--data", pictures, "--minutes", 0.01, "-o", output, "--json")
    result = musigma("wrap", network, *words)
    assert result.code == 2
    assert "allow it by --trust-network if you trust its author" in result.err
    assert not output.exists()
    assert musigma("wrap", network, *words, "--trust-network").code == 0
    words = ("-o", tmp_path / "large", "--model", output, "--network", network)
    assert musigma("upscale", pictures / "00.png", *words).code == 2
    assert musigma("upscale", pictures / "00.png", *words, "--trust-network").code == 0


def test_wrap_and_its_file_refuse_what_does_not_fit(musigma, pictures, tmp_path):
    function, output = write_function(tmp_path / "mine.py"), tmp_path / "sigma.safetensors"
    words = ("--data", pictures, "--minutes", 0.01, "-o", output, "--json")
    assert "enlarges by 2, not by 4" in musigma("wrap", function, *words, "--scale", 4).err
    assert "must end in .safetensors" in musigma("wrap", function, *words[:-3], "-o", "a.onnx").err
    result = musigma("wrap", function, *words)
    assert json.loads(result.out) == load(output, network=function).calibration.to_dict()
    picture, large = pictures / "00.png", tmp_path / "large"
    result = musigma("upscale", picture, "-o", large, "--model", output)
    assert result.code == 2
    assert "holds the error bars of another network" in result.err
    assert "give that network by --network" in result.err
    words = ("-o", large, "--network", function)
    assert "give that file by --model" in musigma("upscale", picture, *words).err
    words = (*words, "--model", output)
    assert "leave --ray out" in musigma("upscale", picture, *words, "--ray").err
    assert "leave --engine out" in musigma("upscale", picture, *words, "--engine", "onnx").err
    write_function(tmp_path / "mine.py", factor=0.8)
    assert "wrap this network anew" in musigma("upscale", picture, *words).err
