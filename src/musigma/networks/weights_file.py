"""Weights files: ours, which describe themselves, and released files of others, loaded safely."""

import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor

from musigma.atomic import write_atomically
from musigma.networks.base import SPEC_KEY, BuildSpec, Network
from musigma.networks.registry import Entry, create, entries, entry
from musigma.networks.sigma_branch import WithSigma, with_sigma
from musigma.networks.state_dict import (
    RELEASED_RANGE,
    NotThisNetwork,
    Recognised,
    count,
    shape,
    stored_range,
)
from musigma.types import ConfigError, WeightsError

SHIPPED = Path(__file__).parents[1] / "weights"
WRAPPERS = ("params_ema", "params", "state_dict", "model", "net")
LICENCE = (
    "Apache-2.0 for the project's own rights in the weights; they were trained on images that have "
    "terms of their own, some for research use only (see README)"
)
"""Of the weights that ship, where their file does not say otherwise."""

PREFIXES = ("module.", "_orig_mod.")


@dataclass(frozen=True, kw_only=True)
class WeightsFile:
    """What a weights file holds.

    Attributes:
        network: The network with its weights.
        metadata: What the file says about training, data and calibration; empty for files of
            others.
        digest: What `digest_of` gives for the weights.
    """

    network: Network
    metadata: dict[str, Any]
    digest: str


def shipped_path(name: str, scale: int) -> Path | None:
    """Return the weights file that ships under a name for a scale, if there is one."""
    path = SHIPPED / f"{name}-x{scale}.safetensors"
    return path if path.is_file() else None


def shipped_weights() -> dict[str, tuple[int, ...]]:
    """Return the names under which weights ship, each with its scales.

    Such a name may be that of a network, or say what the weights are for, such as ``photo``.
    """
    names: dict[str, tuple[int, ...]] = {}
    for path in sorted(SHIPPED.glob("*-x*.safetensors")):
        name, _, scale = path.stem.rpartition("-x")
        names[name] = (*names.get(name, ()), int(scale))
    return names


def shipped_metadata(name: str, scale: int) -> dict[str, Any]:
    """Return what the weights that ship say about themselves; nothing where none ship."""
    path = shipped_path(name, scale)
    if path is None:
        return {}
    with safe_open(path, framework="pt") as file:
        metadata: dict[str, Any] = json.loads(file.metadata()["musigma"])
    return {"licence": LICENCE} | metadata


def read_weights_file(
    path: Path, *, scale: int | None = None, value_range: float | None = None
) -> WeightsFile:
    """Read a weights file: one of ours, or one of others that is recognised by its keys.

    Args:
        path: The file.
        scale: Zoom factor; needed for a file that is for several.
        value_range: Range that the layers of the network work in, for files that do not tell:
            255 for most released networks, 1 for networks trained with musigma.
    """
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise WeightsError(f"{path} could not be read ({error.strerror})") from error
    if path.suffix == ".safetensors":
        state, metadata = _read_safetensors(path)
    else:
        state, metadata = _read_pickle(path), {}
    if metadata:
        try:
            network = build(metadata)
        except (ConfigError, KeyError, TypeError) as error:
            raise WeightsError(f"{path.name} describes no network known here: {error}") from error
        if scale not in (None, network.scale):
            raise ConfigError(f"{path.name} enlarges by {network.scale}, not by {scale}")
    else:
        network, state = _build_bare(path.name, state, scale, value_range)
    _load_strictly(network, state, path)
    if path.parent == SHIPPED:
        metadata = {"licence": LICENCE} | metadata
    return WeightsFile(network=network, metadata=metadata, digest=digest_of(network))


def digest_of(network: Network) -> str:
    """Return the SHA-256 of a network's weights: names, shapes and values of all tensors.

    Values are rounded to half precision first. So weights keep their digest when they are stored in
    half precision, calibrated, or written into another format.

    Example:
        >>> network = create("edsr-baseline", scale=2, num_blocks=1, width=4)
        >>> digest_of(network) == digest_of(network.half())
        True
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(weights_of(network).items()):
        value = tensor.detach().cpu().contiguous()
        value = value.half() if value.is_floating_point() else value
        digest.update(f"{name} {tuple(value.shape)}\n".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def weights_of(network: Network) -> dict[str, Tensor]:
    """Return the state dict without what it says about how the network was built."""
    return {key: value for key, value in network.state_dict().items() if not _is_spec(key)}


def build(metadata: Mapping[str, Any]) -> Network:
    """Build the network that a weights file of ours describes."""
    network: Network = create(
        metadata["architecture"], scale=metadata["scale"], **metadata["settings"]
    )
    if metadata.get("sigma"):
        network = with_sigma(network, **metadata["sigma"])
    return network


def describe(network: Network) -> dict[str, Any]:
    """Return the metadata from which `build` makes the same network."""
    spec = network.build_spec
    sigma = None
    if isinstance(network, WithSigma):
        sigma = {"width": network.width, "depth": network.depth}
    return {
        "format": 1,
        "architecture": spec.name,
        "scale": spec.scale,
        "settings": spec.settings,
        "sigma": sigma,
    }


def check_weights_name(path: Path) -> None:
    """Refuse a name that `write_weights_file` would refuse, before work is done for it."""
    if path.suffix != ".safetensors":
        raise WeightsError(f"{path.name} was not written: the name must end in .safetensors")


def write_weights_file(
    path: Path, network: Network, *, half: bool = False, **metadata: Any
) -> None:
    """Write a weights file of ours, atomically; arguments as for `musigma.save`."""
    check_weights_name(path)
    state = {
        key: (value.half() if half and value.is_floating_point() else value).contiguous().cpu()
        for key, value in weights_of(network).items()
    }
    if not all(bool(torch.isfinite(value).all()) for value in state.values()):
        raise WeightsError(f"{path.name} was not written: the weights hold non-finite values")
    try:
        stored = json.dumps({**metadata, **describe(network)})
    except TypeError as error:
        raise WeightsError(
            f"{path.name} was not written: settings and metadata must be numbers, texts, lists or "
            f"dictionaries ({error})"
        ) from error
    write_atomically(path, to_safetensors(state, {"musigma": stored}))


def warm_start(network: Network, source: Network) -> list[str]:
    """Copy every weight of `source` that has the same name and shape; return the names left out.

    This is how x3 and x4 start from x2: the trunk is the same, the upsampler is not. Weights
    without a sigma branch can start a network that has one, and the other way round.
    """
    if isinstance(source, WithSigma) and not isinstance(network, WithSigma):
        source = source.base
    theirs = weights_of(source)
    if isinstance(network, WithSigma) and not isinstance(source, WithSigma):
        theirs = {f"base.{key}": value for key, value in theirs.items()}
    ours = weights_of(network)
    fitting = {
        key: value
        for key, value in theirs.items()
        if key in ours and ours[key].shape == value.shape
    }
    if not fitting:
        raise WeightsError("nothing in the weights to start from fits the network")
    network.load_state_dict(fitting, strict=False)
    return [key for key in ours if key not in fitting]


def clean_keys(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Unwrap ``params``-like dictionaries and strip the prefixes of DDP and `torch.compile`.

    State dicts under numbers, as KAIR's for IRCNN, become one, with the number before each name.

    Example:
        >>> list(clean_keys({"params": {"module._orig_mod.head.0.bias": torch.zeros(1)}}))
        ['head.0.bias']
    """
    for wrapper in WRAPPERS:
        inner = state.get(wrapper)
        if isinstance(inner, Mapping):
            return clean_keys(inner)
    cleaned: dict[str, Tensor] = {}
    for key, value in state.items():
        if key.isdigit() and isinstance(value, Mapping):
            cleaned |= {f"{key}.{name}": inner for name, inner in clean_keys(value).items()}
            continue
        name = key
        while name.startswith(PREFIXES):
            name = name.split(".", 1)[1]
        cleaned[name] = value
    return cleaned


def choose_scale(name: str, asked: int | None, scales: tuple[int, ...]) -> int:
    """Return the scale that was asked for, or the only scale that exists."""
    if asked is None and len(scales) == 1:
        return scales[0]
    if asked is None:
        raise ConfigError(f"{name} exists for scale {scales}; choose one of them with `scale`")
    if asked not in scales:
        raise ConfigError(f"{name} exists for scale {scales}, not {asked}")
    return asked


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise WeightsError(f"{path.name} is not a whole safetensors file: {error}") from error
    try:
        return state, json.loads(metadata.get("musigma", "{}"))
    except ValueError as error:
        raise WeightsError(f"the metadata of {path.name} is no JSON: {error}") from error


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the version of the pickle
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # A broken pickle raises anything, and torch's own message advises to load it unsafely.
        forbidden = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = (
            f"it would call {forbidden[1]}; re-save it as a plain state dict or as safetensors"
            if forbidden
            else "it is damaged or no weights file; fetch it again"
        )
        raise WeightsError(f"{path.name} cannot be loaded safely: {reason}") from error
    if not isinstance(content, Mapping):
        raise WeightsError(f"{path.name} holds a {type(content).__name__}, not a state dict")
    return {key: value for key, value in content.items() if isinstance(key, str)}


def _build_bare(
    name: str, state: Mapping[str, Any], scale: int | None, value_range: float | None
) -> tuple[Network, dict[str, Tensor]]:
    """Build the network of a state dict without metadata, and give it our names."""
    tensors = {k: v for k, v in clean_keys(state).items() if isinstance(v, Tensor)}
    base = {k.removeprefix("base."): v for k, v in tensors.items() if k.startswith("base.")}
    if not base or not any(key.startswith("branch.") for key in tensors):
        return _build_base(name, tensors, scale, value_range)
    network, base = _build_base(name, base, scale, value_range)
    branch = {key: value for key, value in tensors.items() if key.startswith("branch.")}
    try:
        width = shape(branch, "branch.upsampler.0.weight", 4)[1]
    except NotThisNetwork as error:
        raise WeightsError(f"the sigma branch in {name} is not whole") from error
    depth = count(branch, r"branch\.body\.\d+\.weight") // 2  # a convolution and a PReLU each
    state = {f"base.{key}": value for key, value in base.items()} | branch
    return with_sigma(network, width=width, depth=depth), state


def _build_base(
    name: str, state: dict[str, Tensor], scale: int | None, value_range: float | None
) -> tuple[Network, dict[str, Tensor]]:
    if SPEC_KEY in state:
        return _build_ours(name, state, scale, value_range), state
    registered, own_scale, settings = _recognise(name, state)
    scales = registered.scales if own_scale is None else (own_scale,)
    if not set(scales) <= set(registered.scales):
        raise WeightsError(f"{name} looks like {registered.name}, but enlarges by {own_scale}")
    chosen = choose_scale(name, scale, scales)
    if value_range is not None:
        settings = settings | {"value_range": value_range}
    elif "value_range" in settings and not _tells_range(state):
        _warn_of_range(name)
    try:
        adapted = registered.adapt(state) if registered.adapt else state
        return _create(name, BuildSpec(registered.name, chosen, settings)), adapted
    except NotThisNetwork as error:
        raise WeightsError(f"{name} looks like {registered.name}, but parts are missing") from error


def _build_ours(
    name: str, state: dict[str, Tensor], scale: int | None, value_range: float | None
) -> Network:
    """Build the network that a state dict of ours describes, and take the description out."""
    try:
        spec = BuildSpec.from_tensor(state.pop(SPEC_KEY))
        registered = entry(spec.name)
    except ValueError as error:
        raise WeightsError(f"{name} describes no network known here: {error}") from error
    recognised = registered.recognise(state) if registered.recognise else None
    serves_all = recognised is not None and recognised[1] is None
    scales = registered.scales if serves_all else (spec.scale,)
    chosen = choose_scale(name, spec.scale if scale is None else scale, scales)
    settings = (
        spec.settings if value_range is None else spec.settings | {"value_range": value_range}
    )
    return _create(name, BuildSpec(spec.name, chosen, settings))


def _create(name: str, spec: BuildSpec) -> Network:
    try:
        return create(spec.name, scale=spec.scale, **spec.settings)
    except Exception as error:
        # The settings come from a file, so that a constructor may meet anything.
        raise WeightsError(f"{name} describes no network known here: {error}") from error


def _recognise(name: str, state: Mapping[str, Tensor]) -> tuple[Entry, int | None, dict[str, Any]]:
    for recognise in _recognisers():
        recognised: Recognised | None = recognise(state)
        if recognised is not None:
            found_name, scale, settings = recognised
            return entry(found_name), scale, settings
    sample = ", ".join(list(state)[:3]) or "nothing"
    raise WeightsError(
        f"{name} is no file of a network known here (it holds {sample}, ...); "
        "'musigma models' lists them"
    )


def _recognisers() -> Iterator[Any]:
    """Yield the recogniser of every family once."""
    yield from dict.fromkeys(each.recognise for each in entries() if each.recognise)


def _tells_range(state: Mapping[str, Tensor]) -> bool:
    # BasicSR's names are used for released networks in 0..255 alone.
    return stored_range(state) is not None or "conv_first.weight" in state


def _warn_of_range(name: str) -> None:
    warnings.warn(
        f"{name} does not tell in which range of values its layers work; {RELEASED_RANGE:.0f} is "
        "taken, as in released files. If it was trained with musigma, load it with value_range=1",
        stacklevel=2,
    )


def _is_spec(key: str) -> bool:
    return key == SPEC_KEY or key.endswith(f".{SPEC_KEY}")


def _load_strictly(network: Network, state: Mapping[str, Tensor], path: Path) -> None:
    try:
        network.load_state_dict(state, strict=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise WeightsError(f"{path.name} does not fit its network: {reason[:300]}") from error
