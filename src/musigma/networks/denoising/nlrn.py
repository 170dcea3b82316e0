"""NLRN: one residual block run twelve times, each time with attention over a window."""

import torch
import torch.nn.functional as F  # noqa: N812 - the name that the field uses
from torch import Tensor, nn

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import conv3x3
from musigma.networks.registry import Variant, register_variants
from musigma.networks.super_resolution.swinir import from_windows, pad_by_mirror, to_windows


class Scale(nn.Module):
    """A factor and an offset for each channel: batch normalization as it is after training."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, 1, 1))
        self.bias = nn.Parameter(torch.zeros(width, 1, 1))

    def forward(self, features: Tensor) -> Tensor:
        """Scale the channels."""
        return features * self.weight + self.bias


class Norms(nn.Module):
    """The normalizations that one step does not share with the others."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between, self.after = (Scale(width) for _ in range(3))


class NLRN(Network):
    """Non-local recurrent network, without a noise map.

    All steps share the convolutions; each has batch norms of its own, here in the form they have
    after training. The similarities of positions add up from step to step. They are never stored:
    a sum of products of queries and keys is one product of all queries and keys side by side.

    The paper compares a position with the 45x45 positions around it, the official code with all
    positions of a 45x45 crop that moves over the image; here windows of that size lie side by side.
    The official weights are TensorFlow files, which cannot be read here.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
        width: Channels; queries and keys have half as many.
        num_steps: How many times the block is run.
        window: Side of the windows.
    """

    def __init__(
        self,
        *,
        scale: int,
        channels: int = 1,
        width: int = 128,
        num_steps: int = 12,
        window: int = 45,
    ) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="denoising",
            in_channels=channels,
            out_channels=channels,
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=None,
            receptive_radius=None,
            size_multiple=window,
            # The pairs of a window, three times; queries and keys of all steps, twice.
            activation_floats_per_pixel=3 * window**2 + (2 * num_steps + 15) * width,
        )
        self.window = window
        self.head = nn.Sequential(Scale(channels), conv3x3(channels, width))
        self.theta = nn.Conv2d(width, width // 2, kernel_size=1)
        self.phi = nn.Conv2d(width, width // 2, kernel_size=1)
        self.g = nn.Conv2d(width, width, kernel_size=1)
        # The official code starts from 0, where no gradient reaches queries and keys.
        nn.init.normal_(self.g.weight, std=0.01)
        self.norms = nn.ModuleList(Norms(width) for _ in range(num_steps))
        self.first, self.second = conv3x3(width, width), conv3x3(width, width)
        self.last = Scale(width)
        self.tail = conv3x3(width, channels)

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution, with the padding."""
        start = features = self.head(pad_by_mirror(degraded, multiple=self.window))
        query, key = [], []
        for norms in self.norms:
            assert isinstance(norms, Norms)
            seen = F.relu(norms.before(features))
            query.append(self._tokens(self.theta(seen)))
            key.append(self._tokens(self.phi(seen)))
            seen = seen + self._attend(torch.cat(query, -1), torch.cat(key, -1), self.g(seen))
            features = start + self.second(F.relu(norms.after(self.first(norms.between(seen)))))
        return F.relu(self.last(features))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Add the predicted residual to the image."""
        height, width = degraded.shape[-2:]
        return degraded + self.tail(features)[..., :height, :width]

    def _attend(self, query: Tensor, key: Tensor, values: Tensor) -> Tensor:
        """Replace each position by a mean over its window, weighted by similarity."""
        height, width = values.shape[-2:]
        mixed = F.scaled_dot_product_attention(
            query.unsqueeze(1), key.unsqueeze(1), self._tokens(values).unsqueeze(1), scale=1.0
        )
        # The copy keeps the memory layout of this machine's kernel out of exported graphs.
        mixed = mixed.squeeze(1).clone(memory_format=torch.contiguous_format)
        return from_windows(mixed, self.window, height, width).permute(0, 3, 1, 2)

    def _tokens(self, features: Tensor) -> Tensor:
        return to_windows(features.permute(0, 2, 3, 1), self.window)


register_variants(
    NLRN,
    {
        "nlrn": Variant("For gray images."),
        "nlrn-colour": Variant("For color images.", {"channels": 3}),
    },
    scales=(1,),
    paper="Liu et al., Non-Local Recurrent Network for Image Restoration, NeurIPS 2018",
    year=2018,
)
