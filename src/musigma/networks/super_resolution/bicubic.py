"""Bicubic interpolation as a model like any other: the yardstick of every table."""

from torch import Tensor

from musigma.networks.base import Network
from musigma.networks.bicubic_layer import enlarge
from musigma.networks.registry import register


class Bicubic(Network):
    """MATLAB's imresize with no weights; the features are the image itself."""

    feature_channels = 3
    feature_receptive_radius = 0
    receptive_radius = 2

    def __init__(self, *, scale: int) -> None:
        super().__init__()
        self.scale = self.feature_scale = scale

    def features(self, degraded: Tensor) -> Tensor:
        """Return the image."""
        return degraded

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Enlarge the image."""
        return enlarge(features, self.scale)


@register(
    "bicubic", scales=(2, 3, 4), paper="Keys, Cubic convolution interpolation, 1981", year=1981
)
def bicubic(*, scale: int) -> Bicubic:
    """Bicubic interpolation, a = -0.5."""
    return Bicubic(scale=scale)
