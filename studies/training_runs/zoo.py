"""The study over all networks of the paper's tables: which they are, and what their runs cost.

An entry of ``campaign.toml`` with ``zoo = true`` is one network with its budget. The table, the
figure, the benchmark of the step and the tests on a GPU all take the networks from there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from musigma.networks import num_params
from musigma.training.compiled_blocks import repeated_blocks
from musigma.training.recipe import Recipe
from studies.bench.training import meta_network, operations_of_step
from studies.commands.campaign import CAMPAIGN
from studies.training_runs.campaign import Job, Plan, load_campaign

REFERENCE = "l1"
FULL = "expected_l1 + 0.01 * sigma_l1"
"""The paper's full objective."""

LARGE = 5_000_000
"""Parameters from which on a network keeps the card busy."""

LARGE_RATE, SMALL_RATE = 150e12, 60e12
"""Operations per second that the steps of large, compiled networks and all others should reach."""

SHORTEST_STEP = 1e-3
"""Seconds of a step, however small the network is: about what launching and memory take."""

COMPILE, COMPILE_LAYER = 20.0, 0.4
"""Seconds that compiling a step takes, and those that each layer adds."""

CAPTURE = 5.0
"""Seconds until a step that is captured but not compiled is ready."""


@dataclass(frozen=True)
class Cost:
    """What the runs of one objective of an entry are expected to cost on an H200.

    Attributes:
        name: Of the entry and the objective.
        updates: Of each run.
        runs: How many runs there are.
        gigamacs: Multiply-adds of a forward pass of one patch, in units of 1e9.
        step: Seconds of a step.
        preparation: Seconds until the first step; runs that differ in the seed share them.
    """

    name: str
    updates: int
    runs: int
    gigamacs: float
    step: float
    preparation: float

    @property
    def seconds(self) -> float:
        """Seconds of all runs one after another, without the measurements."""
        return self.preparation + self.runs * self.updates * self.step


def zoo_plans(path: Path = CAMPAIGN, *, only: Sequence[str] | None = None) -> list[Plan]:
    """Return the entries of the study over all networks, or those named by `only`."""
    return [plan for plan in load_campaign(path, only=only) if plan.zoo]


def zoo_recipes(plan: Plan) -> dict[str, Recipe]:
    """Return the recipes of a network with l1 and with the full objective, by objective."""
    first = replace(plan, objectives=(REFERENCE, FULL), seeds=plan.seeds[:1])
    return {job.recipe.objective: job.recipe for job in first.jobs()}


def costs(jobs: Iterable[Job]) -> list[Cost]:
    """Return the expected cost of runs; runs that differ in the seed alone are one row."""
    rows: dict[str, tuple[Job, int]] = {}
    for job in jobs:
        name = job.name.rpartition("-s")[0]
        rows[name] = (job, rows[name][1] + 1 if name in rows else 1)
    return [_cost(name, job.recipe, count) for name, (job, count) in rows.items()]


def _cost(name: str, recipe: Recipe, count: int) -> Cost:
    network = meta_network(recipe)
    operations = operations_of_step(recipe)
    is_fast = recipe.compile and num_params(network) >= LARGE
    compiled = next(iter(repeated_blocks(network)), network)
    num_layers = sum(weight.ndim > 1 for weight in compiled.parameters())
    return Cost(
        name=name,
        updates=recipe.steps or 0,
        runs=count,
        gigamacs=operations / (6 * recipe.batch) / 1e9,
        step=max(SHORTEST_STEP, operations / (LARGE_RATE if is_fast else SMALL_RATE)),
        preparation=COMPILE + COMPILE_LAYER * num_layers if recipe.compile else CAPTURE,
    )
