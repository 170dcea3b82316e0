"""Gaussian noise that is the same whatever the order of the images and the device."""

import hashlib

import torch
from torch import Tensor

from musigma.types import ImageError


def image_generator(name: str | int, seed: int) -> torch.Generator:
    """Return a CPU generator that depends on the image's name (or index) and the seed alone.

    Example:
        >>> first, again = image_generator("baby", 0), image_generator("baby", 0)
        >>> torch.equal(torch.randn(4, generator=first), torch.randn(4, generator=again))
        True
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator()
    # The CPU generator is a 32-bit Mersenne twister: more bits of seed would be dropped.
    return generator.manual_seed(int.from_bytes(digest[:4], "big"))


def add_noise(image: Tensor, *, noise_std: float | Tensor, generator: torch.Generator) -> Tensor:
    """Return ``image + (noise_std / 255) n`` with ``n`` standard normal per value, not clipped.

    Args:
        image: ``(N, C, H, W)`` in ``[0, 1]``.
        noise_std: In 8-bit levels, such as 25; one number, or one per image, ``(N,)``.
        generator: The noise is drawn on its device, so that a CPU generator gives a GPU image the
            noise that it would give on the CPU.
    """
    if image.ndim != 4 or not image.is_floating_point():
        raise ImageError(
            f"expected a float image (N, C, H, W) in [0, 1], got {tuple(image.shape)} {image.dtype}"
        )
    if isinstance(noise_std, Tensor):
        noise_std = noise_std.to(image).view(-1, 1, 1, 1)
    elif noise_std < 0:
        raise ImageError(f"noise_std is 0 or more, in 8-bit levels (such as 25), got {noise_std}")
    noise = torch.randn(image.shape, generator=generator, device=generator.device)
    return image + noise.to(image) * (noise_std / 255)
