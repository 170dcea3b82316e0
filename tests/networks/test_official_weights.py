"""Released weights give the published PSNR: the network, its keys and the protocol are right."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from musigma.functional.color import quantise, rgb_to_y
from musigma.functional.fidelity import psnr
from musigma.functional.geometry import crop_to_multiple
from musigma.functional.resize import bicubic_down
from musigma.model import load_file

DATA = Path(os.environ.get("MUSIGMA_DATA", "data"))
SET5 = DATA / "benchmark" / "Set5" / "HR"
CHECKPOINTS = Path(os.environ.get("MUSIGMA_CHECKPOINTS", DATA.parent / "checkpoints"))


def read(path):
    from PIL import Image

    levels = np.asarray(Image.open(path).convert("RGB"))
    return torch.tensor(levels).permute(2, 0, 1)[None] / 255


@pytest.mark.parametrize(
    ("file", "scale", "published"),
    [
        # Hui et al. 2019, table 5.
        pytest.param("imdn_x2.pth", 2, 38.00, marks=pytest.mark.slow),
        ("imdn_x4.pth", 4, 32.21),
        # Wan et al. 2024; Kong et al. 2022, table 1; Zheng et al. 2024, tables 1 and 2.
        ("spanx4_ch52.pth", 4, 32.20),
        ("rlfn_x4.pth", 4, 32.24),
        ("SMFANet_DF2K_100w_x4SR.pth", 4, 32.25),
        pytest.param("SMFANet_plus_DF2K_100w_x4SR.pth", 4, 32.51, marks=pytest.mark.slow),
        # Measured on the luma that the network gives, of an input in 8 bits; with an input that is
        # not rounded either, 37.65, 33.77 and 31.45 were published.
        pytest.param("vdsr_y.pth", 2, 37.61, marks=pytest.mark.slow),
        pytest.param("vdsr_y.pth", 3, 33.76, marks=pytest.mark.slow),
        pytest.param("vdsr_y.pth", 4, 31.44, marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore:.*255 is taken")
def test_published_psnr_on_set5(file, scale, published):
    if not (CHECKPOINTS / file).is_file() or not SET5.is_dir():
        pytest.skip("needs Set5 in MUSIGMA_DATA and the released files in MUSIGMA_CHECKPOINTS")
    network = load_file(CHECKPOINTS / file, scale=scale).network
    values = []
    for path in sorted(SET5.iterdir()):
        target = crop_to_multiple(read(path), scale)
        with torch.inference_mode():
            mean = network(bicubic_down(target, scale)).mean
        mean = mean if network.luma_only else quantise(mean)
        values.append(psnr(rgb_to_y(mean), rgb_to_y(target), data_range=1, shave=scale))
    assert len(values) == 5
    assert torch.stack(values).mean().item() == pytest.approx(published, abs=0.01)
