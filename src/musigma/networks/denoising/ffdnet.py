"""FFDNet: a plain stack of convolutions at half the resolution that is told the noise level."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor

from musigma.networks.base import Network, Settings
from musigma.networks.denoising.dncnn import plain_stack, stack_shape
from musigma.networks.registry import Recognised, register


class FFDNet(Network):
    """Fast and flexible denoising network; parameter names are those of KAIR.

    The last input channel is the noise map, of which each cell of 2x2 pixels takes the mean.

    Args:
        scale: 1.
        channels: 1 for grey images, 3 for colour.
        num_layers: Convolutions, the first and the last included.
        width: Channels of every layer between.
    """

    feature_scale = 2
    size_multiple = 2

    def __init__(
        self, *, scale: int, channels: int = 1, num_layers: int = 15, width: int = 64
    ) -> None:
        super().__init__()
        self.scale = scale
        self.in_channels, self.out_channels = channels + 1, channels
        self.feature_channels = width
        # A convolution steps two pixels; the cell that it ends in reaches one pixel further.
        self.feature_receptive_radius = 2 * (num_layers - 1) + 1
        self.receptive_radius = 2 * num_layers + 1
        dilations = (1,) * num_layers
        self.model = plain_stack(4 * channels + 1, 4 * channels, width=width, dilations=dilations)

    def features(self, degraded: Tensor) -> Tensor:
        """Return what the last convolution sees, at half the resolution, rounded up."""
        height, width = (side + side % 2 for side in degraded.shape[-2:])
        # More than enough and a cut, which compilers see through sooner than a padding of any size.
        padded = F.pad(degraded, (0, 1, 0, 1), mode="replicate")[..., :height, :width]
        cells = F.pixel_unshuffle(padded[:, :-1], 2)
        level = F.avg_pool2d(padded[:, -1:], 2)
        return self.model[:-1](torch.cat([cells, level], dim=1))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Turn the features into an image of the input's size."""
        height, width = degraded.shape[-2:]
        return F.pixel_shuffle(self.model[-1](features), 2)[..., :height, :width]


def recognise(state: Mapping[str, Tensor]) -> Recognised | None:
    """Tell from its keys whether a state dict is an FFDNet."""
    shape = stack_shape(state)
    if shape is None or shape.out_channels not in (4, 12):
        return None
    if shape.in_channels != shape.out_channels + 1:
        return None
    name = "ffdnet" if shape.out_channels == 4 else "ffdnet-colour"
    return name, 1, {"num_layers": shape.num_layers, "width": shape.width}


FACTS: dict[str, Any] = {
    "scales": (1,),
    "paper": "Zhang et al., FFDNet: Toward a Fast and Flexible Solution for CNN-Based Image "
    "Denoising, TIP 2018",
    "year": 2018,
    "noise_map": True,
}


@register("ffdnet", recognise=recognise, **FACTS)
def ffdnet(*, scale: int, **settings: Any) -> FFDNet:
    """15 layers of 64 channels, for grey images."""
    return FFDNet(scale=scale, **settings)


@register("ffdnet-colour", **FACTS)
def ffdnet_colour(*, scale: int, **settings: Any) -> FFDNet:
    """12 layers of 96 channels, for colour images."""
    defaults: Settings = {"channels": 3, "num_layers": 12, "width": 96}
    return FFDNet(scale=scale, **{**defaults, **settings})
