"""What a user gave: clean pictures, pairs, or noisy pairs; and the weights that fit them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from musigma.datasets.catalog import Dataset, Item, find_dataset
from musigma.degradations import parse
from musigma.degradations.pairs import PAIRS
from musigma.images.decoding import declared_size
from musigma.model import Model, load
from musigma.networks import WithSigma
from musigma.networks.weights_file import shipped_weights
from musigma.types import ConfigError, DataError

Inputs = Literal["made", "pairs", "noisy-pairs"]

DEFAULT_SCALE = 2
"""The zoom factor where nothing says another one, as that of ``musigma upscale``."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What decides an adaptation; a run that is resumed must have the same.

    Attributes:
        pictures: Folder of the targets.
        low: Folder of inputs, named as the targets are.
        noisy_pairs: Folder of second noisy pictures of the same scenes, named as the first ones.
        degrade: Text form of how inputs are made from clean pictures.
        start: Name of shipped weights, or a weights file, with a sigma branch.
        scale: Zoom factor.
        value_range: Values of the files that are black and white, for measured values.
        minutes: Time that all of it may take.
        seed: Decides the split, the crops and the training.
    """

    pictures: str
    low: str | None = None
    noisy_pairs: str | None = None
    degrade: str | None = None
    start: str | None = None
    scale: int | None = None
    value_range: tuple[float, float] | None = None
    minutes: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        given = [name for name in ("degrade", "low", "noisy_pairs") if getattr(self, name)]
        if len(given) > 1:
            names = " and ".join("--" + name.replace("_", "-") for name in given)
            raise ConfigError(f"inputs come from one source: give one of {names}")
        if not 0 < self.minutes <= 60 * 24 * 7:
            raise ConfigError(f"--minutes must be above 0 and at most a week, got {self.minutes:g}")
        if self.noisy_pairs and self.scale not in (None, 1):
            raise ConfigError("two noisy pictures of a scene have one size: leave --scale out")

    def as_json(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        values = asdict(self)
        return values | {"value_range": self.value_range and list(self.value_range)}


@dataclass(frozen=True, kw_only=True)
class Source:
    """The pictures of a run and the weights it starts from.

    Attributes:
        dataset: The targets, with their inputs where these are read.
        inputs: Where the inputs come from.
        degrade: Text form of how inputs are made; ``pairs`` where they are read.
        start: Name or path of the weights.
        model: The weights.
        chosen: Sentences about what was chosen where the user did not say it.
    """

    dataset: Dataset
    inputs: Inputs
    degrade: str
    start: str
    model: Model
    chosen: tuple[str, ...]

    @property
    def scale(self) -> int:
        """Zoom factor."""
        return self.model.scale


def find_source(settings: Settings) -> Source:
    """Find the pictures, and decide what the user left open.

    Raises:
        DataError: Pictures are missing, or do not belong together.
        ConfigError: The weights cannot be adapted.
    """
    second = settings.noisy_pairs or settings.low
    folder = Path(settings.pictures).expanduser()
    known = folder.absolute() if settings.pictures and folder.is_dir() else settings.pictures
    dataset = find_dataset(
        known, scale=None if settings.degrade else settings.scale or DEFAULT_SCALE, degraded=second
    )
    inputs = _inputs_of(dataset, settings)
    scale = settings.scale or _scale_of(dataset, inputs, settings.start)
    start = settings.start or default_start(scale)
    model = _load_start(start, scale)
    chosen = [] if settings.start else [f"the weights to start from are {start} x{scale}"]
    degrade = PAIRS
    if inputs == "made":
        degrade = settings.degrade or default_degradation(model)
        parse(degrade, scale=scale)
        if not settings.degrade:
            chosen.append(f'inputs are made by "{degrade}"; --degrade names another way')
    return Source(
        dataset=dataset,
        inputs=inputs,
        degrade=degrade,
        start=start,
        model=model,
        chosen=tuple(chosen),
    )


def _inputs_of(dataset: Dataset, settings: Settings) -> Inputs:
    if settings.noisy_pairs:
        return "noisy-pairs"
    return "made" if dataset.inputs == "made" else "pairs"


def _scale_of(dataset: Dataset, inputs: Inputs, start: str | None) -> int:
    """Return the zoom factor of the pictures, or of the weights, or the default."""
    if inputs != "made":
        return 1 if inputs == "noisy-pairs" else scale_of_pairs(dataset.items)
    if start is None:
        return DEFAULT_SCALE
    scales = shipped_weights().get(start, ())
    if Path(start).is_file() or len(scales) == 1:
        return load(start).scale
    return DEFAULT_SCALE


def scale_of_pairs(items: Sequence[Item]) -> int:
    """Return the zoom factor of pairs, from the sizes that the first pair declares."""
    item = items[0]
    assert item.degraded is not None
    high, low = declared_size(item.target), declared_size(item.degraded)
    # The header gives sizes before any rotation, which may be that of one of the files alone.
    scale = min(high.height, high.width) // min(low.height, low.width)
    if scale < 1:
        raise DataError(
            f"the input {item.degraded.name} ({low.width}x{low.height}) is larger than its target "
            f"({high.width}x{high.height}); give the targets as PICTURES and the inputs by --low"
        )
    return scale


def default_start(scale: int) -> str:
    """Return the shipped weights to start from: those for photographs, where there are any.

    Example:
        >>> default_start(2), default_start(3)
        ('photo', 'edsr-baseline')
    """
    shipped = shipped_weights()
    for name in ("photo", "edsr-baseline"):
        if scale in shipped[name]:
            return name
    scales = sorted({scale for name in ("photo", "edsr-baseline") for scale in shipped[name]})
    raise ConfigError(
        f"no shipped weights enlarge by {scale}, only by {scales}; give a weights file by --start"
    )


def default_degradation(model: Model) -> str:
    """Return how the inputs were made that weights were trained on, or bicubic."""
    recipe = model.metadata.get("training", {}).get("recipe", {})
    degrade = recipe.get("degrade")
    if degrade and degrade != PAIRS:
        return str(degrade)
    if model.scale > 1:
        return "bicubic"
    raise ConfigError(
        f"{model.name} keeps the size of pictures, so it must be told how inputs are made: give "
        "--degrade (such as 'noise(25)'), --low or --noisy-pairs"
    )


def _load_start(start: str, scale: int) -> Model:
    model = load(start, scale=scale)
    if not isinstance(model.network, WithSigma):
        raise ConfigError(
            f"{start} has no sigma branch, so it has no error bars to adapt; give it one by "
            "'musigma train' with keep_mean = true, or start from photo"
        )
    return model
