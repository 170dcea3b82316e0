"""WNNM, weighted nuclear norm minimization: denoising by the low rank of similar patches."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor

from musigma.networks.denoising.classical_base import ClassicalDenoiser
from musigma.networks.registry import Variant, register_variants
from musigma.types import ImageError

SEARCH = 30
"""How far away, in pixels, a similar patch may lie."""

FEEDBACK = 0.1
"""Share of the removed noise that is put back before each round."""

SEARCH_EVERY = 2
"""Number of rounds after which similar patches are searched again."""

MANY_VALUES = 2**24
"""Values of all groups that are processed at once: 64 MiB."""

LEAST_ENERGY = 1e-6
"""Energy added to each group: 1/40 of a level in each of 100 values, far below any noise."""


class _Plan(NamedTuple):
    """The authors' parameters for a range of noise levels."""

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
    """Denoise an image by weighted nuclear norm minimization (Gu et al., CVPR 2014).

    The patches most similar to a patch are the columns of a matrix of low rank; each of its
    singular values `s` is shrunk to ``(s + sqrt(s^2 - 4 c)) / 2``, or to 0 where that is not real,
    with ``c = 2 sqrt(2) sqrt(number of patches) 2 variance of the noise``. Large values are shrunk
    least. The overlapping results are averaged; each further round starts from the result with part
    of the removed difference put back.

    Patch size, number of patches and number of rounds are the authors'. Groups begin half a patch
    apart; the authors' overlap more, which gains 0.002 dB on a crop of "house". Patches of a color
    image hold all channels.

    Args:
        image: ``(C, H, W)``, not clipped.
        noise_std: Standard deviation of the noise in 8-bit levels, such as 25; 0 returns the image.

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
            # The authors average fewer patches from search to search, as less noise remains.
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
    """Return for patches on a grid the indices of the most similar ones, ``(number, count)``.

    A patch is the first of its group. Windows at the border are moved inwards and keep their size.
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
        centers = row * columns + x
        distance = norms[band] - 2 * patches[centers] @ patches[band].T
        distance = distance.view(-1, height, columns).gather(2, across).flatten(1)
        nearest = distance.topk(min(count, height * width), largest=False).indices
        group = (top + nearest // width) * columns + left + nearest % width
        group[:, 0] = centers  # rounding or an equal patch may have put another one first
        groups.append(group)
    return torch.cat(groups)


def _grid(length: int, step: int, device: torch.device) -> Tensor:
    """Return every step-th index and the last."""
    indices = torch.arange(0, length + step - 1, step, device=device)
    return indices.clamp(max=length - 1)


def _clean(
    patches: Tensor, groups: Tensor, remaining: Tensor, shape: torch.Size, side: int
) -> Tensor:
    """Denoise all groups and average their patches into an image."""
    total = torch.zeros_like(patches)
    at_once = max(1, MANY_VALUES // (groups.shape[1] * patches.shape[1]))
    for part in torch.split(groups, at_once):
        cleaned = shrink_singular_values(patches[part], remaining[part[:, 0]])
        total.index_add_(0, part.flatten(), cleaned.flatten(0, 1))
    counts = torch.bincount(groups.flatten(), minlength=len(patches)).to(total)
    image = F.fold(total.T.unsqueeze(0), shape[-2:], side)[0]
    return image / F.fold(counts.expand(1, side**2, -1), shape[-2:], side)[0]


def shrink_singular_values(groups: Tensor, noise_std: Tensor) -> Tensor:
    """Shrink the singular values of each group of similar patches; the mean of a group is kept.

    Args:
        groups: ``(N, patches, values)``.
        noise_std: Standard deviation of the noise of each group, in its units, ``(N,)``.
    """
    mean = groups.mean(1, keepdim=True)
    centered = groups - mean
    # The eigenvectors of the smaller product give the same result as a singular value
    # decomposition in a fraction of its time.
    product = centered.mT @ centered
    # For equal patches the product is rounding errors alone, for which eigh may return NaN.
    product.diagonal(dim1=1, dim2=2).add_(LEAST_ENERGY)
    energies, directions = torch.linalg.eigh(product)
    energies = (energies - LEAST_ENERGY).clamp(min=0)
    values = energies.sqrt()
    weight = 4 * math.sqrt(2 * groups.shape[1]) * noise_std.square()
    root = (energies - 4 * weight[:, None]).clamp(min=0).sqrt()
    kept = torch.where(energies > 4 * weight[:, None], (values + root) / 2, 0)
    factor = kept / values.clamp(min=torch.finfo(values.dtype).tiny)
    return centered @ (directions * factor.unsqueeze(1)) @ directions.mT + mean


class WNNM(ClassicalDenoiser):
    """Weighted nuclear norm minimization; the patches of a color image hold all channels.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
    """

    def denoise(self, image: Tensor, noise_std: float) -> Tensor:
        """Denoise one image."""
        return wnnm(image, noise_std=noise_std)


register_variants(
    WNNM,
    {
        "wnnm": Variant("For gray images."),
        "wnnm-colour": Variant("For color images.", {"channels": 3}),
    },
    scales=(1,),
    paper="Gu et al., Weighted Nuclear Norm Minimization with Application to Image Denoising, "
    "CVPR 2014",
    year=2014,
)
