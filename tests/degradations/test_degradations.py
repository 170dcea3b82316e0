import re

import pytest
import torch

from helpers.natural import natural
from musigma.degradations import Bicubic, Choice, OneOf, Range, degrade_image, parse
from musigma.functional.blur import blur, gaussian_kernels
from musigma.functional.color import quantise
from musigma.functional.jpeg import jpeg
from musigma.functional.noise import image_generator
from musigma.functional.resample import resample
from musigma.functional.resize import bicubic_down
from musigma.functional.sensor_noise import sensor_noise
from musigma.functional.shrink import METHODS, shrink, shrink_matrix

SIZE = (48, 64)


def pictures(number, channels=3):
    return torch.cat([natural(*SIZE, channels, seed=seed) for seed in range(number)])


def uniform(number, degradation, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(number, degradation.num_draws, generator=generator)


def shrunk(image, method, scale):
    rows, columns = (shrink_matrix(method, side, scale).float() for side in image.shape[-2:])
    return shrink(image, rows, columns)


def test_a_chain_is_its_stages_one_after_another():
    image = natural(*SIZE)
    degradation = parse("blur(1.2) | area | noise(5) | jpeg(75)", scale=2)
    assert (degradation.scale, degradation.num_draws) == (2, 0)
    result = degradation(image, torch.rand(1, 0), image_generator("a", 0))
    low = shrunk(blur(image, gaussian_kernels(torch.tensor([1.2]), radius=4)), "area", 2)
    noisy = sensor_noise(low, std=5, generator=image_generator("a", 0))
    expected = jpeg(noisy, quality=75, subsampling=True)
    torch.testing.assert_close(result, expected)


def test_a_picture_that_was_cut_after_saving_has_blocks_that_begin_elsewhere():
    image = pictures(2)
    degradation = parse("jpeg(40, left=0/3, top=5)")
    result = degradation(image, torch.tensor([[0.2], [0.7]]))
    for index, left in enumerate((0, 3)):
        # The inner part of the blocks that the cut went through is unknown: the edge is repeated.
        whole = torch.nn.functional.pad(image[index : index + 1], (left, 0, 5, 0), "replicate")
        expected = jpeg(whole, quality=40)[..., 5:, left:]
        # The last columns depend on how libjpeg fills the last blocks.
        torch.testing.assert_close(result[index : index + 1, ..., :-2], expected[..., :-2])
    assert not torch.equal(result[:1], jpeg(image[:1], quality=40))


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_bicubic_is_the_published_one_bit_for_bit(scale):
    image = pictures(2)[..., :48, :60]
    for degradation in (Bicubic(scale), parse("bicubic", scale=scale)):
        assert torch.equal(degradation(image, torch.rand(2, 0)), bicubic_down(image, scale))


def test_noise_reduction_takes_a_part_of_the_smoothed_image():
    image = natural(*SIZE)
    half, whole = parse("bilateral(30, std=1.5, amount=0.5)"), parse("bilateral(30, std=1.5)")
    nothing = torch.rand(1, 0)
    torch.testing.assert_close(half(image, nothing), (image + whole(image, nothing)) / 2)
    assert [parse(f"{name}(6, std=1.2)").filter_radius for name in ("bilateral", "wiener")] == [
        3,
        6,
    ]


def test_pictures_are_made_smaller_and_larger_again():
    images = pictures(2)
    degradation = parse("resample(0.5..0.9, support=1/2)")
    result = degradation(images, torch.tensor([[0.5, 0.2], [0.25, 0.7]]))
    for n, (share, support) in enumerate(((0.7, 1.0), (0.6, 2.0))):
        settings = {"share": torch.tensor([share]), "support": torch.tensor([support])}
        expected = resample(images[n : n + 1], **settings)
        torch.testing.assert_close(result[n : n + 1], expected, rtol=0, atol=1e-6)
    assert degradation.filter_radius == 8
    assert parse("resample(0.75, support=1)", scale=2).filter_radius == 3 + 2 * 3


def test_parameters_follow_the_draws():
    image = natural(*SIZE)
    degradation = parse("jpeg(30..90, subsampling=420/444)")
    draws = torch.tensor([[0.5, 0.2], [0.25, 0.7]])
    result = degradation(image.expand(2, -1, -1, -1), draws)
    torch.testing.assert_close(result[:1], jpeg(image, quality=60, subsampling=True))
    torch.testing.assert_close(result[1:], jpeg(image, quality=45, subsampling=False))


def test_ways_of_shrinking_follow_the_draws():
    methods = list(METHODS)
    degradation = parse("/".join(methods), scale=2)
    images = pictures(len(methods))
    draws = (torch.arange(len(methods)) + 0.5).view(-1, 1) / len(methods)
    result = degradation(images, draws)
    for n, method in enumerate(methods):
        alone = shrunk(images[n : n + 1], method, 2)
        torch.testing.assert_close(result[n : n + 1], alone, rtol=0, atol=1e-6)


def test_blurs_follow_the_draws():
    degradation = parse("(blur(0.5..2)/3*motion(4, angle=0..90))?0.5")
    images = pictures(3)
    # Left out; the first alternative; the second one.
    draws = torch.tensor([[0.6, 0, 0, 0], [0.4, 0.2, 0.5, 0.0], [0.4, 0.3, 0.0, 0.5]])
    assert degradation.kernels(draws).shape == (3, 13, 13)
    assert parse("blur(1)/noise(5)").kernels(torch.rand(3, 1)) is None
    result = degradation(images, draws)
    torch.testing.assert_close(result[:1], images[:1], rtol=0, atol=1e-6)
    kernel = gaussian_kernels(torch.tensor([1.25]), radius=6)
    torch.testing.assert_close(result[1:2], blur(images[1:2], kernel), rtol=0, atol=1e-6)
    moved = parse("motion(4, angle=45)")(images[2:], torch.rand(1, 0))
    torch.testing.assert_close(result[2:], moved, rtol=0, atol=1e-6)


def test_other_alternatives_and_probabilities_follow_the_draws():
    degradation = parse("jpeg(40)/(jpeg(60) | jpeg(50)?0.5)/round")
    image = natural(*SIZE)
    draws = torch.tensor([[0.1, 0.0], [0.5, 0.4], [0.5, 0.6], [0.9, 0.0]])
    result = degradation(image.expand(4, -1, -1, -1), draws)
    once = jpeg(image, quality=60)
    expected = [jpeg(image, quality=40), jpeg(once, quality=50), once, quantise(image)]
    torch.testing.assert_close(result, torch.cat(expected))


@pytest.mark.parametrize(
    ("value", "low", "mean", "high"),
    [
        (Range(2, 10), 2, 6, 10),
        (Range(1, 100, log=True), 1, 99 / torch.log(torch.tensor(100.0)).item(), 100),
        (OneOf((Range(1, 1), Range(5, 5), Range(9, 9)), (1, 1, 2)), 1, 6, 9),
    ],
)
def test_values_have_the_stated_distribution(value, low, mean, high):
    drawn = value.draw((torch.arange(20_000).view(-1, 1) + 0.5) / 20_000)
    assert drawn.min().item() == pytest.approx(low, abs=0.01)
    assert drawn.max().item() == pytest.approx(high, abs=0.05)
    assert drawn.mean().item() == pytest.approx(mean, rel=0.01)


def test_weights_are_shares():
    degradation = Choice([parse("round"), parse("noise(0)"), parse("noise(1)")], weights=(1, 2, 1))
    draws = torch.rand(1, degradation.num_draws)
    image = torch.full((1, 1, 4, 4), 0.3)
    for draw, changed in ((0.24, True), (0.26, False), (0.74, False), (0.76, True)):
        draws[:, 0] = draw
        assert torch.equal(degradation(image, draws), image) is not changed


@pytest.mark.parametrize("scale", [1, 2, 4])
@pytest.mark.parametrize("channels", [1, 3])
def test_photo_gives_files_of_the_right_size(scale, channels):
    photo = parse("photo", scale=scale)
    result = photo(pictures(8, channels), uniform(8, photo), torch.Generator().manual_seed(0))
    assert result.shape == (8, channels, 48 // scale, 64 // scale)
    torch.testing.assert_close(result, quantise(result))


@pytest.mark.parametrize("scale", [2, 4])
def test_photo_keeps_clean_inputs(scale):
    photo = parse("photo", scale=scale)
    draws = uniform(3, photo)
    draws[:, 0] = torch.tensor([0.0, 0.13, 0.15])
    images = pictures(3)
    result = photo(images, draws, torch.Generator().manual_seed(0))
    clean = bicubic_down(images, scale)
    assert torch.equal(result[:2], clean[:2])
    assert not torch.equal(result[2], clean[2])


@pytest.mark.parametrize("scale", [1, 2])
def test_a_batch_is_its_images(scale):
    # Noise fields are drawn for a whole batch; all else depends on an image's own draws alone.
    text = re.sub(r"\d[.\d]*:log", "0", str(parse("photo", scale=scale)))
    assert ":log" not in text
    degradation = parse(text, scale=scale)
    images, draws = pictures(6), uniform(6, degradation)
    batch = degradation(images, draws)
    for n in range(6):
        alone = degradation(images[n : n + 1], draws[n : n + 1])
        off = (batch[n : n + 1] - alone).abs() * 255
        assert (off <= 0.01).float().mean() > 0.99


@pytest.mark.parametrize(
    "text",
    [
        "bicubic",
        "blur(0.3..2, across=0.2..1, angle=0..180) | area",
        "motion(4, angle=30) | lanczos | blur(0.8)",
        "blur(2) | bicubic/bilinear/bicubic_aliased/nearest",
    ],
)
@pytest.mark.parametrize("scale", [2, 4])
def test_a_patch_cut_with_its_margin_gets_what_the_whole_picture_gets(text, scale):
    degradation = parse(text, scale=scale)
    image = natural(160, 176)
    draws, margin = uniform(1, degradation), degradation.margin
    assert margin % scale == 0
    top, left, side = 16 * scale, 12 * scale, 8 * scale
    cut = image[..., top - margin : top + side + margin, left - margin : left + side + margin]
    inner = slice(margin // scale, (margin + side) // scale)
    patch = degradation(cut, draws)[..., inner, inner]
    whole = degradation(image, draws)
    expected = whole[..., 16:24, 12:20]
    assert patch.shape == expected.shape
    if text == "bicubic":
        assert torch.equal(patch, expected)
    torch.testing.assert_close(patch, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("subsampling", [420, 444])
def test_a_patch_on_the_grid_gets_the_blocks_of_the_whole_picture(subsampling):
    degradation = parse(f"area | jpeg(40, subsampling={subsampling})", scale=2)
    assert degradation.margin == 16
    image = natural(128, 160)
    whole = degradation(image, torch.rand(1, 0))
    cut = degradation(image[..., 32 - 16 : 64 + 16, 64 - 16 : 96 + 16], torch.rand(1, 0))
    expected, patch = whole[..., 16:32, 32:48], cut[..., 8:-8, 8:-8]
    if subsampling == 444:
        torch.testing.assert_close(patch, expected, rtol=0, atol=1e-6)
    else:  # colour blocks of 16 pixels lie otherwise in the cut; the luma is the same
        weight = torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)
        luma = ((patch - expected) * weight).sum(1) * 255
        assert luma.abs().mean() < 1


def test_margins_are_whole_pixels_and_blocks():
    for text, scale, margin in (
        ("bicubic", 2, 4),
        ("bicubic", 4, 8),
        ("noise(5)", 1, 0),
        ("jpeg(50)", 1, 8),
        ("jpeg(50)", 4, 32),
        ("blur(1) | area", 2, 4),
        ("area | blur(1)", 2, 6),
        ("blur(2) | lanczos | jpeg(50)", 2, 16),
        ("photo", 2, 48),
        ("photo", 4, 96),
        ("photo", 1, 32),
    ):
        assert parse(text, scale=scale).margin == margin, text


def test_an_image_gets_the_same_input_in_any_order():
    photo = parse("photo", scale=2)
    images = {name: natural(*SIZE, seed=n) for n, name in enumerate(("baby", "bird", "head"))}
    forwards = {n: degrade_image(photo, image, name=n) for n, image in images.items()}
    state = torch.get_rng_state()
    backwards = {n: degrade_image(photo, images[n], name=n) for n in reversed(images)}
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(forwards[n], backwards[n]) for n in images)
    noisy = parse("noise(1..9)")
    first, other = (degrade_image(noisy, images["baby"], name="baby", seed=s) for s in (0, 1))
    assert not torch.equal(first, other)


def test_noise_alone_is_the_denoising_protocol():
    image = natural(*SIZE)
    expected = sensor_noise(image, std=25, generator=image_generator("baby", 3))
    result = degrade_image(parse("noise(25)"), image, name="baby", seed=3)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("scale", [1, 2])
def test_the_whole_chain_compiles_without_a_break(scale):
    photo = parse("photo", scale=scale)
    compiled = torch.compile(photo.__call__, fullgraph=True, dynamic=False, backend="eager")
    images, draws = pictures(2), uniform(2, photo)
    torch.manual_seed(0)
    expected = photo(images, draws)
    torch.manual_seed(0)
    assert torch.equal(compiled(images, draws), expected)


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_bicubic_compiled_is_the_same_bit_for_bit(scale):
    compiled = torch.compile(
        Bicubic(scale).__call__, fullgraph=True, dynamic=False, backend="eager"
    )
    images = torch.cat([pictures(3)[..., :60], torch.rand(3, 3, 48, 60)])
    assert torch.equal(compiled(images, torch.rand(6, 0)), bicubic_down(images, scale))


def test_sharpening_adds_what_blurring_takes():
    image = natural(*SIZE)
    degradation = parse("sharpen(0.5, std=1.2)")
    softer = blur(image, gaussian_kernels(torch.tensor([1.2]), radius=4))
    torch.testing.assert_close(
        degradation(image, torch.rand(1, 0)), image + 0.5 * (image - softer), rtol=0, atol=1e-6
    )
    # Sharpening is done to the small picture: it comes after shrinking where no way is named.
    assert str(parse("blur(1) | sharpen(1)", scale=2)) == "blur(1) | bicubic | sharpen(1)"
