"""``musigma export``: the file that it writes, and what it refuses."""

import json

import numpy as np
import pytest
import torch

from musigma.images.image_io import read_image
from musigma.model import load

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def test_a_weights_file_becomes_an_onnx_file(musigma, weights, tmp_path):
    path = tmp_path / "deep" / "tiny.onnx"
    result = musigma("export", weights, "-o", path, "--json")
    assert (result.code, result.err) == (0, "")
    facts = json.loads(result.out)
    model = load(weights)
    assert (facts["architecture"], facts["scale"], facts["digest"]) == (
        "edsr-baseline",
        2,
        model.digest,
    )
    low = torch.rand(1, 3, 21, 18, generator=torch.Generator().manual_seed(0))
    mean, sigma = onnxruntime.InferenceSession(path).run(None, {"input": low.numpy()})
    with torch.inference_mode():
        expected = model.network(low)
    np.testing.assert_allclose(mean, expected.mean, atol=1e-5)
    np.testing.assert_allclose(sigma, expected.sigma, atol=1e-5)


def test_an_onnx_file_enlarges_pictures(musigma, weights, photos, tmp_path):
    assert musigma("export", weights, "-o", tmp_path / "tiny.onnx").code == 0
    words = ["upscale", photos, "--device", "cpu"]
    for model, folder in ((weights, "torch"), (tmp_path / "tiny.onnx", "onnx")):
        result = musigma(*words, "--model", model, "-o", tmp_path / folder)
        assert result.code == 0, result.err
    for name in ("a.png", "b.png"):
        ours, theirs = (read_image(tmp_path / kind / name)[0] for kind in ("onnx", "torch"))
        assert (ours - theirs).abs().max() <= 1.01 / 255


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["-o", "a.pt"], "a.pt was not written: the name must end in .onnx"),
        (["-o", "a.onnx", "--scale", "3"], "enlarges by 2, not by 3"),
    ],
)
def test_wrong_words_give_one_line(musigma, weights, words, line):
    result = musigma("export", weights, *words)
    assert (result.code, result.out) == (2, "")
    assert line in result.err
    assert result.err.count("\n") == 1
