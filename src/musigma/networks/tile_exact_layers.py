"""Convolutions that round a pixel alike wherever a tile ends, for those that PyTorch does not.

The CPU library behind PyTorch has a direct routine whose sums do not depend on the size of the
image, and others, for what the direct one does not take, whose sums do. Here such convolutions are
put in the direct one's terms, which also makes them faster: 1.5 to 4 times for 9x9.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its name everywhere


class WideConv2d(nn.Conv2d):
    """A convolution that keeps the size and reaches further than 3 pixels.

    The direct routine pads by at most 3; an image that is padded already needs none.
    """

    def forward(self, image: Tensor) -> Tensor:
        """Pad with zeros and convolve."""
        across, down = (d * (k // 2) for d, k in zip(self.dilation, self.kernel_size, strict=True))
        return super().forward(F.pad(image, (down, down, across, across)))


class SubPixelDeconv2d(nn.ConvTranspose2d):
    """A transposed convolution that enlarges exactly by its stride, as sub-pixel convolution.

    Each of ``stride^2`` phases of the result is a convolution of the image with every stride-th
    weight. Elsewhere than on a CPU, and in exported graphs, it is the transposed convolution.
    """

    def forward(self, image: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Enlarge."""
        if image.device.type != "cpu" or torch.compiler.is_compiling() or output_size is not None:
            return super().forward(image, output_size)
        size, scale, padding = self.kernel_size[0], self.stride[0], self.padding[0]
        assert isinstance(padding, int)
        assert self.output_padding[0] == scale + 2 * padding - size
        reach = max(-(-padding // scale), -((padding - size) // scale) - 1)
        # Tap t of phase r meets the pixel j steps away where t = r + padding - scale j.
        before = scale * reach - padding
        after = scale * (2 * reach + 1) - size - before
        taps = F.pad(self.weight, (before, after, before, after))
        num_in, num_out = taps.shape[:2]
        taps = taps.view(num_in, num_out, 2 * reach + 1, scale, 2 * reach + 1, scale)
        taps = taps.flip(2, 4).permute(1, 3, 5, 0, 2, 4).flatten(0, 2)
        bias = None if self.bias is None else self.bias.repeat_interleave(scale**2)
        phases = F.conv2d(F.pad(image, (reach,) * 4), taps, bias)
        return F.pixel_shuffle(phases, scale)
