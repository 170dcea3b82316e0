import sys

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from musigma.functional.scores import sigma_psnr
from musigma.restoration.figures import (
    draw_error_beside_sigma,
    draw_error_map,
    draw_reliability,
    draw_sparsification,
    write_picture,
)
from musigma.types import ConfigError, ImageError
from musigma.uncertainty.metrics.intervals import Reliability, ReliabilityCurve
from musigma.uncertainty.metrics.sparsification import Sparsification, SparsificationCurve


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


def lines_of(figure):
    (axes,) = figure.axes
    return {line.get_label(): line.get_xydata() for line in axes.lines}


def test_error_map_shows_the_mean_of_the_channels_in_levels():
    values = errors()
    figure = draw_error_map(values, label="predicted error")
    (image,) = maps_of(figure)
    levels = 255 * values[0].mean(0).numpy()
    np.testing.assert_allclose(image.get_array(), levels, rtol=1e-6)
    assert image.get_clim() == (0, pytest.approx(np.percentile(levels, 99.5)))
    assert "predicted error (levels of 255)" in texts_of(figure)


def test_error_map_ends_where_it_is_told():
    (image,) = maps_of(draw_error_map(errors(), label="half-width", top=20))
    assert image.get_clim() == (0, 20)


@pytest.mark.parametrize("size", [(1, 1), (1000, 9), (9, 1000)])
def test_error_map_of_any_shape_is_written(tmp_path, size):
    for values in (errors((1, 1, *size)), torch.zeros(1, 3, *size)):
        write_picture(tmp_path / "map.png", draw_error_map(values, label="error"))
        width, height = size_of_png(tmp_path / "map.png")
        assert 200 < width < 1000
        assert height < 1000


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -0.1])
def test_error_map_refuses_what_is_no_error(bad):
    values = errors()
    values[0, 1, 2, 3] = bad
    with pytest.raises(ImageError, match="finite and not negative"):
        draw_error_map(values, label="error")
    with pytest.raises(ImageError, match=r"got shape \(3, 37, 31\)"):
        draw_error_map(errors()[0], label="error")


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


def test_reliability_draws_what_the_metric_counts():
    target = torch.zeros(1, 1, 37, 31)
    mean = torch.randn(target.shape, generator=torch.Generator().manual_seed(0)) / 10
    metrics = {name: Reliability() for name in ("narrow", "wide")}
    metrics["narrow"].update(mean, target, torch.full_like(mean, 0.05))
    metrics["wide"].update(mean, target, torch.full_like(mean, 0.2))
    curves = {name: metric.compute() for name, metric in metrics.items()}
    lines = lines_of(draw_reliability(curves))
    for name, curve in curves.items():
        label = f"{name}: calibration error {100 * curve.calibration_error:.1f} %"
        np.testing.assert_allclose(lines[label], 100 * np.stack(curve, axis=1))
    np.testing.assert_array_equal(lines["as promised"], [[0, 0], [100, 100]])


def test_reliability_by_hand():
    curve = ReliabilityCurve(np.array([0.25, 0.5, 0.75]), np.array([0.2, 0.3, 0.7]))
    assert "raw: calibration error 10.0 %" in texts_of(draw_reliability({"raw": curve}))


def test_sparsification_draws_what_the_metric_computes():
    metric = Sparsification()
    metric.update(errors(), torch.zeros(1, 3, 37, 31), errors(seed=1))
    curve = metric.compute()
    figure = draw_sparsification({"sigma": curve})
    by_sigma = lines_of(figure)[f"sigma: AUSE {curve.ause:.3f}"]
    np.testing.assert_allclose(by_sigma, 100 * np.stack(curve[:2], axis=1))
    drawn = [line.get_ydata() for line in figure.axes[0].lines]
    assert any(np.array_equal(line, 100 * curve.by_error) for line in drawn)


def test_sparsification_by_hand():
    # The gap is 0, 0.2, 0.2 at 0, 0.25, 0.5: 0.025 + 0.05.
    curve = SparsificationCurve(
        np.array([0, 0.25, 0.5]), np.array([1, 0.8, 0.7]), np.array([1, 0.6, 0.5])
    )
    assert "sigma: AUSE 0.075" in texts_of(draw_sparsification({"sigma": curve}))


def test_a_drawing_holds_as_many_curves_as_there_are_colours():
    curve = ReliabilityCurve(np.array([0.5]), np.array([0.5]))
    draw_reliability({str(i): curve for i in range(6)})
    for num_curves in (0, 7):
        with pytest.raises(ConfigError, match=f"1 to 6 curves, got {num_curves}"):
            draw_reliability({str(i): curve for i in range(num_curves)})


def test_the_suffix_decides_the_format(tmp_path):
    curve = ReliabilityCurve(np.array([0.5]), np.array([0.5]))
    for name in ("a.png", "a.svg", "b.svg"):
        write_picture(tmp_path / name, draw_reliability({"raw": curve}))
    assert min(size_of_png(tmp_path / "a.png")) > 500
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    with pytest.raises(ImageError, match=r"c\.jpg: a drawing must end in \.png or \.svg"):
        write_picture(tmp_path / "c.jpg", draw_reliability({"raw": curve}))


def test_drawing_leaves_pyplot_and_settings_alone():
    import matplotlib

    names = ("font.size", "axes.grid", "text.color")
    modules, settings = set(sys.modules), [matplotlib.rcParams[name] for name in names]
    draw_error_map(errors(), label="error")
    assert "matplotlib.pyplot" not in set(sys.modules) - modules
    assert [matplotlib.rcParams[name] for name in names] == settings
