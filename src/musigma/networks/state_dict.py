"""Safe questions to a state dict of unknown origin, for recognizing and adapting released files.

A released file may hold anything. These functions raise `NotThisNetwork` where a tensor is missing
or has another rank; `recogniser` turns that into "not recognized". So a recogniser can be written
as a plain description of the network, and none of them fails on a file of another network.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping

from torch import Tensor

from musigma.networks.base import Settings
from musigma.networks.layers import RGB_MEAN

State = Mapping[str, Tensor]
Recognised = tuple[str, int | None, Settings]
"""Name, scale (`None` where one file is for every scale) and settings of a released file."""

Recogniser = Callable[[State], Recognised | None]

MEAN_SHIFT = ("sub_mean.", "add_mean.")
"""Names of the 1x1 convolutions in which EDSR and its descendants keep the mean color."""

RELEASED_RANGE = 255.0
"""Range that most released networks work in; those trained here work in 0 to 1."""


class NotThisNetwork(Exception):  # noqa: N818 - an answer, not an error
    """The state dict is not of the network that was looked for."""


def recogniser(function: Callable[[State], Recognised]) -> Recogniser:
    """Make a function that describes a network return `None` for state dicts of other networks.

    Example:
        >>> @recogniser
        ... def recognise(state):
        ...     width, channels = shape(state, "head.weight", 4)[:2]
        ...     return "mine", 1, {"width": width}
        >>> recognise({}) is None
        True
    """

    @functools.wraps(function)
    def recognise(state: State) -> Recognised | None:
        try:
            return function(state)
        except NotThisNetwork:
            return None

    return recognise


def require(condition: bool) -> None:
    """Go on only if the condition holds."""
    if not condition:
        raise NotThisNetwork


def has(state: State, *keys: str) -> bool:
    """Say whether all keys are there."""
    return all(key in state for key in keys)


def tensor(state: State, key: str) -> Tensor:
    """Return a tensor that must be there."""
    if key not in state:
        raise NotThisNetwork
    return state[key]


def shape(state: State, key: str, rank: int) -> tuple[int, ...]:
    """Return the shape of a tensor that must be there and have this rank, without empty sides.

    Example:
        >>> import torch
        >>> shape({"conv.weight": torch.zeros(8, 3, 5, 5)}, "conv.weight", 4)
        (8, 3, 5, 5)
    """
    sides = tuple(tensor(state, key).shape)
    require(len(sides) == rank and 0 not in sides)
    return sides


def count(state: State, pattern: str) -> int:
    r"""Count the keys that a regular expression matches as a whole.

    Example:
        >>> count({"body.0.weight": None, "body.10.weight": None}, r"body\.\d+\.weight")
        2
    """
    return sum(re.fullmatch(pattern, key) is not None for key in state)


def quotient(whole: int, part: int) -> int:
    """Divide sizes; a result below 1 cannot be a size."""
    require(0 < part <= whole)
    return whole // part


def pixel_shuffle_factor(num_channels: int, num_shuffled: int) -> int:
    """Return the factor by which a pixel shuffle enlarges, from the channels before and after.

    Example:
        >>> pixel_shuffle_factor(27, 3)
        3
    """
    factor = math.isqrt(quotient(num_channels, num_shuffled))
    require(num_shuffled * factor**2 == num_channels)
    return factor


def upsampler_scale(state: State, stem: str, width: int) -> int:
    """Return the scale of a `pixel_shuffle_upsampler`, such as that called ``tail.0``."""
    num_steps = count(state, re.escape(stem) + r"\.\d+\.weight")
    if num_steps == 0:
        return 1
    return pixel_shuffle_factor(shape(state, f"{stem}.0.weight", 4)[0], width) ** num_steps


def without(state: State, *prefixes: str) -> dict[str, Tensor]:
    """Leave out the keys that begin with any of the prefixes."""
    return {key: value for key, value in state.items() if not key.startswith(prefixes)}


def rename(state: State, names: Mapping[str, str]) -> dict[str, Tensor]:
    """Give layers other names; those that are not named keep theirs.

    Two layers that would get one name are none of the network, since one would be lost.

    Example:
        >>> list(rename({"map.0.bias": None, "b.bias": None}, {"map.0": "conv2"}))
        ['conv2.bias', 'b.bias']
    """
    renamed = {}
    for key, value in state.items():
        layer, _, part = key.rpartition(".")
        renamed[f"{names[layer]}.{part}" if layer in names else key] = value
    require(len(renamed) == len(state))
    return renamed


def without_mean_shift(state: State) -> dict[str, Tensor]:
    """Leave out the mean color, which is not a weight here."""
    return without(state, *MEAN_SHIFT)


def stored_range(state: State) -> float | None:
    """Return the value range that the mean shift of a released file tells, if it holds one.

    Example:
        >>> import torch
        >>> stored_range({"sub_mean.bias": -255 * torch.tensor([0.4488, 0.4371, 0.4040])})
        255.0
    """
    bias = state.get("sub_mean.bias")
    if bias is None or bias.numel() == 0 or bias.is_meta:
        return None
    value_range = abs(float(bias.flatten()[0])) / RGB_MEAN[0]
    known = [
        known for known in (1.0, RELEASED_RANGE) if math.isclose(known, value_range, rel_tol=0.2)
    ]
    return known[0] if known else None


def fold_batch_norm(
    state: State, conv: str, norm: str | None, *, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a convolution that does what it and its batch norm do.

    Args:
        state: Where both are.
        conv: Name of the convolution, which may have no bias.
        norm: Name of the batch norm after it; it may be missing.
        epsilon: What the batch norm adds to the variance.
    """
    weight = tensor(state, f"{conv}.weight")
    bias = state.get(f"{conv}.bias", weight.new_zeros(len(weight)))
    require(bias.shape == weight.shape[:1])
    if norm is None or f"{norm}.running_var" not in state:
        return weight, bias
    parts = [tensor(state, f"{norm}.{name}") for name in ("weight", "bias")]
    parts += [tensor(state, f"{norm}.running_{name}") for name in ("mean", "var")]
    require(all(part.shape == bias.shape for part in parts))
    gain, offset, mean, variance = parts
    factor = gain / (variance + epsilon).sqrt()
    return weight * factor.view(-1, 1, 1, 1), (bias - mean) * factor + offset
