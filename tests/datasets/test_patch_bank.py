from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torch import Tensor

from helpers.runs import CPU, pictures, write_pictures
from musigma.datasets.patch_bank import Bank, build_bank, load_images
from musigma.degradations import Bicubic, Noise, parse
from musigma.degradations.pairs import Pair, StoredInput, stack_pair
from musigma.functional.geometry import dihedral, pad
from musigma.functional.resize import bicubic_down
from musigma.types import DataError, ImageError


def sample(bank: Bank, step: int, batch: int, seed: int = 0, first: int = 0):
    return bank.sample(torch.tensor(step), batch=batch, seed=seed, first=first)


def views(image: Tensor, size: int, step: int) -> Tensor:
    """Every place of a patch in ``(C, H, W)``, row by row, in all eight views: ``(P, 8, C, h, w)``.

    Made by slicing and `dihedral`, which know nothing of the bank's indices.
    """
    _, height, width = image.shape
    places = [
        image[:, top : top + size, left : left + size]
        for top in range(0, height - size + 1, step)
        for left in range(0, width - size + 1, step)
    ]
    return torch.stack([torch.stack([dihedral(p, k) for k in range(8)]) for p in places])


def test_every_place_and_view_is_equally_likely():
    # Eight views of each place, told apart by pixels that are all different. An image is as likely
    # as it has pixels: 42 with 4 * 5 places, 20 with 3 * 2.
    images = [torch.arange(42).view(1, 6, 7), torch.arange(100, 120).view(1, 5, 4)]
    images = [image.to(torch.uint8) for image in images]
    bank = build_bank(images, degradation=Noise(25), patch=3, device=CPU)
    cells = torch.cat([views(image, 3, 1) for image in images]).flatten(0, 1).flatten(1)
    assert len(cells) == 26 * 8
    number = 26 * 8 * 100
    patches = (sample(bank, 0, number).target * 255).round().byte().flatten(1)
    seen = Counter(map(tuple, patches.tolist()))
    counts = np.array([seen.pop(tuple(cell)) for cell in cells.tolist()])
    assert not seen
    chances = np.repeat([42 / 62 / (20 * 8), 20 / 62 / (6 * 8)], [20 * 8, 6 * 8])
    assert stats.chisquare(counts, chances * number).pvalue > 0.01
    assert stats.chisquare(counts.reshape(26, 8).sum(0)).pvalue > 0.01
    places = counts.reshape(26, 8).sum(1), chances.reshape(26, 8).sum(1) * number
    assert stats.chisquare(*places).pvalue > 0.01


def test_every_place_is_equally_likely_over_many_steps():
    bank = build_bank(pictures(2, 11, 9), degradation=Noise(25), patch=8, device=CPU)
    counts = Counter(sample(bank, step, 1).target.numpy().tobytes() for step in range(2560))
    assert len(counts) == 2 * (4 * 2) * 8
    assert stats.chisquare(list(counts.values())).pvalue > 0.01


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_low_is_what_imresize_makes_of_the_target_and_its_surroundings(scale):
    images, patch, margin = pictures(2, 37, 31), 5, 2 * scale
    bank = build_bank(images, degradation=Bicubic(scale), patch=patch, device=CPU)
    # Every place, also off the grid of the scale; beyond the border pictures are mirrored.
    framed = [pad(image, (margin,) * 4, mode="symmetric") for image in images]
    wide = torch.cat([views(image, patch * scale + 2 * margin, 1) for image in framed])
    wide = wide.flatten(0, 1)
    inner = wide[..., margin:-margin, margin:-margin].float() / 255
    patches = sample(bank, 3, 64)
    assert patches.degraded.shape == (64, 3, patch, patch)
    assert patches.target.shape == (64, 3, patch * scale, patch * scale)
    seen = set()
    for low, target in zip(patches.degraded, patches.target, strict=True):
        same = (inner == target).flatten(1).all(1).nonzero().flatten()
        assert len(same) == 1
        expected = bicubic_down(wide[same], scale)[0, :, 2:-2, 2:-2]
        assert torch.equal(expected.float() / 255, low)
        seen.add(int(same[0]) % 8)
    assert seen == set(range(8))


def test_channels_come_in_any_order_where_that_is_asked_for():
    image = torch.tensor([10, 20, 30], dtype=torch.uint8).view(3, 1, 1).expand(3, 16, 16)
    usual = build_bank([image], degradation=Bicubic(2), patch=8, device=CPU)
    colors = (sample(usual, 0, 60).target[:, :, 0, 0] * 255).round().int()
    assert colors.unique(dim=0).tolist() == [[10, 20, 30]]
    bank = build_bank([image], degradation=Bicubic(2), patch=8, device=CPU, swap_channels=True)
    patches = sample(bank, 0, 600)
    orders = Counter(map(tuple, (patches.target[:, :, 0, 0] * 255).round().int().tolist()))
    assert len(orders) == 6
    assert stats.chisquare(list(orders.values())).pvalue > 0.01
    assert torch.equal(patches.degraded[:, :, 0, 0], patches.target[:, :, 0, 0])


def test_patches_are_channels_last():
    patches = sample(build_bank(pictures(), degradation=Bicubic(2), patch=8, device=CPU), 0, 2)
    assert patches.degraded.is_contiguous(memory_format=torch.channels_last)
    assert patches.target.is_contiguous(memory_format=torch.channels_last)


def test_patches_follow_from_seed_and_step():
    bank = build_bank(pictures(), degradation=Bicubic(2), patch=8, device=CPU)
    first, again = (sample(bank, 7, 4, seed=3) for _ in range(2))
    assert torch.equal(first.degraded, again.degraded)
    assert torch.equal(first.target, again.target)
    for other in (sample(bank, 8, 4, seed=3), sample(bank, 7, 4, seed=4)):
        assert not torch.equal(sample(bank, 7, 4, seed=3).target, other.target)


def test_processes_share_a_batch():
    chain = parse("blur(0..2) | area/lanczos | jpeg(30..95)", scale=2)
    bank = build_bank(pictures(), degradation=chain, patch=8, device=CPU)
    whole = sample(bank, 5, 16)
    shares = [sample(bank, 5, 4, first=4 * rank) for rank in range(4)]
    assert torch.equal(whole.target, torch.cat([share.target for share in shares]))
    # Sums in another order may differ by a rounding, which JPEG may turn into a level.
    difference = (whole.degraded - torch.cat([share.degraded for share in shares])).abs()
    assert (difference > 1e-5).float().mean() < 0.01


def test_noise_levels_fill_the_range():
    bank = build_bank(pictures(), degradation=Noise((0, 50)), patch=8, device=CPU)
    patches = sample(bank, 0, 10_000)
    assert stats.kstest(patches.noise_level.numpy() / 50, "uniform").pvalue > 0.01
    noise = 255 * (patches.degraded - patches.target)
    strong = patches.noise_level > 25
    measured = noise.std((1, 2, 3))[strong] / patches.noise_level[strong]
    assert measured.mean() == pytest.approx(1, rel=0.01)


def test_degraded_patches_are_those_of_the_degraded_image():
    """With margins, the borders of a patch are not those of a picture."""
    image = pictures(1, 80, 72)[0]
    chain = parse("blur(1.2) | area", scale=2)
    bank = build_bank([image], degradation=chain, patch=8, device=CPU)
    whole = image[None].float() / 255
    degraded = chain(whole, torch.zeros(1, 0))[0]
    patches = sample(bank, 0, 512).degraded
    # One in eight is not turned, and one in four of those lies on the grid of the whole image.
    assert sum(_lies_in(patch, degraded) for patch in patches) >= 4


def _lies_in(patch: Tensor, image: Tensor) -> bool:
    windows = image.unfold(1, 8, 1).unfold(2, 8, 1)
    distance = (windows - patch[:, None, None]).abs().amax((0, 3, 4))
    return bool(distance.min() < 1e-5)


def test_every_pixel_is_kept():
    bank = build_bank(pictures(1, 37, 31), degradation=Bicubic(3), patch=10, device=CPU)
    assert bank.num_bytes == bank.values.numel() == 3 * 37 * 31


def test_small_images_are_left_out():
    one_pixel = torch.zeros(3, 1, 1, dtype=torch.uint8)
    narrow = torch.zeros(3, 40, 15, dtype=torch.uint8)
    fitting = torch.full((3, 16, 16), 200, dtype=torch.uint8)
    bank = build_bank([one_pixel, narrow, fitting], degradation=Bicubic(2), patch=8, device=CPU)
    assert bank.num_images == 1
    assert (sample(bank, 0, 8).target == 200 / 255).all()
    with pytest.raises(DataError, match="no training image has room for a patch of 16x16 pixels"):
        build_bank([one_pixel, narrow], degradation=Bicubic(2), patch=8, device=CPU)


def test_images_of_different_channels_are_refused():
    with pytest.raises(DataError, match=r"\[1, 3\] channels"):
        build_bank(
            [*pictures(1), *pictures(1, channels=1)], degradation=Bicubic(2), patch=8, device=CPU
        )


def test_files_are_loaded_in_order(tmp_path):
    folder = write_pictures(tmp_path / "images", num=5)
    calls = []
    paths = sorted(folder.iterdir())
    images = load_images(paths, num_channels=3, progress=lambda *n: calls.append(n), num_workers=3)
    assert all(torch.equal(a, b) for a, b in zip(images, pictures(5), strict=True))
    assert calls == [(n, 5) for n in range(1, 6)]
    gray = load_images(paths, num_channels=1)
    assert {tuple(image.shape) for image in gray} == {(1, 37, 31)}


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    folder = write_pictures(tmp_path)
    Image.new("RGB", (9, 9)).save(folder / "fine.png")
    (folder / "broken.png").write_bytes(b"not a picture")
    with pytest.raises(ImageError, match=r"broken\.png"):
        load_images(sorted(folder.iterdir()), num_channels=3)


@pytest.mark.parametrize("scale", [1, 2])
def test_a_pair_is_cut_turned_and_recolored_as_one(scale):
    # The input is the target's own mean over squares, so that each patch shows what belongs to it.
    target = pictures(1, 24, 20)[0][None].float()
    squares = torch.nn.functional.avg_pool2d(target, scale)
    stacked = stack_pair(Pair(squares.round().byte(), target.byte()))[0]
    bank = build_bank(
        [stacked], degradation=StoredInput(scale), patch=6, device=CPU, swap_channels=True
    )
    patches = sample(bank, 3, 64)
    assert patches.target.shape == (64, 3, 6 * scale, 6 * scale)
    expected = torch.nn.functional.avg_pool2d(patches.target, scale)
    torch.testing.assert_close(patches.degraded, expected, rtol=0, atol=0.51 / 255)
    assert len({tuple(patch.flatten().tolist()) for patch in patches.degraded}) > 40


def drawing_bank(drawn_every: int, drawn: int = 2) -> Bank:
    return build_bank(
        pictures(),
        degradation=Bicubic(2),
        patch=8,
        device=CPU,
        drawn=[torch.full((3, 20, 24), 200 + n, dtype=torch.uint8) for n in range(drawn)],
        drawn_every=drawn_every,
    )


def test_every_third_patch_comes_from_the_drawn_images():
    plain, drawing = drawing_bank(1, drawn=0), drawing_bank(3)
    ours, theirs = (sample(bank, 4, batch=7).target for bank in (drawing, plain))
    same = [torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)]
    assert same == [True, True, False, True, True, False, True]
    values = {round(255 * value) for value in ours[[2, 5]].unique().tolist()}
    assert values <= {200, 201}


def test_all_drawn_images_are_used():
    target = sample(drawing_bank(1, drawn=3), 0, batch=60).target
    assert {round(255 * value) for value in target.unique().tolist()} == {200, 201, 202}


def test_processes_that_share_a_batch_take_the_same_drawn_patches():
    bank = drawing_bank(3)
    whole = sample(bank, 2, batch=8)
    parts = [sample(bank, 2, batch=4, first=first) for first in (0, 4)]
    assert torch.equal(whole.target, torch.cat([part.target for part in parts]))
    assert torch.equal(whole.degraded, torch.cat([part.degraded for part in parts]))
