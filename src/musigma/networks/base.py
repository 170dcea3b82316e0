"""The contract of every network: two steps (features, then the mean), and what tiling must know."""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from musigma.types import ConfigError, Prediction

Settings = dict[str, Any]
Task = Literal["super-resolution", "denoising", "restoration"]

SPEC_KEY = "build_spec"
"""Name under which a state dict says how its network was built."""

MAX_SPEC = 65536
"""Most bytes of what it says."""


@dataclass(frozen=True)
class BuildSpec:
    """Everything needed to build a network again: its name, scale and settings."""

    name: str
    scale: int
    settings: Settings = field(default_factory=dict)

    def to_tensor(self) -> Tensor | None:
        """Return the text of this specification as bytes, or `None` where it has no JSON form.

        Example:
            >>> spec = BuildSpec("edsr", 2, {"width": 8})
            >>> BuildSpec.from_tensor(spec.to_tensor()) == spec
            True
        """
        content = {"name": self.name, "scale": self.scale, "settings": self.settings}
        try:
            text = json.dumps(content).encode()
        except TypeError:
            return None
        # On the CPU even inside `torch.device("meta")`, where the bytes would be lost.
        return torch.tensor(list(text), dtype=torch.uint8, device="cpu")

    @classmethod
    def from_tensor(cls, stored: Tensor) -> "BuildSpec":
        """Read what `to_tensor` wrote; anything else raises a `ValueError`."""
        try:
            if stored.numel() > MAX_SPEC:
                raise ValueError(f"a build specification has at most {MAX_SPEC} bytes")
            content = json.loads(bytes(stored.to(torch.uint8).flatten().tolist()))
            settings = {key: _as_tuple(value) for key, value in content["settings"].items()}
            name, scale = content["name"], content["scale"]
            if not isinstance(name, str) or type(scale) is not int:
                raise ValueError("expected the name of a network and a whole scale")
            return cls(name, scale, settings)
        except (AttributeError, KeyError, TypeError, RuntimeError) as error:
            raise ValueError("the tensor holds no build specification") from error


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, kw_only=True)
class NetworkInfo:
    """What the rest of the library must know about a network.

    Attributes:
        scale: Zoom factor; 1 where the result has the size of the input.
        task: What the network is for. ``"super-resolution"`` enlarges; ``"denoising"`` removes
            noise; ``"restoration"`` keeps the size too, and is trained on pairs of any kind, such
            as photographs through two lenses. A scale of 1 alone does not mean denoising.
        feature_channels: Channels of the last trunk features.
        feature_scale: Size of the mean divided by the size of the features.
        feature_receptive_radius: How many input pixels away a feature can see; `None` for the
            whole image. `musigma.networks.receptive_field` measures it.
        receptive_radius: The same for the mean.
        in_channels: Channels of the input, the noise map included where there is one.
        out_channels: Channels of the mean.
        size_multiple: Exact tiles begin at multiples of this number of pixels.
        luma_only: Whether the network restores the luma alone.
        activation_floats_per_pixel: Values held for each input pixel at the moment of highest
            memory use. Needed only where that is more than `feature_channels` suggests.
        fixed_activation_floats: Values held whatever the size of the image, such as a block of
            pairwise similarities.
        takes_noise_level: Whether the last input channel is a map of the noise level.
        is_black_box: Whether another program computes the mean. It gets whole pictures, whatever
            their size, and runs by the engine ``torch`` alone.

    Example:
        >>> info = NetworkInfo(
        ...     scale=2, task="super-resolution", feature_channels=64, feature_scale=2,
        ...     feature_receptive_radius=3, receptive_radius=4,
        ... )
        >>> info.in_channels, info.size_multiple
        (3, 1)
    """

    scale: int
    task: Task
    feature_channels: int
    feature_scale: int
    feature_receptive_radius: int | None
    receptive_radius: int | None
    in_channels: int = 3
    out_channels: int = 3
    size_multiple: int = 1
    luma_only: bool = False
    activation_floats_per_pixel: int = 0
    fixed_activation_floats: int = 0
    takes_noise_level: bool = False
    is_black_box: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes that no network has."""
        sizes = ("scale", "feature_channels", "feature_scale", "in_channels", "out_channels")
        for name in (*sizes, "size_multiple"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be 1 or more, got {getattr(self, name)}")
        for name in ("feature_receptive_radius", "receptive_radius"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigError(f"{name} must be 0 or more, got {getattr(self, name)}")


class Network(nn.Module, ABC):
    """A network that restores an image in two steps, so that a sigma branch can share the first.

    A subclass sets `self.info` in its constructor and implements `features` and `reconstruct`.
    Inputs are ``(N, in_channels, H, W)`` in ``[0, 1]``; the mean is
    ``(N, out_channels, scale H, scale W)``.

    Attributes:
        has_sigma: Whether it predicts its error.

    Example:
        >>> class Blend(Network):
        ...     def __init__(self, *, scale):
        ...         super().__init__()
        ...         self.info = NetworkInfo(
        ...             scale=scale, task="super-resolution", feature_channels=8,
        ...             feature_scale=scale, feature_receptive_radius=1, receptive_radius=2,
        ...         )
        ...         self.head = nn.Conv2d(3, 8, 3, padding=1)
        ...         self.tail = nn.Sequential(
        ...             nn.Conv2d(8, 3 * scale**2, 3, padding=1), nn.PixelShuffle(scale)
        ...         )
        ...     def features(self, degraded):
        ...         return self.head(degraded).relu()
        ...     def reconstruct(self, features, degraded):
        ...         return self.tail(features)
        >>> Blend(scale=2)(torch.rand(1, 3, 5, 4)).mean.shape
        torch.Size([1, 3, 10, 8])
    """

    has_sigma: bool = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Remember the arguments, from which `build_spec` follows."""
        network = super().__new__(cls)
        # A wrapper around other networks has no specification of its own.
        if not any(isinstance(each, nn.Module) for each in (*args, *kwargs.values())):
            network.__dict__["_arguments"] = (args, kwargs)
        return network

    @abstractmethod
    def features(self, degraded: Tensor) -> Tensor:
        """Return the last trunk features, ``(N, feature_channels, h, w)``."""

    @abstractmethod
    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Return the mean, made from the features and, in residual networks, the input."""

    def forward(self, degraded: Tensor) -> Prediction:
        """Restore a batch of images."""
        return Prediction(self.reconstruct(self.features(degraded), degraded))

    @property
    def info(self) -> NetworkInfo:
        """What the rest of the library must know about this network."""
        info: NetworkInfo | None = self.__dict__.get("_info")
        if info is None:
            # Not an AttributeError, which `nn.Module` would replace by a misleading message.
            raise ConfigError(
                f"{type(self).__name__} has no info; "
                "its constructor must set self.info = NetworkInfo(...)"
            )
        return info

    @info.setter
    def info(self, info: NetworkInfo) -> None:
        self.__dict__["_info"] = info

    @property
    def build_spec(self) -> BuildSpec:
        """How to build this network again; a weights file stores it."""
        from musigma.networks.registry import find_build_spec

        spec = find_build_spec(self)
        if spec is None:
            name = type(self).__name__
            raise ConfigError(
                f"{name} is not registered, so a weights file cannot name it; "
                f'put @musigma.register("a-name") above the class {name}'
            )
        return spec

    @property
    def scale(self) -> int:
        """Zoom factor."""
        return self.info.scale

    @property
    def in_channels(self) -> int:
        """Channels of the input, the noise map included."""
        return self.info.in_channels

    @property
    def out_channels(self) -> int:
        """Channels of the mean."""
        return self.info.out_channels

    @property
    def feature_channels(self) -> int:
        """Channels of the last trunk features."""
        return self.info.feature_channels

    @property
    def feature_scale(self) -> int:
        """Size of the mean divided by the size of the features."""
        return self.info.feature_scale

    @property
    def feature_receptive_radius(self) -> int | None:
        """How many input pixels away a feature can see."""
        return self.info.feature_receptive_radius

    @property
    def receptive_radius(self) -> int | None:
        """How many input pixels away the result can see; `None` for the whole image."""
        return self.info.receptive_radius

    @property
    def size_multiple(self) -> int:
        """Exact tiles begin at multiples of this number of pixels."""
        return self.info.size_multiple

    @property
    def luma_only(self) -> bool:
        """Whether the network restores the luma alone."""
        return self.info.luma_only

    @property
    def activation_floats_per_pixel(self) -> int:
        """Values held for each input pixel at the moment of highest memory use."""
        return self.info.activation_floats_per_pixel

    @property
    def fixed_activation_floats(self) -> int:
        """Values held whatever the size of the image."""
        return self.info.fixed_activation_floats

    @property
    def takes_noise_level(self) -> bool:
        """Whether the last input channel is a map of the noise level."""
        return self.info.takes_noise_level

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Add how the network was built, so that a bare state dict can be loaded safely.

        Shapes alone do not tell every setting: the value range, for example, is in none of them.
        """
        from musigma.networks.registry import find_build_spec

        super()._save_to_state_dict(destination, prefix, keep_vars)
        spec = find_build_spec(self)
        stored = spec.to_tensor() if spec else None
        if stored is not None:
            destination[prefix + SPEC_KEY] = stored

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, *arguments: Any, **options: Any
    ) -> None:
        # What the state dict says about its network is optional: released files do not have it.
        without = {k: v for k, v in state_dict.items() if k != prefix + SPEC_KEY}
        super()._load_from_state_dict(without, prefix, *arguments, **options)
