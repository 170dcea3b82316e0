"""The guard tells pictures that are unlike those of a calibration, and says how."""

from dataclasses import replace

import pytest
import torch

from helpers.natural import natural
from musigma.degradations import parse
from musigma.degradations.pairs import make_pair
from musigma.evaluation.spoiled_inputs import SPOILERS
from musigma.functional.picture_statistics import PictureStatistics, measure
from musigma.model import load
from musigma.types import ConfigError
from musigma.uncertainty.fitted_sums import COLOUR_NOISE, FittedSum
from musigma.uncertainty.guard import LEAST_INPUTS, Reference, fit_reference, unlike

TYPICAL = PictureStatistics(
    noise_std=0.4, coarse_noise_std=1.0, sharpness=-5.8, rolloff=-2.2, block_edges=0.0
)


def inputs(number=100):
    """Statistics that scatter as those of clean validation crops."""
    scatter = torch.randn(number, 5, generator=torch.Generator().manual_seed(0)).tolist()
    return [
        PictureStatistics(
            noise_std=0.4 * 2 ** (0.8 * row[0]),
            coarse_noise_std=2 ** row[1],
            sharpness=-5.8 + row[2],
            rolloff=-2.2 + 0.4 * row[3],
            block_edges=0.02 * row[4],
        )
        for row in scatter
    ]


REFERENCE = fit_reference(inputs())


def test_inputs_of_the_fit_are_like_themselves():
    share = sum(bool(unlike(REFERENCE, statistics)) for statistics in inputs()) / 100
    assert share <= 0.05


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"block_edges": 0.5}, "has JPEG blocks, and the calibration pictures had none"),
        ({"noise_std": 10.0, "coarse_noise_std": 10.0}, "has noise of about 10 of 255"),
        ({"coarse_noise_std": 40.0}, "has coarse noise or grain of about 40 of 255"),
        ({"sharpness": -13.0}, "is softer than the calibration pictures"),
        ({"rolloff": 0.0}, "is sharper than the calibration pictures"),
    ],
)
def test_what_is_unlike_is_said(change, words):
    (sentence,) = unlike(REFERENCE, replace(TYPICAL, **change))
    assert words in sentence
    assert sentence.startswith("The picture ")
    assert sentence.endswith(".")


def test_several_things_are_said_one_after_another():
    picture = replace(TYPICAL, block_edges=0.5, sharpness=-12.0)
    assert ["blocks" in text for text in unlike(REFERENCE, picture)] == [True, False]


def test_a_calibration_on_jpeg_knows_blocks():
    compressed = [replace(s, block_edges=1.0 + s.block_edges) for s in inputs()]
    reference = fit_reference(compressed)
    assert unlike(reference, replace(TYPICAL, block_edges=1.0)) == []
    (sentence,) = unlike(reference, replace(TYPICAL, block_edges=2.0))
    assert "stronger JPEG blocks" in sentence


def test_the_level_that_a_denoiser_is_told_is_compared_with_the_measured_one():
    picture = replace(TYPICAL, noise_std=24.0, coarse_noise_std=25.0)
    reference = Reference(num_inputs=100, limits={})
    assert unlike(reference, picture, noise_std=25) == []
    (sentence,) = unlike(reference, picture, noise_std=5)
    assert "about 24 of 255, and the model is told 5" in sentence
    grains = replace(picture, noise_std=2.0)
    (sentence,) = unlike(reference, grains, noise_std=25)
    assert "not white" in sentence


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shifted_blocks": 0.6}, "has blocks that do not begin at its corner"),
        ({"period_of_two": 1.0}, "Every other row or column of the picture"),
        ({"lines": 6.0}, "has noise of whole rows or columns"),
        ({"ripple": 6.0}, "has a fine, regular pattern"),
        ({"impulses": 7.0}, "Single pixels of the picture stand out"),
        ({"empty_levels": 0.95}, "has few levels of brightness"),
        ({"colour_shift": 1.5}, "Red and blue are shifted against green"),
        ({"echo": 0.3}, "its content a second time, weaker and shifted"),
    ],
)
def test_traces_of_programs_and_devices_are_said(change, words):
    (sentence,) = unlike(REFERENCE, replace(TYPICAL, **change))
    assert words in sentence
    assert sentence.endswith(".")


def test_a_picture_with_gaps_between_its_levels_may_be_stretched():
    assert unlike(REFERENCE, replace(TYPICAL, empty_levels=0.5)) == []


def test_a_sum_speaks_where_nothing_else_does_and_survives_its_text_form():
    sums = {"sharpened": FittedSum((0.0, 1.0, 0.0), 2.0), "grainy": FittedSum((0.0, 1.0, 0.0), 3.0)}
    reference = replace(REFERENCE, sums=sums)
    picture = replace(TYPICAL, spectrum=(0.0,), texture=(2.5,))
    for again in (reference, Reference.from_dict(reference.to_dict())):
        (sentence,) = unlike(again, picture)
        assert "its edges have halos" in sentence
        (sentence,) = unlike(again, replace(picture, block_edges=0.15, lines=9.0))
        assert "noise of whole rows" in sentence
        assert unlike(again, picture, noise_std=0.4) == []
    assert unlike(REFERENCE, picture) == []


def test_every_way_of_spoiling_has_words():
    for name in SPOILERS:
        reference = replace(REFERENCE, limits={}, sums={name: FittedSum((0.0, 1.0, 0.0, 0.0), 2.0)})
        picture = replace(TYPICAL, spectrum=(0.0,), texture=(2.5,), colours=(0.0,))
        if name != COLOUR_NOISE:
            reference = replace(reference, sums={name: FittedSum((0.0, 1.0, 0.0), 2.0)})
        assert len(unlike(reference, picture)) == 1, name


@pytest.mark.parametrize("scale", [2, 4])
@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("edsr-baseline", "smoothed"),
        ("edsr-baseline", "defocused"),
        ("edsr-baseline", "moved"),
        ("photo", "defocused"),
        ("photo", "colour_noise"),
    ],
)
def test_the_shipped_upscalers_know_spoiled_inputs(name, scale, spoil):
    model, generator = load(name, scale=scale), torch.Generator().manual_seed(0)
    degradation = parse("bicubic | round", scale=scale)
    degraded = make_pair(degradation, natural(160 * scale, 160 * scale), name="a").degraded
    assert model.check(SPOILERS[spoil](degraded, generator))


def test_too_few_inputs_make_no_reference():
    assert fit_reference(inputs(LEAST_INPUTS - 1)) is None


def test_a_reference_survives_its_text_form():
    again = Reference.from_dict(REFERENCE.to_dict())
    for name, limits in REFERENCE.limits.items():
        assert again.limits[name] == pytest.approx(limits, abs=1e-3)


@pytest.mark.parametrize("stored", [{}, {"num_inputs": 3, "limits": {"noise_std": 3}}])
def test_a_broken_reference_is_refused(stored):
    with pytest.raises(ConfigError, match="num_inputs and limits"):
        Reference.from_dict(stored)


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bicubic | noise(10) | round", "noise"),
        ("bicubic | jpeg(75)", "JPEG blocks"),
        ("blur(5) | bicubic | round", "softer"),
    ],
)
def test_the_shipped_upscalers_know_what_they_were_not_made_for(scale, text, words):
    degradation = parse(text, scale=scale)
    degraded = make_pair(degradation, natural(96 * scale, 96 * scale), name="a").degraded
    assert any(words in sentence for sentence in load("edsr-baseline", scale=scale).check(degraded))


def test_check_takes_any_image_and_needs_a_calibration():
    flat = torch.full((64, 64, 3), 128, dtype=torch.uint8).numpy()
    assert load("edsr-baseline", scale=2).check(flat) == []
    with pytest.raises(ConfigError, match="not calibrated"):
        load("bicubic", scale=2).check(flat)


def test_every_shipped_calibration_has_a_reference():
    for name, scale in (("drunet-small", 1), ("photo", 1), ("photo", 2), ("photo", 4)):
        reference = load(name, scale=scale).require_calibration().reference
        assert Reference.from_dict(reference).num_inputs >= 100


def test_a_flat_picture_is_like_all():
    assert unlike(REFERENCE, measure(torch.full((1, 3, 64, 64), 0.5))) == []


def test_no_input_of_a_mixture_is_left_outside():
    blurred = [replace(s, rolloff=s.rolloff - 4, sharpness=s.sharpness - 4) for s in inputs(5)]
    reference = fit_reference([*inputs(), *blurred], mixture=True)
    assert not any(unlike(reference, statistics) for statistics in blurred)
    assert unlike(reference, replace(TYPICAL, sharpness=-16.0))


def textures(number, *, blur=0.0):
    """Spectra of pictures that differ in contrast and softness; blur takes from the finest."""
    scatter = torch.randn(number, 3, generator=torch.Generator().manual_seed(1)).tolist()
    return [
        replace(
            TYPICAL,
            spectrum=tuple(2 * row[0] - (2 + row[1]) * k - blur * k**3 / 64 for k in range(5)),
            rolloff=-2.2 + 0.4 * row[2],
        )
        for row in scatter
    ]


def test_weak_blur_is_told_by_the_fitted_sum_of_energies():
    reference = fit_reference(textures(100), softened=textures(100, blur=0.5))
    share = sum(bool(unlike(reference, picture)) for picture in textures(100)) / 100
    assert share <= 0.05
    blurred = textures(100, blur=1.0)
    assert all("softer" in " ".join(unlike(reference, picture)) for picture in blurred)
    without = fit_reference(textures(100))
    assert without.weights == ()
    assert not any(unlike(without, picture) for picture in blurred)


def test_the_fitted_sum_survives_its_text_form_and_may_be_missing():
    reference = fit_reference(textures(100), softened=textures(100, blur=0.5))
    again = Reference.from_dict(reference.to_dict())
    assert again.weights == reference.weights
    assert all(unlike(again, picture) for picture in textures(20, blur=1.0))
    stored = reference.to_dict()
    del stored["weights"]  # as files of before
    assert unlike(Reference.from_dict(stored), textures(20)[0]) == []


def test_flat_pictures_pass_the_fitted_sum():
    reference = fit_reference(textures(100), softened=textures(100, blur=0.5))
    assert unlike(reference, replace(TYPICAL, spectrum=())) == []


def test_a_told_noise_level_switches_the_fitted_sum_off():
    reference = fit_reference(textures(100), softened=textures(100, blur=0.5))
    (blurred,) = textures(1, blur=1.0)
    noisy = replace(blurred, noise_std=25.0, coarse_noise_std=25.0)
    only_detail = replace(reference, limits={"detail": reference.limits["detail"]})
    assert unlike(only_detail, noisy)
    assert unlike(only_detail, noisy, noise_std=25) == []


@pytest.mark.parametrize(("level", "speaks"), [(15, True), (25, False), (30, False), (50, True)])
def test_a_told_level_may_differ_a_little(level, speaks):
    picture = replace(TYPICAL, noise_std=float(level), coarse_noise_std=float(level))
    assert bool(unlike(Reference(num_inputs=100, limits={}), picture, noise_std=25)) == speaks


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rolloff": -6.0}, "is softer than the calibration pictures"),
        ({"softest_direction": -14.0}, "is softer than the calibration pictures"),
        ({"colour_grain_std": 9.0}, "has coarse noise of the colors of about 9 of 255"),
    ],
)
def test_a_mixture_knows_blur_in_one_direction_and_grain(change, words):
    mixed = [replace(s, softest_direction=s.rolloff * 3) for s in inputs()]
    reference = fit_reference(mixed, mixture=True)
    (sentence,) = unlike(reference, replace(TYPICAL, **change))
    assert words in sentence


def test_grain_is_not_the_white_noise_that_a_denoiser_is_told():
    reference = fit_reference(inputs())
    grains = replace(TYPICAL, noise_std=24.0, coarse_noise_std=25.0, colour_grain_std=5.0)
    (sentence,) = unlike(reference, grains, noise_std=25)
    assert "not white" in sentence
