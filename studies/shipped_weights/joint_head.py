"""Train the joint head of shipped weights, calibrate it, and store it with them.

``python -m studies.shipped_weights.joint_head NAME SCALE OUTPUT.safetensors --steps 3000 --crops
600`` trains a head beside the frozen mean and sigma of the weights that ship under a name, on crops
of the training pictures. Then it fits the factors of quantities on ``DIV2K_crops`` and writes the
file. The calibration of single values gets further coverages on the same images, which ``musigma
audit`` needs. Weights and digest of the network stay as they are. ``--device cuda`` trains on a
GPU; larger patches (``--patch 16 --batch 128``) are affordable there. ``--start FILE`` trains a
head further, and with ``--steps 0`` only calibrates it anew.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from musigma.datasets.catalog import find_dataset
from musigma.evaluation.joint import with_joint_errors
from musigma.evaluation.selection import select_inputs
from musigma.model import Model, load
from musigma.networks.joint_head import JointHead, joint_head
from musigma.training.joint import (
    HeadData,
    HeadTraining,
    collect,
    mean_gain,
    random_crops,
    train_joint_head,
    with_flaws,
)
from studies.shipped_weights.more_coverages import HELD_OUT, with_more_coverages

TRAINING_SETS = ("BSD400", "cid22", "clic", "photos")  # or another choice by --data


def training_data(
    model: Model, sets: Sequence[str], crop: int, count: int, seed: int, *, flawed: float = 0.0
) -> HeadData:
    """Return features and residuals of random crops of the training pictures."""
    paths = [item.target for name in sets for item in find_dataset(name).items]
    crops = random_crops(paths, crop, count, seed=seed)
    return collect(model, with_flaws(crops, flawed, seed=seed))


def held_out_data(model: Model, crop: int, count: int) -> HeadData:
    """Return the same of held-out pictures, to watch the training by."""
    paths = [item.target for item in find_dataset(HELD_OUT).items]
    return collect(model, random_crops(paths, crop, count, seed=0))


class Watch:
    """Prints how the training goes."""

    def __init__(self, every: int) -> None:
        self.every, self.start = every, time.monotonic()
        self.gains: list[float] = []
        self.sums: list[float] = []

    def __call__(self, step: int, gain: float, sums: float) -> None:
        """Remember a step, and print the means of the last ones now and then."""
        self.gains.append(gain)
        self.sums.append(sums)
        if (step + 1) % self.every == 0:
            means = [sum(row[-self.every :]) / self.every for row in (self.gains, self.sums)]
            seconds = time.monotonic() - self.start
            print(f"{step + 1}: {means[0]:.4f} {means[1]:.4f} ({seconds:.0f} s)", flush=True)


def train(model: Model, arguments: argparse.Namespace, start: JointHead | None) -> JointHead:
    """Train a new head, or one further, and print its gain on held-out patches."""
    settings = HeadTraining(
        steps=arguments.steps,
        patch=arguments.patch,
        batch=arguments.batch,
        windows=arguments.windows,
        sums_weight=arguments.sums_weight,
        learning_rate=arguments.learning_rate,
        seed=arguments.seed,
    )
    data = training_data(
        model,
        arguments.data,
        settings.crop,
        arguments.crops,
        arguments.seed,
        flawed=arguments.flawed,
    )
    print(f"{len(data.features)} crops on {data.features.device}", flush=True)
    head = start or joint_head(model.network, fields=arguments.fields, width=arguments.width)
    watch = Watch(max(1, arguments.steps // 20))
    head = train_joint_head(model, data, settings, head=head, report=watch)
    held_out = held_out_data(model, settings.crop, 50)
    for patch in (8, 12, 16):
        gain = mean_gain(head, held_out, scale=model.scale, patch=patch, count=320)
        print(f"held-out patches of {patch}: {gain:.4f} nat per value", flush=True)
    return head


def main(arguments: argparse.Namespace) -> None:
    """Train, calibrate and write the file."""
    model = load(arguments.name, scale=arguments.scale).to(arguments.device)
    head, metadata = started_head(arguments.start) if arguments.start else (None, {})
    if arguments.steps:
        head, metadata = train(model, arguments, head), {"joint_training": described(arguments)}
    # The factors are fitted for what is stored, in half precision.
    replace(model, joint_head=head).save(arguments.output, half=True, **metadata)
    calibrate(arguments.output, arguments.held_out_step)


def started_head(path: Path) -> tuple[JointHead | None, dict[str, object]]:
    """Return the head of a file, and what the file says about its training."""
    model = load(path)
    stated = {key: value for key, value in model.metadata.items() if key == "joint_training"}
    return model.joint_head, stated


def described(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the settings of a training that its weights file states."""
    left_out = ("name", "scale", "output", "start", "device", "held_out_step")
    return {key: value for key, value in vars(arguments).items() if key not in left_out}


def calibrate(path: Path, step: int) -> None:
    """Fit the factors of quantities, and further coverages of single values, on held-out images."""
    model = load(path)
    dataset, protocols = select_inputs(model.network, HELD_OUT)
    calibration = with_more_coverages(model, dataset, protocols[0])
    model = replace(model, calibration=calibration)
    fewer = replace(dataset, items=dataset.items[::step])
    fitted, quantities = with_joint_errors(model, fewer, protocols)
    joint = fitted.require_joint()
    print(f"power {joint.power:g}")
    for share, factor in joint.factors:
        held = {name: round(v, 3) for name, v in quantities.coverage_by_kind(factor).items()}
        print(f"{share:g}: factor {factor:.3f}", json.dumps(held))
    fitted.save(path, half=True)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("scale", type=int)
    parser.add_argument("output", type=Path)
    parser.add_argument("--start", type=Path, help="a file whose head is trained further")
    parser.add_argument("--data", nargs="+", default=list(TRAINING_SETS), help="training sets")
    parser.add_argument("--device", default="cpu")
    for option, default in (
        ("steps", 3000),
        ("crops", 600),
        ("patch", 12),
        ("batch", 32),
        ("windows", 2),
        ("fields", 24),
        ("width", 96),
        ("seed", 0),
        ("held-out-step", 1),
    ):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--sums-weight", type=float, default=0.1)
    parser.add_argument(
        "--flawed", type=float, default=0.3, help="share of crops with noise or JPEG"
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    main(parse())
