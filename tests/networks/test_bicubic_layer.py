import pytest
import torch

from musigma.functional.resize import resize
from musigma.networks.bicubic_layer import enlarge, radius_before_enlarging

SIZES = [(37, 31), (5, 3), (2, 9), (1, 1)]


def image(height, width, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(2, 3, height, width, generator=generator, dtype=dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", [2, 3, 4])
def test_equals_the_general_resize(size, scale):
    degraded = image(*size, dtype=torch.float64)
    torch.testing.assert_close(
        enlarge(degraded, scale), resize(degraded, scale=scale), rtol=0, atol=1e-14
    )


def test_a_factor_of_one_changes_nothing():
    degraded = image(5, 3)
    assert enlarge(degraded, 1) is degraded


def test_half_precision_is_widened_inside():
    degraded = image(5, 3).bfloat16()
    assert torch.equal(enlarge(degraded, 2), enlarge(degraded.float(), 2).bfloat16())


def test_radius_counts_input_pixels():
    # Worked by hand for x2: output pixel 1 of an input pixel sees `reach` = 3 pixels to the right,
    # up to the enlarged pixel 4, which lies in the first half of input pixel 2 and so sees 3.
    assert radius_before_enlarging(3, 2) == 3
    # One more, and it lies in the second half, which sees 4.
    assert radius_before_enlarging(4, 2) == 4
