"""Restoring one picture for the page and the API."""

import pytest
import torch
from PIL import Image

from musigma.app import boxes
from musigma.app.api import ApiRequest, answer_request
from musigma.app.limits import CancelledError, Limits, TooLargeError
from musigma.app.restorer import Restorer, RestoreRequest, safe_name
from musigma.images.image_io import read_image, write_image
from musigma.restoration.error_maps import read_error_map
from musigma.restoration.interactive import weights_for
from musigma.types import ConfigError, ImageError


@pytest.fixture(scope="module")
def restorer():
    return Restorer(Limits(max_pixels=100_000), engine="torch", device="cpu")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    write_image(tmp_path / "a.png", torch.rand(1, 3, 20, 30))
    (tmp_path / "a.png").rename(path)
    return path


def test_the_result_is_what_the_model_predicts(restorer, source, tmp_path):
    folder = tmp_path / "out"
    shown, steps = [], []
    result = restorer.restore(
        source,
        RestoreRequest(),
        folder,
        name="my photo.jpg",
        progress=lambda done, total: steps.append((done, total)),
        show=shown.append,
    )
    model = restorer.model("photo", 2)
    expected = model.predict(read_image(source)[0])
    picture = read_image(result.files["picture"])[0]
    torch.testing.assert_close(picture, expected.mean.clamp(0, 1), atol=0.6 / 255, rtol=0)
    sigma = read_error_map(result.files["sigma"], "sigma").values
    torch.testing.assert_close(sigma, expected.sigma, atol=1e-5, rtol=0)
    assert result.files["report"].read_text().startswith("<!doctype html>")
    assert {path.name for path in folder.iterdir()} == {
        "my_photo.png",
        "my_photo.sigma.png",
        "my_photo.html",
    }
    assert steps == [(1, 1)]
    assert len(shown) == 1
    assert result.report["width"] == 60
    assert result.report["calibration"]["coverage"] == model.calibration.coverage
    assert result.report["calibration"]["conditions"] in result.report["promise"]


def test_a_turned_photo_is_turned(restorer, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (30, 20), "red").save(tmp_path / "a.jpg", exif=exif)
    result = restorer.restore(tmp_path / "a.jpg", RestoreRequest(), tmp_path / "o", show=len)
    assert (result.report["width"], result.report["height"]) == (40, 60)


def test_noise_is_estimated_where_the_weights_need_it(restorer, tmp_path):
    source = tmp_path / "a.png"
    write_image(source, torch.rand(1, 3, 96, 96))
    request = RestoreRequest(scale=1, weights="drunet-small")
    report = restorer.restore(source, request, tmp_path / "o").report
    assert report["noise_estimated"]
    assert report["noise_std"] > 0
    with pytest.raises(ConfigError, match="takes no noise level"):
        restorer.restore(source, RestoreRequest(noise_std=5.0), tmp_path / "p")


def test_a_picture_with_too_many_pixels_is_refused_before_it_is_read(restorer, tmp_path):
    Image.new("L", (400, 300)).save(tmp_path / "a.png")
    with pytest.raises(TooLargeError, match="480,000"):
        restorer.restore(tmp_path / "a.png", RestoreRequest(), tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_errors_do_not_tell_the_folders_of_the_server(restorer, tmp_path):
    (tmp_path / "x").write_bytes(b"no picture")
    with pytest.raises(ImageError, match=r"^holiday: is not a PNG") as caught:
        restorer.restore(tmp_path / "x", RestoreRequest(), tmp_path / "o", name="holiday.png")
    assert str(tmp_path) not in str(caught.value)


def test_cancelling_leaves_no_file(restorer, source, tmp_path):
    def stop(done, total):
        raise CancelledError("stop")

    with pytest.raises(CancelledError):
        restorer.restore(source, RestoreRequest(), tmp_path / "o", progress=stop)
    assert not (tmp_path / "o").exists() or not list((tmp_path / "o").iterdir())


def test_little_memory_gives_many_tiles(source, tmp_path):
    write_image(tmp_path / "b.png", torch.rand(1, 3, 30, 300))
    restorer = Restorer(Limits(memory=70 * 2**20), engine="torch", device="cpu")
    steps = []
    restorer.restore(
        tmp_path / "b.png",
        RestoreRequest(),
        tmp_path / "o",
        progress=lambda *step: steps.append(step),
    )
    assert len(steps) > 1
    assert steps[-1][0] == steps[-1][1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"scale": "5"}, "not 5"),
        ({"scale": "two"}, "scale must be a number, got 'two'"),
        ({"weights": "phot"}, "did you mean 'photo'"),
        ({"size": "2"}, "no setting 'size'"),
        ({"weights": "../x"}, "no weights"),
        ({"noise_std": "nan", "weights": "drunet-small", "scale": "1"}, "from 0 to 255"),
    ],
)
def test_wrong_settings_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        RestoreRequest.parse(values)


def test_weights_of_each_scale():
    assert weights_for(1) == ["photo", "drunet-small"]
    assert "edsr-baseline" in weights_for(4)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a\x00b.png", "C:\\x\\y.png", "é😀", "." * 9])
def test_names_are_made_safe(name):
    assert set(safe_name(name)) <= set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
    )
    assert safe_name(name)


@pytest.mark.parametrize(("largest", "is_told"), [(80, True), (79, False)])
def test_the_interval_of_a_large_box_is_not_computed(
    restorer, source, tmp_path, monkeypatch, largest, is_told
):
    monkeypatch.setattr(boxes, "MAX_BOX_PIXELS", largest)
    request = ApiRequest.parse({"weights": "edsr-baseline", "scale": "2", "box": "2,3,10,8"})
    answer = answer_request(restorer, source, request, tmp_path / "out", None)
    assert (answer.content["box"]["joint"] is not None) is is_told
    assert len(answer.content["box"]["mean"]) == 3
