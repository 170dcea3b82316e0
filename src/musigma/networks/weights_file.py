"""Trained weights: ours with their facts inside, and released files of others, loaded safely."""

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor

from musigma.atomic import write_atomically
from musigma.networks.base import Network
from musigma.networks.registry import create, entries, entry
from musigma.networks.sigma_branch import WithSigma, with_sigma
from musigma.types import ConfigError, WeightsError

SHIPPED = Path(__file__).parents[1] / "weights"
WRAPPERS = ("params_ema", "params", "state_dict", "model", "net")
LICENCE = "Apache-2.0"
"""Of the weights that ship, where they do not say otherwise: that of the project."""

PREFIXES = ("module.", "_orig_mod.")


@dataclass(frozen=True, kw_only=True)
class WeightsFile:
    """What a weights file holds.

    Attributes:
        network: The network with its weights.
        metadata: What the file says of training, data and calibration; empty for foreign files.
        digest: What `digest_of` gives for the weights.
    """

    network: Network
    metadata: dict[str, Any]
    digest: str


def shipped_metadata(name: str, scale: int) -> dict[str, Any]:
    """Return what the weights that ship say of themselves; nothing where none ship."""
    path = SHIPPED / f"{name}-x{scale}.safetensors"
    if not path.is_file():
        return {}
    with safe_open(path, framework="pt") as file:
        found: dict[str, Any] = json.loads(file.metadata()["musigma"])
    return {"licence": LICENCE} | found


def read_weights_file(path: Path, *, scale: int | None = None) -> WeightsFile:
    """Read a weights file: one of ours, or a foreign one recognised by its keys."""
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
        network, state = _build_foreign(path, state, scale)
    _load_strictly(network, state, path)
    return WeightsFile(network=network, metadata=metadata, digest=digest_of(network))


def digest_of(network: Network) -> str:
    """Return the SHA-256 of a network's weights: names, shapes and values of all tensors.

    Values are rounded to half precision first. So weights keep their digest when they are stored in
    half precision, calibrated, or written into another kind of file.

    Example:
        >>> network = create("edsr-baseline", scale=2, num_blocks=1, width=4)
        >>> digest_of(network) == digest_of(network.half())
        True
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        value = tensor.detach().cpu().contiguous()
        value = value.half() if value.is_floating_point() else value
        digest.update(f"{name} {tuple(value.shape)}\n".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


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
    identity = network.build_spec
    sigma = None
    if isinstance(network, WithSigma):
        sigma = {"width": network.width, "depth": network.depth}
    return {
        "format": 1,
        "architecture": identity.name,
        "scale": identity.scale,
        "settings": identity.settings,
        "sigma": sigma,
    }


def write_weights_file(
    path: Path, network: Network, *, half: bool = False, **metadata: Any
) -> None:
    """Write a weights file of ours, atomically; arguments as for `musigma.save`."""
    if path.suffix != ".safetensors":
        raise WeightsError(f"{path.name} was not written: the name must end in .safetensors")
    state = {
        key: (value.half() if half and value.is_floating_point() else value).contiguous().cpu()
        for key, value in network.state_dict().items()
    }
    if not all(bool(torch.isfinite(value).all()) for value in state.values()):
        raise WeightsError(f"{path.name} was not written: the weights hold non-finite values")
    stored = {"musigma": json.dumps({**metadata, **describe(network)})}
    write_atomically(path, to_safetensors(state, stored))


def warm_start(network: Network, source: Network) -> list[str]:
    """Copy every weight of `source` that has the same name and shape; return the names left out.

    This is how x3 and x4 start from x2: the trunk is the same, the upsampler is not. Weights
    without a sigma branch start a network that has one, and the other way round.
    """
    if isinstance(source, WithSigma) and not isinstance(network, WithSigma):
        source = source.base
    theirs = source.state_dict()
    if isinstance(network, WithSigma) and not isinstance(source, WithSigma):
        theirs = {f"base.{key}": value for key, value in theirs.items()}
    ours = network.state_dict()
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
    """Unwrap ``params``-like dictionaries and strip what DDP and compile put before names.

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
            warnings.simplefilter("ignore")  # of the pickle's version; what matters is raised
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # A broken pickle raises anything, and what torch says advises to load it unsafely.
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


def _build_foreign(
    path: Path, state: Mapping[str, Any], scale: int | None
) -> tuple[Network, dict[str, Tensor]]:
    cleaned = {k: v for k, v in clean_keys(state).items() if isinstance(v, Tensor)}
    for candidate in entries():
        recognised = candidate.recognise(cleaned) if candidate.recognise else None
        if recognised is None:
            continue
        name, own_scale, settings = recognised
        found = entry(name)
        scales = found.scales if own_scale is None else (own_scale,)
        network = create(name, scale=choose_scale(path.name, scale, scales), **settings)
        return network, found.adapt(cleaned) if found.adapt else cleaned
    sample = ", ".join(list(cleaned)[:3]) or "nothing"
    raise WeightsError(
        f"{path.name} is no file of a network known here (it holds {sample}, ...); "
        "'musigma models' lists them"
    )


def choose_scale(name: str, asked: int | None, scales: tuple[int, ...]) -> int:
    """Return the scale that was asked for, or the only one there is."""
    if asked is None and len(scales) == 1:
        return scales[0]
    if asked is None:
        raise ConfigError(f"{name} exists for scale {scales}; choose one of them with scale")
    if asked not in scales:
        raise ConfigError(f"{name} exists for scale {scales}, not {asked}")
    return asked


def _load_strictly(network: Network, state: Mapping[str, Tensor], path: Path) -> None:
    try:
        network.load_state_dict(state, strict=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise WeightsError(f"{path.name} does not fit its network: {reason[:300]}") from error
