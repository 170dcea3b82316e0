"""Weights for a wider EDSR to start from, which computes what a narrower one computes.

``python -m studies.training_runs.widened_start edsr-baseline 2 large START.safetensors`` puts the
weights of a network into the first channels of the one that a recipe trains. The other channels
start at random and are heard by none of the first ones, so that the result is that of the narrow
network until training begins. Where the wide network has fewer blocks, ``--leave-out`` says which
of the narrow one's are left out; the result is then only similar.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from musigma.model import load, save
from musigma.networks import Network
from musigma.networks.weights_file import weights_of
from musigma.training.recipe import load_recipe
from musigma.training.setup import build_network


def widened(narrow: Network, wide: Network, *, left_out: Iterable[int] = ()) -> Network:
    """Fill a wide EDSR with the weights of a narrow one, and return it.

    Args:
        narrow: With its weights.
        wide: With the random weights that its other channels keep.
        left_out: Numbers of the blocks of the narrow network that the wide one does not have.
    """
    source = _renumbered(weights_of(narrow), set(left_out))
    filled = dict(wide.state_dict())
    for name, value in source.items():
        filled[name] = _inside(value, filled[name])
    wide.load_state_dict(filled)
    return wide


def _inside(value: Tensor, random: Tensor) -> Tensor:
    """Return random weights in which the first channels are given and hear none of the others."""
    filled = random.clone()
    if value.ndim == 0 or value.shape == random.shape:
        return value.clone()
    rows = value.shape[0]
    if value.ndim == 1:
        filled[:rows] = value
    else:
        filled[:rows] = 0
        filled[:rows, : value.shape[1]] = value
    return filled


def _renumbered(weights: dict[str, Tensor], left_out: set[int]) -> dict[str, Tensor]:
    """Leave blocks of the body out, and close the gaps in their numbers."""
    kept = {}
    for name, value in weights.items():
        parts = name.split(".")
        if "body" in parts and "branch" not in parts:
            where = parts.index("body") + 1
            number = int(parts[where])
            if number in left_out:
                continue
            parts[where] = str(number - sum(block < number for block in left_out))
        kept[".".join(parts)] = value
    return kept


def main() -> None:
    """Write the weights to start from."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("narrow", help="weights file, or name of weights that ship")
    parser.add_argument("scale", type=int)
    parser.add_argument("recipe", help="of the wide network")
    parser.add_argument("output", type=Path)
    parser.add_argument("--leave-out", type=int, nargs="*", default=())
    args = parser.parse_args()
    recipe = load_recipe(args.recipe, [f"scale={args.scale}"])
    with torch.no_grad():
        narrow = load(args.narrow, scale=args.scale).network
        network = widened(narrow, build_network(recipe), left_out=args.leave_out)
    save(args.output, network)


if __name__ == "__main__":
    main()
