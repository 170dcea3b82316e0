"""FSRCNN: shrink, map and expand the features of the small image, then one deconvolution."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from musigma.networks.base import Network, conv3x3
from musigma.networks.registry import Recognised, register
from musigma.networks.tile_exact_layers import SubPixelDeconv2d


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
        self.scale = self.feature_scale = scale
        self.feature_channels = width
        self.feature_receptive_radius = 2 + num_mappings
        # The deconvolution sees 4 output pixels far: -(-4 // scale) rounds up.
        self.receptive_radius = self.feature_receptive_radius - (-4 // scale)
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
        """Return what the deconvolution sees."""
        return self.mid_part(self.first_part(degraded))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Enlarge the features into an image."""
        return self.last_part(features)


def recognise(state: Mapping[str, Tensor]) -> Recognised | None:
    """Tell from its keys whether a state dict is an FSRCNN on RGB; it does not say its scale."""
    if not {"first_part.0.weight", "mid_part.0.weight", "last_part.weight"} <= state.keys():
        return None
    if state["first_part.0.weight"].shape[1:] != (3, 5, 5):
        return None
    num_shrunk, width = state["mid_part.0.weight"].shape[:2]
    num_convs = sum(key.startswith("mid_part.") and key.endswith(".bias") for key in state)
    settings = {"width": width, "num_shrunk": num_shrunk, "num_mappings": num_convs - 2}
    return "fsrcnn", None, settings


@register(
    "fsrcnn",
    scales=(2, 3, 4),
    paper="Dong et al., Accelerating the Super-Resolution Convolutional Neural Network, ECCV 2016",
    year=2016,
    recognise=recognise,
)
def fsrcnn(*, scale: int, **settings: Any) -> FSRCNN:
    """FSRCNN(56, 12, 4)."""
    return FSRCNN(scale=scale, **settings)
