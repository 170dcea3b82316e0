"""IRCNN's denoiser: seven dilated convolutions that predict the noise."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from musigma.models.dncnn import plain_stack, stack_shape
from musigma.models.network import Network, Settings
from musigma.models.registry import Recognised, register

DILATIONS = (1, 2, 3, 4, 3, 2, 1)


class IRCNN(Network):
    """Denoising network for one noise level; parameter names are those of KAIR.

    Args:
        scale: 1.
        channels: 1 for grey images, 3 for colour.
        width: Channels of every layer between the first and the last.
    """

    def __init__(self, *, scale: int, channels: int = 1, width: int = 64) -> None:
        super().__init__()
        self.scale = self.feature_scale = scale
        self.in_channels = self.out_channels = channels
        self.feature_channels = width
        self.feature_radius = sum(DILATIONS[:-1])
        self.radius = sum(DILATIONS)
        self.model = plain_stack(channels, channels, width=width, dilations=DILATIONS)

    def features(self, low: Tensor) -> Tensor:
        """Return what the last convolution sees."""
        return self.model[:-1](low)

    def reconstruct(self, features: Tensor, low: Tensor) -> Tensor:
        """Take the predicted noise away from the image."""
        return low - self.model[-1](features)


def recognise(state: Mapping[str, Tensor]) -> Recognised | None:
    """Tell from its keys whether a state dict is an IRCNN: a plain stack of seven layers."""
    shape = stack_shape(state)
    if shape is None or shape.num_layers != 7 or shape.in_channels != shape.out_channels:
        return None
    return "ircnn" if shape.in_channels == 1 else "ircnn-colour", 1, {"width": shape.width}


FACTS: dict[str, Any] = {
    "scales": (1,),
    "paper": "Zhang et al., Learning Deep CNN Denoiser Prior for Image Restoration, CVPR 2017",
    "year": 2017,
}


@register("ircnn", recognise=recognise, **FACTS)
def ircnn(*, scale: int, **settings: Any) -> IRCNN:
    """For grey images."""
    return IRCNN(scale=scale, **settings)


@register("ircnn-colour", **FACTS)
def ircnn_colour(*, scale: int, **settings: Any) -> IRCNN:
    """For colour images."""
    defaults: Settings = {"channels": 3}
    return IRCNN(scale=scale, **{**defaults, **settings})
