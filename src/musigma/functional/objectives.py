"""Every objective of the paper, and those it is compared with, as pure functions of images.

All take float images of one shape, usually ``(N, C, H, W)`` in ``[0, 1]``, and return one value per
pixel and channel. The caller takes the mean. Arguments before the ``*`` are images; arguments after
it are settings. In the formulas ``e = mean - target``. `musigma.losses` has a module for each.

Half precision is converted to float32 first, because ``1 / sigma`` and the mean of ``|e|`` are too
inexact in it; float64 stays. Random functions draw from `generator`. When it is ``None``, they draw
from PyTorch's global generator, which `torch.compile` and CUDA graphs support.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Generator, Tensor
from torch.nn import functional as F  # noqa: N812

from musigma.functional.constants import SIGMA_FLOOR
from musigma.types import ConfigError, ImageError, nearest, short_repr

Distribution = Literal["normal", "laplace", "uniform"]

MAX_SAMPLES = 1024

_LIMITS: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "samples": (f"from 1 to {MAX_SAMPLES}", lambda value: 1 <= value <= MAX_SAMPLES),
    "epsilon": ("above 0 and finite", lambda value: 0 < value < math.inf),
    "floor": ("above 0 and finite", lambda value: 0 < value < math.inf),
    "noise_std": ("0 or more and finite", lambda value: 0 <= value < math.inf),
    "noise_gain": ("0 or more and finite", lambda value: 0 <= value < math.inf),
    "level": ("between 0 and 1", lambda value: 0 < value < 1),
    "gain": ("above 0 and finite", lambda value: 0 < value < math.inf),
    "beta": ("from 0 to 1", lambda value: 0 <= value <= 1),
    "offset": ("finite", lambda value: -math.inf < value < math.inf),
}
"""What the numeric settings of the functions below may be."""


def check_settings(function: str, **settings: object) -> None:
    """Refuse settings that a function of this module cannot compute with.

    Example:
        >>> check_settings("sigma_quantile", level=2.0)
        Traceback (most recent call last):
        musigma.types.ConfigError: sigma_quantile: level must be between 0 and 1, got 2.0
    """
    for key, value in settings.items():
        if key in _LIMITS and isinstance(value, int | float):
            text, is_allowed = _LIMITS[key]
            if not is_allowed(value):
                raise ConfigError(f"{function}: {key} must be {text}, got {short_repr(value)}")


def l1(mean: Tensor, target: Tensor) -> Tensor:
    """Absolute error, ``|e|``.

    Example:
        >>> l1(torch.tensor([0.25, 0.5]), torch.tensor([0.5, 0.25]))
        tensor([0.2500, 0.2500])
    """
    return _error(mean, target).abs()


def l2(mean: Tensor, target: Tensor) -> Tensor:
    """Squared error, ``e^2``."""
    return _error(mean, target).square()


def charbonnier(mean: Tensor, target: Tensor, *, epsilon: float = 1e-3) -> Tensor:
    """Smooth absolute error, ``sqrt(e^2 + epsilon^2)``."""
    check_settings("charbonnier", epsilon=epsilon)
    return (_error(mean, target).square() + epsilon**2).sqrt()


def expected_l1(
    mean: Tensor,
    target: Tensor,
    *,
    mask: bool = True,
    samples: int = 1,
    distribution: Distribution = "normal",
    threshold: Tensor | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """The paper's l_E: the absolute error of a random image around `mean`, as wide as its error.

    ``|e + |e| z m|``, averaged over `samples` draws of ``z``. The gradient flows through ``|e|``,
    not through ``z`` or ``m``: it is that of `l1` times ``|1 + z m sgn e|``, never the wrong way.

    Args:
        mean: The restored image.
        target: The true image.
        mask: Whether ``m`` is 1 only where ``|e|`` is above `threshold` (the hard pixels) and 0
            elsewhere, where the loss is `l1`. Without the mask ``m`` is 1.
        samples: Draws per pixel.
        distribution: Of ``z``. ``"normal"`` is N(0, 1). ``"laplace"`` is ``-sgn(u) ln(1 - 2|u|)``,
            of scale 1, with ``u`` uniform on (-1/2, 1/2); the paper's footnote 1 says normal, which
            leaves the logarithm undefined. ``"uniform"`` is on (-1, 1): the widest one for which
            ``1 + z`` never changes sign, so its gain is 1. It is randomness without weighting, as
            `expected_l1_closed_form` is weighting without randomness.
        threshold: Above which ``|e|`` is hard; by default the mean of ``|e|`` over this batch.
            Processes that share a batch pass the mean over the whole batch.
        generator: Where ``z`` comes from.
    """
    check_settings("expected_l1", samples=samples)
    error = _error(mean, target)
    size = error.abs()
    z = _draw(distribution, (samples, *error.shape), error, generator)
    if mask:
        z = torch.where(_is_hard(size, threshold), z, 0.0)
    return (error + size * z).abs().mean(0)


def expected_l1_closed_form(
    mean: Tensor,
    target: Tensor,
    *,
    mask: bool = True,
    distribution: Distribution = "normal",
    threshold: Tensor | None = None,
) -> Tensor:
    """The exact expectation of `expected_l1` over ``z``: `l1` with its hard pixels weighted.

    ``|e| g`` where ``m = 1`` and ``|e|`` elsewhere, ``g`` being `expected_gain`.
    """
    gain = expected_gain(distribution)
    if not mask:
        return gain * l1(mean, target)
    return hard_l1(mean, target, gain=gain, threshold=threshold)


def hard_l1(
    mean: Tensor, target: Tensor, *, gain: float = 1.5, threshold: Tensor | None = None
) -> Tensor:
    """`l1` with more weight on hard pixels: ``gain |e|`` where ``|e|`` is above its mean.

    With the gain of `expected_gain` it is `expected_l1_closed_form`.

    Args:
        mean: The restored image.
        target: The true image.
        gain: Weight of the hard pixels.
        threshold: As for `expected_l1`.

    Example:
        >>> hard_l1(torch.tensor([0.25, 0.75]), torch.zeros(2), gain=2.0)
        tensor([0.2500, 1.5000])
    """
    check_settings("hard_l1", gain=gain)
    size = _error(mean, target).abs()
    return torch.where(_is_hard(size, threshold), gain * size, size)


def expected_gain(distribution: Distribution = "normal") -> float:
    """``E|1 + z|``, the mean length of the gradient of `expected_l1` on a hard pixel.

    Normal: ``erf(1 / sqrt 2) + sqrt(2 / pi) exp(-1 / 2)``. Laplace: ``1 + exp(-1)``. Uniform: 1.

    Example:
        >>> f"{expected_gain():.6f} {expected_gain('laplace'):.6f} {expected_gain('uniform'):.6f}"
        '1.166631 1.367879 1.000000'
    """
    return _known(distribution)[0]


def learned_sigma(
    mean: Tensor, target: Tensor, sigma: Tensor, *, generator: Generator | None = None
) -> Tensor:
    """``|target - (mean + sigma z)|`` with normal z (the paper's eq:loss).

    The gradient flows into sigma. By Jensen's inequality the best sigma is 0, so sigma collapses.
    """
    mean, target, sigma = _aligned(mean, target, sigma)
    z = _draw("normal", mean.shape, mean, generator)
    return (target - (mean + sigma * z)).abs()


def fixed_sigma(
    mean: Tensor, target: Tensor, *, noise_std: float, generator: Generator | None = None
) -> Tensor:
    """``|target + noise_std z - mean|`` with normal z: Noise2Noise as a special case."""
    check_settings("fixed_sigma", noise_std=noise_std)
    error = _error(mean, target)
    return (noise_std * _draw("normal", error.shape, error, generator) - error).abs()


def sigma_l1(mean: Tensor, target: Tensor, sigma: Tensor, *, detach: bool = True) -> Tensor:
    """The paper's auxiliary loss ``|sigma - |e||``, which makes sigma the median of ``|e|``.

    Args:
        mean: The restored image.
        target: The true image.
        sigma: The predicted absolute error.
        detach: Whether no gradient flows into the mean. In the third row of the paper's ablation
            this loss alone trains the mean, too: ``detach=False``.
    """
    return _excess(mean, target, sigma, detach).abs()


def sigma_l2(mean: Tensor, target: Tensor, sigma: Tensor, *, detach: bool = True) -> Tensor:
    """``(sigma - |e|)^2``, which makes sigma the mean of ``|e|``: a Laplace density's scale."""
    return _excess(mean, target, sigma, detach).square()


def sigma_quantile(
    mean: Tensor, target: Tensor, sigma: Tensor, *, level: float, detach: bool = True
) -> Tensor:
    """The pinball loss, which makes sigma the quantile of ``|e|`` at `level`.

    ``max(level d, (level - 1) d)`` with ``d = |e| - sigma``; at level 1/2 it is half of `sigma_l1`.
    """
    check_settings("sigma_quantile", level=level)
    excess = _excess(mean, target, sigma, detach)
    return torch.maximum(level * excess, (level - 1) * excess)


def sigma_variance(
    mean: Tensor,
    target: Tensor,
    sigma: Tensor,
    *,
    noise_std: float = 0.0,
    noise_gain: float = 0.0,
) -> Tensor:
    """``(sigma^2 - (e^2 - v))^2``: sigma^2 becomes the mean of ``e^2`` without the target's noise.

    ``v = noise_std^2 + noise_gain * mean`` is the variance of the noise of a target that is itself
    noisy, as in Noise2Noise. Noise of mean zero that is independent of the input adds ``v`` to the
    expected ``e^2``, so that the best sigma is the deviation of the error to the clean target. No
    gradient flows into the mean.

    Args:
        mean: The restored image; as a signal, values below 0 count as 0.
        target: The noisy image.
        sigma: The predicted standard deviation of the error.
        noise_std: Standard deviation of the part of the noise that is the same everywhere, for
            images in ``[0, 1]``.
        noise_gain: Variance over signal, of the part that grows with the signal.
    """
    check_settings("sigma_variance", noise_std=noise_std, noise_gain=noise_gain)
    mean, target, sigma = _aligned(mean.detach(), target, sigma)
    noise_variance = noise_std**2 + noise_gain * mean.clamp_min(0)
    return (sigma.square() - ((mean - target).square() - noise_variance)).square()


def laplace_nll(
    mean: Tensor, target: Tensor, sigma: Tensor, *, floor: float = SIGMA_FLOOR
) -> Tensor:
    """The paper's naive setting, ``log sigma + |e| / sigma``; the constant log 2 is dropped.

    Sigma is the scale of a Laplace density. In all likelihoods here a sigma below `floor` counts as
    `floor` but keeps the gradient that it has there.
    """
    check_settings("laplace_nll", floor=floor)
    error, sigma = _error_and_sigma(mean, target, sigma, floor)
    return sigma.log() + error.abs() / sigma


def gaussian_nll(
    mean: Tensor, target: Tensor, sigma: Tensor, *, floor: float = SIGMA_FLOOR
) -> Tensor:
    """``log sigma + e^2 / (2 sigma^2)``; the constant ``log(2 pi) / 2`` is dropped."""
    check_settings("gaussian_nll", floor=floor)
    error, sigma = _error_and_sigma(mean, target, sigma, floor)
    return sigma.log() + (error / sigma).square() / 2


def beta_nll(
    mean: Tensor,
    target: Tensor,
    sigma: Tensor,
    *,
    beta: float = 0.5,
    floor: float = SIGMA_FLOOR,
) -> Tensor:
    """`gaussian_nll` times the detached ``sigma^(2 beta)`` (Seitzer et al., ICLR 2022).

    With ``beta=0`` it is `gaussian_nll`; with ``beta=1`` the mean is trained as by half of `l2`.
    """
    check_settings("beta_nll", beta=beta, floor=floor)
    error, sigma = _error_and_sigma(mean, target, sigma, floor)
    return sigma.detach() ** (2 * beta) * (sigma.log() + (error / sigma).square() / 2)


def edge(mean: Tensor, target: Tensor) -> Tensor:
    """Gradient loss: ``|dx e| + |dy e|`` by forward differences, 0 past the last row and column.

    It ignores the overall level of the image, so it is used beside `l1`, not in its place.
    """
    error = _error(mean, target)
    across = F.pad(error.diff(dim=-1), (0, 1))
    down = F.pad(error.diff(dim=-2), (0, 0, 0, 1))
    return across.abs() + down.abs()


def fourier(mean: Tensor, target: Tensor) -> Tensor:
    """``(|Re F e| + |Im F e|) / sqrt 2`` at each frequency, ``F`` being the unitary transform.

    It weighs all frequencies alike, so it is used beside `l1` with a small weight, for fine detail.
    White noise has the same mean here as in `l1`.
    """
    spectrum = torch.view_as_real(torch.fft.fft2(_error(mean, target), norm="ortho"))
    return spectrum.abs().sum(-1) / math.sqrt(2)


def distillation(mean: Tensor, teacher_mean: Tensor) -> Tensor:
    """Absolute distance to the image that a frozen teacher predicts, ``|mean - teacher_mean|``."""
    return l1(mean, teacher_mean.detach())


def udl_step1(mean: Tensor, target: Tensor, sigma: Tensor, *, floor: float = SIGMA_FLOOR) -> Tensor:
    """First step of the uncertainty-driven loss (Ning et al., NeurIPS 2021): learn the sigma.

    ``exp(-s) |e| + 2 s`` with ``s = log sigma``, which their branch predicts in place of sigma: a
    Laplace likelihood and a second ``s`` from Jeffreys' prior. Its minimum is at ``|e| / 2``.
    """
    check_settings("udl_step1", floor=floor)
    error, sigma = _error_and_sigma(mean, target, sigma, floor)
    return error.abs() / sigma + 2 * sigma.log()


def udl_step2(
    mean: Tensor,
    target: Tensor,
    teacher_sigma: Tensor,
    *,
    offset: float = 0.0,
    floor: float = SIGMA_FLOOR,
) -> Tensor:
    """Second step: `l1` weighted by the sigma of the network of step 1, which stays fixed.

    ``(s - min s + offset) |e|`` with ``s = log sigma`` and the minimum over each channel of each
    image. Their paper has no offset; their released code adds 1, so that no pixel is left out.
    """
    check_settings("udl_step2", offset=offset, floor=floor)
    mean, target, sigma = _aligned(mean, target, teacher_sigma)
    s = sigma.detach().clamp_min(floor).log()
    weight = s - s.amin(dim=(-2, -1), keepdim=True) + offset
    return weight * (mean - target).abs()


def mean_absolute_error(mean: Tensor, target: Tensor) -> Tensor:
    """Return the mean of ``|e|`` over the batch, without a gradient: the threshold of the mask.

    Example:
        >>> mean_absolute_error(torch.tensor([0.25, 0.5]), torch.tensor([0.5, 0.5]))
        tensor(0.1250)
    """
    return _error(mean.detach(), target.detach()).abs().mean()


def _aligned(*images: Tensor) -> list[Tensor]:
    """Refuse shapes that would broadcast and integer types; convert half precision to float32."""
    if len({image.shape for image in images}) > 1:
        shapes = ", ".join(str(tuple(image.shape)) for image in images)
        raise ImageError(f"an objective compares images of one shape, not {shapes}")
    for image in images:
        if not image.is_floating_point():
            hint = "divide 8-bit images by 255"
            raise ImageError(f"expected float images in [0, 1], got {image.dtype}; {hint}")
    half = (torch.float16, torch.bfloat16)
    return [image.float() if image.dtype in half else image for image in images]


def _error(mean: Tensor, target: Tensor) -> Tensor:
    mean, target = _aligned(mean, target)
    return mean - target


def _excess(mean: Tensor, target: Tensor, sigma: Tensor, detach: bool) -> Tensor:
    mean, target, sigma = _aligned(mean, target, sigma)
    size = (mean - target).abs()
    return (size.detach() if detach else size) - sigma


def _error_and_sigma(
    mean: Tensor, target: Tensor, sigma: Tensor, floor: float
) -> tuple[Tensor, Tensor]:
    mean, target, sigma = _aligned(mean, target, sigma)
    # The value is max(sigma, floor), the gradient that of sigma: a sigma below the floor can rise.
    return mean - target, sigma + (sigma.clamp_min(floor) - sigma).detach()


def _is_hard(size: Tensor, threshold: Tensor | None) -> Tensor:
    return size > (size.mean() if threshold is None else threshold)


def _laplace(shape: tuple[int, ...], **options: Any) -> Tensor:
    u = torch.rand(shape, **options) - 0.5
    # torch.rand can return 0 exactly, whose logarithm below would be infinite.
    return -u.sign() * torch.log1p(-(2 * u.abs()).clamp_max(1 - torch.finfo(u.dtype).eps))


def _uniform(shape: tuple[int, ...], **options: Any) -> Tensor:
    return 2 * torch.rand(shape, **options) - 1


# E|1 + z| of each distribution, and how to draw from it.
_DISTRIBUTIONS: dict[str, tuple[float, Callable[..., Tensor]]] = {
    "normal": (math.erf(math.sqrt(0.5)) + math.sqrt(2 / math.pi) * math.exp(-0.5), torch.randn),
    "laplace": (1 + math.exp(-1), _laplace),
    "uniform": (1.0, _uniform),
}


def _known(distribution: str) -> tuple[float, Callable[..., Tensor]]:
    if distribution not in _DISTRIBUTIONS:
        hint = nearest(distribution, list(_DISTRIBUTIONS))
        raise ConfigError(f"there is no distribution called {short_repr(distribution)}; {hint}")
    return _DISTRIBUTIONS[distribution]


def _draw(
    distribution: str, shape: tuple[int, ...], like: Tensor, generator: Generator | None
) -> Tensor:
    draw = _known(distribution)[1]
    return draw(shape, device=like.device, dtype=like.dtype, generator=generator)
