"""GPU kernels of our own for 3x3 convolutions.

`weight_gradients` computes the weight gradients of many equal layers in one launch. cuDNN computes
them one layer at a time. A layer of 64 channels does not fill a large card, and each layer also
clears a workspace, sums up parts and computes the gradient of the bias in a pass of its own: at
batch 16 these small kernels take as long as the arithmetic. Here all equal layers share one grid.

`convolve` computes a convolution, or the gradient of its input, and applies the operations that
follow before it writes. cuDNN needs a further pass over memory to add a residual or to take the
gradient through a ReLU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from musigma.kernels.conv3x3 import refuse_add_and_mask

# Triton reads annotations: an argument annotated as constexpr is a constant. Others have none.
# ruff: noqa: ANN001, ANN202

BLOCK = 64
"""Channels of a tile, in and out. A tile that is not filled does some of its work for nothing."""

CHANNEL_STEP = 16
"""Channels of a layer must be a multiple of it, so that rows of memory are aligned."""

MANY_PIXELS = 100_000
"""Pixels from which on a layer is cut into 8 parts; smaller layers are cut into 4."""

MIN_COLUMNS = tl.constexpr(16)
"""Columns of the narrowest matrix that tensor cores multiply with."""


@triton.jit  # type: ignore[untyped-decorator]
def _weight_gradients(  # type: ignore[no-untyped-def]
    inputs,
    gradients,
    weights,
    biases,
    num_layers: tl.constexpr,
    num_pixels,
    height: tl.constexpr,
    width: tl.constexpr,
    num_in: tl.constexpr,
    num_out: tl.constexpr,
    num_parts: tl.constexpr,
    block: tl.constexpr,
    depth: tl.constexpr,
):
    # A program computes one row of taps of one tile of one layer, over one part of the pixels. The
    # row of taps varies fastest, so that programs which read the same pixels run side by side.
    program = tl.program_id(0)
    tap_row = program % 3
    part = (program // 3) % num_parts
    tile = program // (3 * num_parts)
    in_tiles: tl.constexpr = (num_in + block - 1) // block
    out_tiles: tl.constexpr = (num_out + block - 1) // block
    from_channel = tile % in_tiles * block
    to_channel = tile // in_tiles % out_tiles * block
    layer = tile // (in_tiles * out_tiles)

    input_start = _address_of(inputs, layer, num_layers)
    gradient_start = _address_of(gradients, layer, num_layers)
    channel = tl.arange(0, block)
    is_input = from_channel + channel < num_in
    is_output = to_channel + channel < num_out
    step = tl.arange(0, depth)
    left = tl.zeros((block, block), tl.float32)
    middle = tl.zeros((block, block), tl.float32)
    right = tl.zeros((block, block), tl.float32)
    sums = tl.zeros((block, MIN_COLUMNS), tl.float32)
    ones = tl.full((depth, MIN_COLUMNS), 1.0, gradients[0].dtype.element_ty)
    rounds = tl.cdiv(tl.cdiv(num_pixels, depth), num_parts)
    first = part * rounds * depth
    last = tl.minimum(first + rounds * depth, num_pixels)
    for start in range(first, last, depth):
        pixel = start + step
        inside = pixel < last
        column = pixel % width
        row = pixel // width % height + tap_row - 1
        row_exists = inside & (row >= 0) & (row < height)
        gradient_at = gradient_start + pixel[:, None] * num_out + (to_channel + channel)[None, :]
        gradient_at = tl.multiple_of(gradient_at, [1, 16])
        gradient = tl.load(gradient_at, mask=inside[:, None] & is_output[None, :], other=0.0)
        source = pixel + (tap_row - 1) * width
        input_at = input_start + source[:, None] * num_in + (from_channel + channel)[None, :]
        input_at = tl.multiple_of(input_at, [1, 16])
        turned = tl.trans(gradient)
        # The three taps of a row read nearly the same pixels: the first brings them into the cache
        # of the processor (.ca), which spares the cache all processors share.
        mask = row_exists[:, None] & is_input[None, :]
        values = tl.load(input_at, mask=mask, other=0.0, cache_modifier=".ca")
        middle = tl.dot(turned, values, middle)
        mask = (row_exists & (column > 0))[:, None] & is_input[None, :]
        values = tl.load(input_at - num_in, mask=mask, other=0.0, cache_modifier=".ca")
        left = tl.dot(turned, values, left)
        mask = (row_exists & (column < width - 1))[:, None] & is_input[None, :]
        values = tl.load(input_at + num_in, mask=mask, other=0.0, cache_modifier=".ca")
        right = tl.dot(turned, values, right)
        # A product with ones: a sum would make the other products wait.
        sums = tl.dot(turned, ones, sums)

    # Parts are stored separately and added in a fixed order later: results are reproducible.
    slot = part * num_layers + layer
    weight_at = (
        weights + ((slot * num_out + to_channel + channel[:, None]) * 9 + tap_row * 3) * num_in
    )
    weight_at = weight_at + from_channel + channel[None, :]
    exists = is_output[:, None] & is_input[None, :]
    tl.store(weight_at, left, mask=exists)
    tl.store(weight_at + num_in, middle, mask=exists)
    tl.store(weight_at + 2 * num_in, right, mask=exists)
    if (tap_row == 1) & (from_channel == 0):
        total = tl.max(sums, 1)  # all columns are equal
        tl.store(biases + slot * num_out + to_channel + channel, total, mask=is_output)


@triton.jit  # type: ignore[untyped-decorator]
def _address_of(tensors, layer, num_layers: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the address of one of several tensors, chosen by a number known only at run time."""
    address = tensors[0].to(tl.int64)
    for other in tl.static_range(1, num_layers):
        address = tl.where(layer == other, tensors[other].to(tl.int64), address)
    return address.to(tensors[0].dtype)


def weight_gradients(
    inputs: list[Tensor], gradients: list[Tensor], *, num_parts: int | None = None, depth: int = 64
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the gradients of weights and biases of 3x3 convolutions that keep the size.

    Args:
        inputs: Input of each layer, ``(N, IN, H, W)`` in channels-last order; one shape for all.
            The numbers of channels are multiples of `CHANNEL_STEP`.
        gradients: Gradient of the output of each layer, ``(N, OUT, H, W)``, likewise.
        num_parts: Number of parts the pixels are cut into, so that every processor has work.
        depth: Pixels that a program reads at once.

    Returns:
        Float32 ``(OUT, IN, 3, 3)`` in channels-last order and ``(OUT,)`` for each layer.
    """
    number, (batch, num_in, height, width) = len(inputs), inputs[0].shape
    num_out, num_pixels = gradients[0].shape[1], batch * height * width
    parts = num_parts or (4 if num_pixels < MANY_PIXELS else 8)
    weights = inputs[0].new_empty((parts, number, num_out, 3, 3, num_in), dtype=torch.float32)
    biases = inputs[0].new_empty((parts, number, num_out), dtype=torch.float32)
    flat_inputs = tuple(_flat(part) for part in inputs)
    flat_gradients = tuple(_flat(part) for part in gradients)
    tiles = number * -(-num_out // BLOCK) * -(-num_in // BLOCK)
    _weight_gradients[(tiles * parts * 3,)](
        flat_inputs,
        flat_gradients,
        weights,
        biases,
        num_layers=number,
        num_pixels=num_pixels,
        height=height,
        width=width,
        num_in=num_in,
        num_out=num_out,
        num_parts=parts,
        block=BLOCK,
        depth=depth,
        num_warps=4,
        num_stages=3,
    )
    return list(weights.sum(0).permute(0, 1, 4, 2, 3)), list(biases.sum(0))


@triton.jit(do_not_specialize=["num_pixels", "height", "width"])  # type: ignore[untyped-decorator]
def _convolve(  # type: ignore[no-untyped-def]
    image,
    weight,
    bias,
    other,
    slope,
    result,
    num_pixels,
    height,
    width,
    num_in: tl.constexpr,
    num_out: tl.constexpr,
    backwards: tl.constexpr,
    has_bias: tl.constexpr,
    rectifies: tl.constexpr,
    adds: tl.constexpr,
    masks: tl.constexpr,
    leaks: tl.constexpr,
    pixels: tl.constexpr,
    block: tl.constexpr,
    depth: tl.constexpr,
):
    # A program computes some of the pixels, in the order of memory, and some of the outputs.
    pixel = tl.program_id(0) * pixels + tl.arange(0, pixels)
    inside = pixel < num_pixels
    column = pixel % width
    row = pixel // width % height
    position = pixel.to(tl.int64)[:, None]
    step = tl.arange(0, depth)
    channel = tl.program_id(1) * block + tl.arange(0, block)
    channel_exists = channel < num_out
    image_at = image + position * num_in + step[None, :]
    sums = tl.zeros((pixels, block), tl.float32)
    slices: tl.constexpr = num_in // depth
    for turn in range(9 * slices):
        tap = turn // slices
        start = turn % slices * depth
        down = tap // 3 - 1
        right = tap % 3 - 1
        inside_image = inside & (row + down >= 0) & (row + down < height)
        inside_image = inside_image & (column + right >= 0) & (column + right < width)
        # Nine taps read nearly the same pixels: the first brings them into the cache of the
        # processor (.ca).
        values = tl.load(
            image_at + ((down * width + right) * num_in + start),
            mask=inside_image[:, None],
            other=0.0,
            cache_modifier=".ca",
        )
        if backwards:  # the kernel flipped, its inputs and outputs exchanged
            weight_at = weight + (start + step)[:, None] * (9 * num_out) + channel[None, :]
            weight_at = weight_at + (8 - tap) * num_out
        else:
            weight_at = weight + channel[None, :] * (9 * num_in) + (start + step)[:, None]
            weight_at = weight_at + tap * num_in
        sums = tl.dot(values, tl.load(weight_at, mask=channel_exists[None, :], other=0.0), sums)
    if has_bias:
        sums += tl.load(bias + channel, mask=channel_exists, other=0.0).to(tl.float32)[None, :]
    result_at = position * num_out + channel[None, :]
    kept = inside[:, None] & channel_exists[None, :]
    if adds:
        sums += tl.load(other + result_at, mask=kept, other=0.0).to(tl.float32)
    if masks:
        sums = tl.where(tl.load(other + result_at, mask=kept, other=0.0) > 0, sums, 0.0)
    if leaks:
        sums = tl.where(sums > 0, sums, sums * tl.load(slope).to(tl.float32))
    if rectifies:
        sums = tl.maximum(sums, 0.0)
    tl.store(result + result_at, sums.to(result.dtype.element_ty), mask=kept)


def convolve(
    image: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    add: Tensor | None = None,
    mask: Tensor | None = None,
    slope: Tensor | None = None,
    rectify: bool = False,
    backwards: bool = False,
    *,
    pixels: int = 128,
    stages: int = 3,
) -> Tensor:
    """Do what `musigma.kernels.conv3x3.convolve` says, on tensors in channels-last order.

    The number of input channels must be a multiple of 32, that of output channels of 8. `pixels`
    and `stages` are those of a `TileConfig`.
    """
    refuse_add_and_mask(add, mask)
    batch, num_in, height, width = image.shape
    num_out, num_pixels = weight.shape[1 if backwards else 0], batch * height * width
    block = min(BLOCK, max(MIN_COLUMNS.value, triton.next_power_of_2(num_out)))
    result = image.new_empty((batch, height, width, num_out))
    other = add if add is not None else mask
    _convolve[(-(-num_pixels // pixels), -(-num_out // block))](
        _flat(image),
        _flat(weight),
        bias,
        None if other is None else _flat(other),
        slope,
        result,
        num_pixels,
        height,
        width,
        num_in=num_in,
        num_out=num_out,
        backwards=backwards,
        has_bias=bias is not None,
        rectifies=rectify,
        adds=add is not None,
        masks=mask is not None,
        leaks=slope is not None,
        pixels=pixels,
        block=block,
        depth=64 if num_in % 64 == 0 else 32,
        num_warps=pixels // 32,
        num_stages=stages,
    )
    return result.permute(0, 3, 1, 2)


def _flat(values: Tensor) -> Tensor:
    assert values.is_contiguous(memory_format=torch.channels_last)
    return values.permute(0, 2, 3, 1)
