"""NLSN: EDSR with non-local attention, kept sparse by hashing similar positions together."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import MeanShift, conv3x3, pixel_shuffle_upsampler
from musigma.networks.registry import register
from musigma.networks.state_dict import (
    Recognised,
    State,
    count,
    recogniser,
    shape,
    upsampler_scale,
    without_mean_shift,
)

MAX_BUCKETS = 128
ATTENTION_EVERY = 8
"""Residual blocks between two attentions."""


def attend_in_buckets(
    match: Tensor, value: Tensor, rotation: Tensor, *, chunk_size: int
) -> tuple[Tensor, Tensor]:
    """Attend among positions of similar direction: one round of spherical hashing.

    A position belongs to the bucket of the direction, among those of the rotation and their
    negatives, onto which its embedding has the largest projection. The positions are sorted by
    bucket and cut into chunks; each attends to its own chunk and to the two next to it.

    Args:
        match: Embeddings that are hashed and compared, ``(N, L, c)``.
        value: Embeddings that are mixed, ``(N, L, C)``.
        rotation: Random directions, ``(c, num_buckets / 2)``.
        chunk_size: Positions of a chunk.

    Returns:
        The mix ``(N, L, C)`` and the logarithm of its total weight ``(N, L, 1)``.
    """
    projected = match.detach() @ rotation
    bucket = torch.cat([projected, -projected], dim=-1).argmax(-1)
    length = match.shape[1]
    # Without ties, every device and runtime sorts in the same way.
    order = (bucket * length + torch.arange(length, device=match.device)).argsort(dim=-1)
    rank = order.argsort(dim=-1)

    chunk_size = min(chunk_size, length)
    num_chunks = (length + chunk_size - 1) // chunk_size
    padding = num_chunks * chunk_size - length
    # The last positions are repeated to fill the last chunk, as the official weights expect.
    index = torch.arange(num_chunks * chunk_size, device=match.device)
    index = torch.where(index < length, index, index - padding)
    order = order[:, index]

    chunked = (match.shape[0], num_chunks, chunk_size, -1)
    query = _take(match, order).reshape(chunked)
    key = _with_neighbors(normalize(query, dim=-1, eps=5e-5))
    values = _with_neighbors(_take(value, order).reshape(chunked))
    score = (query @ key.mT).float()
    log_weight = score.logsumexp(dim=-1, keepdim=True)
    mix = (score - log_weight).exp().to(values.dtype) @ values
    return _take(mix.flatten(1, 2), rank), _take(log_weight.flatten(1, 2), rank)


def _take(embedding: Tensor, index: Tensor) -> Tensor:
    return embedding.gather(1, index.unsqueeze(-1).expand(-1, -1, embedding.shape[-1]))


def _with_neighbors(chunks: Tensor) -> Tensor:
    return torch.cat([chunks, chunks.roll(1, dims=1), chunks.roll(-1, dims=1)], dim=2)


class SparseAttention(nn.Module):
    """Several rounds of attention in buckets, weighted by the total weight of each round.

    The official code draws new rotations in every forward pass, so that results differ from call to
    call. Here each layer draws its rotations once, from a fixed seed: results repeat, and a resumed
    training equals an uninterrupted one. Weights work with any draw, and files do not store it.
    """

    rotations: Tensor

    def __init__(
        self, width: int, *, res_scale: float, chunk_size: int, num_hashes: int, seed: int
    ) -> None:
        super().__init__()
        self.res_scale, self.chunk_size = res_scale, chunk_size
        self.conv_match = nn.Sequential(conv3x3(width, width // 4))
        self.conv_assembly = nn.Sequential(nn.Conv2d(width, width, kernel_size=1))
        shape = (num_hashes, width // 4, MAX_BUCKETS // 2)
        self.register_buffer("rotations", torch.empty(shape), persistent=False)
        if not self.rotations.is_meta:  # a file may ask for any number of them
            generator = torch.Generator().manual_seed(seed)
            self.rotations.copy_(torch.randn(shape, generator=generator, device="cpu"))

    def forward(self, features: Tensor) -> Tensor:
        """Add to each position a mix of similar positions."""
        match = self.conv_match(features).flatten(2).mT
        value = self.conv_assembly(features).flatten(2).mT
        num_pairs = max((match.shape[1] // self.chunk_size + 1) // 2, 1)
        # One round after the other needs a quarter of the memory of all rounds at once.
        rounds = [
            attend_in_buckets(match, value, rotation[:, :num_pairs], chunk_size=self.chunk_size)
            for rotation in self.rotations.to(match.dtype)
        ]
        mixes, log_weights = (torch.stack(parts) for parts in zip(*rounds, strict=True))
        mix = (mixes * log_weights.softmax(dim=0)).sum(dim=0).to(features.dtype)
        return features + mix.mT.reshape(features.shape) * self.res_scale


class ResidualBlock(nn.Module):
    """Conv, ReLU, Conv, added to the input after scaling by `res_scale`."""

    def __init__(self, width: int, res_scale: float) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv3x3(width, width), nn.ReLU(inplace=True), conv3x3(width, width)
        )
        self.res_scale = res_scale

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return features + self.body(features) * self.res_scale


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an NLSN; official ones work in 0..1."""
    shape(state, "body.0.conv_match.0.weight", 4)
    width = shape(state, "body.0.conv_assembly.0.weight", 4)[0]
    num_blocks = count(state, r"body\.\d+\.body\.0\.weight")
    scale = upsampler_scale(state, "tail.0", width)
    return "nlsn", scale, {"num_blocks": num_blocks, "width": width}


@register(
    "nlsn",
    scales=(2, 3, 4),
    summary="32 blocks of 256 channels, with attention before them and after every eighth.",
    paper="Mei et al., Image Super-Resolution with Non-Local Sparse Attention, CVPR 2021",
    year=2021,
    recognise=recognise,
    adapt=without_mean_shift,
)
class NLSN(Network):
    """Non-local sparse network; parameter names are those of the official release.

    Args:
        scale: 2, 3 or 4.
        num_blocks: Residual blocks.
        width: Channels of every block, a multiple of 4.
        res_scale: Factor on each residual.
        chunk_size: Positions that attend to each other and to those of the two next chunks.
        num_hashes: Rounds of hashing.
        value_range: Range the layers work in. Official weights expect 1.
    """

    def __init__(
        self,
        *,
        scale: int,
        num_blocks: int = 32,
        width: int = 256,
        res_scale: float = 0.1,
        chunk_size: int = 144,
        num_hashes: int = 4,
        value_range: float = 1.0,
    ) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=None,
            receptive_radius=None,
            activation_floats_per_pixel=24 * width,
        )
        self.shift = MeanShift(value_range=value_range)
        self.head = nn.Sequential(conv3x3(3, width))
        body: list[nn.Module] = []
        for index in range(num_blocks + 1):
            if index > 0:
                body.append(ResidualBlock(width, res_scale))
            if index % ATTENTION_EVERY == 0:
                attention = SparseAttention(
                    width,
                    res_scale=res_scale,
                    chunk_size=chunk_size,
                    num_hashes=num_hashes,
                    seed=index,
                )
                body.append(attention)
        self.body = nn.Sequential(*body, conv3x3(width, width))
        self.tail = nn.Sequential(pixel_shuffle_upsampler(width, scale), conv3x3(width, 3))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk."""
        first = self.head(self.shift(degraded))
        return first + self.body(first)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Enlarge the features and turn them into an image."""
        return self.shift.inverse(self.tail(features))
