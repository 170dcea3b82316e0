"""Layers to try the plug-in on: a small portrait, and a noisy stack of measured values."""

from typing import Any

import numpy as np
import torch

from musigma.datasets.demo_photo import portrait
from musigma.functional.resize import resize

LayerData = tuple[Any, dict[str, Any], str]

STACK_STD = 0.05
"""Noise of the stack, as a share of its 12 bits."""


def portrait_layer() -> list[LayerData]:
    """Return the portrait of the demo, shrunk by 4.

    Example:
        >>> portrait_layer()[0][0].shape
        (150, 128, 3)
    """
    small = resize(portrait(), scale=1 / 4).clamp(0, 1)
    levels = (255 * small[0]).round().byte().permute(1, 2, 0).numpy()
    return [(levels, {"name": "portrait", "rgb": True}, "image")]


def noisy_stack_layer() -> list[LayerData]:
    """Return round cells in three depths, 12 bits in 16, with noise, in pixels of 0.2 micrometers.

    Example:
        >>> stack, properties, _ = noisy_stack_layer()[0]
        >>> stack.shape, str(stack.dtype), properties["scale"]
        ((3, 96, 128), 'uint16', (1.0, 0.2, 0.2))
    """
    generator = torch.Generator().manual_seed(0)
    y, x = torch.meshgrid(torch.arange(96.0), torch.arange(128.0), indexing="ij")
    planes = []
    for depth in range(3):
        clean = torch.full_like(x, 0.1)
        for center_y, center_x in (96 * torch.rand(12, 2, generator=generator)).tolist():
            distance = (y - center_y).square() + (x - 4 / 3 * center_x).square()
            clean += 0.4 * torch.sigmoid((60 + 20 * depth - distance) / 8)
        noisy = clean + STACK_STD * torch.randn(x.shape, generator=generator)
        planes.append((4095 * noisy.clamp(0, 1)).round().numpy().astype(np.uint16))
    properties = {
        "name": "cells",
        "scale": (1.0, 0.2, 0.2),
        "units": ("um", "um", "um"),
        "contrast_limits": (0, 4095),
    }
    return [(np.stack(planes), properties, "image")]
