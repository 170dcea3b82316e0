"""The written list of networks: what each is called, where it comes from and how it is built."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from musigma.networks.base import BuildSpec, Network, Settings
from musigma.types import ConfigError, nearest

Builder = Callable[..., Network]
Recognised = tuple[str, int | None, Settings]
"""Name, scale (``None`` where one file serves every scale) and settings of a foreign file."""

Recogniser = Callable[[Mapping[str, Tensor]], Recognised | None]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One registered network.

    Attributes:
        name: What users type.
        build: Makes the network from ``scale`` and settings.
        scales: Zoom factors it exists for; ``(1,)`` for a denoiser.
        paper: Where it was published.
        year: When.
        noise_map: Whether its last input channel is a map of the noise level.
        purpose: What it is for, where its scales do not say so.
        recognise: Tells from the keys of a foreign state dict which variant of the family it is.
        adapt: Renames the keys of a recognised foreign state dict to ours.
    """

    name: str
    build: Builder
    scales: tuple[int, ...]
    paper: str
    year: int
    noise_map: bool = False
    purpose: str = ""
    recognise: Recogniser | None = None
    adapt: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None

    @property
    def task(self) -> str:
        """``"upscale"``, ``"denoise"`` or ``"restoration"``."""
        if self.purpose:
            return self.purpose
        return "denoise" if self.scales == (1,) else "upscale"


_ENTRIES: dict[str, Entry] = {}


def register(name: str, **facts: Any) -> Callable[[Builder], Builder]:
    """Put a builder on the list under a name; the facts are those of `Entry`."""

    def add(build: Builder) -> Builder:
        assert name not in _ENTRIES, f"two networks are called {name!r}"
        _ENTRIES[name] = Entry(name=name, build=build, **facts)
        return build

    return add


def entry(name: str) -> Entry:
    """Return what is registered under a name."""
    if name not in _ENTRIES:
        raise ConfigError(f"there is no network called {name!r}; {nearest(name, list(_ENTRIES))}")
    return _ENTRIES[name]


def entries() -> Iterator[Entry]:
    """Yield every registered network, in the order of the list."""
    yield from _ENTRIES.values()


def create(name: str, *, scale: int, **settings: Any) -> Network:
    """Build a network with fresh weights.

    Example:
        >>> create("edsr-baseline", scale=2).receptive_radius
        36
    """
    found = entry(name)
    if scale not in found.scales:
        raise ConfigError(f"{name} exists for scale {found.scales}, not {scale}")
    try:
        network = found.build(scale=scale, **settings)
    except TypeError as error:
        allowed = _settings_of(type(found.build(scale=scale)))
        unknown = [key for key in settings if key not in allowed]
        if not unknown:
            raise
        hint = nearest(unknown[0], allowed)
        raise ConfigError(f"{name} has no setting {unknown[0]!r}; {hint}") from error
    network.build_spec = BuildSpec(name, scale, settings)
    network.takes_noise_level = found.noise_map and settings.get("noise_level", True)
    return network


def _settings_of(network: type[Network]) -> list[str]:
    return [key for key in inspect.signature(network).parameters if key != "scale"]
