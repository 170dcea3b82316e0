"""``musigma demo``: the main job on a photo that is at hand."""

import json

from musigma.data import portrait

from musigma.images.image_io import read_image


def test_demo(musigma, monkeypatch, tmp_path):
    photo = portrait.portrait()
    assert photo.shape == (1, 3, 600, 512)
    face = photo[..., 60:188, 200:308]  # is enough
    monkeypatch.setattr(portrait, "portrait", lambda: face)
    result = musigma("demo", "-o", tmp_path / "demo", "--json")
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    assert found["musigma"] > found["bicubic"] + 1  # dB
    assert 0.5 < found["coverage"] < 1
    assert found["page"] == str(tmp_path / "demo" / "index.html")
    page = (tmp_path / "demo" / "index.html").read_text()
    assert f"{found['musigma']:.2f} dB" in page
    assert read_image(tmp_path / "demo" / "small.png")[0].shape == (1, 3, 64, 54)
    assert read_image(tmp_path / "demo" / "enlarged.png")[0].shape == (1, 3, 128, 108)


def test_a_scale_without_shipped_weights_says_so(musigma, tmp_path):
    result = musigma("demo", "-o", tmp_path / "demo", "--scale", 5)
    assert result.code == 2
    assert "edsr-baseline exists for scale (2, 3, 4), not 5" in result.err
    assert not (tmp_path / "demo").exists()
