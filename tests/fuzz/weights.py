"""Hostile weights files: settings and shapes that do not fit, damaged bytes, odd pickles."""

import io
import json
import struct
from collections import OrderedDict
from functools import cache
from random import Random
from typing import Any

import torch

from fuzz.pictures import damaged
from musigma.networks import create, with_sigma
from musigma.networks.weights_file import describe, weights_of

VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 3, 6.5, 60_000, 3_000_000, 2**31, 2**63, 1e308, True, None, "x", "", [], {}),
    *([1] * 1000, {"a": 1}, "../../x", "nan", [[1.0]], -64, 1_048_576),
)
SIZES = (0, 0, 1, 2, 3, 7, 4096)
ROUTES: tuple[tuple[str, ...], ...] = (
    *(("settings", "width"), ("settings", "num_blocks"), ("settings", "unknown"), ("settings",)),
    *(("sigma", "width"), ("sigma", "depth"), ("sigma",), ("scale",), ("architecture",), ("name",)),
    *(("calibration",), ("calibration", "knots"), ("calibration", "values"), ("training",)),
    *(("calibration", "factor"), ("calibration", "method"), ("musigma",), ("format",)),
)


OTHERS: tuple[tuple[str, int, dict[str, int]], ...] = (
    ("gcdn-colour", 1, {"width": 12, "rank": 2, "num_steps": 1, "num_neighbours": 4, "window": 7}),
    ("nlrn-colour", 1, {"width": 8, "num_steps": 2, "window": 4}),
    ("nlsn", 2, {"num_blocks": 1, "width": 16, "num_hashes": 2, "chunk_size": 8}),
    ("rpcnn", 1, {"width": 8, "window": 3}),
    ("span", 2, {"num_blocks": 2, "width": 8}),
    (
        "swinir-light",
        2,
        {"num_groups": 1, "num_blocks": 1, "width": 4, "num_heads": 2, "window": 4},
    ),
)


@cache
def tiny() -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors and the description of a small network."""
    torch.manual_seed(0)
    network = with_sigma(create("edsr-baseline", scale=2, num_blocks=1, width=8), width=8, depth=2)
    return weights_of(network), describe(network)


@cache
def others() -> tuple[tuple[dict[str, torch.Tensor], dict[str, Any]], ...]:
    """Return the same of networks with windows, neighbors, hashes and other settings."""
    torch.manual_seed(0)
    networks = [create(name, scale=scale, **settings) for name, scale, settings in OTHERS]
    return tuple((weights_of(network), describe(network)) for network in networks)


def make_weights(random: Random) -> tuple[str, bytes]:
    """Return the ending of a name and the bytes of a weights file that is somehow wrong."""
    if random.random() < 0.6:
        data = safetensors_of(*_changed(random))
        suffix = "safetensors"
    else:
        data, suffix = pickle_of(_odd_state(random)), "pth"
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        data = damaged(data, random)
    return suffix, data


def safetensors_of(tensors: dict[str, torch.Tensor], metadata: Any) -> bytes:
    """Return a safetensors file, written by hand so that its header may say anything."""
    header: dict[str, Any] = {"__metadata__": {"musigma": metadata}}
    body = b""
    for name, tensor in tensors.items():
        data = tensor.contiguous().numpy().tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def _changed(random: Random) -> tuple[dict[str, torch.Tensor], str]:
    routes, values = ROUTES, VALUES
    stored, described = tiny()
    if random.random() < 0.4:
        stored, described = random.choice(others())
        routes = tuple(("settings", key) for key in described["settings"])
        values = SIZES
    tensors, description = dict(stored), json.loads(json.dumps(described))
    for _ in range(random.choice((1, 1, 2))):
        route, value = random.choice(routes), random.choice(values)
        inner = description
        for key in route[:-1]:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else {}
            inner = inner if isinstance(inner, dict) else {}
        inner[route[-1]] = value
    if random.random() < 0.3:
        name = random.choice(list(tensors))
        shape = [random.choice((0, 1, 3, 8, 17)) for _ in range(random.choice((0, 1, 2, 4)))]
        tensors[name] = torch.zeros(shape)
    if random.random() < 0.1:
        return tensors, "[" * random.choice((10, 100_000))
    return tensors, json.dumps(description)


def _odd_state(random: Random) -> Any:
    tensors = dict(tiny()[0])
    names = list(tensors)
    kind = random.randrange(9)
    if kind == 0:  # expanded: a few bytes that ask for terabytes
        tensors[names[0]] = torch.zeros(1).expand(3_000_000, 3_000_000)
    elif kind == 1:
        tensors[names[0]] = torch.zeros(8, 3, 3, 3).to_sparse()
    elif kind == 2:
        tensors[names[0]] = tensors[names[0]].to(torch.complex64)
    elif kind == 3:
        return _nested("params", tensors, random.choice((1, 3, 400)))
    elif kind == 4:
        return {5: torch.zeros(1), None: torch.zeros(1), **tensors}
    elif kind == 5:
        tensors = {name: tensor for name, tensor in tensors.items() if random.random() < 0.8}
    elif kind == 6:
        name = random.choice(names)
        tensors[name] = tensors[name].reshape(-1)[: random.choice((0, 1, 9))]
    elif kind == 7:
        return random.choice(([], {}, "x", 5, None, torch.zeros(3), [tensors], {"params": None}))
    else:
        tensors = {f"module.{name}": tensor.half() for name, tensor in tensors.items()}
    return OrderedDict(tensors)


def _nested(key: str, value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = {key: value}
    return value


def pickle_of(state: Any) -> bytes:
    """Return what `torch.save` writes."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()
