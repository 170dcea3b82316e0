"""Networks as ONNX files: any height and width, with what there is to know of them inside."""

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from musigma.atomic import write_atomically
from musigma.networks import Network, entry, num_params
from musigma.networks.weights_file import describe
from musigma.types import ConfigError, WeightsError

INPUT, OUTPUTS = "low", ("mean", "sigma")
_KEY = "musigma"


def export_onnx(
    network: Network,
    path: Path,
    *,
    metadata: Mapping[str, Any],
    digest: str = "",
    opset: int | None = None,
) -> None:
    """Write a network as an ONNX file, atomically.

    The input ``low`` is ``(N, C, H, W)`` float32 in ``[0, 1]``, a noise map included where the
    network takes one; the outputs ``mean`` and, with a sigma branch, ``sigma`` are those of the
    network. Metadata under ``musigma`` is JSON: what a weights file of ours says, its digest, and
    the facts of the network. `read_metadata` reads it back.

    Args:
        network: What to export.
        path: Where; the suffix must be ``.onnx``.
        metadata: What the weights file says; its calibration included.
        digest: Of the weights.
        opset: Version of the ONNX operators; by default the exporter's own choice.
    """
    if path.suffix != ".onnx":
        raise ConfigError(f"{path.name} was not written: the name must end in .onnx")
    stored = {
        **metadata,
        **describe(network),
        "digest": digest,
        "card": {
            "params": num_params(network),
            "in_channels": network.in_channels,
            "out_channels": network.out_channels,
            "noise_map": network.takes_noise_level,
            "radius": network.receptive_radius,
            "size_multiple": network.size_multiple,
            "paper": entry(network.build_spec.name).paper,
        },
    }
    content = to_onnx(network, opset=opset, metadata=stored)
    try:
        write_atomically(path, content)
    except OSError as error:
        raise WeightsError(f"{path} could not be written ({error.strerror})") from error


def to_onnx(
    network: Network, *, opset: int | None = None, metadata: dict[str, Any] | None = None
) -> bytes:
    """Return a network as the bytes of an ONNX file."""
    require("onnx", "onnxscript", extra="export")
    low = torch.rand(2, network.in_channels, 13, 11, generator=torch.Generator().manual_seed(0))
    free = torch.export.Dim.DYNAMIC
    try:
        with _quiet():
            program = torch.onnx.export(
                network,
                (low,),
                dynamo=True,
                dynamic_shapes=({0: free, 2: free, 3: free},),
                input_names=[INPUT],
                opset_version=opset,
                verbose=False,
            )
    except (torch.onnx.OnnxExporterError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"the network cannot be exported to ONNX: {reason}") from error
    assert program is not None
    _name_outputs(program.model.graph)
    if metadata is not None:
        program.model.metadata_props[_KEY] = json.dumps(metadata)
    return program.model_proto.SerializeToString()


def read_metadata(path: Path) -> dict[str, Any]:
    """Return what `export_onnx` wrote into a file beside the network."""
    require("onnx", extra="export")
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        properties = onnx.load(path).metadata_props
    except OSError as error:
        raise WeightsError(f"{path} could not be read ({error.strerror})") from error
    except DecodeError as error:
        raise WeightsError(f"{path.name} is no whole ONNX file: {error}") from error
    found = [item.value for item in properties if item.key == _KEY]
    if not found:
        raise WeightsError(f"{path.name} was not written by 'musigma export'; export it anew")
    return json.loads(found[0])


def require(*packages: str, extra: str) -> None:
    """Say how to install packages that are missing."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise ConfigError(
            f"this needs {' and '.join(missing)}; install them with pip install 'musigma[{extra}]'"
        )


def _name_outputs(graph: Any) -> None:
    # The exporter would do so, and leave the result of a layer that it called mean with that name.
    for value in (value for node in graph for value in node.outputs):
        if value.name in OUTPUTS:
            value.name += "_of_layer"
    for value, name in zip(graph.outputs, OUTPUTS, strict=False):  # sigma may be missing
        value.name = name


@contextmanager
def _quiet() -> Iterator[None]:
    # The exporter warns of its own insides, and of torchvision, which nothing here uses.
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
