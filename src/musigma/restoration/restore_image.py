"""From an image to its restored form, in strips, as the options of a restoration ask for it."""

from musigma.functional.equal_channels import gray_if_equal
from musigma.model import Model
from musigma.prediction.engines import Engine
from musigma.prediction.predict import Image, Progress, Strips, predict_strips
from musigma.restoration.options import Options
from musigma.types import ConfigError


def restore_image(
    model: Model,
    image: Image,
    options: Options,
    *,
    engine: Engine | None = None,
    stacked: int = 1,
    progress: Progress | None = None,
) -> Strips:
    """Return a restored image in strips; the network gets the noise level if it takes one.

    The image may be some small ones, `stacked` one below the other, as for `predict_strips`.

    An image whose red, green and blue are equal is restored as the gray image that it is, so that
    it gets no tint. A wrapped network gets the image as it is.
    """
    if model.takes_noise_level and options.noise_std is None:
        raise ConfigError(f"{model.name} needs the noise level; give `noise_std`")
    seen = image if model.network.info.is_black_box else gray_if_equal(image)
    return predict_strips(
        model.network,
        seen,
        num_channels=None if seen is image else image.shape[1],
        noise_std=options.noise_std if model.takes_noise_level else None,
        engine=engine,
        tile=options.tile,
        stacked=stacked,
        memory=options.memory,
        progress=progress,
    )
