"""IRCNN's denoiser: seven dilated convolutions that predict the noise, of one level or of many."""

import re

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.denoising.dncnn import plain_stack, stack_shape
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    NotThisNetwork,
    Recognised,
    State,
    recogniser,
    require,
    tensor,
)

DILATIONS = (1, 2, 3, 4, 3, 2, 1)
LEVEL_STEP = 2
"""Noise level of the first member of a bank, in 8-bit units; the second is for twice this level."""

MEMBER = re.compile(r"(\d+)\.(model\.\d+\.(?:weight|bias))")


class IRCNN(Network):
    """Denoising network for one noise level; parameter names are those of KAIR.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
        width: Channels of every layer between the first and the last.
    """

    def __init__(self, *, scale: int, channels: int = 1, width: int = 64) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="denoising",
            in_channels=channels,
            out_channels=channels,
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=sum(DILATIONS[:-1]),
            receptive_radius=sum(DILATIONS),
        )
        self.model = plain_stack(channels, channels, width=width, dilations=DILATIONS)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution."""
        return self.model[:-1](degraded)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Subtract the predicted noise from the image."""
        return degraded - self.model[-1](features)


class IRCNNBank(Network):
    """Denoising networks for 25 noise levels; the noise map chooses one of them for each image.

    The chosen network is that of the nearest level among 2, 4, ..., 50. The level of an image is
    the mean of its noise map.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
        width: Channels of every layer between the first and the last.
        num_members: Number of networks.
    """

    def __init__(
        self, *, scale: int, channels: int = 1, width: int = 64, num_members: int = 25
    ) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="denoising",
            in_channels=channels + 1,
            out_channels=channels,
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=sum(DILATIONS[:-1]),
            receptive_radius=sum(DILATIONS),
            takes_noise_level=True,
        )
        members = [IRCNN(scale=scale, channels=channels, width=width) for _ in range(num_members)]
        self.num_members = num_members
        weights = [dict(member.named_parameters()) for member in members]
        # One tensor holds a layer of all members, so that choosing one is indexing, which compiles.
        joined = [
            nn.Parameter(torch.cat([parameters[key].detach() for parameters in weights]))
            for key in weights[0]
        ]
        self.weights = nn.ParameterList(joined[::2])
        self.biases = nn.ParameterList(joined[1::2])

    def members(self, degraded: Tensor) -> Tensor:
        """Return the number of the network that each image goes through, from 0."""
        level = 255 * degraded[:, -1].float().mean((1, 2))
        # Halfway between two levels KAIR takes the higher; 0.52 keeps rounding errors out of this.
        number = (level / LEVEL_STEP + 0.52).floor().long() - 1
        return number.clamp(0, self.num_members - 1)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution."""
        member, features = self.members(degraded), degraded[:, :-1]
        for number in range(len(DILATIONS) - 1):
            features = F.relu(self._convolve(features, number, member))
        return features

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Subtract the predicted noise from the image."""
        return degraded[:, :-1] - self._convolve(
            features, len(DILATIONS) - 1, self.members(degraded)
        )

    def _convolve(self, features: Tensor, number: int, member: Tensor) -> Tensor:
        """Put each image through one layer of its own network, as a grouped convolution."""
        weight, bias = (
            torch.unflatten(values[number], 0, (self.num_members, -1))[member].flatten(0, 1)
            for values in (self.weights, self.biases)
        )
        dilation = DILATIONS[number]
        padded = F.pad(features, (dilation,) * 4).flatten(0, 1).unsqueeze(0)
        result = F.conv2d(padded, weight, bias, dilation=dilation, groups=len(features))
        return result.view(len(features), -1, *features.shape[-2:])


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is an IRCNN: a plain stack of seven layers."""
    stack = stack_shape(state)
    require(stack.num_layers == 7 and stack.in_channels == stack.out_channels in (1, 3))
    return "ircnn" if stack.in_channels == 1 else "ircnn-colour", 1, {"width": stack.width}


@recogniser
def recognise_bank(state: State) -> Recognised:
    """Tell whether a state dict holds IRCNNs under numbers, as KAIR's files do."""
    matches = [match for match in map(MEMBER.fullmatch, state) if match]
    members = {int(match[1]) for match in matches}
    require(len(matches) == len(state) and members == set(range(len(members))))
    first = recognise({match[2]: state[match[0]] for match in matches if match[1] == "0"})
    if first is None:
        raise NotThisNetwork
    name, scale, settings = first
    return name.replace("ircnn", "ircnn-bank"), scale, {**settings, "num_members": len(members)}


def adapt_bank(state: State) -> dict[str, Tensor]:
    """Join the weights of all members, layer by layer."""
    num_members = len({key.split(".")[0] for key in state})
    joined = {}
    for number in range(len(DILATIONS)):
        for ours, theirs in (("weights", "weight"), ("biases", "bias")):
            parts = [
                tensor(state, f"{member}.model.{2 * number}.{theirs}")
                for member in range(num_members)
            ]
            require(all(part.shape == parts[0].shape and part.ndim > 0 for part in parts))
            joined[f"{ours}.{number}"] = torch.cat(parts)
    return joined


PAPER = "Zhang et al., Learning Deep CNN Denoiser Prior for Image Restoration, CVPR 2017"

register_variants(
    IRCNN,
    {
        "ircnn": Variant("For gray images of one noise level."),
        "ircnn-colour": Variant("For color images of one noise level.", {"channels": 3}),
    },
    scales=(1,),
    paper=PAPER,
    year=2017,
    recognise=recognise,
)
register_variants(
    IRCNNBank,
    {
        "ircnn-bank": Variant("For gray images: all 25 networks of KAIR's file."),
        "ircnn-bank-colour": Variant(
            "For color images: all 25 networks of KAIR's file.", {"channels": 3}
        ),
    },
    scales=(1,),
    paper=PAPER,
    year=2017,
    recognise=recognise_bank,
    adapt=adapt_bank,
)
