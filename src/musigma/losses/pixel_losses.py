"""One module for each objective of the paper and of the work it is compared with.

Each holds the settings of a function in `musigma.functional.objectives`, which has the formula, and
returns the mean of what the function gives. Call them as ``loss(prediction, target)``.
"""

from torch import nn

from musigma.functional import objectives
from musigma.functional.constants import SIGMA_FLOOR
from musigma.functional.objectives import Distribution
from musigma.losses.base import PixelLoss


class L1(PixelLoss):
    """Mean absolute error.

    Example:
        >>> import torch
        >>> L1()(torch.full((1, 3, 4, 5), 0.5), torch.zeros(1, 3, 4, 5))
        tensor(0.5000)
    """

    function = staticmethod(objectives.l1)

    def __init__(self) -> None:
        super().__init__()


class L2(PixelLoss):
    """Mean squared error.

    Example:
        >>> import torch
        >>> L2()(torch.full((1, 3, 4, 5), 0.5), torch.zeros(1, 3, 4, 5))
        tensor(0.2500)
    """

    function = staticmethod(objectives.l2)

    def __init__(self) -> None:
        super().__init__()


class Charbonnier(PixelLoss):
    """Smooth absolute error, ``sqrt(e^2 + epsilon^2)``.

    Args:
        epsilon: Errors below it count as squared, errors above it as absolute.

    Example:
        >>> Charbonnier(epsilon=1e-6)
        Charbonnier(epsilon=1e-06)
    """

    function = staticmethod(objectives.charbonnier)

    def __init__(self, *, epsilon: float = 1e-3) -> None:
        super().__init__(epsilon=epsilon)


class ExpectedL1(PixelLoss):
    """The paper's loss l_E: the absolute error of a random image around the mean.

    In training mode, processes that share a batch (``torch.distributed`` is initialized) take the
    threshold of the mask from the whole batch. So each of them must call the loss equally often.
    After ``loss.eval()`` each uses its own images alone.

    Args:
        mask: Whether only hard pixels, whose error is above the mean of the batch, are random.
        samples: Draws per pixel.
        distribution: Of the draws: ``"normal"``, ``"laplace"`` or ``"uniform"``.

    Example:
        >>> from musigma.losses import SigmaL1
        >>> str(ExpectedL1(distribution="laplace") + 0.01 * SigmaL1())
        'expected_l1(distribution=laplace) + 0.01 * sigma_l1'
    """

    function = staticmethod(objectives.expected_l1)

    def __init__(
        self, *, mask: bool = True, samples: int = 1, distribution: Distribution = "normal"
    ) -> None:
        super().__init__(mask=mask, samples=samples, distribution=distribution)


class ExpectedL1ClosedForm(PixelLoss):
    """The expectation of `ExpectedL1` over its draws: the same weighting without randomness.

    Args:
        mask: Whether only hard pixels get a larger weight.
        distribution: Of the draws whose expectation this is.

    Example:
        >>> import torch
        >>> ExpectedL1ClosedForm(mask=False)(torch.ones(2), torch.zeros(2))
        tensor(1.1666)
    """

    function = staticmethod(objectives.expected_l1_closed_form)

    def __init__(self, *, mask: bool = True, distribution: Distribution = "normal") -> None:
        super().__init__(mask=mask, distribution=distribution)


class HardL1(PixelLoss):
    """Mean absolute error in which hard pixels, whose error is above the mean, count more.

    Args:
        gain: Weight of the hard pixels.

    Example:
        >>> import torch
        >>> HardL1(gain=2)(torch.tensor([0.25, 0.75]), torch.zeros(2))
        tensor(0.8750)
    """

    function = staticmethod(objectives.hard_l1)

    def __init__(self, *, gain: float = 1.5) -> None:
        super().__init__(gain=gain)


class LearnedSigma(PixelLoss):
    """Absolute error of a random image of width sigma; its sigma collapses to 0.

    Example:
        >>> LearnedSigma().needs_sigma
        True
    """

    function = staticmethod(objectives.learned_sigma)

    def __init__(self) -> None:
        super().__init__()


class FixedSigma(PixelLoss):
    """Absolute error against the target with Gaussian noise on it.

    Args:
        noise_std: Standard deviation of the noise, for images in ``[0, 1]``.

    Example:
        >>> str(FixedSigma(noise_std=0.1))
        'fixed_sigma(noise_std=0.1)'
    """

    function = staticmethod(objectives.fixed_sigma)

    def __init__(self, *, noise_std: float) -> None:
        super().__init__(noise_std=noise_std)


class SigmaL1(PixelLoss):
    """The paper's loss of the sigma branch: sigma becomes the median of the absolute error.

    Args:
        detach: Whether no gradient flows into the mean.

    Example:
        >>> import torch
        >>> mean, sigma, target = torch.ones(2), torch.full((2,), 0.75), torch.zeros(2)
        >>> SigmaL1()((mean, sigma), target)
        tensor(0.2500)
    """

    function = staticmethod(objectives.sigma_l1)

    def __init__(self, *, detach: bool = True) -> None:
        super().__init__(detach=detach)


class SigmaL2(PixelLoss):
    """Squared error of sigma: sigma becomes the mean of the absolute error.

    Args:
        detach: Whether no gradient flows into the mean.

    Example:
        >>> import torch
        >>> mean, sigma, target = torch.ones(2), torch.full((2,), 0.5), torch.zeros(2)
        >>> SigmaL2()((mean, sigma), target)
        tensor(0.2500)
    """

    function = staticmethod(objectives.sigma_l2)

    def __init__(self, *, detach: bool = True) -> None:
        super().__init__(detach=detach)


class SigmaQuantile(PixelLoss):
    """Pinball loss of sigma: sigma becomes a quantile of the absolute error.

    Args:
        level: Which quantile, between 0 and 1.
        detach: Whether no gradient flows into the mean.

    Example:
        >>> str(SigmaQuantile(level=0.9))
        'sigma_quantile(level=0.9)'
    """

    function = staticmethod(objectives.sigma_quantile)

    def __init__(self, *, level: float, detach: bool = True) -> None:
        super().__init__(level=level, detach=detach)


class SigmaVariance(PixelLoss):
    """Squared error of sigma^2: sigma becomes the deviation of the error without target noise.

    Args:
        noise_std: Standard deviation of the target's noise, for images in ``[0, 1]``.
        noise_gain: Variance over signal, of noise that grows with the signal.

    Example:
        >>> str(SigmaVariance(noise_std=0.1))
        'sigma_variance(noise_std=0.1)'
    """

    function = staticmethod(objectives.sigma_variance)

    def __init__(self, *, noise_std: float = 0.0, noise_gain: float = 0.0) -> None:
        super().__init__(noise_std=noise_std, noise_gain=noise_gain)


class LaplaceNLL(PixelLoss):
    """Negative log likelihood of a Laplace density with scale sigma, without its constant.

    Args:
        floor: A sigma below it counts as the floor.

    Example:
        >>> LaplaceNLL().needs_sigma
        True
    """

    function = staticmethod(objectives.laplace_nll)

    def __init__(self, *, floor: float = SIGMA_FLOOR) -> None:
        super().__init__(floor=floor)


class GaussianNLL(PixelLoss):
    """Negative log likelihood of a normal density with standard deviation sigma.

    Args:
        floor: A sigma below it counts as the floor.

    Example:
        >>> GaussianNLL(floor=0.01)
        GaussianNLL(floor=0.01)
    """

    function = staticmethod(objectives.gaussian_nll)

    def __init__(self, *, floor: float = SIGMA_FLOOR) -> None:
        super().__init__(floor=floor)


class BetaNLL(PixelLoss):
    """`GaussianNLL` with a weight of ``sigma^(2 beta)`` (Seitzer et al., ICLR 2022).

    Args:
        beta: From 0, which is `GaussianNLL`, to 1.
        floor: A sigma below it counts as the floor.

    Example:
        >>> str(BetaNLL(beta=1))
        'beta_nll(beta=1.0)'
    """

    function = staticmethod(objectives.beta_nll)

    def __init__(self, *, beta: float = 0.5, floor: float = SIGMA_FLOOR) -> None:
        super().__init__(beta=beta, floor=floor)


class Edge(PixelLoss):
    """Absolute error of the image gradient; used beside `L1`.

    Example:
        >>> str(L1() + 0.1 * Edge())
        'l1 + 0.1 * edge'
    """

    function = staticmethod(objectives.edge)

    def __init__(self) -> None:
        super().__init__()


class Fourier(PixelLoss):
    """Absolute error of the Fourier transform; used beside `L1`.

    Example:
        >>> str(L1() + 0.05 * Fourier())
        'l1 + 0.05 * fourier'
    """

    function = staticmethod(objectives.fourier)

    def __init__(self) -> None:
        super().__init__()


class Distillation(PixelLoss):
    """Mean absolute distance to the image that a teacher predicts.

    Args:
        teacher: A trained network. Call the loss with ``degraded=``, the input of the teacher.

    Example:
        >>> import torch
        >>> image = torch.rand(1, 3, 4, 5)
        >>> Distillation(nn.Identity())(image, image, degraded=image)
        tensor(0.)
    """

    function = staticmethod(objectives.distillation)

    def __init__(self, teacher: nn.Module) -> None:
        super().__init__(teacher=teacher)


class UDLStep1(PixelLoss):
    """First step of the uncertainty-driven loss (Ning et al., NeurIPS 2021): learn sigma.

    Args:
        floor: A sigma below it counts as the floor.

    Example:
        >>> UDLStep1().needs_sigma
        True
    """

    function = staticmethod(objectives.udl_step1)

    def __init__(self, *, floor: float = SIGMA_FLOOR) -> None:
        super().__init__(floor=floor)


class UDLStep2(PixelLoss):
    """Second step of the uncertainty-driven loss: errors weighted by the teacher's sigma.

    Args:
        teacher: The network of the first step, which predicts sigma.
        offset: Added to the weights; the released code of the authors adds 1.
        floor: A sigma below it counts as the floor.

    Example:
        >>> str(UDLStep2(nn.Identity(), offset=1))
        'udl_step2(offset=1.0)'
    """

    function = staticmethod(objectives.udl_step2)

    def __init__(
        self, teacher: nn.Module, *, offset: float = 0.0, floor: float = SIGMA_FLOOR
    ) -> None:
        super().__init__(teacher=teacher, offset=offset, floor=floor)


ALL: tuple[type[PixelLoss], ...] = (
    L1,
    L2,
    Charbonnier,
    ExpectedL1,
    ExpectedL1ClosedForm,
    HardL1,
    LearnedSigma,
    FixedSigma,
    SigmaL1,
    SigmaL2,
    SigmaQuantile,
    SigmaVariance,
    LaplaceNLL,
    GaussianNLL,
    BetaNLL,
    Edge,
    Fourier,
    Distillation,
    UDLStep1,
    UDLStep2,
)
"""All of them, in the order in which they are listed."""
