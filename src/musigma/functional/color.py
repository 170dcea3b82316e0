"""Color spaces of the protocols, and the one rule by which values become 8-bit."""

import torch
from torch import Tensor

from musigma.types import ImageError

# ITU-R BT.601, studio swing: RGB in [0, 1] to Y in [16, 235], Cb and Cr in [16, 240].
_YCBCR_FROM_RGB = (
    (65.481, 128.553, 24.966),
    (-37.797, -74.203, 112.0),
    (112.0, -93.786, -18.214),
)
_YCBCR_OFFSET = (16.0, 128.0, 128.0)

# Below it the curve of sRGB is a straight line.
_SRGB_TOE = 0.04045


def to_uint8(image: Tensor) -> Tensor:
    """Return the 8-bit levels ``floor(255 clamp(image, 0, 1) + 1/2)`` of an image in ``[0, 1]``.

    Halves go up, as in MATLAB, which made the published low-resolution images; the library has no
    other rounding. An image that is already uint8 is returned as it is.

    Example:
        >>> to_uint8(torch.tensor([-1.0, 0.5 / 255, 2.5 / 255, 2.0]))
        tensor([  0,   1,   3, 255], dtype=torch.uint8)
    """
    if image.dtype == torch.uint8:
        return image
    # Half precision cannot hold 254.5 and its neighbors, so that it is widened first.
    wide = image if image.dtype == torch.float64 else image.float()
    return (wide.clamp(0, 1) * 255 + 0.5).to(torch.uint8)


def quantise(image: Tensor) -> Tensor:
    """Return an image in ``[0, 1]`` as it is after saving to 8 bits: the nearest ``level / 255``.

    Example:
        >>> quantise(torch.tensor([0.3, 1.2])) * 255
        tensor([ 77., 255.])
    """
    dtype = torch.float32 if image.dtype == torch.uint8 else image.dtype
    return to_uint8(image).to(dtype) / 255


def match_channels(image: Tensor, num_channels: int) -> Tensor:
    """Turn a gray image into color by repetition, or a color one into gray (BT.601 weights).

    Example:
        >>> match_channels(torch.zeros(1, 1, 5, 4), 3).shape
        torch.Size([1, 3, 5, 4])
    """
    have = image.shape[-3]
    if have == num_channels:
        return image
    if have == 1:
        return image.expand(*image.shape[:-3], num_channels, *image.shape[-2:])
    _check_channels(image, "RGB")
    weight = image.new_tensor((0.299, 0.587, 0.114)).view(3, 1, 1)
    return (image * weight).sum(-3, keepdim=True)


def rgb_to_y(image: Tensor) -> Tensor:
    """Return the BT.601 studio-swing luma ``(65.481 R + 128.553 G + 24.966 B + 16) / 255``.

    ``(N, 3, H, W)`` in ``[0, 1]`` becomes ``(N, 1, H, W)`` in ``[16/255, 235/255]``, not rounded:
    PSNR on it with ``data_range=1`` is the papers' PSNR on Y with peak 255.

    Example:
        >>> rgb_to_y(torch.ones(1, 3, 1, 1)) * 255
        tensor([[[[235.]]]])
    """
    _check_channels(image, "RGB")
    weight = image.new_tensor(_YCBCR_FROM_RGB[0]).view(3, 1, 1)
    return ((image * weight).sum(-3, keepdim=True) + _YCBCR_OFFSET[0]) / 255


def rgb_to_ycbcr(image: Tensor) -> Tensor:
    """Return BT.601 studio-swing YCbCr, 8-bit levels divided by 255, of ``(N, 3, H, W)`` RGB."""
    _check_channels(image, "RGB")
    matrix, offset = _ycbcr(image)
    return _mix(image, matrix) + offset


def ycbcr_to_rgb(image: Tensor) -> Tensor:
    """Undo `rgb_to_ycbcr`; values outside RGB's cube are not clamped."""
    _check_channels(image, "YCbCr")
    matrix, offset = _ycbcr(image)
    # Inverted in double precision: the printed inverse tables carry five digits only.
    return _mix(image - offset, torch.linalg.inv(matrix))


def _ycbcr(like: Tensor) -> tuple[Tensor, Tensor]:
    matrix = torch.tensor(_YCBCR_FROM_RGB, dtype=torch.float64) / 255
    return matrix, like.new_tensor(_YCBCR_OFFSET).view(3, 1, 1) / 255


def _mix(image: Tensor, matrix: Tensor) -> Tensor:
    # Products and a sum, not a matrix product, which TF32 would cut to ten bits on a GPU.
    weight = matrix.to(image).view(3, 3, 1, 1)
    return (image.unsqueeze(-4) * weight).sum(-3)


def _check_channels(image: Tensor, space: str) -> None:
    if image.ndim < 3 or image.shape[-3] != 3 or not image.is_floating_point():
        raise ImageError(
            f"expected a float {space} image (N, 3, H, W) in [0, 1], got {tuple(image.shape)} "
            f"{image.dtype}; repeat a gray channel three times and divide 8-bit levels by 255"
        )


def srgb_to_linear(image: Tensor) -> Tensor:
    """Return the light that sRGB values in ``[0, 1]`` stand for, by the curve of IEC 61966-2-1.

    Example:
        >>> srgb_to_linear(torch.tensor([0.0, 0.5, 1.0])).round(decimals=4)
        tensor([0.0000, 0.2140, 1.0000])
    """
    curve = ((image.clamp(min=_SRGB_TOE) + 0.055) / 1.055) ** 2.4
    return torch.where(image <= _SRGB_TOE, image / 12.92, curve)


def linear_to_srgb(light: Tensor) -> Tensor:
    """Return the sRGB values of light: the inverse of `srgb_to_linear`.

    Example:
        >>> linear_to_srgb(torch.tensor([0.0, 0.2140, 1.0])).round(decimals=3)
        tensor([0.0000, 0.5000, 1.0000])
    """
    toe = _SRGB_TOE / 12.92
    curve = 1.055 * light.clamp(min=toe) ** (1 / 2.4) - 0.055
    return torch.where(light <= toe, light * 12.92, curve)
