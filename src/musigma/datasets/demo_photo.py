"""A picture that is always there: the public-domain portrait that matplotlib carries."""

from pathlib import Path
from typing import Any

from torch import Tensor

from musigma.images.image_io import read_image


def portrait() -> Tensor:
    """Return the portrait of Grace Hopper, ``(1, 3, 600, 512)``."""
    from matplotlib import cbook

    path: Any = cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)
    return read_image(Path(path))[0]
