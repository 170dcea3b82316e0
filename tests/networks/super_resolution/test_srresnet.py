import pytest

from musigma.networks import card


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_parameters_by_hand(scale):
    # Ledig et al. 2017, figure 4, with batch normalisation in place of the biases before it.
    conv = 64 * 64 * 9
    trunk = (3 * 81 + 1) * 64 + 1 + 16 * (2 * conv + 4 * 64 + 1) + conv + 2 * 64
    step, num_steps = (3, 1) if scale == 3 else (2, scale // 2)
    upsampler = num_steps * ((64 * 9 + 1) * 64 * step**2 + 1)
    assert card("srresnet", scale=scale).params == trunk + upsampler + (64 * 81 * 3 + 3)


@pytest.mark.parametrize("scale", [1, 2, 3, 4])
def test_parameters_of_the_realsr_table(scale):
    # The paper's RealSR table prints 1.31M.
    assert card("srresnet-realsr", scale=scale).params == pytest.approx(1.31e6, rel=0.005)
