"""FSRCNN: shrink, map and expand the features of the small image, then one deconvolution."""

from math import ceil

from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import conv3x3
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import Recognised, State, count, recogniser, rename, require, shape
from musigma.networks.super_resolution.on_luma import OnLuma
from musigma.networks.tile_exact_layers import SubPixelDeconv2d

EXPAND = ("expand.0", "expand.1")


class FSRCNN(Network):
    """Fast super-resolution convolutional network, by default on RGB.

    Args:
        scale: 2, 3 or 4.
        width: Channels of the first and the last features, d in the paper.
        num_shrunk: Channels of the mapping layers, s in the paper.
        num_mappings: Mapping layers, m in the paper.
        channels: Channels of the image.
    """

    def __init__(
        self,
        *,
        scale: int,
        width: int = 56,
        num_shrunk: int = 12,
        num_mappings: int = 4,
        channels: int = 3,
    ) -> None:
        super().__init__()
        trunk_radius = 2 + num_mappings
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            in_channels=channels,
            out_channels=channels,
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=trunk_radius,
            # The kernel of the deconvolution reaches 4 pixels of the enlarged image.
            receptive_radius=trunk_radius + ceil(4 / scale),
        )
        self.first_part = nn.Sequential(
            nn.Conv2d(channels, width, kernel_size=5, padding=2), nn.PReLU(width)
        )
        layers = [nn.Conv2d(width, num_shrunk, kernel_size=1), nn.PReLU(num_shrunk)]
        for _ in range(num_mappings):
            layers += [conv3x3(num_shrunk, num_shrunk), nn.PReLU(num_shrunk)]
        layers += [nn.Conv2d(num_shrunk, width, kernel_size=1), nn.PReLU(width)]
        self.mid_part = nn.Sequential(*layers)
        self.last_part = SubPixelDeconv2d(
            width, channels, kernel_size=9, stride=scale, padding=4, output_padding=scale - 1
        )

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the deconvolution."""
        return self.mid_part(self.first_part(degraded))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Enlarge the features into an image."""
        return self.last_part(features)


class FSRCNNY(OnLuma, FSRCNN):
    """FSRCNN as published: it restores the luma, the chroma stays bicubic.

    Args:
        scale: 2, 3 or 4.
        width: Channels of the first and the last features, d in the paper.
        num_shrunk: Channels of the mapping layers, s in the paper.
        num_mappings: Mapping layers, m in the paper.
    """

    def __init__(
        self, *, scale: int, width: int = 56, num_shrunk: int = 12, num_mappings: int = 4
    ) -> None:
        super().__init__(
            scale=scale,
            width=width,
            num_shrunk=num_shrunk,
            num_mappings=num_mappings,
            channels=1,
        )
        self._take_rgb()


def adapt(state: State) -> dict[str, Tensor]:
    """Give the layers our names, where they have those of Lornatang/FSRCNN-PyTorch."""
    num_mapping_layers = count(state, r"map\.\d+\.weight")
    parts = ["shrink.0", "shrink.1", *(f"map.{number}" for number in range(num_mapping_layers))]
    names = {name: f"mid_part.{number}" for number, name in enumerate([*parts, *EXPAND])}
    names |= {f"feature_extraction.{number}": f"first_part.{number}" for number in (0, 1)}
    return rename(state, names | {"deconv": "last_part"})


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an FSRCNN on RGB or luma; it does not tell the scale."""
    state = adapt(state)
    channels, *kernel = shape(state, "first_part.0.weight", 4)[1:]
    require(channels in (1, 3) and kernel == [5, 5])
    require(shape(state, "last_part.weight", 4)[1:] == (channels, 9, 9))
    num_shrunk, width = shape(state, "mid_part.0.weight", 4)[:2]
    num_mappings = count(state, r"mid_part\.\d+\.bias") - 2
    require(num_mappings >= 0)
    name = "fsrcnn" if channels == 3 else "fsrcnn-y"
    return name, None, {"width": width, "num_shrunk": num_shrunk, "num_mappings": num_mappings}


for network, name, text in (
    (FSRCNN, "fsrcnn", "FSRCNN(56, 12, 4)."),
    (FSRCNNY, "fsrcnn-y", "FSRCNN(56, 12, 4) on luma."),
):
    register_variants(
        network,
        {name: Variant(text)},
        scales=(2, 3, 4),
        paper="Dong et al., Accelerating the Super-Resolution Convolutional Neural Network, "
        "ECCV 2016",
        year=2016,
        recognise=recognise,
        adapt=adapt,
    )
