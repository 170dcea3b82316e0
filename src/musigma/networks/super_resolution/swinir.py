"""SwinIR-light: attention within windows that shift by half their size from block to block."""

from collections import OrderedDict
from math import isqrt

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import MeanShift, conv3x3
from musigma.networks.neighbor_search import mirrored_index
from musigma.networks.registry import register
from musigma.networks.state_dict import (
    Recognised,
    State,
    count,
    pixel_shuffle_factor,
    quotient,
    recogniser,
    require,
    shape,
)


def pad_by_mirror(image: Tensor, *, multiple: int) -> Tensor:
    """Pad an image to multiples of a size by mirroring, downwards and to the right."""
    for dim in (-2, -1):
        size = image.shape[dim]
        padded = (size + multiple - 1) // multiple * multiple
        image = image.index_select(dim, mirrored_index(padded, size, image.device))
    return image


def to_windows(image: Tensor, window: int) -> Tensor:
    """Cut ``(N, H, W, C)`` into ``(N num_windows, window^2, C)``."""
    number, height, width, channels = image.shape
    rows, columns = height // window, width // window
    windows = image.reshape(number, rows, window, columns, window, channels).transpose(2, 3)
    return windows.reshape(number * rows * columns, window * window, channels)


def from_windows(windows: Tensor, window: int, height: int, width: int) -> Tensor:
    """Undo `to_windows`."""
    rows, columns, channels = height // window, width // window, windows.shape[-1]
    image = windows.reshape(-1, rows, columns, window, window, channels).transpose(2, 3)
    return image.reshape(-1, height, width, channels)


def wrapped_apart(height: int, width: int, window: int, device: torch.device) -> Tensor:
    """Say which pairs in each shifted window come from opposite borders of the image.

    Returns:
        True for pairs that must not attend to each other, ``(num_windows, window^2, window^2)``.
    """
    shift = window // 2
    below = torch.arange(height, device=device) >= height - shift
    right = torch.arange(width, device=device) >= width - shift
    region = 2 * below[:, None].int() + right.int()
    region = to_windows(region[None, :, :, None], window)
    return region != region.mT


class WindowAttention(nn.Module):
    """Multi-head attention with a learned bias for each offset between two positions."""

    relative_position_index: Tensor

    def __init__(self, width: int, window: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        span = 2 * window - 1
        self.relative_position_bias_table = nn.Parameter(torch.empty(span * span, num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
        position = torch.arange(window * window)
        row, column = position // window, position % window
        offset = (row[:, None] - row + window - 1) * span + column[:, None] - column + window - 1
        self.register_buffer("relative_position_index", offset, persistent=False)

    def forward(self, windows: Tensor, apart: Tensor | None) -> Tensor:
        """Mix the positions of each window, except the pairs that are apart."""
        heads = self.qkv(windows).reshape(*windows.shape[:2], 3, self.num_heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        bias = self.relative_position_bias_table[self.relative_position_index].movedim(2, 0)
        if apart is None:
            bias = bias.unsqueeze(0)
        else:
            num_images = windows.shape[0] // apart.shape[0]
            bias = bias.masked_fill(apart.unsqueeze(1), float("-inf"))
            bias = bias.expand(num_images, *bias.shape).flatten(0, 1)
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=bias)
        # The copy keeps the memory layout of this machine's kernel out of exported graphs.
        mixed = mixed.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        return self.proj(mixed.flatten(2))


class Block(nn.Module):
    """Window attention and a two-layer perceptron, each added to its normalized input."""

    def __init__(
        self, width: int, *, window: int, num_heads: int, mlp_ratio: int, shifted: bool
    ) -> None:
        super().__init__()
        self.window = window
        self.shift = window // 2 if shifted else 0
        self.norm1 = nn.LayerNorm(width)
        self.attn = WindowAttention(width, window, num_heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            OrderedDict(
                fc1=nn.Linear(width, mlp_ratio * width),
                act=nn.GELU(),
                fc2=nn.Linear(mlp_ratio * width, width),
            )
        )

    def forward(self, tokens: Tensor, apart: Tensor) -> Tensor:
        """Refine tokens ``(N, H, W, C)``."""
        height, width = tokens.shape[1:3]
        shifted = self.norm1(tokens)
        if self.shift:
            shifted = shifted.roll((-self.shift, -self.shift), dims=(1, 2))
        windows = to_windows(shifted, self.window)
        windows = self.attn(windows, apart if self.shift else None)
        mixed = from_windows(windows, self.window, height, width)
        if self.shift:
            mixed = mixed.roll((self.shift, self.shift), dims=(1, 2))
        tokens = tokens + mixed
        return tokens + self.mlp(self.norm2(tokens))


class BlockSequence(nn.Module):
    """Blocks one after the other, every second one shifted."""

    def __init__(self, width: int, *, num_blocks: int, **settings: int) -> None:
        super().__init__()
        blocks = (Block(width, shifted=index % 2 == 1, **settings) for index in range(num_blocks))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, tokens: Tensor, apart: Tensor) -> Tensor:
        """Refine tokens."""
        for block in self.blocks:
            tokens = block(tokens, apart)
        return tokens


class ResidualGroup(nn.Module):
    """Blocks and a convolution, added to the input."""

    def __init__(self, width: int, **settings: int) -> None:
        super().__init__()
        self.residual_group = BlockSequence(width, **settings)
        self.conv = conv3x3(width, width)

    def forward(self, tokens: Tensor, apart: Tensor) -> Tensor:
        """Refine tokens."""
        features = self.residual_group(tokens, apart).permute(0, 3, 1, 2)
        return tokens + self.conv(features).permute(0, 2, 3, 1)


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is a light SwinIR; official ones work in 0..1."""
    require("conv_before_upsample.0.weight" not in state)  # another form of SwinIR
    block = "layers.0.residual_group.blocks.0."
    num_offsets, num_heads = shape(state, block + "attn.relative_position_bias_table", 2)
    width = shape(state, "conv_first.weight", 4)[0]
    settings = {
        "num_groups": count(state, r"layers\.\d+\.conv\.weight"),
        "num_blocks": count(state, r"layers\.0\..*\.norm1\.weight"),
        "width": width,
        "num_heads": num_heads,
        "mlp_ratio": quotient(shape(state, block + "mlp.fc1.weight", 2)[0], width),
        "window": (isqrt(num_offsets) + 1) // 2,
    }
    scale = pixel_shuffle_factor(shape(state, "upsample.0.weight", 4)[0], 3)
    return "swinir-light", scale, settings


def adapt(state: State) -> dict[str, Tensor]:
    """Leave out the tables that follow from the settings."""
    tables = ("attn_mask", "relative_position_index")
    return {key: value for key, value in state.items() if not key.endswith(tables)}


@register(
    "swinir-light",
    scales=(2, 3, 4),
    summary="4 groups of 6 blocks of 60 channels in windows of 8x8.",
    paper="Liang et al., SwinIR: Image Restoration Using Swin Transformer, ICCVW 2021",
    year=2021,
    recognise=recognise,
    adapt=adapt,
)
class SwinIR(Network):
    """SwinIR, the light network; parameter names are those of the official release.

    Stochastic depth is left out: the authors found no effect on super-resolution.

    Args:
        scale: 2, 3 or 4.
        num_groups: Groups of blocks.
        num_blocks: Blocks of each group.
        width: Channels, a multiple of `num_heads`.
        num_heads: Heads of each attention.
        mlp_ratio: Channels inside the perceptrons, divided by the width.
        window: Side of the windows, even; inputs are padded to a multiple of it.
        value_range: Range the layers work in. Official weights expect 1.
    """

    def __init__(
        self,
        *,
        scale: int,
        num_groups: int = 4,
        num_blocks: int = 6,
        width: int = 60,
        num_heads: int = 6,
        mlp_ratio: int = 2,
        window: int = 8,
        value_range: float = 1.0,
    ) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=_radius(num_groups, num_blocks, window, last_convs=1),
            receptive_radius=_radius(num_groups, num_blocks, window, last_convs=2),
            size_multiple=window,
            # The similarities in a window, before and after softmax, and what they weight.
            activation_floats_per_pixel=2 * num_heads * window**2 + 6 * width,
        )
        self.window = window
        self.shift = MeanShift(value_range=value_range)
        self.conv_first = conv3x3(3, width)
        self.patch_embed = nn.Sequential(OrderedDict(norm=nn.LayerNorm(width)))
        settings = {"num_heads": num_heads, "mlp_ratio": mlp_ratio, "window": window}
        self.layers = nn.ModuleList(
            ResidualGroup(width, num_blocks=num_blocks, **settings) for _ in range(num_groups)
        )
        self.norm = nn.LayerNorm(width)
        self.conv_after_body = conv3x3(width, width)
        self.upsample = nn.Sequential(conv3x3(width, 3 * scale**2), nn.PixelShuffle(scale))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the sum of the first and the last features of the trunk, with the padding."""
        first = self.conv_first(pad_by_mirror(self.shift(degraded), multiple=self.window))
        apart = wrapped_apart(first.shape[-2], first.shape[-1], self.window, first.device)
        tokens = self.patch_embed(first.permute(0, 2, 3, 1))
        for layer in self.layers:
            tokens = layer(tokens, apart)
        return first + self.conv_after_body(self.norm(tokens).permute(0, 3, 1, 2))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Enlarge the features, turn them into an image and cut the padding off."""
        height, width = (self.scale * side for side in degraded.shape[-2:])
        return self.shift.inverse(self.upsample(features))[..., :height, :width]


def _radius(num_groups: int, num_blocks: int, window: int, *, last_convs: int) -> int:
    """Follow the pixels that are seen from the output back to the input.

    The position within a window from which the network sees furthest counts.
    """
    radius = 0
    for pixel in range(window):
        first, last = pixel - last_convs, pixel + last_convs
        for _ in range(num_groups):
            first, last = first - 1, last + 1
            for block in reversed(range(num_blocks)):
                shift = window // 2 if block % 2 else 0
                first = (first - shift) // window * window + shift
                last = (last - shift) // window * window + shift + window - 1
        radius = max(radius, pixel - first + 1, last + 1 - pixel)
    return radius
