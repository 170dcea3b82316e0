"""Random numbers by hashing."""

import torch

from musigma.functional.hashing import below, splitmix64, uniform


def test_mix_is_splitmix64():
    # The first outputs of SplitMix64 with seed 0, as in the test vectors of its public-domain
    # reference (S. Vigna, splitmix64.c) and of Java's SplittableRandom.
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    found = splitmix64(torch.tensor([1, 2, 3])).tolist()
    assert [value % 2**64 for value in found] == expected


def test_mix_of_neighbors_is_unrelated():
    numbers = torch.arange(100_000)
    hashes = splitmix64(numbers)
    assert hashes.unique().numel() == numbers.numel()
    bits = torch.arange(64)
    ones = ((hashes.unsqueeze(1) >> bits) & 1).double().mean(0)
    five_deviations = 5 * 0.5 / numbers.numel() ** 0.5
    assert (ones - 0.5).abs().max() < five_deviations
    # A changed bit of the number changes each bit of the hash every other time.
    for bit in (0, 1, 16, 40, 63):
        changed = hashes ^ splitmix64(numbers ^ (torch.tensor(1) << bit))
        share = ((changed.unsqueeze(1) >> bits) & 1).double().mean(0)
        assert (share - 0.5).abs().max() < five_deviations


def test_uniform_numbers_are_even_and_unrelated():
    numbers = uniform(torch.arange(20_000), 2).double()
    assert ((numbers >= 0) & (numbers < 1)).all()
    assert (numbers.mean(0) - 0.5).abs().max() < 5 / 12**0.5 / 20_000**0.5
    assert torch.corrcoef(numbers.T)[0, 1].abs() < 5 / 20_000**0.5


def test_whole_numbers_are_below_their_limit():
    chosen = below(torch.tensor(7), splitmix64(torch.arange(1000)))
    assert chosen.unique().tolist() == list(range(7))
