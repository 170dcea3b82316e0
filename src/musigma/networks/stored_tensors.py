"""The tensors of a weights file of unknown origin.

Nothing in a file is executed. A file is looked at before it is read, and no more memory is taken
than its tensors need: tensors are mapped into memory, and what would grow on the way is refused.
"""

import io
import json
import pickletools
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from musigma.networks.bounded_build import MAX_TENSORS, MAX_VALUES
from musigma.types import WeightsError, first_line, short_repr, shortened

WRAPPERS = ("params_ema", "params", "state_dict", "model", "net")
PREFIXES = ("module.", "_orig_mod.")

MAX_METADATA = 16 * 2**20
"""Most characters of our metadata, and most bytes of a pickle without its tensors."""

_MAX_NESTING = 8
_MAX_LINE = 1000
"""Longest name of a class in a pickle; PyTorch takes very long for a message about a longer one."""

_HDF5, _ZIP, _PICKLE = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04", b"\x80"

_ONNX_VERSIONS = range(1, 32)
_ONNX_FIELDS = b"\x12\x1a\x22\x28\x32\x3a\x42\x72"
"""What an ONNX file can have behind its version: texts, a number, the graph and metadata."""

_ADVICE = "load its weights with the program that wrote it, and save them as safetensors"
_SAVE_STATE = "save its state dict: torch.save(torch.jit.load(FILE).state_dict(), 'weights.pth')"


class StoredTensors(NamedTuple):
    """What a weights file holds.

    Attributes:
        tensors: By the names of the file, without those of wrappers such as ``module.``.
        metadata: What a file of ours says about itself; empty for other files.
    """

    tensors: dict[str, Tensor]
    metadata: dict[str, Any]


def read_stored_tensors(path: Path) -> StoredTensors:
    """Read a safetensors file, or a file of `torch.save` that holds a state dict.

    Raises:
        WeightsError: If the file is anything else, or holds tensors that no network has.
    """
    try:
        start = _start_of(path)
    except OSError as error:
        raise WeightsError(f"{path} could not be read ({error.strerror})") from error
    if path.suffix == ".safetensors":
        state, metadata = _read_safetensors(path, start)
        tensors = clean_keys(state)
    else:
        _check_format(path, start)
        metadata = {}
        tensors = clean_keys(_read_pickle(path, is_archive=start.startswith(_ZIP)))
    _check_tensors(path.name, tensors)
    return StoredTensors(tensors, metadata)


def clean_keys(state: Mapping[Any, Any]) -> dict[str, Tensor]:
    """Unwrap ``params``-like dictionaries and strip the prefixes of DDP and `torch.compile`.

    State dicts under numbers, as KAIR's for IRCNN, become one, with the number before each name.
    What is no tensor, or has no text as its name, is left out.

    Example:
        >>> list(clean_keys({"params": {"module._orig_mod.head.0.bias": torch.zeros(1)}}))
        ['head.0.bias']
    """
    state = _unwrap(state)
    cleaned: dict[str, Tensor] = {}
    for key, value in state.items():
        if not isinstance(key, str):
            continue
        if isinstance(value, Tensor):
            cleaned[_without_prefixes(key)] = value
        elif key.isdecimal() and isinstance(value, Mapping):
            members = _unwrap(value).items()
            cleaned |= {
                f"{key}.{_without_prefixes(name)}": member
                for name, member in members
                if isinstance(name, str) and isinstance(member, Tensor)
            }
    return cleaned


def parse_metadata(name: str, text: str) -> dict[str, Any]:
    """Read the JSON that a file of ours holds about itself.

    Args:
        name: Name of the file.
        text: The JSON.
    """
    if len(text) > MAX_METADATA:
        raise WeightsError(f"the metadata of {name} are longer than {MAX_METADATA} characters")
    try:
        metadata = json.loads(text)
    except RecursionError as error:
        raise WeightsError(f"the metadata of {name} are nested too deeply") from error
    except ValueError as error:
        raise WeightsError(f"the metadata of {name} is no JSON: {first_line(error)}") from error
    if not isinstance(metadata, dict):
        raise WeightsError(
            f"{name} describes no network known here: its metadata are no table, but "
            f"{short_repr(metadata)}"
        )
    return metadata


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1024)


def _check_format(path: Path, start: bytes) -> None:
    """Refuse files of other programs, and say what they are."""
    if start.startswith(b"MATLAB "):
        raise WeightsError(f"{path.name} is a MATLAB file, which cannot be loaded; {_ADVICE}")
    if _HDF5 in (start[:8], start[512:520]):
        raise WeightsError(
            f"{path.name} is an HDF5 file, as Keras and MATLAB write them, which cannot be loaded; "
            f"{_ADVICE}"
        )
    if start[8:9] == b"{" and start[9:10] in (b'"', b"}"):
        raise WeightsError(f"{path.name} is a safetensors file; rename it to end in .safetensors")
    if not start.startswith((_ZIP, _PICKLE)):
        raise _named_onnx(path) if _is_onnx(start) else _damaged(path)


def refuse_onnx(path: Path) -> None:
    """Refuse an ONNX file whose name does not say that it is one."""
    if _is_onnx(_start_of(path)):
        raise _named_onnx(path)


def _is_onnx(start: bytes) -> bool:
    """Return whether a file begins as ONNX files do: with a small version and a field of a model.

    A safetensors file whose size of the header has the same bytes has a brace behind that size.
    """
    if len(start) < 4 or start[8:9] == b"{":
        return False
    return start[0] == 8 and start[1] in _ONNX_VERSIONS and start[2] in _ONNX_FIELDS


def _named_onnx(path: Path) -> WeightsError:
    return WeightsError(f"{path.name} is an ONNX file; rename it to end in .onnx")


def _damaged(path: Path) -> WeightsError:
    return WeightsError(
        f"{path.name} cannot be loaded safely: it is damaged or no weights file; fetch it again"
    )


def _read_safetensors(path: Path, start: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            keys = list(file.keys())
            if len(keys) > MAX_TENSORS:
                raise _too_many(path.name, len(keys))
            stored = (file.metadata() or {}).get("musigma")
            state = {key: file.get_tensor(key) for key in keys}
    except (SafetensorError, OSError) as error:
        if _is_onnx(start):
            raise _named_onnx(path) from error
        reason = first_line(error)
        raise WeightsError(f"{path.name} is not a whole safetensors file: {reason}") from error
    return state, {} if stored is None else parse_metadata(path.name, stored)


def _read_pickle(path: Path, *, is_archive: bool) -> Mapping[Any, Any]:
    try:
        if is_archive:
            _check_archive(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the version of the pickle
            content = _load_archive(path) if is_archive else _load_legacy(path)
    except WeightsError:
        raise
    except Exception as error:
        # A broken pickle raises anything, and torch's own message advises to load it unsafely.
        forbidden = re.search(r"GLOBAL ([\w.]{1,100})", str(error))
        if forbidden is None:
            raise _damaged(path) from error
        raise WeightsError(
            f"{path.name} cannot be loaded safely: it would call {forbidden[1]}; re-save it as a "
            "plain state dict or as safetensors"
        ) from error
    if not isinstance(content, Mapping):
        raise WeightsError(f"{path.name} holds a {type(content).__name__}, not a state dict")
    return content


def _load_archive(path: Path) -> Any:
    # Mapped, so that tensors are read only when they are copied into a network.
    return torch.load(str(path), map_location="cpu", weights_only=True, mmap=True)


def _load_legacy(path: Path) -> Any:
    with _BoundedReader(io.FileIO(path)) as file:
        return torch.load(file, map_location="cpu", weights_only=True)


class _BoundedReader(io.BufferedReader):
    """A file of which a pickle cannot ask for more than a pickle of weights needs at once.

    Tensors are read in another way.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= MAX_METADATA:
            raise ValueError("the pickle asks for too much")
        return super().read(size)

    def readline(self, size: int | None = -1, /) -> bytes:
        limit = _MAX_LINE if size is None or size < 0 else min(size, _MAX_LINE)
        return super().readline(limit)


def _check_archive(path: Path) -> None:
    """Refuse archives that are no state dict, and those that would grow when they are read."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        _check_members(path, members)
        pickles = [member for member in members if member.filename.endswith(".pkl")]
        for member in pickles:
            _check_pickle(path, archive.read(member))


def _check_members(path: Path, members: list[zipfile.ZipInfo]) -> None:
    names = {member.filename.rpartition("/")[2] for member in members}
    if "constants.pkl" in names:
        raise WeightsError(
            f"{path.name} is a TorchScript program, which is not run here; {_SAVE_STATE}"
        )
    if "data.pkl" not in names:
        kind = "a NumPy archive" if any(name.endswith(".npy") for name in names) else "an archive"
        raise WeightsError(f"{path.name} is {kind}, not a file of torch.save; {_ADVICE}")
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise WeightsError(f"{path.name} is compressed, unlike files of torch.save; unpack it")
    pickles = [member for member in members if member.filename.endswith(".pkl")]
    if len(members) > 2 * MAX_TENSORS or any(one.file_size > MAX_METADATA for one in pickles):
        raise WeightsError(f"{path.name} holds more than the weights of a network")


def _check_pickle(path: Path, content: bytes) -> None:
    """Refuse names that are too long, and byte arrays, which need no room in the file."""
    for opcode, argument, _ in pickletools.genops(content):
        name = str(argument) if opcode.name == "GLOBAL" else ""
        if len(name) > _MAX_LINE or "bytearray" in name:
            raise _damaged(path)


def _unwrap(state: Mapping[Any, Any]) -> Mapping[Any, Any]:
    for _ in range(_MAX_NESTING):
        inner = next((state[key] for key in WRAPPERS if isinstance(state.get(key), Mapping)), None)
        if inner is None:
            return state
        state = inner
    raise WeightsError("the state dict is nested too deeply; save it as a plain state dict")


def _without_prefixes(name: str) -> str:
    while name.startswith(PREFIXES):
        name = name.split(".", 1)[1]
    return name


def _check_tensors(name: str, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that would take more memory than the file, and values that no network has."""
    if len(tensors) > MAX_TENSORS:
        raise _too_many(name, len(tensors))
    for key, tensor in tensors.items():
        problem = _problem_of(tensor)
        if problem:
            raise WeightsError(f"{name} cannot be loaded: {shortened(key)} {problem}")
    num_values = sum(tensor.numel() for tensor in tensors.values())
    if num_values > MAX_VALUES:
        raise WeightsError(
            f"{name} holds {num_values:,} values; networks known here have at most {MAX_VALUES:,}"
        )


def _problem_of(tensor: Tensor) -> str | None:
    if tensor.is_complex():
        return "is complex; weights are real numbers"
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        return "is sparse, nested or quantized; save it as a plain tensor"
    if tensor.is_meta:
        return "has no values; it was saved from the meta device"
    if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
        return "repeats few values many times (an expanded tensor); save it as a plain tensor"
    return None


def _too_many(name: str, number: int) -> WeightsError:
    return WeightsError(f"{name} holds {number:,} tensors; no network has over {MAX_TENSORS:,}")
