import numpy as np
import pytest
import torch

from helpers.networks import recognised_names
from musigma.model import load_file
from musigma.networks import create, macs, num_params
from musigma.networks.super_resolution.swinir import (
    WindowAttention,
    from_windows,
    pad_by_mirror,
    recognise,
    to_windows,
    wrapped_apart,
)
from musigma.networks.weights_file import weights_of

SMALL = {
    "num_groups": 2,
    "num_blocks": 3,
    "width": 12,
    "num_heads": 2,
    "mlp_ratio": 2,
    "window": 4,
}


# SwinIR's table of light networks prints 878K, 886K and 897K, which is its own released network
# without the last convolution of the trunk, 60 x 60 x 9 + 60 = 32,460 values; a user counted
# 910.2K as well (JingyunLiang/SwinIR#45).
@pytest.mark.parametrize(("scale", "printed_k"), [(2, 878), (3, 886), (4, 897)])
def test_parameters_are_the_printed_ones_and_one_convolution(scale, printed_k):
    with torch.device("meta"):
        params = num_params(create("swinir-light", scale=scale))
    assert round((params - 32_460) / 1e3) == printed_k


# The same table prints 195.6, 87.2 and 49.6 G "for 1280x720". Its code, network_swinir.py, counts
# 1024x720, always one window more than fits (JingyunLiang/SwinIR#65), the trunk's last convolution
# as 3 instead of 9 taps, the upsampler as one image instead of scale^2, and the 49 normalizations.
# For a true 1280x720 ours has 240.9, 109.3 and 62.7 G.
@pytest.mark.parametrize(("scale", "printed_g"), [(2, 195.6), (3, 87.2), (4, 49.6)])
def test_macs_are_the_printed_ones_as_they_were_counted(scale, printed_g):
    with torch.device("meta"):
        network = create("swinir-light", scale=scale)
    height, width = (side // scale // 8 * 8 + 8 for side in (1024, 720))
    ours = macs(network, height=height, width=width)
    per_pixel = -6 * 60 * 60 - 9 * 60 * 3 * (scale**2 - 1) + 49 * 60
    assert round((ours + per_pixel * height * width) / 1e9, 1) == printed_g


def test_names_are_the_official_ones():
    # JingyunLiang/SwinIR, models/network_swinir.py: 002_lightweightSR_DIV2K_s64w8_SwinIR-S_x4.pth.
    with torch.device("meta"):
        state = weights_of(create("swinir-light", scale=4))
    block = "layers.3.residual_group.blocks.5."
    for key, shape in {
        "conv_first.weight": (60, 3, 3, 3),
        "patch_embed.norm.weight": (60,),
        block + "norm1.weight": (60,),
        block + "attn.relative_position_bias_table": (225, 6),
        block + "attn.qkv.weight": (180, 60),
        block + "attn.proj.bias": (60,),
        block + "norm2.bias": (60,),
        block + "mlp.fc1.weight": (120, 60),
        block + "mlp.fc2.weight": (60, 120),
        "layers.3.conv.weight": (60, 60, 3, 3),
        "norm.weight": (60,),
        "conv_after_body.weight": (60, 60, 3, 3),
        "upsample.0.weight": (48, 60, 3, 3),
    }.items():
        assert state[key].shape == shape


@pytest.mark.parametrize("size", [(1, 1), (3, 9), (8, 16), (37, 31)])
def test_padding_is_numpys_symmetric_one(size):
    image = torch.rand(2, 3, *size)
    missing = [(0, 0), (0, 0), *((0, -side % 8) for side in size)]
    expected = np.pad(image.numpy(), missing, mode="symmetric")
    assert np.array_equal(pad_by_mirror(image, multiple=8).numpy(), expected)


def test_windows_and_back():
    image = torch.arange(2 * 4 * 6 * 1).view(2, 4, 6, 1)
    windows = to_windows(image, 2)
    assert windows[1].flatten().tolist() == [2, 3, 8, 9]
    assert torch.equal(from_windows(windows, 2, 4, 6), image)


def test_what_the_shift_brings_together_is_kept_apart():
    # The nine regions between the borders 0, -window, -shift and the end, as in the Swin paper.
    region = torch.zeros(16, 24)
    for row, rows in enumerate((slice(0, -8), slice(-8, -4), slice(-4, None))):
        for column, columns in enumerate((slice(0, -8), slice(-8, -4), slice(-4, None))):
            region[rows, columns] = 3 * row + column
    windows = to_windows(region[None, :, :, None], 8).squeeze(-1)
    expected = windows[:, :, None] != windows[:, None, :]
    assert torch.equal(wrapped_apart(16, 24, 8, torch.device("cpu")), expected)


def test_bias_belongs_to_the_offset():
    # By hand: (row offset + 1) * 3 + column offset + 1 for the four places of a 2x2 window.
    index = WindowAttention(4, 2, 1).relative_position_index
    assert index.tolist() == [[4, 3, 1, 0], [5, 4, 2, 1], [7, 6, 4, 3], [8, 7, 5, 4]]


@pytest.mark.parametrize("shifted", [False, True])
def test_attention_one_head_at_a_time(shifted):
    generator = torch.Generator().manual_seed(0)
    windows = torch.randn(2 * 3, 4, 6, generator=generator)
    apart = torch.rand(3, 4, 4, generator=generator) > 0.7
    apart &= ~torch.eye(4, dtype=torch.bool)
    attention = WindowAttention(6, 2, 3)
    bias = attention.relative_position_bias_table[attention.relative_position_index]
    query, key, value = attention.qkv(windows).view(6, 4, 3, 3, 2).unbind(2)
    heads = []
    for head in range(3):
        score = query[:, :, head] @ key[:, :, head].mT / 2**0.5 + bias[..., head]
        if shifted:
            score = score.masked_fill(apart.repeat(2, 1, 1), float("-inf"))
        heads.append(score.softmax(-1) @ value[:, :, head])
    expected = attention.proj(torch.cat(heads, dim=-1))
    torch.testing.assert_close(attention(windows, apart if shifted else None), expected)


def test_tiles_that_start_on_windows_are_exact():
    network = create("swinir-light", scale=2, **{**SMALL, "num_groups": 1, "num_blocks": 2}).eval()
    degraded = torch.rand(1, 3, 11, 71)
    start = 24
    safe = network.scale * network.receptive_radius
    assert start % network.size_multiple == 0
    with torch.inference_mode():
        whole, tile = network(degraded).mean, network(degraded[..., start:]).mean
    torch.testing.assert_close(tile[..., safe:], whole[..., network.scale * start + safe :])


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_released_files_load(tmp_path, scale):
    network = create("swinir-light", scale=scale, **SMALL).eval()
    block = "layers.0.residual_group.blocks.1."
    tables = {block + "attn_mask": torch.zeros(4, 16, 16)}
    tables[block + "attn.relative_position_index"] = torch.zeros(16, 16, dtype=torch.int64)
    torch.save({"params": {**weights_of(network), **tables}}, tmp_path / "swinir.pth")
    model = load_file(tmp_path / "swinir.pth")
    degraded = torch.rand(1, 3, 5, 7)
    assert (model.name, model.network.build_spec.settings) == ("swinir-light", SMALL)
    assert torch.equal(model.network(degraded).mean, network(degraded).mean)


def test_recognised_by_one_family():
    state = weights_of(create("swinir-light", scale=3, **SMALL))
    assert recognise(state) == ("swinir-light", 3, SMALL)
    names = recognised_names(state)
    assert names == ["swinir-light"]
    # The classical and the real-world forms enlarge in another way.
    assert recognise({**state, "conv_before_upsample.0.weight": torch.zeros(1)}) is None
