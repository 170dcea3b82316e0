import pytest
import torch
from skimage.transform import downscale_local_mean

from musigma.images.box_downsample import BoxDownsampler


@pytest.mark.parametrize("num_rows", [1, 4, 64])
@pytest.mark.parametrize("factor", [1, 3, 5])
def test_boxes_are_those_of_another_library(num_rows, factor):
    image = torch.rand(1, 3, 36, 30, generator=torch.Generator().manual_seed(0))
    image = image[..., : 36 // factor * factor, : 30 // factor * factor]
    view = BoxDownsampler(factor)
    for rows in image.split(num_rows, dim=2):
        view.add(rows)
    expected = downscale_local_mean(image.numpy(), (1, 1, factor, factor))
    torch.testing.assert_close(view.result(), torch.from_numpy(expected), rtol=0, atol=1e-6)
