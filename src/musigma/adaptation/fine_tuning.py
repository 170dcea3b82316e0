"""The recipe of an adaptation: what is trained, for how long, with which loss."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from musigma.adaptation.source import Source
from musigma.functional.noisy_pairs import MeasuredNoise
from musigma.losses import parse
from musigma.model import Model
from musigma.networks import WithSigma
from musigma.training.recipe import Recipe
from musigma.types import ConfigError, MusigmaError

OBJECTIVE = "expected_l1 + 2.0 * sigma_l2"
"""The loss of the shipped weights, for weights that do not say theirs."""

NOISY_SIGMA_WEIGHT = 0.1
"""Weight of the loss of sigma over the variance of the noise: a tenth of the loss of the mean."""

PATCHES = {1: 96, 2: 32, 3: 24, 4: 24}
"""Side of an input patch by scale: small, so that a CPU makes many steps in the time."""

ON_CPU: Mapping[str, Any] = {"batch": 8, "ema": 0.99, "learning_rate": 1e-4}
ON_GPU: Mapping[str, Any] = {"batch": 32, "ema": 0.999, "learning_rate": 2e-4}
"""Batch and learning rate by device.

On a CPU, 5e-4 made the weights worse within 120 steps, and 2e-4 gained no more than 1e-4, which
does less harm where the time is short.
"""
MAX_VALIDATIONS = 5
VALIDATION_SHARE = 0.1
"""Share of the time that validations before the last one may take."""

SIGMA_DEPTH = 4


def make_recipe(
    source: Source,
    folder: Path,
    *,
    seconds: float,
    on_gpu: bool,
    seed: int,
    seconds_per_validation: float = 0.0,
    noise: MeasuredNoise | None = None,
) -> Recipe:
    """Return the recipe that adapts the weights of a source to its pictures.

    Args:
        source: The pictures and the weights.
        folder: Has the folders ``training`` and ``validation``.
        seconds: Time of the training.
        on_gpu: Whether a GPU trains.
        seed: Decides patches and noise.
        seconds_per_validation: Time of a validation.
        noise: Noise of the targets, where these are noisy.
    """
    network = source.model.network
    assert isinstance(network, WithSigma)
    if network.depth != SIGMA_DEPTH:
        raise ConfigError(
            f"the sigma branch of {source.start} has {network.depth} layers; only those of "
            f"{SIGMA_DEPTH} layers can be trained"
        )
    spec = network.build_spec
    patch = PATCHES[network.scale]
    return Recipe(
        network=spec.name,
        settings=dict(spec.settings),
        scale=network.scale,
        sigma=True,
        sigma_width=network.width,
        channels=_channels(network),
        start_from=_absolute(source.start),
        data=(str(folder / "training"),),
        validation=str(folder / "validation"),
        degrade=source.degrade,
        objective=objective_of(source.model) if noise is None else noisy_objective(noise),
        optimizer="muon",
        patch=patch,
        seconds=seconds,
        warmup=0.05,
        compile=False,
        seed=seed,
        log_every=10,
        save_every=50,
        validations=_num_validations(seconds, seconds_per_validation),
        keep_best=True,
        **(ON_GPU if on_gpu else ON_CPU),
    )


def objective_of(model: Model) -> str:
    """Return the loss that weights were trained with, so that sigma keeps its meaning."""
    stored = model.metadata.get("training", {}).get("recipe", {}).get("objective")
    try:
        return str(stored) if stored and parse(str(stored)).needs_sigma else OBJECTIVE
    except MusigmaError:  # it needs a teacher, or comes from a version that had other losses
        return OBJECTIVE


def noisy_objective(noise: MeasuredNoise) -> str:
    """Return the loss for noisy targets.

    The mean learns by squares: the best one is then the expected target, which is the clean scene
    for any noise of mean zero. By absolute errors it would be the median of the noisy target, which
    differs from the clean scene where the noise is skewed, as that of few photons is.

    Example:
        >>> from musigma.functional.poisson_gaussian import PoissonGaussian
        >>> noisy_objective(MeasuredNoise(PoissonGaussian(gain=0.0, std=25.5, black=0.0)))
        'l2 + 10 * sigma_variance(noise_std=0.1, noise_gain=0)'
    """
    typical = noise.std**2 + 0.5 * noise.gain
    settings = f"noise_std={noise.std:.6g}, noise_gain={noise.gain:.6g}"
    return f"l2 + {NOISY_SIGMA_WEIGHT / typical:.3g} * sigma_variance({settings})"


def _num_validations(seconds: float, each: float) -> int:
    fitting = int(VALIDATION_SHARE * seconds / each) if each else MAX_VALIDATIONS
    return max(1, min(fitting, MAX_VALIDATIONS))


def _channels(network: WithSigma) -> Any:
    return network.in_channels - network.takes_noise_level


def _absolute(start: str) -> str:
    return str(Path(start).absolute()) if Path(start).is_file() else start
