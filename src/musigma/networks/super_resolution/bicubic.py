"""Bicubic interpolation as a network like any other: the baseline of every table."""

from torch import Tensor

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.bicubic_layer import KERNEL_RADIUS, enlarge
from musigma.networks.registry import register


@register(
    "bicubic",
    scales=(2, 3, 4),
    summary="Bicubic interpolation, a = -0.5.",
    paper="Keys, Cubic convolution interpolation, 1981",
    year=1981,
)
class Bicubic(Network):
    """MATLAB's imresize, without weights; the features are the image itself.

    Args:
        scale: 2, 3 or 4.
    """

    def __init__(self, *, scale: int) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=3,
            feature_scale=scale,
            feature_receptive_radius=0,
            receptive_radius=KERNEL_RADIUS,
        )

    def features(self, degraded: Tensor) -> Tensor:
        """Return the image."""
        return degraded

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Enlarge the image."""
        return enlarge(features, self.scale)
