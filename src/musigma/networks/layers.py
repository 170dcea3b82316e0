"""Small parts that several families share."""

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.types import ConfigError

RGB_MEAN = (0.4488, 0.4371, 0.4040)
"""Mean color of DIV2K, which EDSR and its descendants subtract."""


class MeanShift(nn.Module):
    """Maps images in ``[0, 1]`` to the zero-mean range a network works in, and back.

    The mean color is not a weight: released files that hold it as a 1x1 convolution load without
    it, and parameters and MACs are those that papers count.
    """

    mean: Tensor

    def __init__(self, *, value_range: float, mean: tuple[float, ...] = RGB_MEAN) -> None:
        super().__init__()
        self.value_range = value_range
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """Subtract the mean color and stretch to the network's range."""
        return (image - self.mean.to(image.dtype)) * self.value_range

    def inverse(self, image: Tensor) -> Tensor:
        """Undo `forward`."""
        return image / self.value_range + self.mean.to(image.dtype)


def conv3x3(in_channels: int, out_channels: int, *, bias: bool = True) -> nn.Conv2d:
    """A 3x3 convolution that keeps the size."""
    return nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=bias)


def set_to_zero(layer: nn.Module) -> None:
    """Set the weights of a layer to zero, so that what it is added to stays as it is at first."""
    for weight in layer.parameters():
        nn.init.zeros_(weight)


def enlarging_steps(scale: int) -> tuple[int, ...]:
    """Return the factors of the pixel shuffles that together enlarge by a scale.

    Example:
        >>> enlarging_steps(4), enlarging_steps(1)
        ((2, 2), ())
    """
    steps: dict[int, tuple[int, ...]] = {1: (), 2: (2,), 3: (3,), 4: (2, 2)}
    if scale not in steps:
        raise ConfigError(f"the upsampler exists for scale 1, 2, 3 or 4, not {scale}")
    return steps[scale]


def pixel_shuffle_upsampler(width: int, scale: int) -> nn.Sequential:
    """Convolutions and pixel shuffles that enlarge features; nothing for a scale of 1."""
    layers: list[nn.Module] = []
    for step in enlarging_steps(scale):
        layers += [conv3x3(width, width * step**2), nn.PixelShuffle(step)]
    return nn.Sequential(*layers)


def upsampler_radius(scale: int) -> int:
    """Receptive radius of `pixel_shuffle_upsampler` and the convolution after it.

    Each convolution sees one pixel of its own grid: 1, then 1/2 (between the two steps of x4), then
    1 / scale input pixels. Together these are never more than two.
    """
    return 1 if scale == 1 else 2


def pad_to_cells(image: Tensor, cell: int) -> Tensor:
    """Repeat the last row and column until both sides are multiples of `cell`."""
    sides = image.shape[-2:]
    if all(isinstance(side, int) and side % cell == 0 for side in sides):
        return image  # nothing to pad; PyTorch 2.11 fails to compile a pixel unshuffle behind a pad
    height, width = (cell * ((side + cell - 1) // cell) for side in sides)
    # Pad by the largest amount and crop: compilers handle that better than padding of any size.
    padded = F.pad(image, (0, cell - 1, 0, cell - 1), mode="replicate")
    return padded[..., :height, :width]


def largest_of_cells(features: Tensor, cell: int) -> Tensor:
    """Return the largest value of each cell of ``cell`` x ``cell`` pixels.

    Cells are counted from the upper left corner; those at the right and lower edge may be cut off.

    Example:
        >>> largest_of_cells(torch.arange(6.0).view(1, 1, 2, 3), 2).tolist()
        [[[[4.0, 5.0]]]]
    """
    return features if cell == 1 else F.max_pool2d(features, cell, ceil_mode=True)


def spread_cells(cells: Tensor, cell: int, height: int, width: int) -> Tensor:
    """Give every pixel of an image of this size the value of its cell."""
    if cell == 1:
        return cells
    return F.interpolate(cells, scale_factor=cell, mode="nearest")[..., :height, :width]


def at_least(length: int | torch.SymInt, least: int) -> int:
    """Return the larger of two lengths; in an exported graph the first may still be free.

    Python's `max` would decide for the size with which the graph was made. Plain numbers must not
    reach `sym_max`, at which PyTorch 2.11 stops compiling.
    """
    if isinstance(length, int):
        return max(length, least)
    result: int = torch.sym_max(length, least)  # type: ignore[no-untyped-call]
    return result


def autocast_device(tensor: Tensor) -> str:
    """Return the device type for `torch.autocast`, which does not know the meta device."""
    return "cpu" if tensor.is_meta else tensor.device.type
