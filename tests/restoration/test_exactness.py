"""Whether a result is what the network gives for the whole picture is told truly."""

from pathlib import Path

import pytest
import torch

from helpers.networks import build
from musigma.images.image_io import write_image
from musigma.images.listing import ImageSource
from musigma.model import Model
from musigma.prediction.engines import TorchEngine
from musigma.restoration.options import Options
from musigma.restoration.restore_file import restore_file


class SmallMemory(TorchEngine):
    """Runs out of memory for tiles of more than 110 x 110 pixels."""

    def __call__(self, tiles):
        if tiles[:, 0].numel() > 110 * 110:
            raise torch.OutOfMemoryError("out of memory")
        return super().__call__(tiles)


@pytest.mark.parametrize(
    ("name", "engine", "exact"),
    [
        ("imdn", TorchEngine, True),  # one tile, which is the whole picture
        ("imdn", SmallMemory, False),  # IMDN looks at the whole picture, and was shown parts
        ("bicubic", TorchEngine, True),
    ],
)
def test_a_tile_that_was_cut_makes_the_result_approximate(tmp_path, name, engine, exact):
    write_image(tmp_path / "a.png", torch.rand(1, 3, 150, 130))
    model = Model(network=build(name, 2), name=name)
    source = ImageSource(tmp_path / "a.png", Path("a.png"))
    options = Options(folder=tmp_path / "out")
    done = restore_file(model, source, options, engine=engine(model.network))
    assert done.exact is exact
