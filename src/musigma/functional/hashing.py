"""Random numbers by hashing: they follow from a key alone, on any device and in any order."""

import torch
from torch import Tensor

_POSITIVE = (1 << 62) - 1
_24_BITS = (1 << 24) - 1


def splitmix64(value: Tensor) -> Tensor:
    """Hash 64-bit integers so that neighbors become unrelated (the finalizer of SplitMix64)."""
    value = value * -7046029254386353131
    value = (value ^ _shift(value, 30)) * -4658895280553007687
    value = (value ^ _shift(value, 27)) * -7723592293110705685
    return value ^ _shift(value, 31)


def below(number: Tensor | int, key: Tensor) -> Tensor:
    """Return whole numbers from 0 to below `number`, by hashes.

    Example:
        >>> below(10, torch.tensor([7, 23]))
        tensor([7, 3])
    """
    return key.bitwise_and(_POSITIVE) % number


def uniform(key: Tensor, count: int, *, first: int = 0) -> Tensor:
    """Return `count` uniform numbers in ``[0, 1)`` for each key, ``(*key.shape, count)``.

    Args:
        key: 64-bit integers.
        count: How many.
        first: Number of the first one; other numbers of the same key are unrelated.

    Example:
        >>> numbers = uniform(torch.tensor([1, 2]), 3)
        >>> numbers.shape, torch.equal(numbers[:, 1:], uniform(torch.tensor([1, 2]), 2, first=1))
        (torch.Size([2, 3]), True)
    """
    index = torch.arange(first, first + count, device=key.device)
    return unit(splitmix64(key.unsqueeze(-1) + index))


def unit(hashes: Tensor) -> Tensor:
    """Return the lowest 24 bits of hashes as numbers in ``[0, 1)``.

    Example:
        >>> unit(torch.tensor([0, 1 << 23]))
        tensor([0.0000, 0.5000])
    """
    return (hashes & _24_BITS).float() / (_24_BITS + 1)


def _shift(value: Tensor, bits: int) -> Tensor:
    # A right shift of a signed integer repeats its sign; the mask makes it a logical one.
    return (value >> bits) & ((1 << (64 - bits)) - 1)
