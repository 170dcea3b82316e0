"""The other stages of a chain, other sizes, JPEG and rounding; and all of them by name."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from musigma.degradations.base import Degradation
from musigma.degradations.blur_stages import Blur, MotionBlur, Sharpen
from musigma.degradations.noise_stages import Noise, PoissonNoise, RawNoise
from musigma.degradations.smoothing_stages import Bilateral, Wiener
from musigma.degradations.stage import Parameter, Stage, as_bool
from musigma.degradations.values import Amount
from musigma.functional import shrink as shrinks
from musigma.functional.color import quantise, to_uint8
from musigma.functional.geometry import windows
from musigma.functional.jpeg import BLOCK, jpeg
from musigma.functional.resample import resample
from musigma.functional.resize import bicubic_down


class Shrink(Degradation):
    """Shrinking by one of the ways of `musigma.functional.shrink`, in float, not rounded.

    Args:
        method: Name of the way, which is also the text form.
        scale: How many times smaller the result is.

    Example:
        >>> area = Shrink("area", 2)
        >>> str(area), area(torch.rand(1, 3, 12, 10), torch.rand(1, 0)).shape
        ('area', torch.Size([1, 3, 6, 5]))
    """

    def __init__(self, method: str, scale: int) -> None:
        self.method, self.scale = method, scale
        self.filter_radius = shrinks.filter_radius(method, scale)

    def __call__(
        self,
        target: Tensor,
        draws: Tensor,  # noqa: ARG002
        generator: torch.Generator | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Shrink all images alike."""
        device, dtype = target.device, target.dtype
        rows, columns = (
            shrinks.shrink_matrices((self.method,), side, self.scale, device, dtype)[0]
            for side in target.shape[-2:]
        )
        return shrinks.shrink(target, rows, columns)

    def __str__(self) -> str:
        """The name of the way."""
        return self.method


class Resample(Stage):
    """Shrinking and enlarging again, which leaves a soft image of the same size.

    So it goes to pictures that were made smaller and larger again by programs; those that were
    turned or straightened lose as much.

    Args:
        share: Of each side that is left in between, in pixels that are rounded.
        support: Of the kernel: 1 for bilinear, 2 for bicubic, as Pillow's.

    Example:
        >>> str(Resample((0.6, 0.95), support=1))
        'resample(0.6..0.95, support=1)'
    """

    name = "resample"
    parameters = (
        Parameter("share", 0.1, 1, required=True),
        Parameter("support", 1, 2, default=2, allowed=(1, 2)),
    )

    def __init__(self, share: Amount, *, support: Amount = 2) -> None:
        super().__init__(share=share, support=support)
        self.filter_radius = math.ceil(2 * self.values["support"].high / self.values["share"].low)

    def apply(
        self,
        target: Tensor,
        drawn: Mapping[str, Tensor],
        generator: torch.Generator | None,  # noqa: ARG002
    ) -> Tensor:
        """Resample each image by its share."""
        most = self.values["share"].high
        return resample(target, share=drawn["share"], support=drawn["support"], most=most)


class Bicubic(Degradation):
    """The published benchmark input, bit for bit: MATLAB's imresize in 8 bits, `bicubic_down`.

    Args:
        scale: How many times smaller the result is.

    Example:
        >>> Bicubic(2)(torch.rand(1, 3, 12, 10), torch.rand(1, 0)).shape
        torch.Size([1, 3, 6, 5])
    """

    def __init__(self, scale: int) -> None:
        self.scale = scale
        self.filter_radius = shrinks.filter_radius("bicubic", scale)

    def __call__(
        self,
        target: Tensor,
        draws: Tensor,  # noqa: ARG002
        generator: torch.Generator | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Shrink all images alike."""
        if torch.compiler.is_compiling():
            return _bicubic_by_matrices(target, self.scale)
        return bicubic_down(target, self.scale)

    def __str__(self) -> str:
        """The text that gives it where it is all there is."""
        return "bicubic"


class Jpeg(Stage):
    """Saving as JPEG and reading again; the result is on 8-bit levels.

    Args:
        quality: libjpeg's, 1 to 100; drawn numbers are rounded.
        subsampling: 420 where the color planes are stored at half the size, 444 where in full.
        left: Columns of the first blocks that were cut off after saving; drawn numbers are rounded.
        top: Rows of the first blocks that were cut off after saving.

    Example:
        >>> str(Jpeg((30, 95), subsampling=444))
        'jpeg(30..95, subsampling=444)'
    """

    name = "jpeg"
    parameters = (
        Parameter("quality", 1, 100, required=True),
        Parameter("subsampling", 420, 444, default=420, allowed=(420, 444)),
        Parameter("left", 0, BLOCK - 1),
        Parameter("top", 0, BLOCK - 1),
    )
    block = BLOCK

    def __init__(
        self,
        quality: Amount,
        *,
        subsampling: Amount = 420,
        left: Amount | None = None,
        top: Amount | None = None,
    ) -> None:
        super().__init__(quality=quality, subsampling=subsampling, left=left, top=top)

    def apply(
        self,
        target: Tensor,
        drawn: Mapping[str, Tensor],
        generator: torch.Generator | None,  # noqa: ARG002
    ) -> Tensor:
        """Code each image with its quality."""
        half = as_bool(self.values["subsampling"], drawn["subsampling"], 420)
        settings = {"quality": drawn["quality"], "subsampling": half}
        if not {"left", "top"} & drawn.keys():
            return jpeg(target, **settings)
        none = torch.zeros_like(drawn["quality"])
        left, top = (drawn.get(name, none).round().long() for name in ("left", "top"))
        height, width = target.shape[-2:]
        larger = (height + BLOCK - 1, width + BLOCK - 1)
        saved = jpeg(windows(target, left=-left, top=-top, size=larger), **settings)
        return windows(saved, left=left, top=top, size=(height, width))


class Round(Stage):
    """Clipping to ``[0, 1]`` and rounding to 8-bit levels, as a file does it.

    Example:
        >>> Round()(torch.tensor([[[[0.3, 1.2]]]]), torch.rand(1, 0)) * 255
        tensor([[[[ 77., 255.]]]])
    """

    name = "round"

    def __init__(self) -> None:
        super().__init__()

    def apply(
        self,
        target: Tensor,
        drawn: Mapping[str, Tensor],  # noqa: ARG002
        generator: torch.Generator | None,  # noqa: ARG002
    ) -> Tensor:
        """Round all images alike."""
        return quantise(target)


STAGES: dict[str, type[Stage]] = {
    stage.name: stage
    for stage in (
        *(Blur, MotionBlur, Sharpen),
        *(Noise, PoissonNoise, RawNoise),
        *(Bilateral, Wiener),
        *(Resample, Jpeg, Round),
    )
}
"""Stages by the name in the text form; ways of shrinking have their own."""


def _bicubic_by_matrices(image: Tensor, scale: int) -> Tensor:
    """Do to the bit what `bicubic_down` does, of which a compiler cannot trace the weights."""
    device, dtype = image.device, torch.float64
    rows, columns = (
        shrinks.shrink_matrices(("bicubic",), side, scale, device, dtype)[0]
        for side in image.shape[-2:]
    )
    work = (rows @ to_uint8(image).to(dtype) + 0.5).floor().clamp(0, 255)
    work = (work @ columns.T + 0.5).floor().clamp(0, 255)
    return work.to(image.dtype) / 255
