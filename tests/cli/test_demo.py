"""``musigma demo``: the main job on the photo that ships with the package."""

import json

import pytest
from PIL import Image

from musigma.datasets import demo_photo
from musigma.images.image_io import read_image


@pytest.fixture
def face(monkeypatch):
    """A part of the photo, which is enough."""
    part = demo_photo.portrait()[..., 60:188, 200:308]
    monkeypatch.setattr(demo_photo, "portrait", lambda: part)


def test_demo_beats_bicubic_and_writes_its_page(musigma, face, tmp_path):
    result = musigma("demo", "-o", tmp_path / "demo", "--json")
    assert (result.code, result.err) == (0, "")
    report = json.loads(result.out)
    assert report["musigma"] > report["bicubic"] + 1  # dB
    assert 0.5 < report["coverage"] < 1
    assert report["page"] == str(tmp_path / "demo" / "index.html")
    page = (tmp_path / "demo" / "index.html").read_text()
    assert f"{report['musigma']:.2f} dB" in page
    assert read_image(tmp_path / "demo" / "small.png")[0].shape == (1, 3, 64, 54)
    assert read_image(tmp_path / "demo" / "enlarged.png")[0].shape == (1, 3, 128, 108)
    with Image.open(tmp_path / "demo" / "error-map.png") as picture:
        assert "std: the calibrated standard deviation" in picture.text["Description"]


def test_demo_prints_its_result(musigma, face, tmp_path):
    result = musigma("demo", "-o", tmp_path / "demo")
    assert result.code == 0
    assert "PSNR on Y: bicubic " in result.err
    assert "Inside the 90% interval: " in result.err
    assert f"Open {tmp_path / 'demo' / 'index.html'}" in result.err


def test_a_scale_without_shipped_weights_says_so(musigma, tmp_path):
    result = musigma("demo", "-o", tmp_path / "demo", "--scale", 5)
    assert result.code == 2
    assert "edsr-baseline exists for scale" in result.err
    assert "not 5" in result.err
    assert not (tmp_path / "demo").exists()
