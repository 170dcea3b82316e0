"""Arrays in memory: the same values as files, in the units and the axes of the array."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.networks import build
from helpers.science import CALIBRATION, unchanged
from musigma.model import Model, load
from musigma.restoration.array_source import ArraySource, planes_of, result_type
from musigma.restoration.restore_array import ArrayOptions, restore_array
from musigma.types import ConfigError, ImageError

STACK = ArrayOptions(all_planes=True)


def random(*shape: int, dtype: str = "float64", high: float = 1.0, seed: int = 0) -> np.ndarray:
    values = high * np.random.default_rng(seed).random(shape)
    return values.round().astype(dtype) if np.dtype(dtype).kind in "iu" else values.astype(dtype)


def source(
    data: np.ndarray, *, rgb: bool = False, shown: tuple = (), path: str = ""
) -> ArraySource:
    return ArraySource(
        name="cells", data=data, rgb=rgb, shown=shown, path=Path(path) if path else None
    )


@pytest.mark.parametrize(
    ("shape", "dtype", "high", "rgb"),
    [
        ((20, 24), "uint8", 255, False),
        ((20, 24), "uint16", 4000, False),
        ((3, 20, 24), "float32", 9000, False),
        ((2, 3, 20, 24), "float64", 1e-3, False),
        ((20, 24, 3), "uint8", 255, True),
        ((2, 20, 24, 4), "uint16", 65535, True),
        ((20, 24, 3), "float32", 1, True),
        ((20, 24), "bool", 1, False),
    ],
)
def test_a_network_that_changes_nothing_returns_the_values_to_the_bit(shape, dtype, high, rgb):
    data = random(*shape, dtype=dtype, high=high)
    restored = restore_array(unchanged(), source(data, rgb=rgb), STACK)
    assert restored.mean.shape == data.shape
    assert np.array_equal(restored.mean, data)
    assert restored.std.shape == ((*shape[:-1], 3) if rgb else shape)
    assert (restored.std > 0).all()


def test_gray_values_become_floating_point_and_colors_keep_their_type():
    assert result_type(source(np.zeros((4, 4), np.uint16))) == np.float32
    assert result_type(source(np.zeros((4, 4), np.int32))) == np.float64
    assert result_type(source(np.zeros((4, 4, 3), np.uint16), rgb=True)) == np.uint16


def test_enlarged_values_are_those_of_predict_in_the_units_of_the_array():
    network = build("edsr-baseline", 2, sigma=True)
    model = Model(network=network, name="tiny", calibration=CALIBRATION)
    data = random(18, 22, dtype="uint16", high=4000)
    options = ArrayOptions(value_range=(100.0, 4100.0))
    restored = restore_array(model, source(data), options)
    gray = torch.from_numpy((data.astype(np.float32) - 100) / 4000)[None, None]
    mean, sigma = model.predict(gray)
    std = CALIBRATION.std(sigma)
    assert restored.mean == pytest.approx(4000 * mean[0, 0].numpy() + 100, abs=0.05)
    assert restored.std == pytest.approx(4000 * std[0, 0].numpy(), rel=1e-4)
    assert restored.half_width == pytest.approx(1.5 * restored.std, rel=1e-6)
    assert (restored.factor, restored.coverage, restored.zoom) == (1.5, 0.9, 2)


def test_every_plane_of_a_stack_is_that_of_a_picture_of_its_own():
    model = load("bicubic", scale=2)
    data = random(2, 3, 10, 12, dtype="float32")
    whole = restore_array(model, source(data, shown=(1, 1)), STACK).mean
    for index in np.ndindex(2, 3):
        alone = restore_array(model, source(data[index])).mean
        assert np.array_equal(whole[index], alone)


def test_the_shown_plane_alone_keeps_all_axes_and_says_where_it_is():
    data = random(4, 5, 10, 12, dtype="float32")
    restored = restore_array(load("bicubic", scale=2), source(data, shown=(3, 2)))
    assert restored.mean.shape == (1, 1, 20, 24)
    assert restored.first == (3, 2)
    alone = restore_array(load("bicubic", scale=2), source(data[3, 2]))
    assert np.array_equal(restored.mean[0, 0], alone.mean)


def test_networks_of_other_numbers_of_channels_see_the_planes_in_their_order():
    data = random(5, 9, 9, dtype="float32")
    restored = restore_array(unchanged(5), source(data, shown=(3,)), STACK)
    assert np.array_equal(restored.mean, data)
    assert restored.info["applied"] == "all 5 bands jointly"


def test_missing_values_stay_missing_and_infinite_ones_become_so():
    data = random(12, 12, dtype="float32")
    data[2, 3], data[5, 5] = np.nan, np.inf
    restored = restore_array(unchanged(), source(data))
    missing = ~np.isfinite(data)
    assert np.array_equal(np.isnan(restored.mean), missing)
    assert np.array_equal(np.isnan(restored.std), missing)


def test_the_error_of_rounded_colors_includes_the_rounding():
    data = np.full((8, 8, 3), 7, np.uint8)
    rounded = restore_array(unchanged(), source(data, rgb=True))
    exact = restore_array(unchanged(), source((data / 255).astype(np.float32), rgb=True))
    expected = np.sqrt((255 * exact.std) ** 2 + 1 / 12)
    assert rounded.std == pytest.approx(expected, rel=1e-4)


def test_the_range_is_by_the_type_or_measured_and_the_report_says_so():
    for data, words in (
        (random(9, 9, dtype="uint8", high=255), "Black is 0 and white 255, by the type"),
        (random(9, 9, dtype="float32"), "Black is 0 and white 1, all values"),
        (np.linspace(-5, 20, 81).reshape(9, 9), "Black is -5 and white 20, as measured"),
    ):
        report = restore_array(unchanged(), source(data)).report
        assert report[1].startswith(words)
        assert "--range" not in " ".join(report)


def test_planes_with_ranges_of_their_own_are_all_named():
    """Weights with percentiles measure a range in each plane; the report used to fail on that."""
    model = replace(unchanged(), metadata={"value_percentiles": [0.0, 100.0]})
    stack = np.stack([np.linspace(0, top, 480).reshape(20, 24) for top in (100.0, 4000.0)])
    restored = restore_array(model, source(stack), STACK)
    assert restored.info["value_range"].startswith("0 to 100, 0 to 4000 (")
    assert any("0 to 100, 0 to 4000" in sentence for sentence in restored.report)


def test_promises_are_made_for_colors_of_lossless_files_alone():
    data = random(16, 16, 3, dtype="uint8", high=255)

    def last_words(array: ArraySource, **options: object) -> str:
        return restore_array(unchanged(), array, ArrayOptions(**options)).report[-1]

    assert last_words(source(data, rgb=True)).startswith("With probability 0.9")
    assert "it is a JPEG" in last_words(source(data, rgb=True, path="a.JPG"))
    assert "measured values" in last_words(source(data[..., 0]))
    assert "measured values" in last_words(source(data, rgb=True), value_range=(0.0, 200.0))


def test_a_layer_of_a_scientific_file_is_judged_by_its_format(tmp_path):
    path = tmp_path / "sky.fits"
    path.write_bytes(b"SIMPLE  =                    T")
    array = source(np.zeros((8, 8), np.float32), path=str(path))
    assert planes_of(array, [()]).format == "FITS"


def test_an_error_of_progress_ends_the_work():
    calls = []

    def progress(done: int, total: int) -> None:
        calls.append((done, total))
        raise InterruptedError

    with pytest.raises(InterruptedError):
        restore_array(unchanged(), source(random(3, 8, 8)), STACK, progress=progress)
    assert calls == [(1, 3)]


def test_what_is_no_picture_is_refused():
    with pytest.raises(ImageError, match="cells: its values are complex64"):
        source(np.zeros((4, 4), np.complex64))
    with pytest.raises(ImageError, match=r"got shape \(4,\)"):
        source(np.zeros(4))
    with pytest.raises(ImageError, match="expected 3 or 4 values per pixel, got 2"):
        source(np.zeros((4, 4, 2)), rgb=True)
    with pytest.raises(ImageError, match="all 3; give the range"):
        restore_array(unchanged(), source(np.full((8, 8), 3.0)))
    with pytest.raises(ConfigError, match="takes no noise level"):
        restore_array(unchanged(), source(np.zeros((8, 8))), ArrayOptions(noise_std=5.0))
