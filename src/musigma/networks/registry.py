"""The list of networks: what each is called, where it comes from and how it is built.

A network of one's own joins the list by `register`, and then works like any other: `create`,
`musigma.load`, `musigma.save`, training and evaluation know it. Other packages can bring networks,
too: an entry point in the group ``musigma.networks`` is imported as soon as somebody asks for a
name that is not on the list, or for the whole list.
"""

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from musigma.networks.base import BuildSpec, Network, Settings
from musigma.networks.state_dict import Recogniser
from musigma.types import ConfigError, nearest, no_scale, short_repr

Builder = Callable[..., Network]
AnyBuilder = TypeVar("AnyBuilder", bound=Builder)
Adapter = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]

ANY_SCALE = tuple(range(1, 9))
"""Scales of a network that was registered without any."""

PLUGIN_GROUP = "musigma.networks"


class DuplicateNetworkError(ConfigError):
    """Two networks were registered under one name."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One registered network.

    Attributes:
        name: What users type.
        build: The class or function that makes the network from ``scale`` and settings.
        scales: Zoom factors it exists for.
        settings: What differs from the defaults of `build`.
        summary: One line about this variant.
        paper: Where it was published; empty where it was not.
        year: When.
        recognise: Tells from a released state dict which variant of the family it is.
        adapt: Renames the keys of a recognized state dict to ours.
    """

    name: str
    build: Builder
    scales: tuple[int, ...] = ANY_SCALE
    settings: Settings = field(default_factory=dict)
    summary: str = ""
    paper: str = ""
    year: int | None = None
    recognise: Recogniser | None = None
    adapt: Adapter | None = None


@dataclass(frozen=True)
class Variant:
    """A named form of a family: one line about it, and the settings that make it."""

    summary: str
    settings: Settings = field(default_factory=dict)


_ENTRIES: dict[str, Entry] = {}
_PLUGINS_LOADED: set[str] = set()


def register(
    name: str,
    *,
    scales: tuple[int, ...] = ANY_SCALE,
    settings: Settings | None = None,
    summary: str = "",
    paper: str = "",
    year: int | None = None,
    recognise: Recogniser | None = None,
    adapt: Adapter | None = None,
    replace: bool = False,
) -> Callable[[AnyBuilder], AnyBuilder]:
    """Put a network on the list under a name, as a decorator.

    It decorates a subclass of `Network`, or a function that returns a network. Both take the
    keyword ``scale`` and any settings; weights files store the settings that were given.

    Args:
        name: What users will type.
        scales: Zoom factors that it exists for.
        settings: Settings that differ from the defaults of the class.
        summary: One line about it.
        paper: Where it was published.
        year: When.
        recognise: Tells from a released state dict which network and settings it belongs to; see
            `musigma.networks.state_dict`.
        adapt: Renames the keys of a recognized state dict.
        replace: Whether a network of this name gives way, for example when a notebook cell that
            defines it is run again.

    Example:
        >>> from musigma.networks.super_resolution.espcn import ESPCN
        >>> @register("espcn-narrow", scales=(2,))
        ... class Narrow(ESPCN):
        ...     def __init__(self, *, scale, width=16):
        ...         super().__init__(scale=scale, width=width)
        >>> create("espcn-narrow", scale=2).feature_channels
        8
    """
    if not isinstance(name, str):
        raise ConfigError('register needs a name: write @register("a-name") above the class')

    def add(build: AnyBuilder) -> AnyBuilder:
        new = Entry(
            name=name,
            build=build,
            scales=tuple(scales),
            settings=dict(settings or {}),
            summary=summary,
            paper=paper,
            year=year,
            recognise=recognise,
            adapt=adapt,
        )
        _check(new, replace=replace)
        _ENTRIES[name] = new
        return build

    return add


def register_variants(
    network: type[Network], variants: Mapping[str, Variant], **options: Any
) -> None:
    """Register several forms of one class; the options are those of `register`."""
    for name, variant in variants.items():
        register(name, settings=variant.settings, summary=variant.summary, **options)(network)


def entry(name: str) -> Entry:
    """Return what is registered under a name.

    Example:
        >>> entry("bicubic").scales
        (2, 3, 4)
    """
    if name not in _ENTRIES:
        _load_plugins()
    if name not in _ENTRIES:
        raise ConfigError(
            f"there is no network called {short_repr(name)}; {nearest(name, list(_ENTRIES))}"
        )
    return _ENTRIES[name]


def entries() -> Iterator[Entry]:
    """Yield every registered network, in the order of the list; plug-ins come last."""
    _load_plugins()
    yield from list(_ENTRIES.values())


def create(name: str, *, scale: int, **settings: Any) -> Network:
    """Build a network with fresh weights.

    Args:
        name: A registered name.
        scale: Zoom factor.
        settings: Settings of the network's class that differ from the registered ones.

    Example:
        >>> create("edsr-baseline", scale=2).receptive_radius
        36
    """
    registered = entry(name)
    if scale not in registered.scales:
        raise no_scale(name, registered.scales, scale)
    _check_settings(name, registered.build, settings)
    arguments = {**registered.settings, **settings}
    if _takes(registered.build, "scale"):
        arguments["scale"] = scale
    network = registered.build(**arguments)
    if not isinstance(network, Network):
        raise ConfigError(f"{name} builds a {type(network).__name__}, not a musigma.Network")
    if network.info.scale != scale:
        raise ConfigError(f"{name} enlarges by {network.info.scale}, not by {scale}")
    network.__dict__["_build_spec"] = BuildSpec(name, scale, settings)
    return network


def find_build_spec(network: Network) -> BuildSpec | None:
    """Return how a network was built, or `None` for a class that is not registered."""
    known: BuildSpec | None = network.__dict__.get("_build_spec")
    if known is not None or not network.__dict__.keys() >= {"_info", "_arguments"}:
        return known
    for registered in _ENTRIES.values():
        if registered.build is type(network) and network.scale in registered.scales:
            return BuildSpec(registered.name, network.scale, _given(network, registered.settings))
    return None


def _given(network: Network, variant: Settings) -> Settings:
    """Return the settings that make the registered variant equal to a network built directly."""
    args, kwargs = network.__dict__["_arguments"]
    signature = inspect.signature(type(network))
    given = dict(signature.bind(*args, **kwargs).arguments)
    given.pop("scale", None)
    class_defaults = {key: signature.parameters[key].default for key in variant}
    return {**class_defaults, **given}


def _check(new: Entry, *, replace: bool) -> None:
    is_network = isinstance(new.build, type) and issubclass(new.build, Network)
    if not is_network and (isinstance(new.build, type) or not callable(new.build)):
        raise ConfigError(
            f"{new.name} cannot be registered: expected a subclass of musigma.Network or a "
            f"function that returns one, got {new.build!r}"
        )
    if new.name in _ENTRIES and not replace:
        raise DuplicateNetworkError(
            f"a network called {new.name!r} is registered already; choose another name, "
            "or register with replace=True"
        )
    _check_settings(new.name, new.build, new.settings)


def _check_settings(name: str, build: Builder, settings: Settings) -> None:
    parameters = inspect.signature(build).parameters
    unknown = [key for key in settings if not _takes(build, key)]
    if unknown:
        known = [key for key in parameters if key != "scale"]
        advice = nearest(unknown[0], known) if known else "it takes no settings"
        raise ConfigError(f"{name} has no setting {short_repr(unknown[0])}; {advice}")
    for key, value in settings.items():
        annotation = parameters[key].annotation if key in parameters else None
        expected = _EXPECTED.get(annotation)
        if expected and type(value) not in expected.types:
            raise ConfigError(f"{key} of {name} must be {expected.text}, got {short_repr(value)}")


class _Expected(NamedTuple):
    text: str
    types: tuple[type, ...]


_EXPECTED: dict[object, _Expected] = {
    int: _Expected("a whole number", (int,)),
    float: _Expected("a number", (int, float)),
    bool: _Expected("true or false", (bool,)),
}
"""The types of a setting by its annotation; settings with other annotations are not checked."""


def _takes(build: Builder, key: str) -> bool:
    parameters = inspect.signature(build).parameters
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return key in parameters or takes_any


def _load_plugins() -> None:
    """Import the networks that installed packages bring, once for each entry point."""
    for plugin in entry_points(group=PLUGIN_GROUP):
        if plugin.value not in _PLUGINS_LOADED:
            _PLUGINS_LOADED.add(plugin.value)
            _load_plugin(plugin)


def _load_plugin(plugin: EntryPoint) -> None:
    try:
        loaded = plugin.load()
        is_new = all(registered.build is not loaded for registered in _ENTRIES.values())
        # An entry point may name a module that registers its networks, or a class that does not.
        if isinstance(loaded, type) and issubclass(loaded, Network) and is_new:
            register(plugin.name)(loaded)
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
        package = plugin.dist.name if plugin.dist else "an unknown package"
        warnings.warn(
            f"the network plug-in {plugin.name!r} of {package} could not be loaded: "
            f"{type(error).__name__}: {error}",
            stacklevel=2,
        )
