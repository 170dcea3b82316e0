"""The detail of places, by which patches are chosen."""

import torch

from helpers.runs import CPU
from musigma.datasets.detail_table import CELL, build_table, detail, detail_of_windows
from musigma.datasets.patch_bank import build_bank
from musigma.degradations import Bicubic


def half_striped(height: int = 64, width: int = 128) -> torch.Tensor:
    """Plain on the left, stripes of one pixel on the right."""
    image = torch.full((3, height, width), 100, dtype=torch.uint8)
    image[..., width // 2 :: 2] = 140
    return image


def test_detail_is_the_mean_distance_to_the_mean_of_a_block():
    image = torch.tensor([[[0, 4, 9, 9], [8, 12, 9, 9]]], dtype=torch.uint8)
    # 0, 4, 8, 12 have the mean 6 and the distances 6, 2, 2, 6.
    assert detail(image, block=2).tolist() == [[4.0, 0.0]]


def test_windows_average_it():
    image = half_striped()
    values = detail_of_windows(image, side=2 * CELL, block=2)
    assert values.shape == (3, 7)
    expected = [0, 0, 0, 10, 20, 20, 20]
    torch.testing.assert_close(values, torch.tensor([expected] * 3).float())


def test_the_table_knows_the_detail_of_each_image():
    striped, plain = half_striped(), torch.zeros(3, 40, 50, dtype=torch.uint8)
    table = build_table([plain, striped], side=2 * CELL, block=2, device=CPU)
    image, row, column = torch.tensor([[0, 8, 18], [1, 32, 10], [1, 32, 96], [1, 0, 70]]).T
    assert table.at(image, row, column).tolist() == [0, 0, 20, 20]


def test_the_most_detailed_candidate_is_taken():
    banks = [
        build_bank([half_striped()], degradation=Bicubic(2), patch=8, device=CPU, candidates=count)
        for count in (1, 2, 8)
    ]
    shares = []
    for bank in banks:
        target = bank.sample(torch.tensor(3), batch=200, seed=0).target
        shares.append((target.std((1, 2, 3)) > 0.07).float().mean().item())
    # Patches of 16 pixels; four tenths of the places are wholly in the stripes.
    assert shares[0] < 0.6 < shares[1] < 0.9 < shares[2]


def test_one_candidate_is_the_place_of_before():
    image = torch.randint(0, 256, (3, 64, 64), generator=torch.Generator().manual_seed(0)).byte()
    one, many = (
        build_bank([image], degradation=Bicubic(2), patch=8, device=CPU, candidates=count)
        for count in (1, 4)
    )
    key = numbers = torch.arange(5)
    first = one._place(key, numbers)
    found = one._best_place(key, numbers)
    assert all(torch.equal(a, b) for a, b in zip(first, found, strict=True))
    assert many.detail is not None
    chosen = many.detail.at(*many._best_place(key, numbers))
    assert (chosen >= many.detail.at(*first)).all()
