"""Figures of the objectives: how sigma collapses, and what the naive setting asks of it."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from musigma.datasets.demo_photo import portrait
from musigma.datasets.patch_bank import Bank, build_bank
from musigma.degradations import Bicubic
from musigma.functional.color import to_uint8
from musigma.functional.objectives import laplace_nll
from musigma.losses import Objective
from musigma.networks import create, with_sigma
from studies.paper.figures.style import (
    COLORS,
    INK,
    QUIET,
    Drawing,
    label_ends,
    new_figure,
    style,
)
from studies.paper.measurements import RecordSet

NUM_STEPS, EVERY = 240, 6


class Trace(NamedTuple):
    """What happened to sigma, in levels of 255: its mean and the error's, ``(steps, channels)``."""

    sigma: Tensor
    error: Tensor


def train_tiny(text: str, bank: Bank, *, num_steps: int = NUM_STEPS, seed: int = 0) -> Trace:
    """Train a tiny EDSR with a sigma branch and watch sigma.

    Args:
        text: The objective.
        bank: Of x2 patches.
        num_steps: Of Adam, at a rate of 1e-3 on batches of 4.
        seed: Of initial weights, patches and noise.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # layers draw their initial weights from no other generator
        base = create("edsr-baseline", scale=2, num_blocks=2, width=12)
        network = with_sigma(base, width=12, depth=2)
    objective, noise = Objective(text), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    sigmas, errors = [], []
    for step in range(num_steps):
        low, target, *_ = bank.sample(torch.tensor(step), batch=4, seed=seed)
        prediction = network(low)
        optimizer.zero_grad()
        objective(prediction, target, generator=noise).backward()
        optimizer.step()
        assert prediction.sigma is not None
        sigmas.append(prediction.sigma.detach().mean((0, 2, 3)))
        errors.append((prediction.mean - target).detach().abs().mean((0, 2, 3)))
    return Trace(255 * torch.stack(sigmas), 255 * torch.stack(errors))


@style()
def draw_collapse(record_set: RecordSet) -> Drawing:  # noqa: ARG001 - every figure is given the records
    """Draw mean sigma of each channel over the steps, under two objectives."""
    bank = build_bank(
        [to_uint8(portrait())[0]], degradation=Bicubic(2), patch=24, device=torch.device("cpu")
    )
    figure = new_figure(3.3)
    panels = figure.subplots(1, 2, sharey=True)
    titles = {
        "learned_sigma": "sigma inside the loss collapses",
        "expected_l1 + 0.01 * sigma_l1": "with the auxiliary loss it follows the error",
    }
    channels = dict(zip("RGB", (COLORS[1], COLORS[2], COLORS[0]), strict=True))
    for axes, (text, title) in zip(panels, titles.items(), strict=True):
        trace = train_tiny(text, bank)
        lines = {"|error|": (trace.error.mean(1), QUIET)} | {
            name: (trace.sigma[:, number], color)
            for number, (name, color) in enumerate(channels.items())
        }
        axes.set(yscale="log", xlabel="step", xlim=(0, NUM_STEPS), ylim=(0.01, 100))
        axes.set_title(title, loc="left")
        axes.yaxis.set_major_formatter("{x:g}")
        # The channels nearly coincide: each next line is thinner and leaves the last one visible.
        for width, (values, color) in zip((1.5, 4, 2.5, 1), lines.values(), strict=True):
            smooth = values.reshape(-1, EVERY).mean(1)
            at = torch.arange(len(smooth)) * EVERY + EVERY / 2
            axes.plot(at.numpy(), smooth.numpy(), color=color, linewidth=width)
        label_ends(axes, {n: (float(v[-EVERY:].mean()), c) for n, (v, c) in lines.items()})
    panels[0].set_ylabel("mean (levels of 255)")
    caption = (
        "Mean sigma of the channels R, G and B, and the mean absolute error, of a tiny EDSR x2 in "
        f"its first {NUM_STEPS} steps on one photo, averaged over {EVERY} steps. Left: eq. (6) of "
        "the paper; by Jensen's inequality its best sigma is 0. Right: l_E + 0.01 sigma_l1; sigma "
        "lies below the mean because it is a median. A small run on the CPU at a fixed seed, made "
        "with the figure."
    )
    return Drawing(figure, caption)


@style()
def draw_landscape(record_set: RecordSet) -> Drawing:  # noqa: ARG001 - every figure is given the records
    """Draw ``log s + |e| / s`` and its slope over s, for errors of several sizes."""
    figure = new_figure(3.3)
    left, right = figure.subplots(1, 2)
    sigma = torch.linspace(0.1, 20, 996, dtype=torch.float64, requires_grad=True)
    ends = {}
    for color, error in zip(COLORS, (1.0, 3.3, 5.0, 10.0), strict=False):
        values = naive_objective(sigma, error)
        (slope,) = torch.autograd.grad(values.sum(), sigma)
        star: Any = {"marker": "*", "color": color, "markersize": 11}
        left.plot(sigma.detach().numpy(), values.detach().numpy(), color=color)
        right.plot(sigma.detach().numpy(), slope.numpy(), color=color)
        left.plot(error, math.log(error) + 1, **star)
        right.plot(error, 0, **star)
        ends[f"|e| = {error:g}"] = (values[-1].item(), color)
    right.plot([0, 3.3, 3.3, 20], [-1, -1, 1, 1], color=INK, linewidth=1, linestyle=(0, (4, 3)))
    right.text(19.8, 0.95, "auxiliary loss, |e| = 3.3", ha="right", va="top", color=INK)
    for axes in (left, right):
        axes.set(xlim=(0, 20), xticks=range(0, 21, 5), xlabel="sigma (levels of 255)")
    left.set(ylim=(0.5, 5.5), yticks=range(1, 6))
    label_ends(left, ends)
    right.set(ylim=(-1.5, 1.25))
    left.set_title("log sigma + |e| / sigma", loc="left")
    right.set_title("its slope vanishes round the optimum", loc="left")
    caption = (
        "The naive setting, log sigma + |e| / sigma, over sigma, and its derivative, for four "
        "absolute errors in levels of 255; 3.3 is the mean training error of x2 that the paper "
        "names. Stars: the optimum sigma = |e|. Dashed: the auxiliary loss |sigma - |e||, whose "
        "slope is 1 all the way to the same optimum."
    )
    return Drawing(figure, caption)


def naive_objective(sigma: Tensor, error: float) -> Tensor:
    """The naive objective for one error, of the library's own function.

    Example:
        >>> round(float(naive_objective(torch.tensor(2.0), 2.0)), 4)  # log 2 + 1
        1.6931
    """
    target = torch.zeros_like(sigma)
    return laplace_nll(target + error, target, sigma, floor=1e-6)
