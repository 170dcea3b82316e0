"""Measure what the joint head costs, and how fast samples are drawn.

``python -m studies.measurements.joint_speed MODEL SCALE RECORD.json`` times a pass with the joint
head and one with sigma alone, in turn, for an input whose result has 1280x720 pixels, and then
draws samples of that size. All times are on the clock and include the way to and from the device.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from musigma.evaluation.record import Record, provenance
from musigma.model import load
from musigma.prediction.device import select_device_and_threads
from musigma.uncertainty.joint_prediction import draw_pictures

HEIGHT, WIDTH = 720, 1280
"""Of the result, in pixels."""

ROUNDS, NUM_SAMPLES = 9, 32


def seconds_of(*passes: Callable[[], object], rounds: int) -> list[float]:
    """Return the median times of functions that are called in turn, after two calls of each."""
    times: list[list[float]] = [[] for _ in passes]
    for number in range(rounds + 2):
        for run, own in zip(passes, times, strict=True):
            start = time.perf_counter()
            run()
            if number >= 2:
                own.append(time.perf_counter() - start)
    return [median(own) for own in times]


def main(name: str, scale: int, path: Path, *, device: str, rounds: int) -> None:
    """Measure, write the record, and print the main numbers."""
    selected = select_device_and_threads(device)
    model = load(name, scale=scale).to(selected)
    image = torch.rand(
        1, 3, HEIGHT // scale, WIDTH // scale, generator=torch.Generator().manual_seed(0)
    )
    correlation = model.require_joint().correlation
    with_head, with_sigma = seconds_of(
        lambda: model.predict_errors(image, correlation),
        lambda: model.predict(image),
        rounds=rounds,
    )
    prediction = model.predict_joint(image)
    (drawing,) = seconds_of(
        lambda: draw_pictures(prediction, NUM_SAMPLES, seed=0, device=selected), rounds=rounds
    )
    result = {
        "with_head_ms": round(1e3 * with_head, 2),
        "with_sigma_ms": round(1e3 * with_sigma, 2),
        "head_cost": round(with_head / with_sigma, 3),
        "samples_per_second": round(NUM_SAMPLES / drawing, 1),
    }
    Record(
        kind="benchmark",
        model={"name": model.name, "scale": scale, "digest": model.digest},
        protocol={
            "name": "joint-speed",
            "height": HEIGHT,
            "width": WIDTH,
            "rounds": rounds,
            "samples": NUM_SAMPLES,
        },
        data={"name": "random values", "hash": "generated"},
        result=result,
        provenance=provenance(selected),
    ).save(path)
    print(", ".join(f"{key} {value}" for key, value in result.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("scale", type=int)
    parser.add_argument("record", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    main(
        arguments.model,
        arguments.scale,
        arguments.record,
        device=arguments.device,
        rounds=arguments.rounds,
    )
