"""A network of somebody else as a black box: what it answers, and what a sigma branch sees of it.

Nothing is known of its layers. So the features are made from the input and the answer: the answer
itself, its difference from bicubic enlarging, the slopes of its luma, and the input. The answer is
the first part of the features, moved but not changed. So the mean is the answer to the bit.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, pixel_shuffle, pixel_unshuffle

from musigma.networks.base import BuildSpec, Network, NetworkInfo
from musigma.networks.bicubic_layer import enlarge
from musigma.networks.bounded_build import check_size
from musigma.types import ConfigError

Function = Callable[[Tensor], Tensor]
"""Maps one image, ``(1, 3, H, W)`` float32 in ``[0, 1]`` in host memory, to the enlarged one."""

BLACK_BOX = "black-box"
"""What weights files call it. It is not on the list of networks: it cannot be built from a file."""

MAX_SCALE = 8
GAIN = 8.0
"""Factor on differences and slopes, which are some hundredths: it brings them near 1."""

ANSWER_SIDE = 32
"""Side of the part of an answer to a test picture that is kept, to know the network again."""


class BlackBox(Network):
    """Asks a function for the mean.

    Args:
        function: What is asked; `None` for the skeleton of a network.
        scale: Zoom factor, 1 to 8.
        answer: What the function answers to a test picture, ``(3, 32, 32)``.

    Example:
        >>> network = BlackBox(lambda image: image.repeat_interleave(2, 2).repeat_interleave(2, 3),
        ...                    scale=2)
        >>> network(torch.rand(1, 3, 5, 4)).mean.shape
        torch.Size([1, 3, 10, 8])
    """

    answer: Tensor

    def __init__(
        self, function: Function | None, *, scale: int, answer: Tensor | None = None
    ) -> None:
        super().__init__()
        check_size("scale of a wrapped network", scale, 1)
        if scale > MAX_SCALE:
            raise ConfigError(f"networks that enlarge by {scale} cannot be wrapped; at most by 8")
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution" if scale > 1 else "restoration",
            feature_channels=8 * scale**2 + 3,
            feature_scale=scale,
            feature_receptive_radius=None,
            receptive_radius=None,
            is_black_box=True,
        )
        self.function = function
        kept = torch.zeros(3, ANSWER_SIDE, ANSWER_SIDE) if answer is None else answer
        self.register_buffer("answer", kept)

    @property
    def build_spec(self) -> BuildSpec:
        """Its name and scale; the function itself must be brought along."""
        return BuildSpec(BLACK_BOX, self.scale)

    def __deepcopy__(self, memo: dict[int, Any]) -> "BlackBox":
        # Sessions of other programs cannot be copied, and need not be.
        return BlackBox(self.function, scale=self.scale, answer=self.answer)

    def ask(self, degraded: Tensor) -> Tensor:
        """Return the answers of the function to a batch, one image after the other."""
        if self.function is None:
            raise ConfigError("the wrapped network is missing; give it by `network`")
        answers = [self._ask_one(self.function, image) for image in degraded[:, None]]
        return torch.cat(answers).to(degraded.device)

    def _ask_one(self, function: Function, image: Tensor) -> Tensor:
        answer = function(image.detach().cpu())
        height, width = image.shape[-2:]
        expected = (1, 3, height * self.scale, width * self.scale)
        if tuple(answer.shape) != expected:
            raise ConfigError(
                f"the wrapped network answered a picture of {width} x {height} pixels by the shape "
                f"{tuple(answer.shape)}; expected {expected}"
            )
        return answer

    def features(self, degraded: Tensor) -> Tensor:
        """Return the answer and what is computed from it, all in the size of the input."""
        return black_box_features(degraded, self.ask(degraded), self.scale)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:  # noqa: ARG002
        """Return the answer, which is the first part of the features."""
        return pixel_shuffle(features[:, : 3 * self.scale**2], self.scale)


def black_box_features(degraded: Tensor, mean: Tensor, scale: int) -> Tensor:
    """Return what a sigma branch sees, ``(N, 8 scale^2 + 3, H, W)``.

    Args:
        degraded: The input, ``(N, 3, H, W)``.
        mean: The answer of the network, ``(N, 3, scale H, scale W)``.
        scale: Zoom factor.

    Example:
        >>> black_box_features(torch.rand(1, 3, 5, 4), torch.rand(1, 3, 10, 8), 2).shape
        torch.Size([1, 35, 5, 4])
    """
    difference = GAIN * (mean - enlarge(degraded, scale))
    parts = (mean, difference, GAIN * _slopes(mean))
    return torch.cat([*(pixel_unshuffle(part, scale) for part in parts), degraded], dim=1)


def _slopes(image: Tensor) -> Tensor:
    """Return how much the mean of the colors changes to the next pixel, across and down."""
    gray = image.mean(1, keepdim=True)
    across = pad(gray.diff(dim=3).abs(), (0, 1, 0, 0))
    down = pad(gray.diff(dim=2).abs(), (0, 0, 0, 1))
    return torch.cat([across, down], dim=1)
