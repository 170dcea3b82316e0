"""A made picture with the detail of a photograph, and the error that a network would predict."""

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d


def photo(height: int, width: int, seed: int = 0) -> Tensor:
    """Return a picture ``(1, 3, H, W)`` with edges, shading, texture and a little grain.

    The waves in it are weaker the shorter they are. JPEG needs 2.6 bits per pixel for it at quality
    92, which is a little more than for photographs.
    """
    generator = torch.Generator().manual_seed(seed)
    waves = _waves(height, width, generator, power=1.3)
    edges = torch.sign(_waves(height, width, generator, power=2))
    warmth = _waves(height, width, generator, power=1.8) * torch.tensor([1.0, 0, -1]).view(3, 1, 1)
    grain = torch.randn(3, height, width, generator=generator)
    tint = torch.tensor([0.9, 1.0, 1.1]).view(3, 1, 1)
    light = tint * (0.5 + 0.14 * waves + 0.1 * edges)
    return (light + 0.05 * warmth + 0.004 * grain).clamp(0, 1)[None]


def error_of(picture: Tensor) -> Tensor:
    """Return an error that is large at edges and in texture, as a network predicts it."""
    mean = avg_pool2d(picture, 5, stride=1, padding=2)
    spread = avg_pool2d(picture.square(), 5, stride=1, padding=2) - mean.square()
    return (0.004 + 0.3 * spread.clamp_min(0).sqrt()).clamp(0, 1)


def _waves(height: int, width: int, generator: torch.Generator, power: float) -> Tensor:
    noise = torch.fft.rfft2(torch.randn(height, width, generator=generator))
    frequency = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)[None])
    frequency[0, 0] = 1
    waves = torch.fft.irfft2(noise / frequency**power, s=(height, width))
    return waves / waves.std()
