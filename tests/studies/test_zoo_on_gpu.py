"""Every network of the study trains on a GPU with the product's step: finite, and falling.

`python -m studies bench zoo` measures the same and records it.
"""

import math

import pytest
import torch

from studies.bench.training import drawn_bank, measure_step
from studies.training_runs.zoo import FULL, REFERENCE, zoo_plans, zoo_recipes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch.compile's own code
]
PLANS = {plan.name: plan for plan in zoo_plans()}


@pytest.mark.parametrize("objective", [REFERENCE, FULL], ids=["mean", "sigma"])
@pytest.mark.parametrize("name", PLANS)
def test_the_loss_falls_in_fifty_steps(name, objective):
    recipe = zoo_recipes(PLANS[name])[objective]
    device = torch.device("cuda")
    measured = measure_step(recipe, drawn_bank(recipe, device), device, num_steps=20)
    assert math.isfinite(measured["last_loss"])
    assert measured["last_loss"] < measured["first_loss"]
