import sys

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from musigma.functional.scores import sigma_psnr
from musigma.restoration.figures import draw_error_beside_sigma, draw_panels, write_picture
from musigma.types import ImageError


def errors(shape=(1, 3, 37, 31), seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 0.1


def maps_of(figure):
    return [axes.images[0] for axes in figure.axes if axes.images]


def texts_of(figure):
    import matplotlib.text

    return [text.get_text() for text in figure.findobj(matplotlib.text.Text)]


def size_of_png(path):
    from PIL import Image

    with Image.open(path, formats=["PNG"]) as image:
        return image.size


@pytest.mark.parametrize("size", [(1, 1), (1000, 9), (9, 1000)])
def test_error_map_of_any_shape_is_written(tmp_path, size):
    for values in (errors((1, 1, *size)), torch.zeros(1, 3, *size)):
        write_picture(tmp_path / "map.png", draw_error_beside_sigma(values, values))
        width, height = size_of_png(tmp_path / "map.png")
        assert 200 < width < 2000
        assert height < 1000


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -0.1])
def test_error_map_refuses_what_is_no_error(bad):
    values = errors()
    values[0, 1, 2, 3] = bad
    with pytest.raises(ImageError, match="finite and not negative"):
        draw_error_beside_sigma(values, values)
    with pytest.raises(ImageError, match=r"got shape \(3, 37, 31\)"):
        draw_error_beside_sigma(errors()[0], errors()[0])


def test_true_and_predicted_error_share_a_scale():
    error, sigma = errors(), errors(seed=1) / 4
    figure = draw_error_beside_sigma(error, sigma)
    left, right = maps_of(figure)
    assert left.get_clim() == right.get_clim()
    np.testing.assert_allclose(left.get_array(), 255 * error[0].mean(0), rtol=1e-6)
    np.testing.assert_allclose(right.get_array(), 255 * sigma[0].mean(0), rtol=1e-6)


def test_caption_agrees_with_scipy_and_with_the_metric():
    error = errors()
    sigma = 0.6 * error + 0.4 * errors(seed=1)
    correlation = pearsonr(error.flatten(), sigma.flatten()).statistic
    likeness = float(sigma_psnr(error, torch.zeros_like(error), sigma))
    caption = f"correlation {correlation:.2f}, PSNR between the two {likeness:.2f} dB"
    assert caption in texts_of(draw_error_beside_sigma(error, sigma))


def test_a_constant_sigma_has_no_correlation():
    figure = draw_error_beside_sigma(errors(), torch.full((1, 3, 37, 31), 0.1))
    assert any(text.startswith("correlation undefined, PSNR") for text in texts_of(figure))
    with pytest.raises(ImageError, match=r"share one shape.*\(1, 1, 37, 31\)"):
        draw_error_beside_sigma(errors(), errors((1, 1, 37, 31)))


def test_the_suffix_decides_the_format(tmp_path):
    for name in ("a.png", "a.svg", "b.svg"):
        write_picture(tmp_path / name, draw_error_beside_sigma(errors(), errors(seed=1)))
    assert min(size_of_png(tmp_path / "a.png")) > 500
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    with pytest.raises(ImageError, match=r"c\.jpg: a figure must end in \.png or \.svg"):
        write_picture(tmp_path / "c.jpg", draw_error_beside_sigma(errors(), errors()))


def test_drawing_leaves_pyplot_and_settings_alone():
    import matplotlib

    names = ("font.size", "axes.grid", "text.color")
    modules, settings = set(sys.modules), [matplotlib.rcParams[name] for name in names]
    draw_error_beside_sigma(errors(), errors())
    assert "matplotlib.pyplot" not in set(sys.modules) - modules
    assert [matplotlib.rcParams[name] for name in names] == settings


def test_panels_show_pictures_and_maps_under_their_titles(tmp_path):
    picture, map_ = torch.rand(1, 3, 8, 6), errors((1, 3, 16, 12))
    figure = draw_panels({"input": picture, "grey": picture[:, :1]}, {"std": map_}, columns=2)
    shown = maps_of(figure)
    assert [np.asarray(image.get_array()).shape for image in shown] == [
        (8, 6, 3), (8, 6, 3), (16, 12),
    ]  # fmt: skip
    np.testing.assert_allclose(shown[0].get_array(), picture[0].permute(1, 2, 0))
    np.testing.assert_allclose(shown[2].get_array(), 255 * map_.mean(1)[0], rtol=1e-5)
    assert {"input", "grey", "std", "error (levels of 255)"} <= set(texts_of(figure))
    write_picture(tmp_path / "panels.png", figure)
    assert size_of_png(tmp_path / "panels.png")[0] > 400


def test_maps_of_panels_share_one_scale():
    weak, strong = errors((1, 1, 9, 9)), 4 * errors((1, 1, 9, 9), seed=1)
    image = torch.rand(1, 3, 9, 9)
    limits = [
        m.get_clim() for m in maps_of(draw_panels({"a": image}, {"b": weak, "c": strong}))[1:]
    ]
    assert limits[0] == limits[1]
    assert limits[0][1] > 255 * float(weak.max())


def test_panels_refuse_a_signed_error():
    with pytest.raises(ImageError, match="take the absolute error"):
        draw_panels({"a": torch.rand(1, 3, 4, 4)}, {"error": -torch.ones(1, 3, 4, 4)})
