"""Networks as ONNX files: for any height and width, with calibration and origin as metadata."""

import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from musigma.atomic import write_atomically
from musigma.networks import Network, entry, num_params
from musigma.networks.bounded_build import MAX_VALUES
from musigma.networks.joint_head import JointHead, JointNetwork
from musigma.networks.sigma_branch import WithSigma
from musigma.networks.stored_tensors import parse_metadata
from musigma.networks.weights_file import describe
from musigma.prediction.engines.base import in_evaluation_mode
from musigma.types import ConfigError, WeightsError, first_line

INPUT, OUTPUTS = "input", ("mean", "sigma", "half_width", "joint_weights")
AXES = {0: "batch", 2: "height", 3: "width"}
"""Names of the free axes of the input."""

_KEY = "musigma"
_MAX_BYTES = 4 * MAX_VALUES + 2**26

HalfWidth = Callable[[Tensor], Tensor]


def export_onnx(
    network: Network,
    path: str | Path,
    *,
    metadata: Mapping[str, Any],
    digest: str = "",
    half_width: HalfWidth | None = None,
    head: JointHead | None = None,
    opset: int | None = None,
) -> None:
    """Write a network as an ONNX file, atomically.

    The input ``input`` is ``(batch, C, height, width)`` float32 in ``[0, 1]``; a network that takes
    the noise level has it, divided by 255, as its last channel. The outputs ``mean`` and, with a
    sigma branch, ``sigma`` are those of the network. With `half_width` there is a third output of
    that name. With a joint head there is ``joint_weights``, the weights of its fields; the filters
    and the mixing of the fields are in the metadata as ``joint_fields``. Metadata under ``musigma``
    is JSON: what a weights file of ours says, the digest, and what tiling needs to know.
    `read_metadata` reads it back.

    Args:
        network: What to export.
        path: Where; the suffix must be ``.onnx``.
        metadata: What the weights file says; its calibration included.
        digest: Of the weights.
        half_width: Maps sigma to the half-width of the interval.
        head: The joint head, if there is one.
        opset: Version of the ONNX operators; by default the exporter's own choice.
    """
    path = Path(path)
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
            "takes_noise_level": network.takes_noise_level,
            "receptive_radius": network.receptive_radius,
            "size_multiple": network.size_multiple,
            "paper": entry(network.build_spec.name).paper,
        },
    }
    if head is not None:
        stored["joint_fields"] = _describe_fields(head)
    content = to_onnx(network, half_width=half_width, head=head, opset=opset, metadata=stored)
    try:
        write_atomically(path, content)
    except OSError as error:
        raise WeightsError(f"{path} could not be written ({error.strerror})") from error


def to_onnx(
    network: Network,
    *,
    half_width: HalfWidth | None = None,
    head: JointHead | None = None,
    opset: int | None = None,
    metadata: dict[str, Any] | None = None,
) -> bytes:
    """Return a network as the bytes of an ONNX file; arguments are those of `export_onnx`."""
    require("onnx", "onnxscript", extra="export")
    network = in_evaluation_mode(network)
    module: nn.Module = network
    if half_width is not None or head is not None:
        module = _WithMore(network, half_width, head)
    sample = torch.rand(2, network.in_channels, 13, 11, generator=torch.Generator().manual_seed(0))
    free = torch.export.Dim.DYNAMIC
    try:
        with _quiet():
            program = torch.onnx.export(
                module,
                (sample,),
                dynamo=True,
                dynamic_shapes=(dict.fromkeys(AXES, free),),
                input_names=[INPUT],
                opset_version=opset,
                verbose=False,
            )
    except (torch.onnx.OnnxExporterError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"the network cannot be exported to ONNX: {reason}") from error
    assert program is not None
    wanted = {"half_width": half_width, "joint_weights": head}
    names = [name for name in OUTPUTS if wanted.get(name, True) is not None]
    _name_outputs(program.model.graph, names)
    if metadata is not None:
        program.model.metadata_props[_KEY] = json.dumps(metadata)
    proto = program.model_proto
    _name_axes(proto.graph)
    return proto.SerializeToString()


class _WithMore(nn.Module):
    """A network with the half-width of the interval and the weights of a joint head as outputs."""

    def __init__(
        self, network: Network, half_width: HalfWidth | None, head: JointHead | None
    ) -> None:
        super().__init__()
        self.half_width = half_width
        self.network: nn.Module = network
        if head is not None:
            assert isinstance(network, WithSigma)
            self.network = JointNetwork(network, head)

    def forward(self, degraded: Tensor) -> tuple[Tensor, ...]:
        weights: tuple[Tensor, ...] = ()
        if isinstance(self.network, JointNetwork):
            (mean, sigma), joint = self.network.split(self.network(degraded).mean)
            weights = (joint,)
        else:
            mean, sigma = self.network(degraded)
        assert sigma is not None
        half_width = () if self.half_width is None else (self.half_width(sigma),)
        return mean, sigma, *half_width, *weights


def _describe_fields(head: JointHead) -> dict[str, Any]:
    """Return the constants of a joint head as plain JSON values."""
    filters, mixing = (part.detach().cpu() for part in head.bank())
    return {
        "filters": [[[round(v, 6) for v in row] for row in field] for field in filters.tolist()],
        "mixing": [[[round(v, 6) for v in row] for row in field] for field in mixing.tolist()],
    }


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Return what `export_onnx` wrote into a file beside the network."""
    path = Path(path)
    try:
        _check_is_onnx(path)
        content = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"{path} could not be read ({error.strerror})") from error
    properties = parse_one_file(path.name, content).metadata_props
    values = [item.value for item in properties if item.key == _KEY]
    if not values:
        raise WeightsError(
            f"{path.name} was not written by 'musigma export', so that its network is not known; "
            "load the PyTorch weights that it was made from"
        )
    return parse_metadata(path.name, values[0])


def parse_one_file(name: str, content: bytes) -> Any:
    """Return what an ONNX file holds, or refuse one whose tensors lie in other files.

    ONNX Runtime would open those, wherever they are.

    Args:
        name: Name of the file.
        content: Its bytes.
    """
    require("onnx", extra="export")
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load_from_string(content)
    except DecodeError as error:
        raise WeightsError(f"{name} is no whole ONNX file: {first_line(error)}") from error
    if _has_tensors_elsewhere(model):
        raise WeightsError(
            f"weights of {name} lie in another file, which is not opened; save the network as one "
            "file"
        )
    return model


def _has_tensors_elsewhere(message: Any) -> bool:
    if message.DESCRIPTOR.name == "TensorProto":
        return bool(message.external_data) or message.data_location != 0
    return any(
        _has_tensors_elsewhere(part)
        for field, value in message.ListFields()
        if field.message_type is not None
        for part in (value if _is_many(value) else [value])
    )


def _is_many(value: Any) -> bool:
    return not hasattr(value, "DESCRIPTOR")


def _check_is_onnx(path: Path) -> None:
    """Look at a file before it is read: it begins with the version of its format, as field 1."""
    with path.open("rb") as file:
        start = file.read(1)
    if start != b"\x08" or path.stat().st_size > _MAX_BYTES:
        raise WeightsError(
            f"{path.name} is no ONNX file of 'musigma export', which has at most "
            f"{_MAX_BYTES // 2**20} MiB"
        )


def require(*packages: str, extra: str) -> None:
    """Say how to install packages that are missing."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise ConfigError(
            f"this needs {' and '.join(missing)}; install them with pip install 'musigma[{extra}]'"
        )


def _name_outputs(graph: Any, names: list[str]) -> None:
    # The exporter could name them, but a layer inside the graph may have the same name.
    for value in (value for node in graph for value in node.outputs):
        if value.name in OUTPUTS:
            value.name += "_of_layer"
    for value, name in zip(graph.outputs, names, strict=False):  # the last ones may be missing
        value.name = name


def _name_axes(graph: Any) -> None:
    """Give the free axes their names; the exporter calls them s35 and the like."""
    axes = graph.input[0].type.tensor_type.shape.dim
    names = {axes[axis].dim_param: name for axis, name in AXES.items() if axes[axis].dim_param}
    for value in (*graph.input, *graph.output, *graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param:  # a name, or a product such as 2*s35
                renamed = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), axis.dim_param)
                axis.dim_param = renamed


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
