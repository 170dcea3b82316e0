"""The x8 self-ensemble: eight views of a tile restored, turned back and averaged."""

from collections.abc import Callable

from torch import Tensor

from musigma.functional.geometry import NUM_DIHEDRAL, dihedral, dihedral_inverse
from musigma.prediction.engines.base import Engine
from musigma.types import Prediction


class SelfEnsemble:
    """An engine that averages another one over the flips and quarter turns of its tiles.

    Means are averaged, and sigmas too: ``|mean_k e_k| <= mean_k |e_k|``, so that the mean of the
    predicted errors still bounds the error of the mean as far as each of them does. A noise map is
    turned with the image. Tiles give what the whole image gives, except for networks with a
    `size_multiple`: they divide a flipped tile into other cells than the flipped image.

    Args:
        engine: What restores each view.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.name = f"{engine.name} x{NUM_DIHEDRAL}"
        self.device, self.batches = engine.device, engine.batches

    def __call__(self, tiles: Tensor) -> Prediction:
        """Restore tiles eight times."""
        return mean_over_views(self.engine, tiles)


def mean_over_views(restore: Callable[[Tensor], Prediction], images: Tensor) -> Prediction:
    """Return mean and sigma, each averaged over the flips and quarter turns of images."""
    sums: list[Tensor] = []
    for k in range(NUM_DIHEDRAL):
        prediction = restore(dihedral(images, k).contiguous())
        parts = [dihedral_inverse(part, k) for part in prediction if part is not None]
        sums = [total + part for total, part in zip(sums, parts, strict=False)] or parts
    return Prediction(*(total / NUM_DIHEDRAL for total in sums))
