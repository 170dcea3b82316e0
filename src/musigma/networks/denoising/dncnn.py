"""DnCNN: a plain stack of convolutions that predicts the noise."""

import re
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    Recognised,
    State,
    fold_batch_norm,
    recogniser,
    require,
    shape,
)
from musigma.networks.tile_exact_layers import WideConv2d

NAME = re.compile(r"(model|dncnn)\.\d+\.\w+")
EPSILON_OF_AUTHORS = 1e-4
"""What the batch norms of the authors' code (DnCNN's own, and KAIR) add to the variance."""

EPSILON_OF_PYTORCH = 1e-5
"""What batch norms add by default, as in SaoYan/DnCNN-PyTorch."""

PUBLISHED_DEPTHS = (17, 20)
"""Layers of the released weights: 17 for one noise level, 20 for any."""

KNOWN_BIASES = (
    ("model", True, {True}),  # KAIR
    ("dncnn", True, {False}),  # DnCNN's own
    ("dncnn", False, {False}),  # SaoYan/DnCNN-PyTorch
)
"""Name of the stack, and whether its first and its other convolutions have biases, by origin."""


def plain_stack(
    in_channels: int, out_channels: int, *, width: int, dilations: Sequence[int]
) -> nn.Sequential:
    """3x3 convolutions, one for each dilation, with a ReLU after each but the last."""
    layers: list[nn.Module] = []
    for dilation in dilations[:-1]:
        layer = _conv(in_channels, width, dilation)
        # Keeps the variance through a stack without shortcuts (He et al. 2015).
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        layers += [layer, nn.ReLU(inplace=True)]
        in_channels = width
    return nn.Sequential(*layers, _conv(width, out_channels, dilations[-1]))


def _conv(in_channels: int, out_channels: int, dilation: int) -> nn.Conv2d:
    if dilation > 3:
        return WideConv2d(in_channels, out_channels, kernel_size=3, dilation=dilation)
    return nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=dilation, dilation=dilation)


class StackShape(NamedTuple):
    """Sizes of a `plain_stack` called ``model``, as the keys and shapes of a state dict tell."""

    num_layers: int
    width: int
    in_channels: int
    out_channels: int


def stack_shape(state: State) -> StackShape:
    """Return the sizes of the stack that a state dict holds, if it holds nothing else."""
    num_layers = len(state) // 2
    names = {f"model.{2 * n}.{part}" for n in range(num_layers) for part in ("weight", "bias")}
    require(num_layers >= 2 and names == state.keys())
    width, in_channels = shape(state, "model.0.weight", 4)[:2]
    out_channels = shape(state, f"model.{2 * num_layers - 2}.weight", 4)[0]
    return StackShape(num_layers, width, in_channels, out_channels)


class DnCNN(Network):
    """Denoising network without a noise map; names are those of KAIR, whose batch norms are folded.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
        num_layers: Convolutions, the first and the last included.
        width: Channels of every layer between.
    """

    def __init__(
        self, *, scale: int, channels: int = 1, num_layers: int = 17, width: int = 64
    ) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="denoising",
            in_channels=channels,
            out_channels=channels,
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=num_layers - 1,
            receptive_radius=num_layers,
        )
        self.model = plain_stack(channels, channels, width=width, dilations=(1,) * num_layers)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution."""
        return self.model[:-1](degraded)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Subtract the predicted noise from the image."""
        return degraded - self.model[-1](features)


def fold(state: State) -> dict[str, Tensor]:
    """Fold batch norms into the convolutions before them, and number the layers as without them.

    Weights trained with KAIR keep their batch norms, which its released files do not have; other
    implementations call the stack ``dncnn`` and have no biases.
    """
    folded: dict[str, Tensor] = {}
    layers = [key for key, value in state.items() if NAME.fullmatch(key) and value.ndim == 4]
    used = set()
    epsilon = _epsilon(state, layers)
    for number, key in enumerate(layers):
        stack, index = key.split(".")[:2]
        conv, norm = f"{stack}.{index}", f"{stack}.{int(index) + 1}"
        weight, bias = fold_batch_norm(state, conv, norm, epsilon=epsilon)
        folded |= {f"model.{2 * number}.weight": weight, f"model.{2 * number}.bias": bias}
        used |= {conv, norm} if f"{norm}.running_var" in state else {conv}
    _check_whole(state, used)
    return folded


def adapt(state: State) -> dict[str, Tensor]:
    """Fold the batch norms, and say so where the file does not tell what they add to the variance.

    Such a file has batch norms, and other biases than those of the three known origins.
    """
    folded = fold(state)
    layers = [key for key, value in state.items() if NAME.fullmatch(key) and value.ndim == 4]
    biases = [key.removesuffix("weight") + "bias" in state for key in layers]
    stack, first, others = layers[0].split(".")[0], biases[0], set(biases[1:])
    is_known = (stack, first, others) in KNOWN_BIASES
    if not is_known and any(key.endswith("running_var") for key in state):
        warnings.warn(
            "the file does not tell what the batch norms of this DnCNN add to the variance; "
            f"{_epsilon(state, layers):g} is taken, and results differ a little if it was another "
            "number",
            stacklevel=2,
        )
    return folded


def _epsilon(state: State, layers: Sequence[str]) -> float:
    """Tell from the first convolution who trained: with the authors' code it has a bias."""
    has_bias = bool(layers) and layers[0].removesuffix("weight") + "bias" in state
    return EPSILON_OF_AUTHORS if has_bias else EPSILON_OF_PYTORCH


def _check_whole(state: State, used: set[str]) -> None:
    """Refuse a stack of which a part is missing: a weight without its bias, or the other way."""
    require(all(key.rpartition(".")[0] in used for key in state if NAME.fullmatch(key)))
    bare = [name for name in used if f"{name}.running_var" not in state]
    has_bias = [f"{name}.bias" in state for name in bare]
    normed = any(key.endswith("running_var") for key in state)
    require(normed or all(has_bias) or not any(has_bias))


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is a DnCNN; a stack of seven layers is an IRCNN.

    Any stack of convolutions could be called ``model``, so a published depth is required.
    """
    require(all(NAME.fullmatch(key) for key in state))
    is_named = all(key.startswith("dncnn.") for key in state)
    stack = stack_shape(fold(state))
    require(stack.num_layers in PUBLISHED_DEPTHS or (is_named and stack.num_layers > 2))
    require(stack.in_channels == stack.out_channels in (1, 3))
    name = "dncnn" if stack.in_channels == 1 else "dncnn-colour"
    return name, 1, {"num_layers": stack.num_layers, "width": stack.width}


register_variants(
    DnCNN,
    {
        "dncnn": Variant("17 layers for gray images; released weights are for one noise level."),
        "dncnn-colour": Variant(
            "20 layers for color images; released weights are for any noise level.",
            {"channels": 3, "num_layers": 20},
        ),
    },
    scales=(1,),
    paper="Zhang et al., Beyond a Gaussian Denoiser: Residual Learning of Deep CNN for Image "
    "Denoising, TIP 2017",
    year=2017,
    recognise=recognise,
    adapt=adapt,
)
