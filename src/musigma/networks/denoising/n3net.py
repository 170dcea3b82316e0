"""N3Net: short DnCNNs, and between them blocks that bring each patch its nearest neighbors."""

import math
import re

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.denoising.dncnn import plain_stack
from musigma.networks.layers import at_least, autocast_device
from musigma.networks.neighbor_search import Candidates
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    Recognised,
    State,
    count,
    fold_batch_norm,
    quotient,
    recogniser,
    require,
    shape,
    tensor,
)

STRIDE = 5
"""Pixels between two patches, whose side is twice that."""

LOG_TEMPERATURE = math.log(0.1)
"""What the authors add to the predicted temperature, which is a logarithm."""

FAR = -1e12
"""Similarity of patches outside the window; finite, so that a single patch is its own neighbor."""

TAKEN = -1e8
"""Smallest log weight left to a neighbor; it still ranks before patches outside the window."""

LEFT_OVER = 1e-7
"""Added to the weight left to a neighbor where the gradient divides by it, as the authors do."""

EPSILON = 1e-5
"""What the batch norms of the release add to the variance."""


def to_patches(image: Tensor) -> Tensor:
    """Cut an image into overlapping patches, ``(N, 4 STRIDE^2 C, rows, columns)``.

    Sides are multiples of the stride; a patch is four cells of a stride's side.
    """
    cells = F.pixel_unshuffle(image, STRIDE)
    top, bottom = cells[..., :-1, :], cells[..., 1:, :]
    corners = [top[..., :-1], top[..., 1:], bottom[..., :-1], bottom[..., 1:]]
    return torch.cat(corners, dim=1)


def from_patches(patches: Tensor) -> Tensor:
    """Put patches back to where they were cut; where they overlap, take the mean."""
    total, count = _lay_out(patches), _lay_out(torch.ones_like(patches[:1, :4]))
    return F.pixel_shuffle(total / count, STRIDE)


def _lay_out(patches: Tensor) -> Tensor:
    top_left, top_right, bottom_left, bottom_right = patches.chunk(4, dim=1)
    top = F.pad(top_left, (0, 1, 0, 1)) + F.pad(top_right, (1, 0, 0, 1))
    return top + F.pad(bottom_left, (0, 1, 1, 0)) + F.pad(bottom_right, (1, 0, 1, 0))


def nearest_mixes(similarity: Tensor, values: Tensor, *, num_neighbours: int) -> Tensor:
    """Return soft nearest neighbors: the first, the second and so on, each a mean of all values.

    Round `j` uses the weights ``w_j = softmax(a_j)``, and the next round
    ``a_{j+1} = a_j + log(1 - w_j)``, so that a neighbor that was taken counts less. For large
    similarities the means become the neighbors themselves.

    Args:
        similarity: Similarity of each query and each key, ``(N, L, K)``.
        values: Values of the keys, ``(N, K, C)``.
        num_neighbours: Number of rounds.

    Returns:
        ``(N, L, num_neighbours, C)``.
    """
    mixes = []
    for _ in range(num_neighbours):
        log_weight = similarity.log_softmax(-1)
        mixes.append(log_weight.exp() @ values)
        similarity = similarity + _log_left(log_weight)
    return torch.stack(mixes, dim=2)


def _log_left(log_weight: Tensor) -> Tensor:
    """Return ``log(1 - w)``, with a gradient that stays finite where nothing is left."""
    left = -log_weight.expm1()
    guarded = (left + LEFT_OVER).log()
    return guarded + (left.detach().log().clamp_min(TAKEN) - guarded.detach())


class N3Block(nn.Module):
    """Adds to the features how the nearest neighbors of each patch differ from it."""

    def __init__(
        self, channels: int, *, width: int, embedding: int, num_neighbours: int, window: int
    ) -> None:
        super().__init__()
        self.num_neighbours, self.window = num_neighbours, window
        self.embed = plain_stack(channels, embedding, width=width, dilations=(1, 1, 1))
        self.temperature = plain_stack(channels, 1, width=width, dilations=(1, 1, 1))
        # Replaces the batch norm of the distances, whose offset has no effect on a softmax. The
        # initial value turns the sum over a patch into a mean, which is about 1.
        self.distance_scale = nn.Parameter(torch.tensor(1 / (4 * STRIDE**2 * embedding)))

    def forward(self, features: Tensor) -> Tensor:
        """Return the features and the differences, ``(1 + num_neighbours)`` times the channels."""
        values = to_patches(_pad(features))
        embedded = to_patches(_pad(self.embed(features)))
        coldness = -to_patches(_pad(self.temperature(features))).mean(1) - LOG_TEMPERATURE
        mixes = self._neighbors(values, embedded, coldness)
        height, width = features.shape[-2:]
        top, left = ((_padded(size) - size) // 2 for size in (height, width))
        mixes = mixes.to(features.dtype)[..., top : top + height, left : left + width]
        differences = torch.unflatten(mixes, 1, (self.num_neighbours, -1)) - features.unsqueeze(1)
        return torch.cat([features, differences.flatten(1, 2)], dim=1)

    def _neighbors(self, values: Tensor, embedded: Tensor, coldness: Tensor) -> Tensor:
        """Return the neighbors of all patches as images, neighbor by neighbor."""
        rows, columns = values.shape[-2:]
        device = values.device
        candidates = Candidates(rows, columns, window=self.window, near=0, device=device)
        mixes = []
        # Half precision has too few digits for differences of squares.
        with torch.autocast(autocast_device(values), enabled=False):
            factor = self.distance_scale.float() * coldness.float().exp()
            grid, values = embedded.float(), values.float()
            for band, others in candidates.bands():
                query, key = (_tokens(grid[:, :, part]) for part in (band, others))
                distance = (
                    query.square().sum(-1, keepdim=True)
                    - 2 * query @ key.mT
                    + key.square().sum(-1).unsqueeze(1)
                )
                similarity = -distance * factor[:, band].flatten(1).unsqueeze(-1)
                similarity = similarity.masked_fill(~candidates.mask(band, others), FAR)
                mix = nearest_mixes(
                    similarity, _tokens(values[:, :, others]), num_neighbours=self.num_neighbours
                )
                mixes.append(torch.unflatten(mix.permute(0, 2, 3, 1), -1, (-1, columns)))
            # Each neighbor of each channel becomes an image of its own.
            patches = torch.cat(mixes, dim=-2).flatten(0, 1)
            images = torch.unflatten(from_patches(patches), 0, (-1, self.num_neighbours))
            return images.flatten(1, 2)


def _tokens(patches: Tensor) -> Tensor:
    return patches.flatten(2).mT.contiguous()


def _padded(size: int) -> int:
    """Return the smallest length from `size` on that whole patches cover."""
    return STRIDE * at_least((size + STRIDE - 1) // STRIDE, 2)


def _pad(image: Tensor) -> Tensor:
    """Pad with zeros on all sides, as the release does."""
    height, width = image.shape[-2:]
    down, across = _padded(height) - height, _padded(width) - width
    return F.pad(image, (across // 2, across - across // 2, down // 2, down - down // 2))


class N3Net(Network):
    """Neural nearest neighbors network, without a noise map; the authors' weights load.

    Each DnCNN corrects the first channels of its input. Batch norms are folded into the
    convolutions; the authors train with them. Patches have 10x10 pixels, are 5 pixels apart, and
    find their neighbors among the 15x15 patches around them, as in the release. Images with fewer
    patches, which the release refuses, use all they have. The paper is about gray images; the
    network for color differs in the channels of the image alone.

    The features are the input of the last convolution and the image that it corrects.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
        num_blocks: Number of DnCNNs, with a block of neighbors between any two.
        num_layers: Convolutions of each DnCNN.
        width: Channels inside all of them.
        between: Channels between the DnCNNs, and of the embedding.
        num_neighbours: Neighbors of each patch.
        window: Side of the window of patches that is searched for them.
    """

    def __init__(
        self,
        *,
        scale: int,
        channels: int = 1,
        num_blocks: int = 3,
        num_layers: int = 6,
        width: int = 64,
        between: int = 8,
        num_neighbours: int = 7,
        window: int = 15,
    ) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="denoising",
            in_channels=channels,
            out_channels=channels,
            feature_channels=width + channels,
            feature_scale=scale,
            feature_receptive_radius=None,
            receptive_radius=None,
            # The neighbors as overlapping patches, three times, and as images; then convolutions.
            activation_floats_per_pixel=14 * num_neighbours * between + 6 * width,
        )
        seen = [channels, *(between * (1 + num_neighbours) for _ in range(num_blocks - 1))]
        made = [*(between for _ in range(num_blocks - 1)), channels]
        self.blocks = nn.ModuleList(
            plain_stack(into, out, width=width, dilations=(1,) * num_layers)
            for into, out in zip(seen, made, strict=True)
        )
        self.nls = nn.ModuleList(
            N3Block(
                between,
                width=width,
                embedding=between,
                num_neighbours=num_neighbours,
                window=window,
            )
            for _ in range(num_blocks - 1)
        )

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution and the image that it corrects."""
        features = degraded
        for block, neighbors in zip(self.blocks, self.nls, strict=False):
            made = block(features)
            num_shared = min(made.shape[1], features.shape[1])
            made = torch.cat(
                [made[:, :num_shared] + features[:, :num_shared], made[:, num_shared:]], dim=1
            )
            features = neighbors(made)
        last = self.blocks[-1]
        assert isinstance(last, nn.Sequential)
        return torch.cat([last[:-1](features), features[:, : self.out_channels]], dim=1)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Correct the image."""
        hidden, image = features[:, : -self.out_channels], features[:, -self.out_channels :]
        last = self.blocks[-1]
        assert isinstance(last, nn.Sequential)
        return image + last[-1](hidden)


STACK = re.compile(r"(blocks\.\d+|nls\.\d+\.(?:embedcnn|tempcnn))\.(conv1|conv2|layer1|\d+)\b")


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an N3Net for Gaussian noise."""
    for key in ("nls.0.tempcnn.6.weight", "nls.0.n3aggregation.aggregation.nnn.bn.weight"):
        tensor(state, key)
    width, channels = shape(state, "blocks.0.conv1.weight", 4)[:2]
    require(channels in (1, 3))
    between = shape(state, "nls.0.embedcnn.0.weight", 4)[1]
    num_seen = quotient(shape(state, "blocks.1.conv1.weight", 4)[1], between)
    inner = [value for key, value in state.items() if key.startswith("blocks.0.layer1.")]
    settings = {
        "num_blocks": count(state, r"blocks\.\d+\.conv1\.weight"),
        "num_layers": 2 + sum(value.ndim == 4 for value in inner),
        "width": width,
        "between": between,
        "num_neighbours": num_seen - 1,
    }
    return "n3net" if channels == 1 else "n3net-colour", 1, settings


def adapt(state: State) -> dict[str, Tensor]:
    """Fold the batch norms of the release, number its layers, and drop a norm that it never uses.

    >>> sorted(adapt({"blocks.0.conv2.weight": torch.ones(1, 1, 3, 3),
    ...               "blocks.0.conv2.bias": torch.ones(1), "blocks.0.bn1.weight": torch.ones(1)}))
    ['blocks.0.0.bias', 'blocks.0.0.weight']
    """
    ours: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    ordered = sorted(state, key=lambda key: "conv2" in key)  # the release registers it last
    for key in ordered:
        match = STACK.match(key)
        if match is None or state[key].ndim != 4:
            continue
        stack = match[1].replace("embedcnn", "embed").replace("tempcnn", "temperature")
        number = counts.get(stack, 0)
        counts[stack] = number + 1
        conv = key.removesuffix(".weight")
        weight, bias = fold_batch_norm(state, conv, _norm_after(conv), epsilon=EPSILON)
        ours |= {f"{stack}.{2 * number}.weight": weight, f"{stack}.{2 * number}.bias": bias}
    for key in state:
        if key.endswith("nnn.bn.weight"):
            block = key.split(".n3aggregation")[0]
            variance = tensor(state, key.replace("bn.weight", "bn.running_var"))
            require(variance.shape == state[key].shape and variance.numel() == 1)
            ours[f"{block}.distance_scale"] = (state[key] / (variance + EPSILON).sqrt()).squeeze()
    return ours


def _norm_after(conv: str) -> str | None:
    stack, _, number = conv.rpartition(".")
    return f"{stack}.{int(number) + 1}" if number.isdigit() else None


register_variants(
    N3Net,
    {
        "n3net": Variant("For gray images; released weights are for one noise level each."),
        "n3net-colour": Variant("For color images.", {"channels": 3}),
    },
    scales=(1,),
    paper="Ploetz and Roth, Neural Nearest Neighbors Networks, NeurIPS 2018",
    year=2018,
    recognise=recognise,
    adapt=adapt,
)
