"""What denoising algorithms without weights need in order to work like any network."""

from abc import abstractmethod

import torch
from torch import Tensor

from musigma.networks.base import Network, NetworkInfo


class ClassicalDenoiser(Network):
    """A denoiser without weights; the features are the image and its noise map.

    One noise level is used for the whole image: the mean of the map.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
    """

    def __init__(self, *, scale: int, channels: int = 1) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="denoising",
            in_channels=channels + 1,
            out_channels=channels,
            feature_channels=channels + 1,
            feature_scale=scale,
            feature_receptive_radius=None,
            receptive_radius=None,
            # Groups of similar patches and their singular vectors.
            activation_floats_per_pixel=4500 * channels,
            takes_noise_level=True,
        )

    def features(self, degraded: Tensor) -> Tensor:
        """Return the image and its noise map."""
        return degraded

    @torch.no_grad()
    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Denoise each image."""
        images, maps = features[:, :-1].float(), features[:, -1].float()
        if features.is_meta:  # costs are counted there, and there are no convolutions to count
            return images
        with torch.autocast(features.device.type, enabled=False):
            levels = (255 * maps.mean((1, 2))).tolist()
            cleaned = [
                self.denoise(image, level) for image, level in zip(images, levels, strict=True)
            ]
        return torch.stack(cleaned)

    @abstractmethod
    def denoise(self, image: Tensor, noise_std: float) -> Tensor:
        """Denoise one image ``(C, H, W)`` with noise of this level, in 8-bit units."""
