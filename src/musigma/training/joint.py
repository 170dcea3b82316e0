"""Train the joint head of weights whose mean and sigma stay as they are.

Features and residuals of crops are computed once and kept, because nothing below the head changes.
A step takes small patches of them, whose dense covariance gives the exact likelihood, and a few
sums over larger boxes, whose errors patches do not show.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from musigma.functional.color import match_channels, quantise
from musigma.functional.jpeg import jpeg
from musigma.functional.resize import bicubic_down
from musigma.functional.scores import normal_factor
from musigma.images.image_io import read_image
from musigma.model import Model
from musigma.networks.joint_head import JointHead, head_features, joint_head, with_noise
from musigma.networks.sigma_branch import WithSigma
from musigma.types import ConfigError, DataError
from musigma.uncertainty.consistency import enlarge, shrink, spread_of_input, without_visible_part
from musigma.uncertainty.given_input import ROUNDING_VARIANCE
from musigma.uncertainty.joint_prediction import shrinks_by_bicubic
from musigma.uncertainty.mixture import log_density, sum_variances

JPEG_SHARE = 0.25
"""Share of the crops with flaws that are saved as JPEG; the others get noise."""

Report = Callable[[int, float, float], None]
"""Called with the step, the likelihood gained per value, and the loss of the sums."""


@dataclass(frozen=True, kw_only=True)
class HeadTraining:
    """Settings of a training.

    Attributes:
        steps: Number of updates.
        crop: Side of the crops in result pixels; a multiple of the scale.
        patch: Side of the patches in result pixels.
        batch: Patches in a step.
        window: Side in result pixels of the windows in which sums are measured.
        windows: Windows in a step.
        sums: Sums in each of them.
        sums_weight: Weight of their loss.
        learning_rate: At the start; it falls to a hundredth along a cosine.
        seed: Of patches and sums.
    """

    steps: int = 3000
    crop: int = 192
    patch: int = 12
    batch: int = 32
    window: int = 80
    windows: int = 2
    sums: int = 4
    sums_weight: float = 0.1
    learning_rate: float = 3e-3
    seed: int = 0


class HeadData(NamedTuple):
    """What the head is trained on, for N crops.

    Attributes:
        features: What the head reads, ``(N, F, h, w)``, in half precision.
        fields: Residuals over standard deviations, ``(N, C, H, W)``.
        std: Standard deviations.
        hidden: Residuals less what the input says about them, in the units of the picture.
    """

    features: Tensor
    fields: Tensor
    std: Tensor
    hidden: Tensor


def random_crops(paths: Sequence[Path], side: int, count: int, *, seed: int) -> Iterator[Tensor]:
    """Yield crops ``(1, 3, side, side)`` at random places of the pictures, in turn.

    Reading a picture takes longer than anything else, so that all its crops are taken at once.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(paths), generator=generator).tolist()
    made, of_each = 0, -(-count // max(1, len(paths)))
    while made < count:
        before = made
        for number in order:
            if made == count:
                return
            image = match_channels(read_image(paths[number])[0], 3)
            free = [length - side for length in image.shape[-2:]]
            for _ in range(min(of_each, count - made) if min(free) >= 0 else 0):
                top, left = (int(torch.randint(f + 1, (), generator=generator)) for f in free)
                made += 1
                yield image[..., top : top + side, left : left + side]
        if made == before:
            raise DataError(f"no picture has a side of {side} pixels")


def with_flaws(crops: Iterator[Tensor], share: float, *, seed: int) -> Iterator[Tensor]:
    """Give a share of the crops the flaws of ordinary pictures: noise, or JPEG.

    The errors of such pictures are more independent than those of clean ones. A head that never saw
    any is far too sure of how they are correlated.
    """
    generator = torch.Generator().manual_seed(seed)
    for crop in crops:
        chance, kind, level = torch.rand(3, generator=generator).tolist()
        if chance >= share:
            yield crop
        elif kind < JPEG_SHARE:
            yield jpeg(crop, quality=75 + 20 * level)
        else:
            yield with_noise_of(crop, 0.5 * 16**level / 255, generator)


def with_noise_of(crop: Tensor, noise_std: float, generator: torch.Generator) -> Tensor:
    """Add white noise; in some crops it is the same in all colors, in others it is colors alone."""
    noise = torch.randn(crop.shape, generator=generator)
    gray = noise.mean(1, keepdim=True)
    kind = int(torch.randint(4, (), generator=generator))
    chosen = (noise, noise, gray.expand_as(crop), noise - gray)[kind]
    return quantise((crop + noise_std * chosen).clamp(0, 1))


@torch.no_grad()
def collect(model: Model, crops: Iterator[Tensor]) -> HeadData:
    """Run the network over crops, shrunk by bicubic, and keep what the head needs."""
    network, calibration = model.network, model.require_calibration()
    if not isinstance(network, WithSigma) or not shrinks_by_bicubic(calibration, model.scale):
        raise ConfigError("a joint head is trained for weights with sigma and bicubic inputs")
    device, scale = model.device, model.scale
    rows: list[tuple[Tensor, ...]] = []
    for target in crops:
        degraded = bicubic_down(target, scale)
        features = network.features(degraded.to(device))
        mean = network.reconstruct(features, degraded.to(device)).cpu()
        sigma, together = head_features(network, features)
        residual, std = target - mean, calibration.std(sigma.cpu())
        shift = enlarge(degraded - shrink(mean, scale), scale)
        rows.append(
            (together.half(), (residual / std).to(device), std.to(device), residual - shift)
        )
    parts = [torch.cat(part).to(device) for part in zip(*rows, strict=True)]
    return HeadData(*parts)


def train_joint_head(
    model: Model,
    data: HeadData,
    settings: HeadTraining,
    *,
    head: JointHead | None = None,
    report: Report = lambda *_: None,
) -> JointHead:
    """Return a trained head; the network itself is not touched.

    Args:
        model: The weights that the head belongs to.
        data: What `collect` returned for them.
        settings: Of the training.
        head: Where to start; by default an untrained head.
        report: Called after each step.
    """
    torch.manual_seed(settings.seed)
    head = joint_head(model.network) if head is None else head
    head = head.to(data.features.device).train()
    generator = torch.Generator().manual_seed(settings.seed)
    optimizer = torch.optim.Adam(head.parameters(), settings.learning_rate, betas=(0.9, 0.98))
    for step in range(settings.steps):
        share = step / settings.steps
        warm = min(1.0, (step + 1) / 50)
        rate = 0.01 + 0.99 * (1 + math.cos(math.pi * share)) / 2
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * warm * rate
        gain = patch_gain(head, data, settings, model.scale, generator)
        loss_of_sums = sum_loss(head, data, settings, model.scale, generator)
        optimizer.zero_grad()
        (settings.sums_weight * loss_of_sums - gain).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        report(step, gain.item(), loss_of_sums.item())
    return head.eval()


def patch_gain(
    head: JointHead,
    data: HeadData,
    settings: HeadTraining,
    scale: int,
    generator: torch.Generator,
) -> Tensor:
    """Return the log likelihood of patches above that of independent errors, per value."""
    side = settings.patch
    weights, fields = _windows(head, data, side, settings.batch, scale, generator)
    together = log_density(fields, weights, head.bank())
    apart = -(fields.square() + math.log(2 * math.pi)).sum((1, 2, 3)) / 2
    # A few patches in which nearly everything is wrong would outweigh all others.
    gains = (together - apart) / fields[0].numel()
    return gains.clamp_min(-5).mean()


def _windows(
    head: JointHead,
    data: HeadData,
    side: int,
    count: int,
    scale: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Return weights and fields of patches at random places, ``(count, ..., side, side)`` each."""
    inputs = -(-side // scale) + 1  # a patch may begin anywhere in an input pixel
    number, tops, lefts = _places(data, inputs + 2, count, generator)
    features = torch.stack(
        [
            data.features[n, :, y : y + inputs + 2, x : x + inputs + 2]
            for n, y, x in zip(number, tops, lefts, strict=True)
        ]
    )
    weights = head(features.float())
    down, right = (
        torch.randint(scale * inputs - side + 1, (count,), generator=generator).tolist()
        for _ in range(2)
    )
    shares, fields, stds = [], [], []
    for index in range(count):
        y, x = scale + down[index], scale + right[index]  # the first input pixel is the border
        shares.append(weights[index, :, y : y + side, x : x + side])
        y, x = y + scale * tops[index], x + scale * lefts[index]
        place = (number[index], slice(None), slice(y, y + side), slice(x, x + side))
        fields.append(data.fields[place])
        stds.append(data.std[place])
    return with_noise(torch.stack(shares), torch.stack(stds)), torch.stack(fields)


def _places(
    data: HeadData, side: int, count: int, generator: torch.Generator
) -> tuple[list[int], list[int], list[int]]:
    height, width = data.features.shape[-2:]
    limits = (len(data.features), height - side + 1, width - side + 1)
    number, tops, lefts = (
        torch.randint(limit, (count,), generator=generator).tolist() for limit in limits
    )
    return number, tops, lefts


def sum_loss(
    head: JointHead,
    data: HeadData,
    settings: HeadTraining,
    scale: int,
    generator: torch.Generator,
) -> Tensor:
    """Return the mean loss of the standard deviations of box means and profiles."""
    losses = [
        _loss_in_window(head, data, settings, scale, generator) for _ in range(settings.windows)
    ]
    return torch.stack(losses).mean() if losses else torch.zeros((), device=data.features.device)


def _loss_in_window(
    head: JointHead,
    data: HeadData,
    settings: HeadTraining,
    scale: int,
    generator: torch.Generator,
) -> Tensor:
    side, channels = settings.window // scale, data.std.shape[1]
    (number,), (top,), (left,) = _places(data, side + 2, 1, generator)
    features = data.features[number, :, top : top + side + 2, left : left + side + 2]
    weights = head(features[None].float())[..., scale:-scale, scale:-scale]
    rows, columns = (
        slice(scale * (first + 1), scale * (first + 1 + side)) for first in (top, left)
    )
    patterns = random_sums(settings.sums, channels, scale * side, generator).to(weights.device)
    std, hidden = (part[number, :, rows, columns] for part in (data.std, data.hidden))
    errors = (patterns * hidden).sum((1, 2, 3))
    unseen = without_visible_part(patterns, scale)
    rounding = spread_of_input(patterns, scale).square().sum((1, 2, 3)) * ROUNDING_VARIANCE
    weights = with_noise(weights, std[None]).expand(settings.sums, -1, -1, -1)
    variances = sum_variances(unseen * std, weights, head.bank())
    total = variances + rounding
    return (student_loss(errors, total) + quantile_loss(errors, total)).mean()


def student_loss(errors: Tensor, variances: Tensor, *, freedom: float = 5.0) -> Tensor:
    """Return the negative log-likelihood by Student's t-distribution, without its constant.

    Its long tails keep a few sums that are far off from setting the widths of all others.
    """
    squares = errors.square() / (freedom * variances)
    return variances.log() / 2 + (freedom + 1) / 2 * torch.log1p(squares)


def quantile_loss(errors: Tensor, variances: Tensor, *, coverage: float = 0.9) -> Tensor:
    """Return the pinball loss of the logarithm of intervals at a coverage.

    It is least where intervals of a normal distribution hold just this share, in all sizes and
    places, whatever the tails are. So one factor serves them all.
    """
    half_widths = normal_factor(coverage) * variances.sqrt()
    above = (errors.abs().clamp_min(1e-6) / half_widths).log()
    return torch.where(above > 0, coverage * above, (coverage - 1) * above)


def random_sums(count: int, channels: int, side: int, generator: torch.Generator) -> Tensor:
    """Return the weights of random box means and profiles, ``(count, C, side, side)``.

    They lie in the middle, so that what the input says about them lies inside, too.
    """
    sizes = ((4, 4), (8, 8), (16, 16), (32, 32), (1, 16), (16, 1))
    patterns = torch.zeros(count, channels, side, side)
    for pattern in patterns:
        size = sizes[int(torch.randint(len(sizes), (), generator=generator))]
        margin = max(0, (side - 32) // 2)
        top, left = (
            margin + int(torch.randint(32 - length + 1, (), generator=generator)) for length in size
        )
        box = (slice(top, top + size[0]), slice(left, left + size[1]))
        pattern[(slice(None), *box)] = 1 / (channels * size[0] * size[1])
        if int(torch.randint(4, (), generator=generator)) == 0:
            only = int(torch.randint(channels, (), generator=generator))
            pattern[torch.arange(channels) != only] = 0
            pattern *= channels
    return patterns


@torch.no_grad()
def mean_gain(
    head: JointHead, data: HeadData, *, scale: int, patch: int, count: int, seed: int = 1
) -> float:
    """Return the mean likelihood gained per value over random patches, such as held-out ones."""
    generator, settings = torch.Generator().manual_seed(seed), HeadTraining(patch=patch, batch=32)
    gains = [
        float(patch_gain(head, data, settings, scale, generator)) for _ in range(-(-count // 32))
    ]
    return sum(gains) / len(gains)
