"""IPT: a transformer over the small patches of a window, between convolutions."""

from math import isqrt

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import MeanShift, conv3x3
from musigma.networks.registry import register
from musigma.networks.state_dict import (
    MEAN_SHIFT,
    RELEASED_RANGE,
    Recognised,
    State,
    count,
    recogniser,
    require,
    shape,
    stored_range,
    without,
)
from musigma.networks.super_resolution.swinir import from_windows, pad_by_mirror, to_windows

TOKEN = 3
"""Pixels per side of the patch that is one token."""


class ResidualBlock(nn.Module):
    """Two 5x5 convolutions with a ReLU between, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.Conv2d(width, width, kernel_size=5, padding=2),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return features + self.body(features)


class Attention(nn.Module):
    """Multi-head attention without biases, under the names of `torch.nn.MultiheadAttention`."""

    def __init__(self, size: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * size, size))
        nn.init.xavier_uniform_(self.in_proj_weight)
        self.out_proj = nn.Linear(size, size, bias=False)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Make each query a mean of the values, ``(N, tokens, size)``."""
        num, weights = self.num_heads, self.in_proj_weight.chunk(3)
        query, key, value = (
            F.linear(tokens, weight).view(*tokens.shape[:2], num, -1).transpose(1, 2)
            for tokens, weight in zip((query, key, value), weights, strict=True)
        )
        mixed = F.scaled_dot_product_attention(query, key, value)
        # The copy keeps the memory layout of this machine's kernel out of exported graphs.
        mixed = mixed.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        return self.out_proj(mixed.flatten(2))


class EncoderLayer(nn.Module):
    """Attention and a two-layer perceptron, each added to its normalized input."""

    def __init__(self, size: int, num_heads: int) -> None:
        super().__init__()
        self.self_attn = Attention(size, num_heads)
        self.linear1 = nn.Linear(size, 4 * size)
        self.linear2 = nn.Linear(4 * size, size)
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)

    def forward(self, tokens: Tensor) -> Tensor:
        """Refine the tokens."""
        seen = self.norm1(tokens)
        tokens = tokens + self.self_attn(seen, seen, seen)
        return tokens + self.linear2(F.relu(self.linear1(self.norm2(tokens))))


class DecoderLayer(nn.Module):
    """Like the encoder's, with a second attention over the encoded tokens."""

    def __init__(self, size: int, num_heads: int) -> None:
        super().__init__()
        self.self_attn = Attention(size, num_heads)
        self.multihead_attn = Attention(size, num_heads)
        self.linear1 = nn.Linear(size, 4 * size)
        self.linear2 = nn.Linear(4 * size, size)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(size) for _ in range(3))

    def forward(self, tokens: Tensor, encoded: Tensor, task: Tensor) -> Tensor:
        """Refine the tokens, given an embedding of the task."""
        seen = self.norm1(tokens)
        tokens = tokens + self.self_attn(seen + task, seen + task, seen)
        tokens = tokens + self.multihead_attn(self.norm2(tokens) + task, encoded, encoded)
        return tokens + self.linear2(F.relu(self.linear1(self.norm3(tokens))))


class Layers(nn.Module):
    """A list of layers, under the name of the official release."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)


class Embedding(nn.Module):
    """Learned positions, under the name of the official release."""

    def __init__(self, count: int, size: int) -> None:
        super().__init__()
        self.pe = nn.Embedding(count, size)


class Transformer(nn.Module):
    """Encoder and decoder over the tokens of windows."""

    def __init__(self, width: int, *, num_heads: int, num_layers: int, window: int) -> None:
        super().__init__()
        size, count = width * TOKEN**2, (window // TOKEN) ** 2
        self.linear_encoding = nn.Linear(size, size)
        self.mlp_head = nn.Sequential(
            nn.Linear(size, 4 * size), nn.Identity(), nn.ReLU(), nn.Linear(4 * size, size)
        )
        self.query_embed = nn.Embedding(1, count * size)
        self.encoder = Layers([EncoderLayer(size, num_heads) for _ in range(num_layers)])
        self.decoder = Layers([DecoderLayer(size, num_heads) for _ in range(num_layers)])
        self.position_encoding = Embedding(count, size)

    def forward(self, tokens: Tensor) -> Tensor:
        """Refine tokens, ``(windows, tokens, size)``."""
        tokens = tokens + self.linear_encoding(tokens) + self.position_encoding.pe.weight
        for layer in self.encoder.layers:
            tokens = layer(tokens)
        only_task = torch.zeros((), dtype=torch.long, device=tokens.device)
        encoded, task = tokens, self.query_embed(only_task).view(tokens.shape[1:])
        for layer in self.decoder.layers:
            tokens = layer(tokens, encoded, task)
        return tokens + self.mlp_head(tokens)


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an IPT for denoising; official ones work in 0..255."""
    require("tail.0.0.0.weight" not in state)
    for key, rank in (("body.query_embed.weight", 2), ("tail.0.1.weight", 4)):
        shape(state, key, rank)
    settings = {
        "width": shape(state, "head.0.0.weight", 4)[0],
        "num_layers": count(state, r"body\.encoder\..*norm1\.weight"),
        "window": TOKEN * isqrt(shape(state, "body.position_encoding.pe.weight", 2)[0]),
        "value_range": stored_range(state) or RELEASED_RANGE,
    }
    return "ipt", 1, settings


def adapt(state: State) -> dict[str, Tensor]:
    """Leave out the mean shift and the numbers of the positions."""
    return without(state, *MEAN_SHIFT, "body.position_encoding.position_ids")


@register(
    "ipt",
    scales=(1,),
    summary="12 encoder and 12 decoder layers of 12 heads, for color images.",
    paper="Chen et al., Pre-Trained Image Processing Transformer, CVPR 2021",
    year=2021,
    recognise=recognise,
    adapt=adapt,
)
class IPT(Network):
    """Image processing transformer for denoising; parameter names are the official ones.

    The released network has one head, one tail and one task. It is run on overlapping crops of
    48x48 pixels. Here the convolutions see the whole image, and the transformer sees 48x48 windows
    side by side, so that nothing is computed twice. There is no noise map: released weights are
    for one noise level.

    Args:
        scale: 1.
        width: Channels of the convolutions; a token has nine times as many.
        num_heads: Heads of each attention.
        num_layers: Layers of the encoder, and as many of the decoder.
        window: Pixels per side that attend to each other, a multiple of 3.
        value_range: Range the layers work in. Official weights expect 255.
    """

    def __init__(
        self,
        *,
        scale: int,
        width: int = 64,
        num_heads: int = 12,
        num_layers: int = 12,
        window: int = 48,
        value_range: float = 1.0,
    ) -> None:
        super().__init__()
        # The convolutions before the windows reach 1 + 4 x 2 = 9 pixels.
        self.info = NetworkInfo(
            scale=scale,
            task="denoising",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=window - 1 + 9,
            receptive_radius=window + 9,
            size_multiple=window,
            activation_floats_per_pixel=40 * width,
        )
        self.window = window
        self.shift = MeanShift(value_range=value_range)
        blocks = (ResidualBlock(width) for _ in range(2))
        self.head = nn.ModuleList([nn.Sequential(conv3x3(3, width), *blocks)])
        self.body = Transformer(width, num_heads=num_heads, num_layers=num_layers, window=window)
        # In released networks that enlarge, the upsampler stands where the identity is.
        self.tail = nn.ModuleList([nn.Sequential(nn.Identity(), conv3x3(width, 3))])

    def features(self, degraded: Tensor) -> Tensor:
        """Return the first features plus those of the transformer, with the padding."""
        first = self.head[0](pad_by_mirror(self.shift(degraded), multiple=self.window))
        tokens = F.pixel_unshuffle(first, TOKEN).permute(0, 2, 3, 1)
        height, width = tokens.shape[1:3]
        refined = self.body(to_windows(tokens, self.window // TOKEN))
        tokens = from_windows(refined, self.window // TOKEN, height, width)
        return first + F.pixel_shuffle(tokens.permute(0, 3, 1, 2), TOKEN)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Turn the features into an image of the input's size."""
        height, width = degraded.shape[-2:]
        return self.shift.inverse(self.tail[0](features))[..., :height, :width]
