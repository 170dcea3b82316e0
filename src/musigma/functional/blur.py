"""Blur kernels from tensors of parameters, and their application, one kernel per image."""

import torch
from torch import Tensor

from musigma.functional.geometry import border_index
from musigma.types import ImageError

_LEAST_STD = 0.05  # of which the neighbors weigh exp(-200), which float32 takes for 0
_SAMPLES_PER_PIXEL = 4


def gaussian_kernels(
    std: Tensor, *, across: Tensor | None = None, angle: Tensor | None = None, radius: int
) -> Tensor:
    """Return Gaussian kernels, sampled at the centers of pixels and cut off at `radius`.

    Args:
        std: Standard deviation in pixels along the axis at `angle`, ``(N,)``. From 0.1
            downwards the kernel is the identity up to 1e-21, at 0 exactly.
        across: Standard deviation at a right angle to that axis, ``(N,)``; `std` where left out.
        angle: In degrees, from the row towards the column, ``(N,)``; 0 where left out.
        radius: Half the side of a kernel, rounded down; three times the largest std loses nothing.

    Returns:
        ``(N, 2 * radius + 1, 2 * radius + 1)``; the sum of each kernel is 1.

    Example:
        >>> gaussian_kernels(torch.tensor([0.0]), radius=1)[0]
        tensor([[0., 0., 0.],
                [0., 1., 0.],
                [0., 0., 0.]])
    """
    along, aside = _turned_grid(std, angle, radius)
    across = std if across is None else across
    std, across = (width.clamp(min=_LEAST_STD).view(-1, 1, 1) for width in (std, across))
    kernels = torch.exp(-0.5 * ((along / std).square() + (aside / across).square()))
    return kernels / kernels.sum((1, 2), keepdim=True)


def motion_kernels(length: Tensor, *, angle: Tensor, radius: int) -> Tensor:
    """Return the kernels of a camera that moved straight and evenly during the exposure.

    Args:
        length: How far a point moved, in pixels, ``(N,)``; at 0 the kernel is the identity.
        angle: In degrees, from the row towards the column, ``(N,)``.
        radius: Half the side of a kernel, rounded down, at least half the length.

    Returns:
        ``(N, 2 * radius + 1, 2 * radius + 1)``; points on the way are shared out linearly between
        the pixels around them, and the sum of each kernel is 1.

    Example:
        >>> kernel = motion_kernels(torch.tensor([2.0]), angle=torch.tensor([0.0]), radius=1)
        >>> [round(value, 2) for value in kernel[0, 1].tolist()]
        [0.25, 0.51, 0.25]
    """
    num_samples = 2 * _SAMPLES_PER_PIXEL * radius + 1
    middles = (torch.arange(num_samples, device=length.device) + 0.5) / num_samples
    way = (middles - 0.5) * length.view(-1, 1)
    radians = torch.deg2rad(angle).view(-1, 1)
    line = torch.arange(-radius, radius + 1, device=length.device)

    def shares(position: Tensor) -> Tensor:
        return (1 - (position.unsqueeze(-1) - line).abs()).clamp(min=0)

    rows, columns = shares(way * torch.sin(radians)), shares(way * torch.cos(radians))
    kernels = rows.transpose(1, 2) @ columns
    return kernels / kernels.sum((1, 2), keepdim=True)


def blur(image: Tensor, kernels: Tensor) -> Tensor:
    """Convolve each image with a kernel of its own, with symmetric borders.

    The work is done by Fourier transforms, whose cost hardly depends on the size of the kernels.

    Args:
        image: ``(N, C, H, W)``, float.
        kernels: ``(N, k, k)`` with odd ``k``; its middle is the origin.

    Returns:
        The images, of the same shape; off by some 1e-7 from exact sums.

    Example:
        >>> kernels = torch.full((1, 3, 3), 1 / 9)
        >>> blur(torch.eye(3).view(1, 1, 3, 3), kernels)[0, 0]
        tensor([[0.5556, 0.3333, 0.1111],
                [0.3333, 0.3333, 0.3333],
                [0.1111, 0.3333, 0.5556]])
    """
    side = kernels.shape[-1]
    if kernels.ndim != 3 or kernels.shape[-2] != side or side % 2 == 0:
        raise ImageError(f"expected kernels (N, k, k) with odd k, got {tuple(kernels.shape)}")
    if len(kernels) != len(image):
        raise ImageError(f"expected a kernel per image, got {len(kernels)} for {len(image)} images")
    height, width = image.shape[-2:]
    size = (_quick_length(height + side - 1), _quick_length(width + side - 1))
    work = _extended(_extended(image, -2, side // 2, size[0]), -1, side // 2, size[1])
    spectrum = torch.fft.rfft2(work) * torch.fft.rfft2(kernels.to(work), s=size).unsqueeze(1)
    result = torch.fft.irfft2(spectrum, s=size)
    # Before that, values come round from the other end.
    return result[..., side - 1 : side - 1 + height, side - 1 : side - 1 + width].contiguous()


def _turned_grid(std: Tensor, angle: Tensor | None, radius: int) -> tuple[Tensor, Tensor]:
    """Return the coordinates of pixels along and across the axis of each kernel."""
    line = torch.arange(-radius, radius + 1, device=std.device, dtype=std.dtype)
    down, right = line.view(1, -1, 1), line.view(1, 1, -1)
    if angle is None:
        return right, down
    radians = torch.deg2rad(angle).view(-1, 1, 1)
    cosine, sine = torch.cos(radians), torch.sin(radians)
    return right * cosine + down * sine, down * cosine - right * sine


def _extended(image: Tensor, dim: int, before: int, size: int) -> Tensor:
    line = torch.arange(-before, size - before, device=image.device)
    return image.index_select(dim, border_index(line, image.shape[dim], "symmetric"))


def _quick_length(length: int) -> int:
    """Return the next even length that Fourier transforms are quick at: factors 2, 3 and 5."""
    candidate = length + length % 2
    while not _is_smooth(candidate):
        candidate += 2
    return candidate


def _is_smooth(number: int) -> bool:
    for factor in (2, 3, 5):
        while number % factor == 0:
            number //= factor
    return number == 1
