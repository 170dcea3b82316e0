"""Weighted nuclear norm minimisation: denoising by the low rank of similar patches."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor

from musigma.types import ImageError

SEARCH = 30
"""How far away, in pixels, a similar patch may lie."""

FEEDBACK = 0.1
"""Share of what was taken away that is put back before each round."""

SEARCH_EVERY = 2
"""Rounds for which the similar patches found once are used."""

MANY_VALUES = 2**24
"""Values of the groups whose singular values are shrunk at once: 64 MiB."""

LEAST_ENERGY = 1e-6
"""Of a group: a fortieth of a level in each of a hundred values, far below any noise."""


class _Plan(NamedTuple):
    """The authors' choices for a range of noise levels."""

    patch: int
    num_similar: int
    num_rounds: int
    trust: float


def _plan(noise_std: float) -> _Plan:
    if noise_std <= 20:
        return _Plan(6, 70, 8, 0.54)
    if noise_std <= 40:
        return _Plan(7, 90, 12, 0.56)
    if noise_std <= 60:
        return _Plan(8, 120, 14, 0.58)
    return _Plan(9, 140, 14, 0.58)


def wnnm(image: Tensor, *, noise_std: float) -> Tensor:
    """Denoise an image by weighted nuclear norm minimisation (Gu et al., CVPR 2014).

    The patches most similar to a patch are the columns of a matrix of low rank; each of its
    singular values `s` is shrunk to ``(s + sqrt(s^2 - 4 c)) / 2``, or to 0 where that is not real,
    with ``c = 2 sqrt(2) sqrt(number of patches) 2 variance of the noise``: the greater, the less.
    The results overlap and are averaged; several rounds put part of the difference back.

    Size, number and rounds are the authors'. Groups begin half a patch apart, where the authors'
    overlap more, for 0.002 dB on a crop of "house"; patches of a colour image hold all channels.

    Args:
        image: ``(C, H, W)``, not clipped.
        noise_std: In 8-bit levels, such as 25; 0 returns the image.

    Example:
        >>> noisy = 0.5 + 0.1 * torch.randn(1, 24, 24, generator=torch.Generator().manual_seed(0))
        >>> bool((wnnm(noisy, noise_std=25.5) - 0.5).std() < 0.02)
        True
    """
    if image.ndim != 3 or not image.is_floating_point():
        raise ImageError(
            f"expected a float image (C, H, W) in [0, 1], got {tuple(image.shape)} {image.dtype}"
        )
    if noise_std < 0:
        raise ImageError(f"noise_std is 0 or more, in 8-bit levels (such as 25), got {noise_std}")
    if noise_std == 0:
        return image
    plan, level = _plan(noise_std), noise_std / 255
    side = min(plan.patch, *image.shape[-2:])
    noisy = _patches(image, side)
    estimate = image
    remaining = torch.full_like(noisy[:, 0], level)
    for number in range(plan.num_rounds):
        source = estimate + FEEDBACK * (image - estimate)
        patches = _patches(source, side)
        if number % SEARCH_EVERY == 0:
            # Fewer and fewer, as the authors do: the less noise, the fewer need to be averaged.
            count = plan.num_similar - 10 * (number // SEARCH_EVERY + 1)
            groups = _similar(patches, image.shape, side, count)
        if number:
            removed = (noisy - patches).square().mean(1)
            remaining = plan.trust * (level**2 - removed).abs().sqrt()
        estimate = _clean(patches, groups, remaining, image.shape, side)
    return estimate


def _patches(image: Tensor, side: int) -> Tensor:
    """Return every patch of an image as a row, ``(number, values)``."""
    return F.unfold(image.unsqueeze(0), side)[0].T.contiguous()


def _similar(patches: Tensor, shape: torch.Size, side: int, count: int) -> Tensor:
    """Return for patches on a grid the places of those nearest to them, ``(number, count)``.

    A patch is the first of its group. Windows at the border are moved inwards, none is smaller.
    """
    rows, columns = (length - side + 1 for length in shape[-2:])
    y, x = (_grid(length, max(1, side // 2), patches.device) for length in (rows, columns))
    height, width = min(2 * SEARCH + 1, rows), min(2 * SEARCH + 1, columns)
    left = (x - SEARCH).clamp(0, columns - width).unsqueeze(1)
    across = (left + torch.arange(width, device=x.device)).unsqueeze(1).expand(-1, height, -1)
    norms = patches.square().sum(1)
    groups = []
    for row in y.tolist():
        top = min(max(row - SEARCH, 0), rows - height)
        band = slice(top * columns, (top + height) * columns)
        places = row * columns + x
        distance = norms[band] - 2 * patches[places] @ patches[band].T
        distance = distance.view(-1, height, columns).gather(2, across).flatten(1)
        nearest = distance.topk(min(count, height * width), largest=False).indices
        group = (top + nearest // width) * columns + left + nearest % width
        group[:, 0] = places  # which rounding, or an equal patch, may have moved
        groups.append(group)
    return torch.cat(groups)


def _grid(length: int, step: int, device: torch.device) -> Tensor:
    """Return every step-th place and the last."""
    places = torch.arange(0, length + step - 1, step, device=device)
    return places.clamp(max=length - 1)


def _clean(
    patches: Tensor, groups: Tensor, remaining: Tensor, shape: torch.Size, side: int
) -> Tensor:
    """Return the image made of the patches of all groups without their noise."""
    total = torch.zeros_like(patches)
    at_once = max(1, MANY_VALUES // (groups.shape[1] * patches.shape[1]))
    for some in torch.split(groups, at_once):
        cleaned = shrink_singular_values(patches[some], remaining[some[:, 0]])
        total.index_add_(0, some.flatten(), cleaned.flatten(0, 1))
    counts = torch.bincount(groups.flatten(), minlength=len(patches)).to(total)
    image = F.fold(total.T.unsqueeze(0), shape[-2:], side)[0]
    return image / F.fold(counts.expand(1, side**2, -1), shape[-2:], side)[0]


def shrink_singular_values(groups: Tensor, noise_std: Tensor) -> Tensor:
    """Shrink the singular values of each group of similar patches, whose mean is kept.

    Args:
        groups: ``(N, patches, values)``.
        noise_std: Of each group, on its scale, ``(N,)``.
    """
    mean = groups.mean(1, keepdim=True)
    centred = groups - mean
    # The eigenvectors of the smaller product give the same as a singular value decomposition, in
    # a fraction of its time.
    product = centred.mT @ centred
    # Of equal patches the product is all rounding errors, for which eigh may return NaN.
    product.diagonal(dim1=1, dim2=2).add_(LEAST_ENERGY)
    energies, directions = torch.linalg.eigh(product)
    energies = (energies - LEAST_ENERGY).clamp(min=0)
    values = energies.sqrt()
    weight = 4 * math.sqrt(2 * groups.shape[1]) * noise_std.square()
    root = (energies - 4 * weight[:, None]).clamp(min=0).sqrt()
    kept = torch.where(energies > 4 * weight[:, None], (values + root) / 2, 0)
    factor = kept / values.clamp(min=torch.finfo(values.dtype).tiny)
    return centred @ (directions * factor.unsqueeze(1)) @ directions.mT + mean
