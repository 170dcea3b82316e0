"""The time of a training step with bicubic inputs and with those of the chain for photographs.

``MUSIGMA_DATA=... python -m studies.measurements.degraded_step STEPS`` prints milliseconds per step
of the recipe ``photo`` on BSD400, the median of five rounds.
"""

import sys
import time
from statistics import median

import torch

from musigma.losses import Objective
from musigma.prediction.device import select_device
from musigma.training.recipe import load_recipe
from musigma.training.setup import build_network, load_bank
from musigma.training.step import Step

ROUNDS = 5


def milliseconds(degrade: str, *, scale: int, num_steps: int) -> float:
    """Return the time of a step with inputs made in a way."""
    device = select_device("auto")
    changes = [f"scale={scale}", f"degrade={degrade!r}", 'data=["BSD400"]', "shrink=[]"]
    recipe = load_recipe("photo", changes)
    objective, bank = Objective(recipe.objective), load_bank(recipe, device)
    step = Step(recipe, build_network(recipe), objective, bank, device=device)
    step.prepare()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(num_steps):
            step(1e-5)
        step.read_loss(num_steps)  # waits for the device
        times.append((time.perf_counter() - start) / num_steps * 1e3)
    return median(times)


def main(num_steps: int) -> None:
    """Print the times at x2 and x4."""
    print(torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU")
    for scale in (2, 4):
        plain, chain = (
            milliseconds(degrade, scale=scale, num_steps=num_steps) for degrade in ("", "photo")
        )
        print(f"x{scale}: bicubic {plain:.3f} ms, photo {chain:.3f} ms, {chain / plain:.2f} times")


if __name__ == "__main__":
    main(int(sys.argv[1]))
