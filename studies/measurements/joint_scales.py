"""Compare scales of the intervals of quantities: what a half width may be proportional to.

``python -m studies.measurements.joint_scales MODEL SCALE RECORD.json`` measures quantities at
random places of ``DIV2K_crops``. In five folds of the pictures, each scale and its factor are
fitted on four folds, by the rule of the calibration, and intervals of 90 % are counted on the
fifth. Tried are the joint standard deviation, fixed and fitted powers of it, and log-linear scales
with more numbers. Widths are those over independent bars with a factor for each kind of quantity,
which is fitted in the same folds.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from musigma.evaluation.joint import held_out_pictures
from musigma.model import Model, load
from musigma.uncertainty.quantities import (
    PROBES_PER_IMAGE,
    SMALLEST,
    probe_all,
    probe_patterns,
)
from studies.measurements.joint_sets import every, save_record

HELD_OUT = "DIV2K_crops"
COVERAGE = 0.9
COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)
NUM_FOLDS = 5
ROUNDS = 3
"""So many times the usual number of places is measured in each picture."""

POWERS = (0.97, 0.95, 0.93, 0.92, 0.91, 0.9, 0.88, 0.86, 0.8)
SOFTNESS = 0.05
"""The pinball loss is rounded off over this part of a logarithm, so that it has a gradient."""

Array = NDArray[np.float64]
Fit = Callable[[NDArray[np.bool_]], Array]
"""Takes which quantities may be used, and returns the scales of all of them."""


class Measured(NamedTuple):
    """Quantities, one value for each: ``(n,)``."""

    image: Array
    kind: NDArray[np.str_]
    error: Array
    joint_error: Array
    joint_std: Array
    independent_std: Array
    num_pixels: Array


def measured(model: Model) -> Measured:
    """Measure quantities at random places of all held-out pictures."""
    dataset, protocol = every(model, HELD_OUT)
    sizes = {
        name: float(patterns[0].abs().sum() ** 2 / patterns[0].square().sum())
        for name, patterns in probe_patterns(3).items()
    }
    rows: list[tuple[Any, ...]] = []
    correlation = model.require_joint().correlation
    for number, picture in enumerate(held_out_pictures(model, dataset, [protocol], correlation)):
        for part in range(ROUNDS):
            seed = number + part * len(dataset.items)
            for kind, probes in probe_all(picture.residual, picture.errors, seed=seed):
                for error, joint_error, joint, independent, _ in zip(*probes, strict=True):
                    values = (float(v) for v in (error, joint_error, joint, independent))
                    rows.append((number, kind, *values, sizes[kind]))
    return Measured(*(np.array(column) for column in zip(*rows, strict=True)))


def folds(found: Measured) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_], float]]:
    """Yield which quantities fit and which are counted, and the share that the fit has to hold."""
    for fold in range(NUM_FOLDS):
        counted = found.image % NUM_FOLDS == fold
        num_images = len(np.unique(found.image[~counted]))
        yield ~counted, counted, COVERAGE * (1 + 1 / num_images)


def half_widths(found: Measured, fit: Fit, errors: Array, *, by_kind: bool = False) -> Array:
    """Return half widths of intervals that were fitted on the other folds.

    Args:
        found: Quantities.
        fit: Gives their scales.
        errors: What the intervals have to hold.
        by_kind: Whether each kind of quantity has a factor of its own.
    """
    widths = np.zeros(len(errors))
    groups = np.unique(found.kind) if by_kind else [None]
    for used, counted, share in folds(found):
        scales = fit(used)
        for group in groups:
            own = np.ones(len(errors), bool) if group is None else found.kind == group
            ratios = np.abs(errors[used & own]) / scales[used & own]
            factor = np.quantile(ratios, share, method="inverted_cdf")
            widths[counted & own] = factor * scales[counted & own]
    return widths


def exponents(numbers: Array, targets: Array, coverage: float = COVERAGE) -> Array:
    """Return the slopes of a linear quantile regression.

    Args:
        numbers: ``(n, number of slopes)``.
        targets: ``(n,)``.
        coverage: The quantile.

    Example:
        >>> x = np.linspace(0, 1, 200)[:, None]
        >>> [round(slope, 2) for slope in exponents(x, 3 * x[:, 0]).tolist()]
        [3.0]
    """
    spread = numbers.std(0)
    inputs = torch.from_numpy((numbers - numbers.mean(0)) / spread)
    inputs = torch.cat([torch.ones(len(inputs), 1, dtype=torch.float64), inputs], 1)
    wanted = torch.from_numpy(targets)
    slopes = torch.zeros(inputs.shape[1], dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([slopes], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        search.zero_grad()
        rest = wanted - inputs @ slopes
        soft = SOFTNESS * torch.nn.functional.softplus(-rest / SOFTNESS)
        value = (coverage * rest + soft).mean()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    search.step(loss)  # type: ignore[no-untyped-call]
    result: Array = slopes.detach().numpy()[1:] / spread
    return result


def log_linear(found: Measured, *numbers: Array) -> Fit:
    """Return a scale whose logarithm is a sum of logarithms with fitted exponents."""
    logs = np.log(np.stack(numbers, 1))
    targets = np.log(np.abs(found.joint_error) + SMALLEST)

    def fit(used: NDArray[np.bool_]) -> Array:
        logarithm = (logs - logs.mean(0)) @ exponents(logs[used], targets[used])
        return np.exp(logarithm)

    return fit


def constant(scales: Array) -> Fit:
    """Return scales that need no fit."""
    return lambda _: scales


def tenths(found: Measured) -> NDArray[np.int64]:
    """Return for each quantity its tenth among the standard deviations of its kind, 1 to 10."""
    result = np.zeros(len(found.kind), np.int64)
    for kind in np.unique(found.kind):
        own = found.kind == kind
        limits = np.quantile(found.joint_std[own], np.arange(0.1, 1, 0.1))
        result[own] = 1 + np.searchsorted(limits, found.joint_std[own])
    return result


def row(found: Measured, widths: Array, independent: Array) -> dict[str, Any]:
    """Return coverage and width of each kind, and the coverage by standard deviation."""
    inside = np.abs(found.joint_error) <= widths
    result: dict[str, Any] = {}
    for kind in dict.fromkeys(found.kind.tolist()):
        own = found.kind == kind
        result[kind] = {
            "coverage": float(inside[own].mean()),
            "width_over_independent": float(widths[own].mean() / independent[own].mean()),
        }
    parts = tenths(found)
    result["coverage_by_tenth_of_std"] = {
        str(part): float(inside[parts == part].mean()) for part in range(1, 11)
    }
    return result


def compared(found: Measured) -> dict[str, Any]:
    """Return a row for each scale, and the fitted power by coverage."""
    std = found.joint_std
    independent = half_widths(found, constant(found.independent_std), found.error, by_kind=True)
    fits: dict[str, Fit] = {"one factor": constant(std)}
    fits |= {f"power {power}": constant(std**power) for power in POWERS}
    fits |= {
        "power, fitted": log_linear(found, std),
        "and the independent standard deviation": log_linear(found, std, found.independent_std),
        "and the number of pixels": log_linear(found, std, found.num_pixels),
        "and both": log_linear(found, std, found.independent_std, found.num_pixels),
    }
    errors = found.joint_error
    rows = {
        name: row(found, half_widths(found, fit, errors), independent) for name, fit in fits.items()
    }
    by_kind = half_widths(found, constant(std), errors, by_kind=True)
    rows["factor for each kind"] = row(found, by_kind, independent)
    targets = np.log(np.abs(errors) + SMALLEST)
    rows["power_by_coverage"] = {
        f"{100 * coverage:g}": float(exponents(np.log(std)[:, None], targets, coverage)[0])
        for coverage in COVERAGES
    }
    return rows


def main(name: str, scale: int, record: Path) -> None:
    """Compare the scales and write the record."""
    model = load(name, scale=scale)
    found = measured(model)
    rows = compared(found)
    for label, result in rows.items():
        if label != "power_by_coverage":
            box, line = result["box 4"], result["profile 16"]
            print(
                f"{label}: boxes of 4 pixels {100 * box['coverage']:.1f} %, width "
                f"{box['width_over_independent']:.3f}; profiles {100 * line['coverage']:.1f} %, "
                f"{line['width_over_independent']:.3f}"
            )
    save_record(
        record,
        model,
        {HELD_OUT: {"num_images": len(np.unique(found.image))}},
        sets=[HELD_OUT],
        protocol={
            "name": "joint-scales",
            "folds": NUM_FOLDS,
            "places": ROUNDS * PROBES_PER_IMAGE,
            "coverage": COVERAGE,
        },
        result=rows,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="name of shipped weights, or a weights file")
    parser.add_argument("scale", type=int)
    parser.add_argument("record", type=Path)
    main(**vars(parser.parse_args()))
