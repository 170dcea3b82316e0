"""FFDNet: a plain stack of convolutions at half the resolution that is told the noise level."""

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.denoising.dncnn import plain_stack, stack_shape
from musigma.networks.layers import pad_to_cells
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import Recognised, State, recogniser, require

CELL = 2
"""Pixels per side that become the channels of one pixel."""


class FFDNet(Network):
    """Fast and flexible denoising network; parameter names are those of KAIR.

    The last input channel is the noise map, averaged over cells of 2x2 pixels.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
        num_layers: Convolutions, the first and the last included.
        width: Channels of every layer between.
    """

    def __init__(
        self, *, scale: int, channels: int = 1, num_layers: int = 15, width: int = 64
    ) -> None:
        super().__init__()
        # A convolution reaches one cell further, and a cell ends up to one pixel away.
        self.info = NetworkInfo(
            scale=scale,
            task="denoising",
            in_channels=channels + 1,
            out_channels=channels,
            feature_channels=width,
            feature_scale=CELL,
            feature_receptive_radius=CELL * (num_layers - 1) + 1,
            receptive_radius=CELL * num_layers + 1,
            size_multiple=CELL,
            takes_noise_level=True,
        )
        dilations = (1,) * num_layers
        self.model = plain_stack(4 * channels + 1, 4 * channels, width=width, dilations=dilations)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution, at half the resolution, rounded up."""
        padded = pad_to_cells(degraded, CELL)
        cells = F.pixel_unshuffle(padded[:, :-1], CELL)
        level = F.avg_pool2d(padded[:, -1:], CELL)
        return self.model[:-1](torch.cat([cells, level], dim=1))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Turn the features into an image of the input's size."""
        height, width = degraded.shape[-2:]
        return F.pixel_shuffle(self.model[-1](features), CELL)[..., :height, :width]


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an FFDNet."""
    stack = stack_shape(state)
    require(stack.out_channels in (4, 12) and stack.in_channels == stack.out_channels + 1)
    name = "ffdnet" if stack.out_channels == 4 else "ffdnet-colour"
    return name, 1, {"num_layers": stack.num_layers, "width": stack.width}


register_variants(
    FFDNet,
    {
        "ffdnet": Variant("15 layers of 64 channels, for gray images."),
        "ffdnet-colour": Variant(
            "12 layers of 96 channels, for color images.",
            {"channels": 3, "num_layers": 12, "width": 96},
        ),
    },
    scales=(1,),
    paper="Zhang et al., FFDNet: Toward a Fast and Flexible Solution for CNN-Based Image "
    "Denoising, TIP 2018",
    year=2018,
    recognise=recognise,
)
