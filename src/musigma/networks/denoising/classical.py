"""WNNM and BM3D: denoisers by similar patches, as models like any other, with no weights."""

import importlib
from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor

from musigma.networks.base import Network
from musigma.networks.denoising.wnnm_algorithm import wnnm
from musigma.networks.registry import register
from musigma.types import ConfigError

SMALLEST_SIDE = 16
"""Pixels to which smaller images are continued for BM3D, whose blocks have eight."""


class Classical(Network):
    """A denoiser without weights; the features are the image and its noise map.

    One noise level serves the whole image: the mean of the map.

    Args:
        scale: 1.
        channels: 1 for grey images, 3 for colour.
    """

    feature_receptive_radius = None
    receptive_radius = None

    def __init__(self, *, scale: int, channels: int) -> None:
        super().__init__()
        self.scale = self.feature_scale = scale
        self.in_channels = self.feature_channels = channels + 1
        self.out_channels = channels
        # Groups of similar patches and their singular vectors.
        self.activation_floats_per_pixel = 4500 * channels

    def features(self, degraded: Tensor) -> Tensor:
        """Return the image and its noise map."""
        return degraded

    @torch.no_grad()
    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Denoise each image."""
        images, maps = features[:, :-1].float(), features[:, -1].float()
        if features.is_meta:  # where costs are counted: there is no convolution
            return images
        with torch.autocast(features.device.type, enabled=False):
            levels = (255 * maps.mean((1, 2))).tolist()
            cleaned = [self.denoise(*each) for each in zip(images, levels, strict=True)]
        return torch.stack(cleaned)

    @abstractmethod
    def denoise(self, image: Tensor, noise_std: float) -> Tensor:
        """Denoise one image, ``(C, H, W)``, told the level in 8-bit units."""


class WNNM(Classical):
    """Weighted nuclear norm minimisation; a colour image is one matrix of all channels."""

    def denoise(self, image: Tensor, noise_std: float) -> Tensor:
        """Denoise one image."""
        return wnnm(image, noise_std=noise_std)


class BM3D(Classical):
    """Block matching and 3-D filtering, by the authors' package, which is no part of this one.

    Its licence allows non-commercial use only.
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
        beyond = (0, max(0, SMALLEST_SIDE - width), 0, max(0, SMALLEST_SIDE - height))
        pixels = F.pad(image.unsqueeze(0), beyond, mode="replicate")[0].double().cpu()
        if self.out_channels == 3 and not _has_flat_opponent(pixels):
            colours = bm3d.bm3d_rgb(pixels.permute(1, 2, 0).numpy(), noise_std / 255)
            cleaned = torch.from_numpy(colours).permute(2, 0, 1)
        else:
            each = (bm3d.bm3d(channel.numpy(), noise_std / 255) for channel in pixels)
            cleaned = torch.stack([torch.from_numpy(channel) for channel in each])
        return cleaned[..., :height, :width].to(image)


def _has_flat_opponent(pixels: Tensor) -> bool:
    """Say whether the package would divide 0 by 0: it stretches brightness and opponent colours."""
    red, green, blue = pixels
    opponents = (red + green + blue, red - blue, red - 2 * green + blue)
    return any(bool(channel.amax() == channel.amin()) for channel in opponents)


WNNM_FACTS: dict[str, Any] = {
    "scales": (1,),
    "paper": "Gu et al., Weighted Nuclear Norm Minimization with Application to Image Denoising, "
    "CVPR 2014",
    "year": 2014,
    "noise_map": True,
}
BM3D_FACTS: dict[str, Any] = {
    "scales": (1,),
    "paper": "Dabov et al., Image Denoising by Sparse 3-D Transform-Domain Collaborative "
    "Filtering, TIP 2007",
    "year": 2007,
    "noise_map": True,
}


@register("wnnm", **WNNM_FACTS)
def wnnm_grey(*, scale: int) -> WNNM:
    """For grey images."""
    return WNNM(scale=scale, channels=1)


@register("wnnm-colour", **WNNM_FACTS)
def wnnm_colour(*, scale: int) -> WNNM:
    """For colour images."""
    return WNNM(scale=scale, channels=3)


@register("bm3d", **BM3D_FACTS)
def bm3d_grey(*, scale: int) -> BM3D:
    """For grey images."""
    return BM3D(scale=scale, channels=1)


@register("bm3d-colour", **BM3D_FACTS)
def bm3d_colour(*, scale: int) -> BM3D:
    """For colour images: in opponent colours, matched by the first."""
    return BM3D(scale=scale, channels=3)
