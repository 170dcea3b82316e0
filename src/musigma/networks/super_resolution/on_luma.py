"""Networks that restore the luma alone; the chroma is enlarged by bicubic interpolation.

Networks of the first years were published on luma, and so are nearly all of their released files.
"""

from dataclasses import replace

from torch import Tensor

from musigma.functional.color import rgb_to_y
from musigma.networks.base import Network
from musigma.networks.bicubic_layer import enlarge, radius_before_enlarging

COLOR_PER_LUMA = 255 / 219
"""With constant chroma, a change of luma changes all three colors by this factor: luma from black
to white spans 219 of 255 levels."""


class OnLuma(Network):
    """Turns a network for one channel into one that takes RGB and restores its luma.

    It comes before that network in the list of base classes, as in ``class SRCNNY(OnLuma, SRCNN)``.
    So the names of the weights stay those of the network. The luma of the input is not rounded, and
    neither is its enlarged form, as in the published evaluations.
    """

    def features(self, degraded: Tensor) -> Tensor:
        """Return the features of the luma."""
        return super().features(rgb_to_y(degraded))  # type: ignore[safe-super]

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Return the enlarged image with the luma of the network."""
        luma = rgb_to_y(degraded)
        restored = super().reconstruct(features, luma)  # type: ignore[safe-super]
        change = restored - enlarge(luma, self.scale)
        return enlarge(degraded, self.scale) + change * COLOR_PER_LUMA

    def _take_rgb(self) -> None:
        """Say, at the end of the constructor, that the network takes and gives RGB."""
        radius = self.info.receptive_radius
        assert radius is not None
        self.info = replace(
            self.info,
            in_channels=3,
            out_channels=3,
            luma_only=True,
            receptive_radius=max(radius, radius_before_enlarging(0, self.scale)),
        )
