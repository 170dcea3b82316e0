"""Joint errors whose correlation differs from place to place: a mixture of stationary fields.

`musigma.networks.joint_head` says what the mixture is. Everything here is exact: the variance of a
weighted sum comes from the power spectra of the fields, samples are filtered noise, and the
likelihood of a block comes from its dense covariance.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from musigma.networks.joint_head import FieldBank
from musigma.types import ImageError
from musigma.uncertainty.joint import support

BLOCK = 16
"""Side of the blocks whose likelihood is computed as a whole."""

BLOCKS_AT_ONCE = 4

NOISE_SHARES = (0.0, 0.2, 1.0)
"""Shares of the variance of a block that may be noise in the truth, each as likely as the others.

The input does not show such noise, so that its share is unknown, and the likelihood averages over
it. This costs at most ``log(3) / 768`` nat per value in a block without noise. In return, errors
that are independent are hardly less likely than by a model that takes all errors as independent.
"""

MAX_VALUES = 2**23
"""About how many values the variance of a sum may need at a time."""


class MixtureErrors:
    """Standard deviations times a mixture of stationary fields.

    Args:
        std: Standard deviation of each value, ``(C, H, W)``.
        weights: Weights of the fields, ``(K, H, W)``; their squares add up to one.
        bank: The fields.

    Example:
        >>> white = FieldBank(torch.ones(1, 1, 1), torch.eye(3)[None])
        >>> errors = MixtureErrors(torch.full((3, 8, 8), 0.1), torch.ones(1, 8, 8), white)
        >>> round(errors.variance_of(torch.full((3, 8, 8), 1 / 192)) * 192, 6)
        0.01
    """

    def __init__(self, std: Tensor, weights: Tensor, bank: FieldBank) -> None:
        fields, channels = bank.mixing.shape[:2]
        if std.shape[0] != channels or weights.shape != (fields, *std.shape[1:]):
            raise ImageError(
                f"expected standard deviations ({channels}, H, W) and weights ({fields}, H, W), "
                f"got {tuple(std.shape)} and {tuple(weights.shape)}"
            )
        self.shift = torch.zeros(1, device=std.device)
        self.std, self.weights = std.detach().float(), weights.detach().float().to(std.device)
        self.bank = FieldBank(*(part.detach().float().to(std.device) for part in bank))

    def to(self, device: torch.device) -> "MixtureErrors":
        """Return the same on a device."""
        return MixtureErrors(self.std.to(device), self.weights, self.bank)

    def variance_of(self, weights: Tensor) -> float:
        """Return the variance of the weighted sum of all errors.

        Args:
            weights: ``(C, H, W)``. Only the part that is not zero takes time.
        """
        if weights.shape != self.std.shape:
            raise ImageError(
                f"expected weights of shape {tuple(self.std.shape)}, got {tuple(weights.shape)}"
            )
        rows, columns = support(weights)
        scaled = (weights[:, rows, columns] * self.std[:, rows, columns])[None]
        shares, total = self.weights[None, :, rows, columns], 0.0
        # A few fields at a time, so that the memory does not grow with their number.
        count = max(1, MAX_VALUES // (4 * scaled.numel()))
        for first in range(0, len(self.bank.filters), count):
            part = slice(first, first + count)
            bank = FieldBank(self.bank.filters[part], self.bank.mixing[part])
            total += float(sum_variances(scaled, shares[:, part], bank))
        return total

    def sample(self, num_samples: int, generator: torch.Generator) -> Tensor:
        """Draw errors, ``(num_samples, C, H, W)``, one after the other."""
        return torch.stack(
            [
                self.std * draw_mixture(self.weights, self.bank, generator)
                for _ in range(num_samples)
            ]
        )

    def log_likelihood(self, residual: Tensor) -> float:
        """Return the log density of a residual in nats, divided by its number of values.

        The picture is cut into blocks of `BLOCK` pixels, which count as independent of each other.
        So memory stays fixed, and the density still has an integral of one. Each block may have
        noise in the truth, as `NOISE_SHARES` says.
        """
        field = residual.float() / self.std
        total = -float(self.std.double().log().sum())
        for rows in range(0, field.shape[1], BLOCK):
            for columns in range(0, field.shape[2], BLOCK * BLOCKS_AT_ONCE):
                total += self._strip(field, rows, columns)
        return total / field.numel()

    def _strip(self, field: Tensor, top: int, left: int) -> float:
        bottom, right = top + BLOCK, left + BLOCK * BLOCKS_AT_ONCE
        values = field[:, top:bottom, left:right]
        weights = self.weights[:, top:bottom, left:right]
        # The last blocks of a row may be narrower, and are done on their own.
        even = values.shape[2] // BLOCK * BLOCK
        total = 0.0
        for part, width in ((slice(0, even), BLOCK), (slice(even, None), values.shape[2] - even)):
            if width and values[..., part].shape[2]:
                blocks, shares = (
                    torch.stack(torch.split(each[..., part], width, 2))
                    for each in (values, weights)
                )
                total += float(noisy_log_density(blocks, shares, self.bank).sum())
        return total


def sum_variances(scaled: Tensor, weights: Tensor, bank: FieldBank) -> Tensor:
    r"""Return the variances of weighted sums of mixtures.

    The variance is :math:`\sum_k \| h_k^T * (m w_k) \|^2` with channels mixed, which the power
    spectra of the filters give.

    Args:
        scaled: Weights of the sums times standard deviations, ``(N, C, H, W)``.
        weights: Weights of the fields, ``(N, K, H, W)``.
        bank: The fields.
    """
    side = bank.filters.shape[-1]
    size = [_fast_length(length + side - 1) for length in scaled.shape[-2:]]
    # Channels are mixed first; where one noise drives all channels, this needs one plane only.
    mixed = torch.einsum("kcj,nchw->nkjhw", bank.mixing, scaled) * weights[:, :, None]
    waves = torch.fft.rfft2(mixed, s=size)
    response = torch.fft.rfft2(bank.filters, s=size).abs().square()
    # The columns of a real transform stand for two waves each, except for the first and the last.
    twice = torch.full((waves.shape[-1],), 2.0, device=scaled.device)
    twice[0] = 1
    if size[1] % 2 == 0:
        twice[-1] = 1
    power = (waves.real.square() + waves.imag.square()).sum(2)
    return (power * (response * twice)).sum((1, 2, 3)) / (size[0] * size[1])


def _fast_length(length: int) -> int:
    """Return the next length whose Fourier transform is fast: a multiple of 16."""
    return -(-length // 16) * 16


def draw_mixture(weights: Tensor, bank: FieldBank, generator: torch.Generator) -> Tensor:
    """Draw a mixture with a standard deviation of one, ``(C, H, W)``.

    Args:
        weights: ``(K, H, W)``.
        bank: The fields.
        generator: Of the noise; its device is that of the weights.
    """
    channels, side = bank.mixing.shape[1], bank.filters.shape[-1]
    height, width = weights.shape[1:]
    size = [_fast_length(length + side - 1) for length in (height, width)]
    total = weights.new_zeros(channels, height, width)
    for field, kernel, mixing in zip(weights, bank.filters, bank.mixing, strict=True):
        noise = torch.randn(channels, *size, generator=generator, device=weights.device)
        waves = torch.fft.rfft2(noise) * torch.fft.rfft2(kernel, s=size)
        # The transform is periodic, so that any part of the result will do.
        drawn = torch.fft.irfft2(waves, s=size)[:, :height, :width]
        total += field * torch.einsum("cj,jhw->chw", mixing, drawn)
    return total


def block_covariance(weights: Tensor, bank: FieldBank, correlations: Tensor) -> Tensor:
    r"""Return the covariance of blocks of a mixture, ``(N, n C, n C)`` for n pixels in a block.

    :math:`\Sigma = \sum_k (w_k w_k^T \circ C_k) \otimes R_k`, with pixels before channels.

    Args:
        weights: ``(N, K, h, w)``.
        bank: The fields.
        correlations: What `FieldBank.correlations` returned; the blocks are no larger than the
            filters reach, or the correlation is zero there.
    """
    height, width = weights.shape[-2:]
    fields = at_offsets(correlations, height, width)
    flat = weights.flatten(2)
    count, channels = flat.shape[2], bank.mixing.shape[1]
    products = flat[:, :, :, None] * flat[:, :, None, :] * fields
    mixed = torch.einsum("nkpq,kcd->npcqd", products, bank.colours)
    return mixed.reshape(len(flat), count * channels, count * channels)


def at_offsets(correlations: Tensor, height: int, width: int) -> Tensor:
    """Return the correlations of all pairs of pixels of a block, ``(K, h w, h w)``."""
    reach = correlations.shape[-1] // 2
    missing = max(height, width) - 1 - reach
    if missing > 0:
        correlations = pad(correlations, [missing] * 4)
        reach += missing
    device = correlations.device
    rows, columns = torch.arange(height, device=device), torch.arange(width, device=device)
    down = (rows - rows[:, None] + reach)[:, None, :, None]
    right = (columns - columns[:, None] + reach)[None, :, None, :]
    return correlations[:, down, right].flatten(3, 4).flatten(1, 2)


def log_density(blocks: Tensor, weights: Tensor, bank: FieldBank) -> Tensor:
    """Return the log density of blocks of a mixture in nats, ``(N,)``.

    Args:
        blocks: ``(N, C, h, w)``.
        weights: ``(N, K, h, w)``.
        bank: The fields.
    """
    covariance = block_covariance(weights, bank, bank.correlations())
    values = blocks.flatten(2).transpose(1, 2).flatten(1)
    if not covariance.requires_grad:
        return _gaussian_log_density(values, covariance)
    density: Tensor = _TrainedLogDensity.apply(values, covariance)  # type: ignore[no-untyped-call]
    return density


def noisy_log_density(blocks: Tensor, weights: Tensor, bank: FieldBank) -> Tensor:
    """Return the log density of blocks whose truth has noise of an unknown share, ``(N,)``.

    Every value has a variance of one, so that noise of a share makes of the covariance its mean
    with the identity. Arguments as for `log_density`.
    """
    covariance = block_covariance(weights, bank, bank.correlations())
    values = blocks.flatten(2).transpose(1, 2).flatten(1)
    unit = torch.eye(values.shape[1], device=values.device)
    densities = [
        _gaussian_log_density(values, torch.lerp(covariance, unit, share)) for share in NOISE_SHARES
    ]
    return torch.logsumexp(torch.stack(densities), 0) - math.log(len(densities))


def _gaussian_log_density(values: Tensor, covariance: Tensor) -> Tensor:
    factors = torch.linalg.cholesky(covariance)
    whitened = torch.linalg.solve_triangular(factors, values[..., None], upper=False)
    log_root = factors.diagonal(dim1=-2, dim2=-1).log().sum(1)
    constant = values.shape[1] * math.log(2 * math.pi) / 2
    return -whitened.square().sum((1, 2)) / 2 - log_root - constant


class _TrainedLogDensity(torch.autograd.Function):
    """The same with a gradient in closed form, which is several times faster than PyTorch's own."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, covariance: Tensor) -> Tensor:
        factors = torch.linalg.cholesky(covariance)
        inverse = torch.cholesky_inverse(factors)
        solved = (inverse @ values[..., None])[..., 0]
        ctx.save_for_backward(inverse, solved)
        log_root = factors.diagonal(dim1=-2, dim2=-1).log().sum(1)
        constant = values.shape[1] * math.log(2 * math.pi) / 2
        return -(values * solved).sum(1) / 2 - log_root - constant

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        inverse, solved = ctx.saved_tensors
        (gradient,) = gradients
        of_covariance = (solved[:, :, None] * solved[:, None, :] - inverse) / 2
        return -gradient[:, None] * solved, gradient[:, None, None] * of_covariance
