"""A recipe: everything that decides a training run, in one flat TOML file with strict keys."""

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from torch import nn

from musigma.degradations import Degradation, Noise, parse
from musigma.losses import Objective
from musigma.networks import entry
from musigma.networks.model_card import on_meta
from musigma.types import ConfigError, nearest

_POSITIVE = ("batch", "patch", "steps", "seconds", "learning_rate", "epsilon", "halve_every")
_RANGES: tuple[tuple[tuple[str, ...], str, Callable[[float], bool]], ...] = (
    ((*_POSITIVE, "sigma_width", "log_every"), "above nought", lambda n: 0 < n < math.inf),
    (("validate_every", "save_every", "clip", "noise_std"), "nought or more", lambda n: n >= 0),
    (("warmup", "ema", "betas"), "nought or more and below 1", lambda n: 0 <= n < 1),
    (("shrink",), "above nought and below 1", lambda n: 0 < n < 1),
    (("seed",), "from 0 to 2147483647", lambda n: 0 <= n < 2**31),
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of a run.

    Attributes:
        network: Registered name.
        settings: Settings of the network that differ from its own.
        scale: Zoom factor; 1 for denoising.
        sigma: Whether to attach the sigma branch; an objective with a sigma term needs it.
        sigma_width: Channels of the branch.
        objective: What to minimise, such as ``expected_l1 + 0.01 * sigma_l1``.
        teacher: Weights file of a frozen teacher, for objectives that have one.
        start_from: Weights file or name to start from, such as x2 for x3 and x4.
        keep_mean: Whether the mean of these weights stays as it is, to the bit, and the sigma
            branch alone learns: an error bar for a network that is trained already.
        data: Training sets or folders.
        shrink: Factors below 1 by which each training image is made smaller and added once more:
            more pictures, and sharper ones.
        swap_channels: Whether patches come with their colours in any order: more pictures, too.
        validation: The set on which progress is measured; empty for none.
        channels: 3 for colour, 1 for grey.
        noise_std: For a denoiser, the range of noise levels, in 8-bit units.
        degrade: How inputs are made from targets, such as ``blur(0..2) | area | jpeg(30..95)`` or
            ``photo`` (`musigma.degradations.text` has the grammar); by default bicubic shrinking.
        batch: Patches per step, over all processes together.
        patch: Side of an input patch.
        steps: Budget in updates; or else ``seconds``.
        seconds: Budget in seconds from the first step on.
        learning_rate: At its highest.
        optimizer: ``adam``, or ``muon`` for the convolutions and Adam for the rest.
        schedule: How it goes down.
        halve_every: With ``halving``, after how many steps.
        warmup: Share of the budget over which it rises from nought.
        betas: Decay of Adam's two averages.
        epsilon: Adam's guard against division by nought.
        clip: Largest norm of the gradient; nought for no limit.
        ema: Decay of the averaged weights that are validated and kept; nought for no average.
        precision: Type of the network's arithmetic on a GPU; a CPU and objectives use float32.
        compile: Whether to compile the step (GPU only).
        seed: Decides initial weights, patches and noise.
        log_every: Steps between two log lines.
        validate_every: Steps between two validations; nought for the end only.
        save_every: Steps between two checkpoints; nought for the end only.
    """

    network: str
    scale: int
    data: tuple[str, ...]
    batch: int
    patch: int
    learning_rate: float
    objective: str
    optimizer: Literal["adam", "muon"] = "adam"
    settings: Mapping[str, Any] = field(default_factory=dict)
    sigma: bool = False
    sigma_width: int = 160
    teacher: str = ""
    start_from: str = ""
    keep_mean: bool = False
    shrink: tuple[float, ...] = ()
    swap_channels: bool = False
    validation: str = ""
    channels: Literal[1, 3] = 3
    noise_std: tuple[float, float] | None = None
    degrade: str = ""
    steps: int | None = None
    seconds: float | None = None
    schedule: Literal["cosine", "halving", "constant"] = "cosine"
    halve_every: int = 200_000
    warmup: float = 0.02
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    clip: float = 0.0
    ema: float = 0.999
    precision: Literal["bf16", "fp32"] = "bf16"
    compile: bool = True
    seed: int = 0
    log_every: int = 100
    validate_every: int = 0
    save_every: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be trained, before anything is loaded."""
        found = entry(self.network)
        if self.scale not in found.scales:
            raise ConfigError(f"{self.network} exists for scale {found.scales}, not {self.scale}")
        if (self.steps is None) == (self.seconds is None):
            raise ConfigError("give the budget either as steps or as seconds")
        if not self.data:
            raise ConfigError("data must name at least one set or folder")
        network = on_meta(self.network, scale=self.scale)
        self._check_degradation(takes_noise_level=network.takes_noise_level)
        if self.noise_std is not None and self.noise_std[0] > self.noise_std[1]:
            raise ConfigError(f"noise_std must be [low, high], got {list(self.noise_std)}")
        if self.keep_mean and not (self.sigma and self.start_from):
            raise ConfigError("keep_mean needs sigma = true, and weights to start_from")
        self._check_numbers()
        # The objective is read here so that a slip in it shows before the data is loaded; the
        # teacher itself is not needed for that.
        teacher = nn.Identity() if self.teacher else None
        needs_sigma = Objective(self.objective, teacher=teacher).needs_sigma
        if needs_sigma and not self.sigma:
            raise ConfigError(f"objective {self.objective!r} needs sigma = true")
        if self.sigma and not needs_sigma:
            raise ConfigError(
                f"objective {self.objective!r} does not train sigma; add a term such as "
                "0.01 * sigma_l1, or set sigma = false"
            )

    def _check_degradation(self, *, takes_noise_level: bool) -> None:
        if self.noise_std is not None and (self.scale > 1 or self.degrade):
            raise ConfigError("noise_std goes with scale = 1 and without degrade")
        if takes_noise_level and self.noise_std is None:
            raise ConfigError(
                f"{self.network} is told the noise level; set noise_std = [low, high]"
            )
        if self.scale == 1 and self.noise_std is None and not self.degrade:
            raise ConfigError(
                "at scale 1 say how inputs are made: noise_std = [low, high] for white noise, or "
                'degrade = "..."'
            )
        if self.noise_std is None:
            parse(self.degrade, scale=self.scale)

    def _check_numbers(self) -> None:
        for names, text, fits in _RANGES:
            for name in names:
                value = getattr(self, name)
                numbers = value if isinstance(value, tuple) else (value,)
                if not all(number is None or fits(number) for number in numbers):
                    raise ConfigError(f"{name} must be {text}, got {value}")

    def learning_rate_at(self, *, step: int, progress: float) -> float:
        """Return the learning rate when a share of the budget is used up."""
        if progress < self.warmup:
            return self.learning_rate * max(progress, 1e-3 * self.warmup) / self.warmup
        if self.schedule == "halving":
            return self.learning_rate * 0.5 ** (step // self.halve_every)
        if self.schedule == "constant":
            return self.learning_rate
        rest = (min(progress, 1.0) - self.warmup) / (1 - self.warmup)
        return self.learning_rate * max(0.5 * (1 + math.cos(math.pi * rest)), 1e-3)

    def degradation(self) -> Degradation:
        """Return how inputs are made from targets."""
        if self.noise_std is not None:
            return Noise(self.noise_std)
        return parse(self.degrade, scale=self.scale)

    def as_json(self) -> dict[str, Any]:
        """Return the settings as plain values, for records and checkpoints."""
        return asdict(self)


def load_recipe(name_or_path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe by its path or by the name of one that ships, and apply ``key=value`` pairs."""
    values = _read(name_or_path)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"expected key=value, got {override!r}")
        # A budget of one kind replaces that of the other kind.
        if key.strip() in ("steps", "seconds"):
            values.pop("steps", None)
            values.pop("seconds", None)
        values[key.strip()] = _parse(text.strip())
    return make_recipe(values)


def make_recipe(values: Mapping[str, Any]) -> Recipe:
    """Check names and types, and make a recipe.

    Example:
        >>> make_recipe({"netwrok": "edsr-baseline"})
        Traceback (most recent call last):
        musigma.types.ConfigError: a recipe has no key 'netwrok'; did you mean 'network'?
    """
    hints = get_type_hints(Recipe)
    for key in values:
        if key not in hints:
            raise ConfigError(f"a recipe has no key {key!r}; {nearest(key, list(hints))}")
    for need in fields(Recipe):
        if need.default is MISSING and need.default_factory is MISSING and need.name not in values:
            raise ConfigError(f"the recipe lacks {need.name!r}")
    return Recipe(**{key: _convert(key, value, hints[key]) for key, value in values.items()})


def default_values() -> dict[str, Any]:
    """Return what a key is where a recipe does not name it; those it must name are left out."""
    plain = {one.name: one.default for one in fields(Recipe) if one.default is not MISSING}
    return plain | {"settings": {}}


def shipped_recipes() -> dict[str, Path]:
    """Return the recipes that ship, by name."""
    folder = Path(__file__).parents[1] / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def _read(name_or_path: str | Path) -> dict[str, Any]:
    path = Path(name_or_path)
    if not path.is_file():
        known = shipped_recipes()
        if str(name_or_path) not in known:
            hint = nearest(str(name_or_path), list(known))
            raise ConfigError(f"there is no recipe {str(name_or_path)!r}, as file or name; {hint}")
        path = known[str(name_or_path)]
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _parse(text: str) -> Any:
    """Read the value of an override as TOML, or else as a bare string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _convert(key: str, value: Any, hint: Any) -> Any:
    choices = get_args(hint)
    if get_origin(hint) is Literal:
        if value not in choices or type(value) is not type(choices[0]):
            raise ConfigError(f"{key} must be one of {choices}, got {value!r}")
        return value
    if get_origin(hint) is UnionType:
        return None if value is None else _convert(key, value, choices[0])
    if get_origin(hint) is tuple:
        return _convert_tuple(key, value, choices)
    if get_origin(hint) is Mapping:
        hint = dict
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        wanted = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
        raise ConfigError(f"{key} must be {wanted.get(hint, 'a table')}, got {value!r}")
    return value


def _convert_tuple(key: str, value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple):
        raise ConfigError(f"{key} must be a list, got {value!r}")
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(values)
    if len(values) != len(kinds):
        raise ConfigError(f"{key} must hold {len(kinds)} values, got {value!r}")
    return tuple(_convert(key, item, kind) for item, kind in zip(values, kinds, strict=True))
