"""RIDNet: four blocks of dilated convolutions whose channels are weighted by global attention."""

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from musigma.networks.base import Network, NetworkInfo
from musigma.networks.layers import RGB_MEAN, MeanShift, conv3x3
from musigma.networks.registry import Variant, register_variants
from musigma.networks.state_dict import (
    RELEASED_RANGE,
    Recognised,
    State,
    quotient,
    recogniser,
    require,
    shape,
    stored_range,
    without_mean_shift,
)


def dilated(width: int, dilation: int) -> nn.Conv2d:
    """A 3x3 convolution that keeps the size."""
    return nn.Conv2d(width, width, kernel_size=3, padding=dilation, dilation=dilation)


class MergeAndRun(nn.Module):
    """Two branches of different dilations, merged by a convolution and added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()

        def branch(first: int, second: int) -> nn.Sequential:
            layers = (dilated(width, first), nn.ReLU(), dilated(width, second), nn.ReLU())
            return nn.Sequential(*layers)

        self.body1 = branch(1, 2)
        self.body2 = branch(3, 4)
        self.body3 = nn.Sequential(conv3x3(2 * width, width), nn.ReLU())

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        branches = torch.cat([self.body1(features), self.body2(features)], dim=1)
        return features + self.body3(branches)


class ResidualBlock(nn.Module):
    """Convolutions added to the input, then a ReLU; the longer form ends in a 1x1 convolution."""

    def __init__(self, width: int, *, longer: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv3x3(width, width), nn.ReLU(), conv3x3(width, width)]
        if longer:
            layers += [nn.ReLU(), nn.Conv2d(width, width, kernel_size=1)]
        self.body = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        """Refine the features."""
        return relu(features + self.body(features))


class Activated(nn.Module):
    """A convolution and its activation, under the name of the official release."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        """Apply the layers."""
        return self.body(features)


class FeatureAttention(nn.Module):
    """Weights each channel by a small network of the means of all of them."""

    def __init__(self, width: int, reduction: int) -> None:
        super().__init__()
        inner = max(width // reduction, 1)
        self.c1 = Activated(nn.Conv2d(width, inner, kernel_size=1), nn.ReLU())
        self.c2 = Activated(nn.Conv2d(inner, width, kernel_size=1), nn.Sigmoid())

    def forward(self, features: Tensor) -> Tensor:
        """Rescale the channels."""
        return features * self.c2(self.c1(features.mean((-2, -1), keepdim=True)))


class EnhancementAttention(nn.Sequential):
    """Merge-and-run, two residual blocks and feature attention, one after the other."""

    def __init__(self, width: int, reduction: int) -> None:
        super().__init__()
        self.r1 = MergeAndRun(width)
        self.r2 = ResidualBlock(width, longer=False)
        self.r3 = ResidualBlock(width, longer=True)
        self.ca = FeatureAttention(width, reduction)


class RIDNet(Network):
    """Real image denoising network, without a noise map; names are those of the official release.

    The official code adds the mean color to the predicted noise. Released weights have learned to
    cancel it, and networks trained here start with a bias that cancels it.

    Args:
        scale: 1.
        channels: 1 for gray images, 3 for color.
        width: Channels of every block.
        reduction: Width over the channels inside the attention.
        value_range: Range the layers work in. Official weights expect 255.
    """

    def __init__(
        self,
        *,
        scale: int,
        channels: int = 3,
        width: int = 64,
        reduction: int = 16,
        value_range: float = 1.0,
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
        )
        mean = RGB_MEAN if channels == 3 else (0.5,)
        self.shift = MeanShift(value_range=value_range, mean=mean)
        self.head = Activated(conv3x3(channels, width), nn.ReLU())
        self.b1 = EnhancementAttention(width, reduction)
        self.b2 = EnhancementAttention(width, reduction)
        self.b3 = EnhancementAttention(width, reduction)
        self.b4 = EnhancementAttention(width, reduction)
        self.tail = conv3x3(width, channels)
        with torch.no_grad():
            assert self.tail.bias is not None
            self.tail.bias.copy_(-value_range * torch.tensor(mean))

    def features(self, degraded: Tensor) -> Tensor:
        """Return the input of the last convolution."""
        features = self.head(self.shift(degraded))
        return self.b4(self.b3(self.b2(self.b1(features))))

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Add the predicted residual to the image."""
        return degraded + self.shift.inverse(self.tail(features))


@recogniser
def recognise(state: State) -> Recognised:
    """Tell whether a state dict is a RIDNet; official ones work in 0..255."""
    for key in ("head.body.0.weight", "b4.r3.body.4.weight"):
        shape(state, key, 4)
    inner, width = shape(state, "b1.ca.c1.body.0.weight", 4)[:2]
    channels = shape(state, "tail.weight", 4)[0]
    require(channels in (1, 3))
    settings = {
        "width": width,
        "reduction": quotient(width, inner),
        "value_range": stored_range(state) or RELEASED_RANGE,
    }
    return "ridnet" if channels == 3 else "ridnet-grey", 1, settings


register_variants(
    RIDNet,
    {
        "ridnet": Variant("For color images."),
        "ridnet-grey": Variant("For gray images.", {"channels": 1}),
    },
    scales=(1,),
    paper="Anwar and Barnes, Real Image Denoising with Feature Attention, ICCV 2019",
    year=2019,
    recognise=recognise,
    adapt=without_mean_shift,
)
