"""IRCNN's denoiser: seven dilated convolutions that predict the noise, of one level or of many."""

import re
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, Settings
from musigma.networks.denoising.dncnn import plain_stack, stack_shape
from musigma.networks.registry import Recognised, register

DILATIONS = (1, 2, 3, 4, 3, 2, 1)
LEVEL_STEP = 2
"""The first member of a bank is for this noise level, in 8-bit units, the second for twice it."""

MEMBER = re.compile(r"(\d+)\.(model\.\d+\.(?:weight|bias))")


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
        self.feature_receptive_radius = sum(DILATIONS[:-1])
        self.receptive_radius = sum(DILATIONS)
        self.model = plain_stack(channels, channels, width=width, dilations=DILATIONS)

    def features(self, degraded: Tensor) -> Tensor:
        """Return what the last convolution sees."""
        return self.model[:-1](degraded)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Take the predicted noise away from the image."""
        return degraded - self.model[-1](features)


class IRCNNBank(Network):
    """Denoising networks for 25 noise levels, of which the noise map chooses one for each image.

    That is the one for the nearest level: 2, 4, ..., 50. The mean of the map tells the level.

    Args:
        scale: 1.
        channels: 1 for grey images, 3 for colour.
        width: Channels of every layer between the first and the last.
        num_members: Networks.
    """

    def __init__(
        self, *, scale: int, channels: int = 1, width: int = 64, num_members: int = 25
    ) -> None:
        super().__init__()
        self.scale = self.feature_scale = scale
        self.in_channels, self.out_channels = channels + 1, channels
        self.feature_channels = width
        self.feature_receptive_radius = sum(DILATIONS[:-1])
        self.receptive_radius = sum(DILATIONS)
        members = [IRCNN(scale=scale, channels=channels, width=width) for _ in range(num_members)]
        self.num_members = num_members
        states = [member.state_dict() for member in members]
        # One tensor for each layer of all, so that choosing a member is indexing, which compiles.
        joined = [nn.Parameter(torch.cat([state[key] for state in states])) for key in states[0]]
        self.weights = nn.ParameterList(joined[::2])
        self.biases = nn.ParameterList(joined[1::2])

    def members(self, degraded: Tensor) -> Tensor:
        """Return the number of the network that each image goes through, from 0."""
        level = 255 * degraded[:, -1].float().mean((1, 2))
        # Halfway between two, KAIR takes the one for more noise; no rounding error should decide.
        number = (level / LEVEL_STEP + 0.52).floor().long() - 1
        return number.clamp(0, self.num_members - 1)

    def features(self, degraded: Tensor) -> Tensor:
        """Return what the last convolution sees."""
        member, features = self.members(degraded), degraded[:, :-1]
        for number in range(len(DILATIONS) - 1):
            features = F.relu(self._convolve(features, number, member))
        return features

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Take the predicted noise away from the image."""
        return degraded[:, :-1] - self._convolve(
            features, len(DILATIONS) - 1, self.members(degraded)
        )

    def _convolve(self, features: Tensor, number: int, member: Tensor) -> Tensor:
        """Put each image through one layer of its own network: a group of one convolution."""
        weight, bias = (
            torch.unflatten(values[number], 0, (self.num_members, -1))[member].flatten(0, 1)
            for values in (self.weights, self.biases)
        )
        dilation = DILATIONS[number]
        padded = F.pad(features, (dilation,) * 4).flatten(0, 1).unsqueeze(0)
        result = F.conv2d(padded, weight, bias, dilation=dilation, groups=len(features))
        return result.view(len(features), -1, *features.shape[-2:])


def recognise(state: Mapping[str, Tensor]) -> Recognised | None:
    """Tell from its keys whether a state dict is an IRCNN: a plain stack of seven layers."""
    shape = stack_shape(state)
    if shape is None or shape.num_layers != 7 or shape.in_channels != shape.out_channels:
        return None
    return "ircnn" if shape.in_channels == 1 else "ircnn-colour", 1, {"width": shape.width}


def recognise_bank(state: Mapping[str, Tensor]) -> Recognised | None:
    """Tell from its keys whether a state dict holds IRCNNs under numbers, as KAIR's files do."""
    found = [MEMBER.fullmatch(key) for key in state]
    members = {int(each[1]) for each in found if each}
    if not all(found) or members != set(range(len(members))):
        return None
    first = {each[2]: state[each[0]] for each in found if each and each[1] == "0"}
    recognised = recognise(first)
    if recognised is None:
        return None
    name, scale, settings = recognised
    return name.replace("ircnn", "ircnn-bank"), scale, {**settings, "num_members": len(members)}


def adapt_bank(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Join the weights of all members, layer by layer."""
    num_members = len({key.split(".")[0] for key in state})
    return {
        f"{ours}.{number}": torch.cat(
            [state[f"{member}.model.{2 * number}.{theirs}"] for member in range(num_members)]
        )
        for number in range(len(DILATIONS))
        for ours, theirs in (("weights", "weight"), ("biases", "bias"))
    }


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


BANK_FACTS: dict[str, Any] = {**FACTS, "noise_map": True, "adapt": adapt_bank}


@register("ircnn-bank", recognise=recognise_bank, **BANK_FACTS)
def ircnn_bank(*, scale: int, **settings: Any) -> IRCNNBank:
    """For grey images: KAIR's file of all 25."""
    return IRCNNBank(scale=scale, **settings)


@register("ircnn-bank-colour", **BANK_FACTS)
def ircnn_bank_colour(*, scale: int, **settings: Any) -> IRCNNBank:
    """For colour images: KAIR's file of all 25."""
    defaults: Settings = {"channels": 3}
    return IRCNNBank(scale=scale, **{**defaults, **settings})
