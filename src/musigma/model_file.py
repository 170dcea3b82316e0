"""From a name or a file to the parts of a model: weights, ONNX files, error bars of a wrap."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from musigma.images.science.value_range import stored_normalisation
from musigma.networks import Network, create, entries, mean_only
from musigma.networks.joint_head import JointHead
from musigma.networks.stored_tensors import read_stored_tensors
from musigma.networks.weight_choices import weights_named
from musigma.networks.weights_file import (
    WeightsFile,
    build_skeleton,
    choose_scale,
    read_weights_file,
    shipped_path,
    shipped_weights,
)
from musigma.prediction.engines import read_metadata
from musigma.prediction.foreign import RANGES, NetworkLike, open_network
from musigma.types import ConfigError, WeightsError, first_line, nearest, short_repr
from musigma.uncertainty.calibration import Calibration
from musigma.uncertainty.guard import Reference
from musigma.uncertainty.quantities import JointCalibration


class ModelFile(NamedTuple):
    """The parts of a model; the attributes are those of `musigma.Model`."""

    network: Network
    name: str
    metadata: dict[str, Any]
    digest: str
    calibration: Calibration | None
    joint_head: JointHead | None = None
    onnx: bytes | None = None


def read_model(
    model: str | Path,
    *,
    scale: int | None = None,
    value_range: float | None = None,
    network: NetworkLike | None = None,
    trust: bool = False,
) -> ModelFile:
    """Read what `musigma.load` is given: the name of weights, or the path of a file.

    Args:
        model: As for `musigma.load`.
        scale: As for `musigma.load`.
        value_range: As for `musigma.load`.
        network: As for `musigma.load`.
        trust: Whether the network may be a TorchScript file, which is a program.
    """
    if network is not None:
        return read_wrapped_file(Path(model), network, scale=scale, trust=trust)
    name = weights_named(str(model))
    known = list({*shipped_weights(), *(registered.name for registered in entries())})
    if name in known:
        return _read_named(name, scale)
    path = Path(model)
    if path.is_file():
        return read_model_file(path, scale=scale, value_range=value_range)
    if path.suffix or path.name != name:  # no network is called so
        raise WeightsError(f"there is no weights file {name}")
    raise ConfigError(
        f"{name!r} is neither a weights file nor the name of a model; {nearest(name, known)}"
    )


def _read_named(name: str, scale: int | None) -> ModelFile:
    registered = {entry.name: entry.scales for entry in entries()}
    # Without a scale the shipped ones are meant, even where the network exists for others.
    scales = {**registered, **shipped_weights()} if scale is None else registered
    scale = choose_scale(name, scale, scales.get(name) or shipped_weights()[name])
    shipped = shipped_path(name, scale)
    if shipped is not None:
        return read_model_file(shipped, scale=scale)._replace(name=name)
    network = create(name, scale=scale)
    if any(True for _ in network.parameters()):
        raise WeightsError(
            f"no trained weights ship for {name} x{scale}; pass a weights file, "
            "or train one with 'musigma train'"
        )
    return ModelFile(network=network.eval(), name=name, metadata={}, digest="", calibration=None)


def read_model_file(
    path: Path, *, scale: int | None = None, value_range: float | None = None
) -> ModelFile:
    """Read a weights file, ours or a foreign one that is known by its keys, or an ONNX file.

    Args:
        path: The file.
        scale: As for `musigma.load`.
        value_range: As for `musigma.load`.
    """
    if path.suffix == ".onnx":
        return _read_onnx(path, scale)
    content = read_weights_file(path, scale=scale, value_range=value_range)
    return _parts_of(content, path.name)


def read_wrapped_file(
    path: Path, network: NetworkLike, *, scale: int | None = None, trust: bool = False
) -> ModelFile:
    """Read a file of ``musigma wrap`` together with the network that it belongs to.

    Args:
        path: The file.
        network: As for `musigma.load`.
        scale: As for `musigma.load`.
        trust: Whether the network may be a TorchScript file, which is a program.
    """
    if not path.is_file():
        raise WeightsError(f"there is no weights file {path}")
    origin = read_stored_tensors(path).metadata.get("wraps", {})
    value_range = origin.get("value_range") if isinstance(origin, dict) else None
    known = value_range if value_range in RANGES else None
    foreign = open_network(network, value_range=known, trust=trust)
    content = read_weights_file(path, scale=scale, function=foreign.function)
    if content.network.scale != foreign.scale:
        raise WeightsError(
            f"{path.name} is for a network that enlarges by {content.network.scale}, and "
            f"{foreign.origin['name']} enlarges by {foreign.scale}"
        )
    answer = mean_only(content.network).get_buffer("answer")
    foreign.check_is(origin, answer, path.name)
    return _parts_of(content, path.name)._replace(name=str(foreign.origin["name"]))


def _read_onnx(path: Path, scale: int | None) -> ModelFile:
    metadata = read_metadata(path)
    try:
        network = build_skeleton(metadata).eval()
    except ConfigError as error:
        raise WeightsError(f"{path.name} describes no network known here: {error}") from error
    if scale not in (None, network.scale):
        raise ConfigError(f"{path.name} enlarges by {network.scale}, not by {scale}")
    digest = str(metadata.pop("digest", ""))
    for key in ("card", "joint_fields"):
        metadata.pop(key, None)
    content = WeightsFile(network=network, metadata=metadata, digest=digest)
    return _parts_of(content, path.name)._replace(onnx=path.read_bytes())


def _parts_of(content: WeightsFile, file_name: str) -> ModelFile:
    metadata = dict(content.metadata)
    _check_metadata(metadata, file_name)
    return ModelFile(
        network=content.network.eval(),
        name=content.network.build_spec.name,
        metadata=metadata,
        digest=content.digest,
        calibration=_calibration_of(metadata.pop("calibration", None), file_name, content),
        joint_head=content.joint_head,
    )


def _check_metadata(metadata: Mapping[str, Any], file_name: str) -> None:
    """Refuse entries of another form than those that musigma writes and reads."""
    training = metadata.get("training", {})
    recipe = training.get("recipe", {}) if isinstance(training, Mapping) else {}
    for name, entry, form in (
        ("training", training, Mapping),
        ("training/recipe", recipe, Mapping),
        ("licence", metadata.get("licence", ""), str),
    ):
        if not isinstance(entry, form):
            kind = "text" if form is str else "table"
            raise WeightsError(f"{name} of {file_name} must be a {kind}, got {short_repr(entry)}")
    try:
        stored_normalisation(metadata)
    except ConfigError as error:
        raise WeightsError(f"{file_name} cannot be used: {error}") from error


def _check_joint(stored: Any, content: WeightsFile) -> None:
    correlation, network = JointCalibration.from_dict(stored).correlation, content.network
    if correlation is None:
        if content.joint_head is None and next(network.parameters()).device.type != "meta":
            raise ConfigError("its joint errors need a joint head, which the file lacks")
        return
    if (correlation.scale, correlation.channels) != (network.scale, network.out_channels):
        raise ConfigError(
            f"its joint errors are for scale {correlation.scale} and {correlation.channels} "
            f"channels, the network for {network.scale} and {network.out_channels}"
        )


def _calibration_of(stored: Any, file_name: str, content: WeightsFile) -> Calibration | None:
    """Read the calibration of a file, and make sure that it can be used and put into words."""
    if stored is None:
        return None
    try:
        calibration = Calibration.from_dict(stored)
        calibration.half_width(torch.full((1,), 0.1))
        calibration.includes_noise_std(25.0)
        str(calibration.promise)
        if calibration.reference is not None:
            Reference.from_dict(calibration.reference)
        if calibration.joint is not None:
            _check_joint(calibration.joint, content)
    except Exception as error:  # the values come from a file and may be anything
        reason = first_line(error)
        raise WeightsError(f"the calibration in {file_name} cannot be used: {reason}") from error
    return calibration
