"""The pictures that the studies of joint errors measure, and the records they write."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from musigma.datasets.catalog import Dataset, data_hash
from musigma.evaluation.protocol import Protocol, super_resolution
from musigma.evaluation.record import Record, jsonable, provenance
from musigma.evaluation.selection import select_inputs
from musigma.model import Model
from musigma.networks import num_params
from musigma.networks.weights_file import digest_of

SETS = ("B100:5", "Set14:2", "Urban100:10")


def every(model: Model, text: str) -> tuple[Dataset, Protocol]:
    """Return every so-manieth picture of a set such as ``B100:5``, and how its inputs are made."""
    name, _, step = text.partition(":")
    dataset, protocols = select_inputs(model.network, name)
    return replace(dataset, items=dataset.items[:: int(step or 1)]), protocols[0]


def middle(shape: tuple[int, ...], scale: int, crop: int) -> tuple[slice, ...]:
    """Return the middle part of a picture ``(C, H, W)``, cut at input pixels."""
    parts = []
    for side in shape[1:]:
        length = min(crop, side) // scale * scale
        first = (side - length) // 2 // scale * scale
        parts.append(slice(first, first + length))
    return (slice(None), *parts)


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean of independent values.

    Example:
        >>> round(standard_error([1.0, 2.0, 3.0]), 3)
        0.577
    """
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def save_record(
    path: Path,
    model: Model,
    measured: dict[str, dict[str, Any]],
    *,
    sets: Sequence[str],
    protocol: dict[str, Any],
    result: dict[str, Any] | None = None,
) -> None:
    """Write what was measured of each set.

    Args:
        path: Of the record.
        model: With joint errors.
        measured: The numbers of each set, with ``num_images``.
        sets: The pictures, as for `every`.
        protocol: How it was measured; ``name`` says which study it was.
        result: Numbers of all sets together.
    """
    Record(
        kind="benchmark",
        model={
            "name": model.name,
            "scale": model.scale,
            "params": num_params(model.network),
            "digest": model.digest,
            "joint_head": digest_of(model.joint_head) if model.joint_head else None,
        },
        protocol={**super_resolution(model.scale).as_json(), "sets": list(sets), **protocol},
        data={
            "name": ", ".join(measured),
            "num_images": sum(row["num_images"] for row in measured.values()),
            "hash": "+".join(data_hash(every(model, text)[0]) for text in sets),
        },
        result=jsonable({**(result or {}), **measured}),
        provenance=provenance(torch.device("cpu")),
    ).save(path)
