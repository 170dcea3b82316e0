"""BM3D, a denoiser by groups of similar blocks, through the package of its authors."""

import importlib

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor

from musigma.networks.denoising.classical_base import ClassicalDenoiser
from musigma.networks.registry import Variant, register_variants
from musigma.types import ConfigError

SMALLEST_SIDE = 16
"""Smaller images are padded to this side, because a block has eight pixels."""


class BM3D(ClassicalDenoiser):
    """Block matching and 3-D filtering, by the authors' package, which is not part of this one.

    Its license allows non-commercial use only.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
    """

    def denoise(self, image: Tensor, noise_std: float) -> Tensor:
        """Denoise one image."""
        try:
            bm3d = importlib.import_module("bm3d")
        except ImportError as error:
            raise ConfigError(
                "BM3D needs its authors' package, which is free for non-commercial use; "
                "install it with 'pip install bm3d', or choose wnnm"
            ) from error
        if noise_std == 0:
            return image
        height, width = image.shape[-2:]
        padding = (0, max(0, SMALLEST_SIDE - width), 0, max(0, SMALLEST_SIDE - height))
        pixels = F.pad(image.unsqueeze(0), padding, mode="replicate")[0].double().cpu()
        if self.out_channels == 3 and not _has_flat_opponent(pixels):
            colors = bm3d.bm3d_rgb(pixels.permute(1, 2, 0).numpy(), noise_std / 255)
            cleaned = torch.from_numpy(colors).permute(2, 0, 1)
        else:
            channels = (bm3d.bm3d(channel.numpy(), noise_std / 255) for channel in pixels)
            cleaned = torch.stack([torch.from_numpy(channel) for channel in channels])
        return cleaned[..., :height, :width].to(image)


def _has_flat_opponent(pixels: Tensor) -> bool:
    """Say whether a channel is constant after the color transform of the package.

    The package scales each of them to its range, and would divide 0 by 0.
    """
    red, green, blue = pixels
    opponents = (red + green + blue, red - blue, red - 2 * green + blue)
    return any(bool(channel.amax() == channel.amin()) for channel in opponents)


register_variants(
    BM3D,
    {
        "bm3d": Variant("For gray images."),
        "bm3d-colour": Variant(
            "For color images: in opponent colors, with blocks matched in the first.",
            {"channels": 3},
        ),
    },
    scales=(1,),
    paper="Dabov et al., Image Denoising by Sparse 3-D Transform-Domain Collaborative "
    "Filtering, TIP 2007",
    year=2007,
)
