"""Store factors for further coverages in weights that are calibrated for one.

``python -m studies.shipped_weights.more_coverages NAME SCALE OUTPUT.safetensors`` runs weights that
ship over ``DIV2K_crops``, by the protocol of their calibration, and fits a factor for each of
`musigma.uncertainty.methods.COVERAGES`. The stored factor must come out again; it, the conditions
and the tensors stay as they are.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from musigma.datasets.catalog import Dataset, describe_data
from musigma.evaluation.calibrate import collect_held_out
from musigma.evaluation.protocol import Protocol
from musigma.evaluation.selection import select_inputs
from musigma.model import Model, load
from musigma.types import ConfigError
from musigma.uncertainty.calibration import Calibration
from musigma.uncertainty.fitting import fit
from musigma.uncertainty.methods import COVERAGES, DEFAULT_CONFIDENCE

HELD_OUT = "DIV2K_crops"
TOLERANCE = 1e-3
"""Largest relative difference of the stored factor from the one that is fitted again."""


def with_more_coverages(model: Model, dataset: Dataset, protocol: Protocol) -> Calibration:
    """Return the calibration of a model, with factors for other coverages.

    Raises:
        ConfigError: If it was fitted on other images or inputs, or its factor does not come out.
    """
    stored = model.require_calibration()
    conditions: list[tuple[str, Any, Any]] = [
        ("inputs", stored.protocol, protocol.as_json()),
        ("images", stored.data, describe_data(dataset)),
    ]
    for name, before, now in conditions:
        if before != now:
            raise ConfigError(f"the calibration has other {name}: {before}, and not {now}")
    fitted = fit(
        collect_held_out(model, dataset, protocol),
        stored.method,
        coverage=stored.coverage,
        confidence=stored.confidence or DEFAULT_CONFIDENCE,
        other_coverages=COVERAGES,
    )
    if abs(fitted.factor / stored.factor - 1) > TOLERANCE:
        raise ConfigError(
            f"the stored factor is {stored.factor:.4f}, and these images give {fitted.factor:.4f}"
        )
    return replace(stored, other_factors=fitted.other_factors)


def main(words: Sequence[str] | None = None) -> None:
    """Fit the factors and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("scale", type=int)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args(words)
    model = load(arguments.name, scale=arguments.scale)
    level = (model.require_calibration().protocol or {}).get("noise_std")
    dataset, protocols = select_inputs(model.network, HELD_OUT, noise_std=level)
    calibration = with_more_coverages(model, dataset, protocols[0])
    replace(model, calibration=calibration).save(arguments.output, half=True)
    if load(arguments.output).digest != model.digest:
        raise ConfigError(f"{arguments.output} has other tensors; do not use it")
    print(f"{calibration.coverage:g}: {calibration.factor:.4f}")
    for coverage, factor in calibration.other_factors:
        print(f"{coverage:g}: {factor:.4f}")


if __name__ == "__main__":
    main()
