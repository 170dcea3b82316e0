"""Code-made pictures that are like photographs where it counts: shading, edges and texture."""

import torch
from torch import Tensor


def natural(height: int, width: int, channels: int = 3, seed: int = 0) -> Tensor:
    """A picture ``(1, C, H, W)`` on 8-bit levels, in ``[0, 1]``."""
    generator = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(height) / 40, torch.arange(width) / 40, indexing="ij")
    shading = 0.5 + 0.25 * torch.sin(1.3 * x + 2 * y + seed)
    edges = 0.15 * torch.sign(torch.sin(3.1 * x + y)) * torch.sign(torch.cos(2.3 * y - x))
    texture = 0.04 * torch.randn(channels, height, width, generator=generator)
    tint = torch.linspace(-0.6, 0.8, channels).view(-1, 1, 1) if channels > 1 else 1.0
    picture = shading + tint * edges + texture + 0.1 * torch.sin(20 * x * y)
    return (picture.clamp(0, 1) * 255).round()[None].float() / 255
