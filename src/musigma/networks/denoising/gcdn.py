"""GCDN: convolutions whose neighbors are also the pixels with the most similar features."""

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import autocast_device
from musigma.networks.neighbor_search import Candidates, mirror_to_side
from musigma.networks.registry import Variant, register_variants

SMALLEST_SIDE = 8
"""Smaller images are padded to this side: room for reflection and for every neighbor."""

SLOPE = 0.2
"""Slope of the leaky ReLU below 0: the default of the authors' TensorFlow."""

DECAY = 10.0
"""Squared distance at which an edge counts for 1/e."""

MANY_VALUES = 2**24
"""Values of the edge filters that are computed at once: 64 MiB."""


def similar_pixels(features: Tensor, *, count: int, window: int) -> Tensor:
    """Return for each pixel the indices of those with the nearest features, ``(N, H W, count)``.

    They lie in a window around it, outside the nine pixels that a 3x3 convolution sees anyway.
    """
    height, width = features.shape[-2:]
    candidates = Candidates(height, width, window=window, near=1, device=features.device)
    indices = []
    with torch.no_grad(), torch.autocast(autocast_device(features), enabled=False):
        grid = features.float()
        for rows, others in candidates.bands():
            query, key = (_tokens(grid[:, :, part]) for part in (rows, others))
            # The query's own square is the same for all candidates.
            distance = key.square().sum(-1).unsqueeze(1) - 2 * query @ key.mT
            distance = distance.masked_fill(~candidates.mask(rows, others), torch.inf)
            # The nearest first, in a fixed order, because the order decides how sums are rounded.
            index = distance.topk(count, largest=False).indices
            indices.append(index + (others.start or 0) * width)
    return torch.cat(indices, dim=1)


def _tokens(features: Tensor) -> Tensor:
    return features.flatten(2).mT.contiguous()


class EdgeFilter(nn.Module):
    """One side of the low-rank filter of an edge, made from the edge's label.

    The matrix that makes it is circulant in blocks: each part of the result is made by the same
    weights from the label, moved on by the size of a part.
    """

    def __init__(self, num_labels: int, channels: int, *, rank: int, num_parts: int) -> None:
        super().__init__()
        self.shifts = [part * (num_labels // num_parts) for part in range(num_parts)]
        self.rank, self.size = rank, channels // num_parts
        self.weight = nn.Parameter(torch.empty(rank * self.size, num_labels))
        self.bias = nn.Parameter(torch.zeros(rank, channels))
        nn.init.normal_(self.weight, std=num_labels**-1.0)

    def forward(self, label: Tensor) -> Tensor:
        """Map labels ``(..., num_labels)`` to vectors ``(..., rank, channels)``."""
        moved = torch.stack([label.roll(shift, -1) for shift in self.shifts], dim=-2)
        parts = torch.unflatten(F.linear(moved, self.weight), -1, (self.rank, self.size))
        return parts.transpose(-3, -2).flatten(-2) + self.bias


class GraphConv(nn.Module):
    """The mean of a 3x3 convolution and of filtered features of similar pixels.

    For an edge with label ``d = h_j - h_i``, the filter is ``sum_r l_r(d) left_r(d) right_r(d)^T``
    and counts ``exp(-|d|^2 / 10)``.
    """

    def __init__(self, channels: int, out_channels: int, *, rank: int, num_parts: int) -> None:
        super().__init__()
        self.local = _conv(channels, out_channels, 3)
        self.label = nn.Linear(channels, channels)
        out_parts = num_parts if out_channels == channels else 1
        self.right = EdgeFilter(channels, channels, rank=rank, num_parts=num_parts)
        self.left = EdgeFilter(channels, out_channels, rank=rank, num_parts=out_parts)
        self.strength = nn.Linear(channels, rank)
        nn.init.normal_(self.strength.weight, std=rank**-0.5)
        self.bias = nn.Parameter(torch.zeros(out_channels, 1, 1))

    def forward(self, features: Tensor, neighbors: Tensor) -> Tensor:
        """Convolve."""
        pixels = _tokens(features)
        rank, channels = self.right.bias.shape
        values_each = 2 * rank * channels * neighbors.shape[-1] * len(features)
        at_once = max(1, MANY_VALUES // values_each)
        if torch.compiler.is_compiling() or features.is_meta:
            mixed = self._mix(pixels, pixels, neighbors)
        else:
            parts = zip(
                *(torch.split(values, at_once, 1) for values in (pixels, neighbors)), strict=True
            )
            mixed = torch.cat([self._mix(pixels, part, near) for part, near in parts], dim=1)
        mixed = torch.unflatten(mixed.mT, -1, features.shape[-2:])
        return (self.local(features) + mixed) / 2 + self.bias

    def _mix(self, pixels: Tensor, centers: Tensor, neighbors: Tensor) -> Tensor:
        """Filter the neighbors of the center pixels, ``(N, number, out_channels)``."""
        count, channels = neighbors.shape[-1], pixels.shape[-1]
        index = neighbors.flatten(1).unsqueeze(-1).expand(-1, -1, channels)
        seen = torch.unflatten(pixels.gather(1, index), 1, (-1, count))
        difference = seen - centers.unsqueeze(2)
        label = F.leaky_relu(self.label(difference), SLOPE)
        inner = (self.right(label) @ seen.unsqueeze(-1)).squeeze(-1) * self.strength(label)
        filtered = (inner.unsqueeze(-2) @ self.left(label)).squeeze(-2)
        near = (-difference.square().sum(-1, keepdim=True) / DECAY).exp()
        return (filtered * near).mean(2)


def _conv(in_channels: int, out_channels: int, size: int, *, bias: bool = False) -> nn.Conv2d:
    padding = size // 2
    layer = nn.Conv2d(
        in_channels, out_channels, size, padding=padding, padding_mode="reflect", bias=bias
    )
    # Keeps the variance without the batch norms (He et al. 2015).
    nn.init.kaiming_normal_(layer.weight, a=SLOPE)
    return layer


class Start(nn.Module):
    """One of three branches on the image, each with kernels of another size."""

    def __init__(self, channels: int, width: int, *, size: int, rank: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for into in (channels, width, width):
            layers += [_conv(into, width, size), nn.LeakyReLU(SLOPE)]
        self.body = nn.Sequential(*layers)
        self.graph = GraphConv(width, width, rank=rank, num_parts=1)

    def forward(self, image: Tensor, *, count: int, window: int) -> Tensor:
        """Return features of the image."""
        features = self.body(image)
        return self.graph(features, similar_pixels(features, count=count, window=window))


class Filter(nn.Module):
    """A convolution and three graph convolutions; the result of the first defines their graph."""

    def __init__(self, width: int, *, rank: int, num_parts: int) -> None:
        super().__init__()
        self.first = _conv(width, width, 3, bias=True)
        self.graphs = nn.ModuleList(
            GraphConv(width, width, rank=rank, num_parts=num_parts) for _ in range(3)
        )

    def forward(self, features: Tensor, *, count: int, window: int) -> Tensor:
        """Filter the features."""
        features = F.leaky_relu(self.first(features), SLOPE)
        neighbors = similar_pixels(features, count=count, window=window)
        for graph in self.graphs:
            features = F.leaky_relu(graph(features, neighbors), SLOPE)
        return features


class GCDN(Network):
    """Graph-convolutional denoising network, without a noise map.

    A high-pass filter sees the features once; then low-pass filters refine, step by step,
    ``beta_t * high + (1 - alpha_t) * features``. Batch norms are folded into what they follow.

    The paper leaves open the number of neighbors, the leaky slopes and the parts of a filter; they
    are those of the release. Where the release departs from the paper, the paper is followed: the
    middle branch uses its own features (in the release, those of the first branch), and the parts
    of a filter come from labels shifted by a third each (in the release, by 0, two thirds and a
    whole). In the release a tile has one search window; here each pixel has its own. The released
    weights are TensorFlow files, which cannot be read here. The paper is about gray images; for
    color, only the channels differ.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
        width: Channels, a multiple of 3.
        rank: Rank of the edge filters.
        num_steps: Low-pass filters.
        num_neighbours: Similar pixels that each sees.
        window: Side of the window that is searched for them.
    """

    def __init__(
        self,
        *,
        scale: int,
        channels: int = 1,
        width: int = 132,
        rank: int = 11,
        num_steps: int = 4,
        num_neighbours: int = 16,
        window: int = 49,
    ) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="denoising",
            in_channels=channels,
            out_channels=channels,
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=None,
            receptive_radius=None,
            fixed_activation_floats=4 * MANY_VALUES,
        )
        self.search = {"count": num_neighbours, "window": window}
        self.start = nn.ModuleList(
            Start(channels, width // 3, size=size, rank=rank) for size in (3, 5, 7)
        )
        self.high = Filter(width, rank=rank, num_parts=3)
        self.low = nn.ModuleList(Filter(width, rank=rank, num_parts=3) for _ in range(num_steps))
        self.alpha = nn.Parameter(torch.full((num_steps,), 0.5))
        self.beta = nn.Parameter(torch.full((num_steps,), 0.5))
        self.tail = GraphConv(width, channels, rank=rank, num_parts=3)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last graph convolution, with the padding of small images."""
        image = mirror_to_side(degraded, SMALLEST_SIDE)
        branches = [branch(image, **self.search) for branch in self.start]
        features = F.leaky_relu(torch.cat(branches, dim=1), SLOPE)
        high = self.high(features, **self.search)
        for step, alpha, beta in zip(self.low, self.alpha, self.beta, strict=True):
            features = beta * high + (1 - alpha) * features
            features = features + step(features, **self.search)
        return features

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Subtract the predicted noise from the image."""
        noise = self.tail(features, similar_pixels(features, **self.search))
        return degraded - noise[..., : degraded.shape[-2], : degraded.shape[-1]]


register_variants(
    GCDN,
    {
        "gcdn": Variant("For gray images."),
        "gcdn-colour": Variant("For color images.", {"channels": 3}),
    },
    scales=(1,),
    paper="Valsesia et al., Deep Graph-Convolutional Image Denoising, TIP 2020",
    year=2020,
)
