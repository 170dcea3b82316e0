"""A recipe: everything that decides a training run, in one flat TOML file with strict keys."""

import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from torch import nn

from musigma.degradations import Degradation, Noise
from musigma.degradations import parse as parse_degradation
from musigma.degradations.blind_spots import BLIND_SPOTS, BlindSpots
from musigma.degradations.pairs import PAIRS, StoredInput
from musigma.losses import parse as parse_loss
from musigma.losses import phases
from musigma.networks import Network, create, entry, num_params, with_sigma
from musigma.networks.bounded_build import MAX_VALUES, build_without_values, check_settings
from musigma.types import ConfigError, first_line, nearest, no_scale, short_repr

DRAWN_SHAPES = "drawn-shapes"
"""A training set that needs no files: pictures that the program draws."""

MAX_PIXELS = 2**26
"""Most pixels of the inputs of a step; 16,384 patches of 64 x 64 have as many."""

MAX_BYTES = 2**20
"""Longest file that is read."""

MAX_SHRUNK = 16
"""Most sizes in which the training images are added."""

_POSITIVE = ("steps", "seconds", "learning_rate", "epsilon", "halve_every", "log_every")
_RANGES: tuple[tuple[tuple[str, ...], str, Callable[[float], bool]], ...] = (
    (_POSITIVE, "above zero and below 1e15", lambda n: 0 < n < 1e15),
    (("candidates",), "from 1 to 64", lambda n: 1 <= n <= 64),
    (("batch",), "from 1 to 65536", lambda n: 1 <= n <= 65536),
    (("patch", "sigma_width"), "from 1 to 4096", lambda n: 1 <= n <= 4096),
    (
        ("validate_every", "validations", "save_every", "clip", "drawn_every"),
        "zero or more and below 1e15",
        lambda n: 0 <= n < 1e15,
    ),
    (("noise_std",), "from 0 to 255", lambda n: 0 <= n <= 255),
    (("warmup", "ema", "betas", "closing"), "zero or more and below 1", lambda n: 0 <= n < 1),
    (("shrink",), "above zero and below 1", lambda n: 0 < n < 1),
    (("seed",), "from 0 to 2147483647", lambda n: 0 <= n < 2**31),
)

_PATHS = ("validation", "start_from", "teacher")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of a run.

    Attributes:
        network: Registered name of the network.
        settings: Settings of the network that differ from its defaults.
        scale: Zoom factor; 1 for a network that keeps the size, such as a denoiser.
        sigma: Whether the network gets a sigma branch; an objective with a sigma term needs it.
        sigma_width: Channels of the sigma branch.
        objective: The loss as text, such as ``expected_l1 + 0.01 * sigma_l1``. With ``l1 then l2``
            the second one closes the run.
        closing: Share of the budget for the second objective, where there are two.
        teacher: Weights file or name of a frozen teacher, for objectives that compare with one.
        teach_once: Whether the teacher looks at the whole training images once, before the first
            step, instead of at the patches of each step. The inputs must be the bicubic ones.
        start_from: Weights file or name to start from, such as x2 for x3 and x4.
        keep_mean: Whether the mean of these weights stays as it is, to the bit, and only the sigma
            branch learns: an error bar for a network that is trained already.
        data: Training sets or folders, or ``drawn-shapes``, which needs no files.
        degrade: How inputs are made from the training images, as text, such as
            ``blur(0.2..2) | bicubic | noise(0..10) | jpeg(30..95)``. By default it is bicubic.
            With ``pairs`` inputs are read: from the folder ``LR`` beside ``HR`` of each set.
            With ``blind_spots`` the images are noisy, and there are no clean ones: pixels are
            hidden, and the network learns to tell them by their neighbors.
        low: With ``degrade = "pairs"``, folders of inputs, one for each of `data`, whose files are
            named as the targets are. It is for sets that do not have the folders above.
        noise_std: For denoisers, the range of noise levels in 8-bit levels; the short form of
            ``degrade = "noise(low..high)"``.
        shrink: Factors below 1. For each of them a smaller copy of every training image is added,
            which gives more images and sharper ones.
        swap_channels: Whether patches come with their color channels in any order.
        drawn_every: One patch in this many comes from pictures that the program draws: windows in
            perspective, bricks, railings, letters, boxes over one another. Zero for none.
        candidates: How many places are drawn for each patch, of which the most detailed is taken;
            with 1 every place is as likely as any other.
        validation: The set on which progress is measured; empty for none.
        channels: 3 for color, 1 for gray.
        batch: Patches per step, over all processes together.
        patch: Side of an input patch in pixels.
        steps: Budget in updates. Give either this or ``seconds``.
        seconds: Budget in seconds, counted from the first step.
        learning_rate: The highest learning rate of the schedule.
        optimizer: ``adam``, or ``muon`` for the convolutions with Adam for the other weights.
        schedule: How the learning rate falls.
        halve_every: With ``halving``, the number of steps between two halvings.
        warmup: Share of the budget over which the learning rate rises from zero.
        betas: Decay rates of Adam's two averages.
        epsilon: What Adam adds to a denominator to avoid a division by zero.
        clip: Largest norm of the gradient; zero for no limit.
        ema: Decay rate of the averaged weights, which are validated and saved; zero for no average.
        precision: Type of the network's arithmetic. With ``bf16`` a GPU uses it and a CPU float32;
            with ``bf16-everywhere`` a CPU uses it, too, which is quicker on recent ones. Objectives
            use float32.
        compile: Whether to compile the step (GPU only).
        seed: Decides the initial weights, the patches and the noise.
        log_every: Steps between two log lines.
        validate_every: Steps between two validations; zero to validate only at the end.
        validations: Validations that are spread evenly over the budget, for a budget in seconds;
            zero for those of ``validate_every`` alone.
        keep_best: Whether the weights with the best validation are written in place of the last
            ones. The weights that the run starts from take part.
        save_every: Steps between two checkpoints; zero to save only at the end.
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
    closing: float = 0.2
    teacher: str = ""
    teach_once: bool = False
    start_from: str = ""
    keep_mean: bool = False
    shrink: tuple[float, ...] = ()
    swap_channels: bool = False
    drawn_every: int = 0
    candidates: int = 1
    validation: str = ""
    channels: Literal[1, 3] = 3
    degrade: str = ""
    low: tuple[str, ...] = ()
    noise_std: tuple[float, float] | None = None
    steps: int | None = None
    seconds: float | None = None
    schedule: Literal["cosine", "halving", "constant"] = "cosine"
    halve_every: int = 200_000
    warmup: float = 0.02
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    clip: float = 0.0
    ema: float = 0.999
    precision: Literal["bf16", "fp32", "bf16-everywhere"] = "bf16"
    compile: bool = True
    seed: int = 0
    log_every: int = 100
    validate_every: int = 0
    validations: int = 0
    keep_best: bool = False
    save_every: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be trained, before anything is loaded."""
        scales = entry(self.network).scales
        if self.scale not in scales:
            raise no_scale(self.network, scales, self.scale)
        if len(self.shrink) > MAX_SHRUNK:
            raise ConfigError(f"shrink must have at most {MAX_SHRUNK} factors")
        if (self.steps is None) == (self.seconds is None):
            raise ConfigError("give the budget either as steps or as seconds")
        if self.keep_mean and not (self.sigma and self.start_from):
            raise ConfigError("keep_mean needs sigma = true, and weights to start_from")
        if self.keep_best and not self.validation:
            raise ConfigError("keep_best needs a set for validation, on which weights are compared")
        self._check_numbers()
        self._check_data()
        self._check_objective()

    @property
    def degradation(self) -> Degradation:
        """How inputs are made from the training images."""
        if self.noise_std is not None:
            return Noise(self.noise_std)
        if self.degrade == PAIRS:
            return StoredInput(self.scale)
        if self.degrade == BLIND_SPOTS:
            return BlindSpots()
        return parse_degradation(self.degrade, scale=self.scale)

    def _check_data(self) -> None:
        if not self.data:
            raise ConfigError("data must name at least one set or folder")
        for name in (*self.data, *(getattr(self, key) for key in _PATHS)):
            if not _can_be_path(name):
                raise ConfigError(f"no file or folder can be called {short_repr(name)}")
        if DRAWN_SHAPES in self.data and len(self.data) > 1:
            raise ConfigError(f"{DRAWN_SHAPES} cannot be mixed with other data")
        if self.noise_std is not None:
            self._check_noise_std(*self.noise_std)
        elif self.scale == 1 and not self.degrade:
            raise ConfigError(
                "a network of scale 1 must be told how its inputs are made: give "
                "noise_std = [low, high] for a denoiser, or degrade = 'TEXT' for anything else"
            )
        self._check_pairs()
        self._check_blind_spots()
        if self.degrade in (PAIRS, BLIND_SPOTS) and (self.drawn_every or self.candidates > 1):
            raise ConfigError(
                f'degrade = "{self.degrade}" takes pictures as they are; leave drawn_every and '
                "candidates out"
            )
        degradation = self.degradation
        if self._takes_noise_level() and degradation.white_noise_std is None:
            raise ConfigError(
                f"{self.network} must be told the noise level, which degrade = '{degradation}' "
                "does not say; give noise_std = [low, high]"
            )

    def _check_pairs(self) -> None:
        if self.degrade != PAIRS:
            if self.low:
                raise ConfigError('inputs are read from folders only with degrade = "pairs"')
            return
        if self.low and len(self.low) != len(self.data):
            raise ConfigError(
                f"low must name one folder for each of data: {len(self.data)}, got {len(self.low)}"
            )
        if self.shrink:
            raise ConfigError("pairs cannot be made smaller; leave shrink out")
        if DRAWN_SHAPES in self.data:
            raise ConfigError(f"{DRAWN_SHAPES} has no inputs to be read; name sets of pairs")

    def _check_blind_spots(self) -> None:
        if self.degrade != BLIND_SPOTS:
            return
        if self.scale != 1 or self.shrink or DRAWN_SHAPES in self.data:
            raise ConfigError(
                f'degrade = "{BLIND_SPOTS}" is for noisy pictures as they are: scale = 1, no shrink'
            )
        if self.sigma:
            raise ConfigError(
                f'degrade = "{BLIND_SPOTS}" has noisy targets, from which sigma would learn their '
                "noise; train the mean with l2 first, then sigma with keep_mean = true"
            )

    def _takes_noise_level(self) -> bool:
        """Build the network without values; refuse one that cannot be built or is far too large."""
        if "scale" in self.settings:
            raise ConfigError("scale is a key of the recipe, not one of settings")
        check_settings(self.settings)
        try:
            network = build_without_values(self._network)
        except ConfigError as error:
            raise ConfigError(
                f"{self.network} cannot be built with settings = {short_repr(dict(self.settings))}:"
                f" {first_line(error)}"
            ) from error
        num_values = num_params(network)
        if num_values > MAX_VALUES:
            raise ConfigError(
                f"{self.network} would have {num_values:,} weights with these settings; at most "
                f"{MAX_VALUES:,} are trained"
            )
        return network.takes_noise_level

    def _network(self) -> Network:
        network = create(self.network, scale=self.scale, **self.settings)
        return with_sigma(network, width=self.sigma_width) if self.sigma else network

    def _check_noise_std(self, low: float, high: float) -> None:
        if low > high:
            raise ConfigError(f"noise_std must be [low, high], got [{low}, {high}]")
        if self.degrade:
            raise ConfigError("give either noise_std or degrade; noise(5..10) adds noise there")
        if self.scale > 1:
            raise ConfigError(
                "noise_std is for denoisers, of scale 1; for noise on the input of a network that "
                "enlarges give degrade = 'bicubic | noise(0..10)'"
            )

    def _check_objective(self) -> None:
        parts = phases(self.objective)
        if len(parts) > 2:
            raise ConfigError(f"a run has one or two objectives, got {len(parts)}")
        for part in parts:
            self._check_phase(part)
        if self.teach_once and not self.teacher:
            raise ConfigError("teach_once needs a teacher")
        if self.teach_once and (self.scale == 1 or self.degrade or self.noise_std):
            raise ConfigError(
                "teach_once needs inputs that follow from the images alone: the bicubic ones of a "
                "network that enlarges, so leave degrade out"
            )

    def _check_phase(self, objective: str) -> None:
        # Only the text is checked here, so any module can stand in for the teacher.
        teacher = nn.Identity() if self.teacher else None
        needs_sigma = parse_loss(objective, teacher=teacher).needs_sigma
        if needs_sigma and not self.sigma:
            raise ConfigError(f"objective {short_repr(objective)} needs sigma = true")
        if self.sigma and not needs_sigma:
            raise ConfigError(
                f"objective {short_repr(objective)} does not train sigma; add a term such as "
                "0.01 * sigma_l1, or set sigma = false"
            )

    def _check_numbers(self) -> None:
        for names, text, fits in _RANGES:
            for name in names:
                value = getattr(self, name)
                numbers = value if isinstance(value, tuple) else (value,)
                if not all(number is None or fits(number) for number in numbers):
                    raise ConfigError(f"{name} must be {text}, got {short_repr(value)}")
        if self.batch * self.patch**2 > MAX_PIXELS:
            raise ConfigError(
                f"batch = {self.batch} and patch = {self.patch} give {self.batch * self.patch**2:,}"
                f" pixels; at most {MAX_PIXELS:,} are trained at once"
            )

    def as_json(self) -> dict[str, Any]:
        """Return the settings as plain values, for checkpoints."""
        return asdict(self)

    def published(self) -> dict[str, Any]:
        """Return the settings as plain values, for weights files and records.

        Of folders and files only the last part of the path is kept, so that no private path is
        published.
        """
        names = {key: _last_part(getattr(self, key)) for key in _PATHS}
        return (
            asdict(self)
            | names
            | {key: tuple(map(_last_part, getattr(self, key))) for key in ("data", "low")}
        )


def load_recipe(name_or_path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe by its path or by the name of a shipped one, and apply ``key=value`` pairs.

    Example:
        >>> load_recipe("smoke", ["batch=4"]).batch
        4
    """
    values = _read(name_or_path)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"expected key=value, got {short_repr(override)}")
        # A budget in steps replaces one in seconds, and the other way round.
        if key.strip() in ("steps", "seconds"):
            values.pop("steps", None)
            values.pop("seconds", None)
        values[key.strip()] = _parse(text.strip())
    return make_recipe(values)


def make_recipe(values: Mapping[str, Any]) -> Recipe:
    """Make a recipe from plain values, after a check of names and types.

    Example:
        >>> make_recipe({"netwrok": "edsr-baseline"})
        Traceback (most recent call last):
        musigma.types.ConfigError: a recipe has no key 'netwrok'; did you mean 'network'?
    """
    hints = get_type_hints(Recipe)
    for key in values:
        if key not in hints:
            raise ConfigError(f"a recipe has no key {short_repr(key)}; {nearest(key, list(hints))}")
    for need in fields(Recipe):
        if need.default is MISSING and need.default_factory is MISSING and need.name not in values:
            raise ConfigError(f"the recipe lacks {need.name!r}")
    return Recipe(**{key: _convert(key, value, hints[key]) for key, value in values.items()})


def default_values() -> dict[str, Any]:
    """Return the default of each key that has one."""
    plain = {key.name: key.default for key in fields(Recipe) if key.default is not MISSING}
    return plain | {"settings": {}}


def shipped_recipes() -> dict[str, Path]:
    """Return the files of the shipped recipes, by name."""
    folder = Path(__file__).parents[1] / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def _read(name_or_path: str | Path) -> dict[str, Any]:
    path = Path(name_or_path)
    if not is_file(path):
        known = shipped_recipes()
        if str(name_or_path) not in known:
            hint = nearest(str(name_or_path), list(known))
            name = short_repr(str(name_or_path))
            raise ConfigError(f"there is no recipe {name}, as file or name; {hint}")
        path = known[str(name_or_path)]
    return read_toml(path)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file that may hold anything.

    Raises:
        ConfigError: If it cannot be read, or is too long or too deeply nested to be a recipe.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise ConfigError(f"{path} is not a regular file")  # a pipe may never end
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{path} has more than {MAX_BYTES} bytes")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise ConfigError(f"{path} is not valid TOML: it is nested too deeply") from error
    except ValueError as error:  # from TOML, from bytes that are not UTF-8, from a giant number
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path} is not valid TOML: {first_line(error)}") from error


def is_file(path: Path) -> bool:
    """Say whether there is a file of this name; a name that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or holds a zero byte
        return False


def _parse(text: str) -> Any:
    """Read the value of an override as TOML, or else as a bare string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _convert(key: str, value: Any, hint: Any) -> Any:
    choices = get_args(hint)
    if get_origin(hint) is Literal:
        if value not in choices or type(value) is not type(choices[0]):
            raise ConfigError(f"{key} must be one of {choices}, got {short_repr(value)}")
        return value
    if get_origin(hint) is UnionType:
        return None if value is None else _convert(key, value, choices[0])
    if get_origin(hint) is tuple:
        return _convert_tuple(key, value, choices)
    if get_origin(hint) is Mapping:
        hint = dict
    if hint is float and type(value) is int:
        return float(value) if abs(value) < 2**1000 else math.inf
    if type(value) is not hint:
        wanted = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
        raise ConfigError(f"{key} must be {wanted.get(hint, 'a table')}, got {short_repr(value)}")
    return value


def _convert_tuple(key: str, value: Any, types: tuple[Any, ...]) -> tuple[Any, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple):
        raise ConfigError(f"{key} must be a list, got {short_repr(value)}")
    if types[-1] is Ellipsis:
        types = (types[0],) * len(values)
    if len(values) != len(types):
        raise ConfigError(f"{key} must hold {len(types)} values, got {short_repr(value)}")
    return tuple(_convert(key, item, hint) for item, hint in zip(values, types, strict=True))


def _can_be_path(text: str) -> bool:
    parts = text.split("/")
    return "\0" not in text and len(text) <= 4000 and all(len(part) <= 255 for part in parts)


def _last_part(path: str) -> str:
    return os.path.basename(os.path.abspath(path)) if path else ""  # noqa: PTH100, PTH119
