"""Weights files: ours, which describe themselves, and released files of others, loaded safely."""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn

from musigma.atomic import write_atomically
from musigma.networks.base import SPEC_KEY, BuildSpec, Network
from musigma.networks.black_box import BLACK_BOX, BlackBox, Function
from musigma.networks.bounded_build import build_without_values, check_settings
from musigma.networks.joint_head import JointHead, joint_head
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
from musigma.networks.stored_tensors import read_stored_tensors
from musigma.types import (
    ConfigError,
    WeightsError,
    alternatives,
    first_line,
    no_scale,
    short_repr,
    shortened,
)

SHIPPED = Path(__file__).parents[1] / "weights"
LICENCE = (
    "Apache-2.0 for the project's own rights in the weights; they were trained on images that have "
    "terms of their own, some for research use only (see README)"
)
"""Of the weights that ship, where their file does not say otherwise."""

HEAD_KEY, HEAD_PREFIX = "joint_head", "joint."
"""Entry of the metadata and begin of the names of the tensors of a joint head."""

Maker = Callable[[], Network]


@dataclass(frozen=True, kw_only=True)
class WeightsFile:
    """What a weights file holds.

    Attributes:
        network: The network with its weights.
        metadata: What the file says about training, data and calibration; empty for files of
            others.
        digest: What `digest_of` gives for the weights of the network.
        joint_head: The joint head, where the file has one. It is no part of the digest: mean and
            sigma are the same with it and without it.
    """

    network: Network
    metadata: dict[str, Any]
    digest: str
    joint_head: JointHead | None = None


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
    path: Path,
    *,
    scale: int | None = None,
    value_range: float | None = None,
    function: Function | None = None,
) -> WeightsFile:
    """Read a weights file: one of ours, or one of others that is recognized by its keys.

    Nothing in the file is executed. The network is built without values first, and its shapes are
    compared with those of the tensors, before memory is taken for it.

    Args:
        path: The file.
        scale: Zoom factor; needed for a file that is for several.
        value_range: Range that the layers of the network work in, for files that do not tell:
            255 for most released networks, 1 for networks trained with musigma.
        function: The network that the error bars of the file belong to, for files of
            ``musigma wrap``, and only for them.

    Raises:
        WeightsError: If the file cannot be read, or is of no network known here.
    """
    tensors, metadata = read_stored_tensors(path)
    head_settings = metadata.pop(HEAD_KEY, None)
    head_tensors = _take_head(tensors) if head_settings is not None else {}
    _check_is_wrap(path.name, metadata, wanted=function is not None)
    if metadata:
        make: Maker = partial(build, metadata, function)
    else:
        make, tensors = _read_bare(path.name, tensors, scale, value_range)
    skeleton = _skeleton(path.name, make, len(tensors))
    if metadata and scale not in (None, skeleton.scale):
        raise ConfigError(f"{path.name} enlarges by {skeleton.scale}, not by {scale}")
    _check_shapes(path.name, weights_of(skeleton), tensors)
    network = make()
    network.load_state_dict(tensors, strict=True)
    head = None
    if head_settings is not None:
        head = _read_head(path.name, network, head_settings, head_tensors)
    if path.parent == SHIPPED:
        metadata = {"licence": LICENCE} | metadata
    return WeightsFile(
        network=network, metadata=metadata, digest=digest_of(network), joint_head=head
    )


def _take_head(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take the tensors of the joint head out of those of a file."""
    names = [name for name in tensors if name.startswith(HEAD_PREFIX)]
    return {name.removeprefix(HEAD_PREFIX): tensors.pop(name) for name in names}


def _read_head(
    name: str, network: Network, settings: object, tensors: Mapping[str, Tensor]
) -> JointHead:
    if not isinstance(settings, Mapping) or settings.keys() - {"fields", "width", "reach"}:
        raise WeightsError(
            f"{name}: a joint head has fields, width and reach, got {short_repr(settings)}"
        )
    try:
        with torch.device("meta"):  # takes no memory, whatever the settings say
            skeleton = joint_head(network, **settings)
    except ConfigError as error:
        raise WeightsError(f"{name}: {first_line(error)}") from error
    _check_shapes(name, skeleton.state_dict(), tensors)
    head = joint_head(network, **settings)
    head.load_state_dict(dict(tensors), strict=True)
    return head.eval()


def digest_of(network: nn.Module) -> str:
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


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    """Return the state dict without what it says about how the network was built."""
    return {key: value for key, value in network.state_dict().items() if not _is_spec(key)}


def build(metadata: Mapping[str, Any], function: Function | None = None) -> Network:
    """Build the network that a weights file of ours describes.

    Args:
        metadata: The description.
        function: What a black box asks.

    Raises:
        ConfigError: If the description is not whole, or no network is like it.
    """
    missing = [key for key in ("architecture", "scale", "settings") if key not in metadata]
    if missing:
        raise ConfigError(f"the description lacks {missing[0]!r}")
    name, scale, settings = (metadata[key] for key in ("architecture", "scale", "settings"))
    if not isinstance(name, str) or type(scale) is not int:
        raise ConfigError(
            f"expected the name of a network and a whole scale, got {short_repr(name)} and "
            f"{short_repr(scale)}"
        )
    check_settings(settings)
    network: Network
    if name == BLACK_BOX:
        network = BlackBox(function, scale=scale)
    else:
        network = create(name, scale=scale, **settings)
    sigma = metadata.get("sigma")
    if sigma is None:
        return network
    if not isinstance(sigma, Mapping) or sigma.keys() - {"width", "depth"}:
        raise ConfigError(f"sigma must have a width and a depth, got {short_repr(sigma)}")
    return with_sigma(network, **sigma)


def build_skeleton(metadata: Mapping[str, Any], *, num_tensors: int = 1000) -> Network:
    """Build the network of `build` without values, which takes no memory.

    Args:
        metadata: What the weights file says.
        num_tensors: About how many weights the network should have.
    """
    return build_without_values(partial(build, metadata), num_tensors=num_tensors)


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


def _check_is_wrap(name: str, metadata: Mapping[str, Any], *, wanted: bool) -> None:
    """Refuse error bars without the network that they belong to, and a network without them."""
    is_wrap = metadata.get("architecture") == BLACK_BOX
    if wanted and not is_wrap:
        raise WeightsError(f"{name} was not written by 'musigma wrap'; leave `network` out")
    if is_wrap and not wanted:
        wrapped = metadata.get("wraps")
        known_as = wrapped.get("name") if isinstance(wrapped, Mapping) else None
        raise WeightsError(
            f"{name} holds the error bars of another network, {short_repr(known_as)}; give that "
            "network by `network`"
        )


def check_weights_path(path: Path) -> None:
    """Refuse a path that `write_weights_file` could not write, before work is done for it."""
    if path.suffix != ".safetensors":
        raise WeightsError(f"{path.name} was not written: the name must end in .safetensors")
    if path.is_dir():
        raise WeightsError(f"{path} was not written: it is a folder")
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise WeightsError(f"{path} was not written: no file can be made in {above}")


def write_weights_file(
    path: Path,
    network: Network,
    *,
    half: bool = False,
    head: JointHead | None = None,
    **metadata: Any,
) -> None:
    """Write a weights file of ours, atomically; arguments as for `musigma.save`.

    Args:
        path: Where.
        network: The network.
        half: Store half-precision values.
        head: Its joint head, if it has one.
        metadata: Further entries.
    """
    check_weights_path(path)
    weights = weights_of(network)
    if head is not None:
        weights |= {f"{HEAD_PREFIX}{key}": value for key, value in weights_of(head).items()}
        metadata[HEAD_KEY] = head.settings
    state = {
        key: (value.half() if half and value.is_floating_point() else value).contiguous().cpu()
        for key, value in weights.items()
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


def choose_scale(name: str, asked: int | None, scales: tuple[int, ...]) -> int:
    """Return the scale that was asked for, or the only scale that exists."""
    if asked is None and len(scales) == 1:
        return scales[0]
    if asked is None:
        text = f"{name} exists for scale {alternatives(scales)}"
        raise ConfigError(f"{text}; choose one of them with `scale`")
    if asked not in scales:
        raise no_scale(name, scales, asked)
    return asked


def _skeleton(name: str, make: Maker, num_tensors: int) -> Network:
    try:
        return build_without_values(make, num_tensors=num_tensors)
    except ConfigError as error:
        reason = first_line(error, 300)
        raise WeightsError(f"{name} describes no network known here: {reason}") from error


def _read_bare(
    name: str, tensors: dict[str, Tensor], scale: int | None, value_range: float | None
) -> tuple[Maker, dict[str, Tensor]]:
    """Return how to build the network of a state dict, and the state dict with our names."""
    base = {k.removeprefix("base."): v for k, v in tensors.items() if k.startswith("base.")}
    if not base or not any(key.startswith("branch.") for key in tensors):
        spec, adapted = _read_base(name, tensors, scale, value_range)
        return partial(_create, spec), adapted
    spec, base = _read_base(name, base, scale, value_range)
    branch = {key: value for key, value in tensors.items() if key.startswith("branch.")}
    try:
        width = shape(branch, "branch.upsampler.0.weight", 4)[1]
    except NotThisNetwork as error:
        raise WeightsError(f"the sigma branch in {name} is not whole") from error
    depth = count(branch, r"branch\.body\.\d+\.weight") // 2  # a convolution and a PReLU each
    adapted = {f"base.{key}": value for key, value in base.items()} | branch
    return lambda: with_sigma(_create(spec), width=width, depth=depth), adapted


def _read_base(
    name: str, state: dict[str, Tensor], scale: int | None, value_range: float | None
) -> tuple[BuildSpec, dict[str, Tensor]]:
    if SPEC_KEY in state:
        return _read_ours(name, state, scale, value_range), state
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
    except NotThisNetwork as error:
        raise WeightsError(f"{name} looks like {registered.name}, but parts are missing") from error
    return BuildSpec(registered.name, chosen, settings), adapted


def _read_ours(
    name: str, state: dict[str, Tensor], scale: int | None, value_range: float | None
) -> BuildSpec:
    """Return how a state dict of ours says it was built, and take that out of it."""
    try:
        spec = BuildSpec.from_tensor(state.pop(SPEC_KEY))
        registered = entry(spec.name)
    except ValueError as error:
        reason = first_line(error)
        raise WeightsError(f"{name} describes no network known here: {reason}") from error
    recognised = registered.recognise(state) if registered.recognise else None
    serves_all = recognised is not None and recognised[1] is None
    scales = registered.scales if serves_all else (spec.scale,)
    chosen = choose_scale(name, spec.scale if scale is None else scale, scales)
    settings = (
        spec.settings if value_range is None else spec.settings | {"value_range": value_range}
    )
    return BuildSpec(spec.name, chosen, settings)


def _create(spec: BuildSpec) -> Network:
    check_settings(spec.settings)
    return create(spec.name, scale=spec.scale, **spec.settings)


def _recognise(name: str, state: Mapping[str, Tensor]) -> tuple[Entry, int | None, dict[str, Any]]:
    for recognise in _recognisers():
        recognised: Recognised | None = recognise(state)
        if recognised is not None:
            name_of_network, scale, settings = recognised
            return entry(name_of_network), scale, settings
    sample = ", ".join(shortened(key) for key in list(state)[:3]) or "nothing"
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


def _check_shapes(name: str, expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not those of the network, before memory is taken for it."""
    missing = [key for key in expected if key not in tensors]
    unknown = [key for key in tensors if key not in expected]
    problems = []
    if missing:
        problems.append(f"{len(missing)} weights are missing, such as {missing[0]}")
    if unknown:
        problems.append(f"{len(unknown)} are unknown, such as {shortened(unknown[0])}")
    common = [key for key in expected if key in tensors]
    differing = [key for key in common if expected[key].shape != tensors[key].shape]
    for key in differing[:1]:
        ours, theirs = tuple(expected[key].shape), tuple(tensors[key].shape)
        problems.append(f"{key} has the shape {short_repr(theirs)}, expected {ours}")
    if problems:
        raise WeightsError(f"{name} does not fit its network: {'; '.join(problems)}")
