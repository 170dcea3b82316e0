"""RPCNN: patches are averaged with those that a network finds similar; another refines them."""

import itertools
import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.denoising.dncnn import plain_stack
from musigma.networks.denoising.ircnn import DILATIONS
from musigma.networks.neighbor_search import mirror_to_side
from musigma.networks.registry import Variant, register_variants

PATCH = 8
"""Side of the patches that are compared, coefficient by coefficient."""

CONTEXT = 4
"""How far beyond a patch the comparing network looks."""


def haar_basis(channels: int) -> tuple[Tensor, Tensor]:
    """Return an orthonormal basis of patches, and the sub-band of each of its vectors.

    Colors become their sum and two opponents; each of these goes through three levels of the
    two-dimensional Haar transform. A sub-band is a color, a level and a direction: 10 a color.

    Returns:
        The basis ``(64 channels, channels, 8, 8)`` and the sub-bands ``(64 channels,)``.

    Example:
        >>> basis, band = haar_basis(3)
        >>> tuple(basis.shape), int(band.max()) + 1
        ((192, 3, 8, 8), 30)
    """
    sum_, difference = torch.tensor([1.0, 1.0]), torch.tensor([-1.0, 1.0])
    directions = [(sum_, difference), (difference, sum_), (difference, -difference)]
    vectors, bands = [], []
    for level, direction in itertools.product(range(3), range(3)):
        half = 2**level
        down, across = (part.repeat_interleave(half) for part in directions[direction])
        wave = torch.outer(down, across) / (2 * half)
        for top, left in itertools.product(range(0, PATCH, 2 * half), repeat=2):
            rest = PATCH - 2 * half
            vectors.append(F.pad(wave, (left, rest - left, top, rest - top)))
            bands.append(3 * level + direction)
    vectors.append(torch.full((PATCH, PATCH), 1 / PATCH))
    bands.append(9)
    basis = torch.einsum("kc,vyx->kvcyx", _colors(channels), torch.stack(vectors))
    band = torch.arange(channels).unsqueeze(1) * 10 + torch.tensor(bands)
    return basis.flatten(0, 1), band.flatten()


def _colors(channels: int) -> Tensor:
    if channels == 1:
        return torch.ones(1, 1)
    root = 1 / math.sqrt(3)
    large, small = (root + 1) / 2, (root - 1) / 2
    return torch.tensor([[root, root, root], [-root, large, small], [-root, small, large]])


def shifted(position: Tensor, step: int, window: int) -> tuple[Tensor, Tensor]:
    """Return the positions a step away, and for which of them there is one.

    A step across the border continues at the other end of the window, so that every position is
    compared with a whole window.
    """
    target = position + step
    target = torch.where(target < 0, target + window, target)
    target = torch.where(target > position[-1], target - window, target)
    exists = (target >= 0) & (target <= position[-1])
    return torch.where(exists, target, position), exists


def _valid(in_channels: int, out_channels: int, size: int) -> nn.Sequential:
    layer = nn.Conv2d(in_channels, out_channels, size)
    # Keeps the variance without the batch norms (He et al. 2015).
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return nn.Sequential(layer, nn.ReLU(inplace=True))


class Matcher(nn.Module):
    """Predicts for two patches which of their sub-bands come from the same pattern.

    Args:
        channels: Channels of the image.
        width: Channels of most layers; the first four have 1/4, 3/8, 3/4 and 3/2 of it.
    """

    def __init__(self, channels: int, *, width: int) -> None:
        super().__init__()
        widths = [width // 4, 3 * width // 8, 3 * width // 4, 3 * width // 2]
        first = [_valid(channels, widths[0], 2)]
        first += [_valid(a, b, 3) for a, b in itertools.pairwise(widths)]
        self.first = nn.Sequential(*first)
        self.second = nn.Sequential(_valid(widths[-1], width, 3), _valid(width, width, 3))
        self.third = nn.Sequential(_valid(width, width // 2, 3), _valid(width // 2, width // 2, 3))
        num_seen = widths[-1] + width + width // 2
        self.fourth = nn.Sequential(*(_valid(n, width, 1) for n in (num_seen, width, width)))
        self.fifth = nn.Sequential(*(_valid(width, width, 1) for _ in range(3)))
        self.reference = nn.Conv2d(num_seen + 2 * width, 4 * width, 1)
        self.other = nn.Conv2d(num_seen + 2 * width, 4 * width, 1, bias=False)
        sizes = [4 * width, 2 * width, width, width // 2]
        hidden = (_valid(a, b, 1) for a, b in itertools.pairwise(sizes))
        self.verdict = nn.Sequential(*hidden, nn.Conv2d(sizes[-1], 10 * channels, 1))

    def encode(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encodings of each patch, as a reference and as a patch to compare with."""
        around = F.pad(2 * image - 1, (CONTEXT,) * 4, mode="reflect")
        first = self.first(around)
        second = self.second(first)
        third = self.third(second)
        seen = torch.cat([first[..., 4:-4, 4:-4], second[..., 2:-2, 2:-2], third], dim=1)
        fourth = self.fourth(seen)
        known = torch.cat([seen, fourth, self.fifth(fourth)], dim=1)
        return self.reference(known), self.other(known)

    def forward(self, reference: Tensor, other: Tensor) -> Tensor:
        """Return how far each sub-band matches, in ``(0, 1)``."""
        return torch.sigmoid(self.verdict(F.relu(reference + other)))


class RPCNN(Network):
    """Recurring-patterns network, without a noise map.

    Each coefficient of a patch becomes a mean over the 31x31 patches around it, weighted by the
    similarity of its sub-band; the patch itself counts once more. Overlapping patches are averaged,
    and a network like IRCNN refines the result. Batch norms are folded into the convolutions.

    Sizes are those of the release. The authors train the two networks separately, the first on
    pairs of patches; here one loss trains both. The release pads the image by reflection before it
    is refined; here layers pad with zeros, as in IRCNN. The released weights are NumPy files, which
    cannot be read here. The paper is about color images; gray images have one channel.

    The features are the input of the last convolution and the image that it refines.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
        width: Channels of both networks.
        window: Side of the window of patches, an odd number.
    """

    basis: Tensor
    band: Tensor

    def __init__(self, *, scale: int, channels: int = 3, width: int = 64, window: int = 31) -> None:
        super().__init__()
        matching_radius = window // 2 + PATCH - 1 + CONTEXT
        self.info = NetworkInfo(
            scale=scale,
            task="denoising",
            in_channels=channels,
            out_channels=channels,
            feature_channels=width + channels,
            feature_scale=scale,
            feature_receptive_radius=matching_radius + sum(DILATIONS[:-1]),
            receptive_radius=matching_radius + sum(DILATIONS),
            # The encodings of the patches, a shifted copy of them, and the layers that compare.
            activation_floats_per_pixel=72 * width,
        )
        self.window = window
        self.matcher = Matcher(channels, width=width)
        self.refine = plain_stack(2 * channels, channels, width=width, dilations=DILATIONS)
        basis, band = haar_basis(channels)
        self.register_buffer("basis", torch.empty(basis.shape).copy_(basis), persistent=False)
        band = torch.empty(band.shape, dtype=band.dtype).copy_(band)
        self.register_buffer("band", band, persistent=False)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution and the image that it refines."""
        image = mirror_to_side(degraded, PATCH)
        matched = self.average(image)
        hidden = self.refine[:-1](2 * torch.cat([image, matched], dim=1) - 1)
        return torch.cat([hidden, matched], dim=1)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Add the residual that the refining network predicts."""
        hidden, matched = features[:, : -self.out_channels], features[:, -self.out_channels :]
        mean = matched + self.refine[-1](hidden)
        return mean[..., : degraded.shape[-2], : degraded.shape[-1]]

    def average(self, image: Tensor) -> Tensor:
        """Replace each coefficient of each patch by the mean over those that match it."""
        basis = self.basis.to(image.dtype)
        own = F.conv2d(image, basis)
        reference, other = self.matcher.encode(image)
        total, weights = own, torch.ones_like(own[:, : 10 * self.out_channels])
        rows, columns = (torch.arange(size, device=image.device) for size in own.shape[-2:])
        steps = range(-(self.window // 2), self.window // 2 + 1)
        if image.is_meta:  # costs are counted with all comparisons at once
            self.matcher(*(known.repeat(self.window**2, 1, 1, 1) for known in (reference, other)))
            steps = range(0)
        for down in steps:
            row, row_exists = shifted(rows, down, self.window)
            other_rows, own_rows = other.index_select(2, row), own.index_select(2, row)
            for across in steps:
                column, column_exists = shifted(columns, across, self.window)
                match = self.matcher(reference, other_rows.index_select(3, column))
                match = match * (row_exists.unsqueeze(1) & column_exists)
                total = total + match[:, self.band] * own_rows.index_select(3, column)
                weights = weights + match
        total = (total / weights[:, self.band]).to(basis.dtype)
        count = F.conv_transpose2d(torch.ones_like(total[:1, :1]), torch.ones_like(basis[:1, :1]))
        return F.conv_transpose2d(total, basis) / count


register_variants(
    RPCNN,
    {
        "rpcnn": Variant("For color images."),
        "rpcnn-grey": Variant("For gray images.", {"channels": 1}),
    },
    scales=(1,),
    paper="Xia and Chakrabarti, Identifying Recurring Patterns with Deep Neural Networks for "
    "Natural Image Denoising, WACV 2020",
    year=2020,
)
