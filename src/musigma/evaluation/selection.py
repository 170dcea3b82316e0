"""From what a user asks for to a data set and the protocols to measure it by."""

from collections.abc import Sequence
from pathlib import Path

from musigma.datasets.catalog import Dataset, find_dataset
from musigma.evaluation.protocol import Protocol, protocol_for
from musigma.networks import Network
from musigma.types import ConfigError


def select_inputs(
    network: Network,
    data: str | Path,
    *,
    low: str | Path | None = None,
    degradations: Sequence[str] = (),
    noise_std: float | None = None,
) -> tuple[Dataset, list[Protocol]]:
    """Find a data set and decide how the inputs of a network are made from it.

    Args:
        network: The network to be measured or calibrated.
        data: Name of a set or a folder of targets. The inputs that a set brings are used unless
            `low` or `degradations` say otherwise.
        low: Folder with the inputs, named as the targets are.
        degradations: Text forms of ways to make the inputs; each gives a protocol.
        noise_std: Noise level in 8-bit levels, as in `protocol_for`.
    """
    if len(set(degradations)) < len(degradations):
        raise ConfigError("the same `degrade` was given twice")
    if low is not None and degradations:
        raise ConfigError("inputs are either read (`low`) or made (`degrade`); give one of the two")
    if degradations:
        protocols = [
            protocol_for(network, degradation=text, noise_std=noise_std) for text in degradations
        ]
        return find_dataset(data), protocols
    dataset = find_dataset(data, scale=network.scale, degraded=low)
    pairs = dataset.inputs == "pairs"
    return dataset, [protocol_for(network, pairs=pairs, noise_std=noise_std)]
