"""FSRCNN: shrink, map and expand the features of the small image, then one deconvolution."""

from math import ceil

from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import conv3x3
from musigma.networks.registry import register
from musigma.networks.state_dict import Recognised, State, count, recogniser, require, shape
from musigma.networks.tile_exact_layers import SubPixelDeconv2d


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an FSRCNN on RGB; it does not tell the scale."""
    require(shape(state, "first_part.0.weight", 4)[1:] == (3, 5, 5))
    shape(state, "last_part.weight", 4)
    num_shrunk, width = shape(state, "mid_part.0.weight", 4)[:2]
    num_mappings = count(state, r"mid_part\.\d+\.bias") - 2
    require(num_mappings >= 0)
    return "fsrcnn", None, {"width": width, "num_shrunk": num_shrunk, "num_mappings": num_mappings}


@register(
    "fsrcnn",
    scales=(2, 3, 4),
    summary="FSRCNN(56, 12, 4).",
    paper="Dong et al., Accelerating the Super-Resolution Convolutional Neural Network, ECCV 2016",
    year=2016,
    recognise=recognise,
)
class FSRCNN(Network):
    """Fast super-resolution convolutional network, on RGB.

    Args:
        scale: 2, 3 or 4.
        width: Channels of the first and the last features, d in the paper.
        num_shrunk: Channels of the mapping layers, s in the paper.
        num_mappings: Mapping layers, m in the paper.
    """

    def __init__(
        self, *, scale: int, width: int = 56, num_shrunk: int = 12, num_mappings: int = 4
    ) -> None:
        super().__init__()
        trunk_radius = 2 + num_mappings
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=trunk_radius,
            # The kernel of the deconvolution reaches 4 pixels of the enlarged image.
            receptive_radius=trunk_radius + ceil(4 / scale),
        )
        self.first_part = nn.Sequential(
            nn.Conv2d(3, width, kernel_size=5, padding=2), nn.PReLU(width)
        )
        layers = [nn.Conv2d(width, num_shrunk, kernel_size=1), nn.PReLU(num_shrunk)]
        for _ in range(num_mappings):
            layers += [conv3x3(num_shrunk, num_shrunk), nn.PReLU(num_shrunk)]
        layers += [nn.Conv2d(num_shrunk, width, kernel_size=1), nn.PReLU(width)]
        self.mid_part = nn.Sequential(*layers)
        self.last_part = SubPixelDeconv2d(
            width, 3, kernel_size=9, stride=scale, padding=4, output_padding=scale - 1
        )

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the deconvolution."""
        return self.mid_part(self.first_part(degraded))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Enlarge the features into an image."""
        return self.last_part(features)
