"""Measure intervals of quantities on benchmark sets, beside two baselines.

``python -m studies.measurements.joint_rows MODEL SCALE RECORD.json --sets B100:5 Set14
Urban100:10`` restores every fifth picture of B100, and so on, with weights that have joint errors.
Everything was fitted on ``DIV2K_crops``; the factors of the baselines are fitted there as well,
here. For each set the record holds coverage and width of 90 % intervals of box means (4 to 32
pixels), 16-pixel profiles, the mean of one channel and differences, for ``joint`` (one factor), and
for ``independent`` and ``added``, as they are (the factor of a normal distribution) and with a
factor for each kind. It also holds the processor time of a pass with the joint head over that of a
pass with sigma alone. `studies.measurements.joint_likelihood` measures the likelihood, and
`studies.measurements.joint_samples` samples.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from musigma.evaluation.joint import held_out_pictures
from musigma.evaluation.restored_pairs import read_pair
from musigma.functional.scores import normal_factor
from musigma.model import Model, load
from musigma.uncertainty.metrics.joint import RULES, QuantityIntervals
from musigma.uncertainty.quantities import probe_all
from studies.measurements.joint_sets import SETS, every, save_record

HELD_OUT = "DIV2K_crops"
COVERAGE = 0.9
TIMED_PASSES = 7


def factors_by_kind(model: Model) -> dict[str, dict[str, float]]:
    """Fit a factor for each kind of quantity, by each rule, as the factors of the model were.

    That is on the same images, and with the share of conformal risk control.
    """
    metrics = {rule: QuantityIntervals(rule) for rule in RULES}
    dataset, protocol = every(model, HELD_OUT)
    correlation = model.require_joint().correlation
    for number, picture in enumerate(held_out_pictures(model, dataset, [protocol], correlation)):
        measured = list(probe_all(picture.residual, picture.errors, seed=number))
        for metric in metrics.values():
            metric.add(measured)
    share = COVERAGE * (1 + 1 / len(dataset.items))
    return {rule: metric.quantile(share) for rule, metric in metrics.items()}


def intervals_of(model: Model, fitted: dict[str, dict[str, float]]) -> dict[str, QuantityIntervals]:
    """Return a metric for each way to make intervals."""
    normal = normal_factor(COVERAGE)
    joint = model.require_joint()
    metrics = {"joint": QuantityIntervals(factors=joint.factor(COVERAGE), power=joint.power)}
    for rule in ("independent", "added"):
        metrics[f"{rule}, normal factor"] = QuantityIntervals(rule, factors=normal)
        metrics[f"{rule}, factor for each kind"] = QuantityIntervals(rule, factors=fitted[rule])
    return metrics


def measure_set(model: Model, text: str, fitted: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Measure one set."""
    metrics = intervals_of(model, fitted)
    correlation = model.require_joint().correlation
    dataset, protocol = every(model, text)
    for number, picture in enumerate(held_out_pictures(model, dataset, [protocol], correlation)):
        measured = list(probe_all(picture.residual, picture.errors, seed=number))
        for metric in metrics.values():
            metric.add(measured)
    return {
        "num_images": len(dataset.items),
        "intervals": {
            key: {quantity: scores._asdict() for quantity, scores in metric.compute().items()}
            for key, metric in metrics.items()
        },
    }


def head_cost(model: Model, text: str) -> float:
    """Return processor time of a pass with the joint head over that with sigma alone."""
    dataset, protocol = every(model, text)
    degraded = read_pair(dataset.items[0], protocol).degraded
    correlation = model.require_joint().correlation
    passes: tuple[Callable[[], object], ...] = (
        lambda: model.predict_errors(degraded, correlation),
        lambda: model.predict(degraded),
    )
    seconds: tuple[list[float], ...] = ([], [])
    for _ in range(TIMED_PASSES):  # in turn, since other programs may run beside them
        for run, times in zip(passes, seconds, strict=True):
            start = time.process_time()
            run()
            times.append(time.process_time() - start)
    return float(np.median(seconds[0]) / np.median(seconds[1]))


def print_set(name: str, result: dict[str, Any]) -> None:
    """Print the main numbers of a set."""
    print(name, flush=True)
    fitted = result["intervals"]["independent, factor for each kind"]
    for quantity, scores in result["intervals"]["joint"].items():
        narrower = scores["width"] / fitted[quantity]["width"]
        print(
            f"  {quantity}: {100 * scores['coverage']:.1f} % (independent with a factor "
            f"{100 * fitted[quantity]['coverage']:.1f} %), width {narrower:.3f} of that"
        )


def main(name: str, scale: int, record: Path, *, sets: list[str]) -> None:
    """Measure all sets and write the record."""
    model = load(name, scale=scale)
    fitted = factors_by_kind(model)
    measured = {}
    for text in sets:
        name_of_set = text.partition(":")[0]
        measured[name_of_set] = measure_set(model, text, fitted)
        print_set(name_of_set, measured[name_of_set])
    joint = model.require_joint()
    save_record(
        record,
        model,
        measured,
        sets=sets,
        protocol={"name": "joint-errors", "fitted_on": HELD_OUT, "coverage": COVERAGE},
        result={
            "factors": {str(share): factor for share, factor in joint.factors},
            "factors_by_kind": fitted,
            "fit_images": joint.num_images,
            "power": joint.power,
            "head_cost": head_cost(model, sets[0]),
        },
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="name of shipped weights, or a weights file")
    parser.add_argument("scale", type=int)
    parser.add_argument("record", type=Path)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    main(**vars(parser.parse_args()))
