"""Several trainings at once on one GPU, from one patch bank.

To load thousands of pictures, shrink them and ask a teacher about all of them takes longer than
many a training. So ``save`` does it once, for all recipes that agree in their data, and ``train``
starts from the file::

    python -m studies.training_runs.shared_bank save BANK large teacher=TEACHER teach_once=true
    python -m studies.training_runs.shared_bank train BANK large ... -o RUN

The arguments after the bank are those of ``musigma train``: a recipe, and keys that change it.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from musigma.datasets.patch_bank import Bank
from musigma.prediction.device import select_device_and_threads
from musigma.training.recipe import Recipe, load_recipe
from musigma.training.run_log import RunLog
from musigma.training.setup import BANK_KEYS, find_run, load_bank, set_up
from musigma.training.trainer import finish, global_state_kept, loop
from musigma.types import ConfigError

NOT_SHARED = ("patch", "teacher")
"""Keys in which recipes of one bank may differ: the side of a patch, and where the teacher lies."""


def save_bank(path: Path, recipe: Recipe, device: torch.device) -> None:
    """Load the training data of a recipe and write it, with the predictions of its teacher."""
    start = time.perf_counter()
    bank = load_bank(recipe, device)
    _report(start, f"{bank.num_images} images, {bank.num_bytes / 1e9:.1f} GB, are ready")
    with _checksums_left_out():
        torch.save({"key": _key(recipe), "bank": bank}, path)


@contextmanager
def _checksums_left_out() -> Iterator[None]:
    """Write files without checksums inside the block: those of gigabytes take longer than to write.

    Weights files need theirs, and the option is one of the whole process.
    """
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)


def load_saved_bank(path: Path, recipe: Recipe, device: torch.device) -> Bank:
    """Read a bank onto a device; a bank of other data is refused."""
    # Our own file, written by `save_bank`: it holds objects beside tensors.
    content = torch.load(path, map_location=device, mmap=True, weights_only=False)
    if content["key"] != _key(recipe):
        raise ConfigError(f"{path} holds the data of another recipe: {content['key']}")
    bank: Bank = content["bank"]
    return replace(bank, patch=recipe.patch)


def train(path: Path, recipe: Recipe, folder: Path, device: torch.device) -> Path:
    """Run a recipe with the data of a saved bank."""
    with global_state_kept(device), RunLog(folder, recipe, writes=True) as run_log:
        content = find_run(recipe, folder, world=1, resume=True)
        bank = load_saved_bank(path, recipe, device)
        step, clock = set_up(recipe, content, run_log, device=device, bank=bank)
        loop(step, clock, run_log)
        return finish(step, clock, run_log)


def _report(start: float, text: str) -> None:
    print(f"{time.perf_counter() - start:.0f} s: {text}", file=sys.stderr, flush=True)


def _key(recipe: Recipe) -> dict[str, str]:
    return {name: str(getattr(recipe, name)) for name in BANK_KEYS if name not in NOT_SHARED}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("save", "train"))
    parser.add_argument("bank", type=Path)
    parser.add_argument("recipe")
    parser.add_argument("changes", nargs="*")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    recipe = load_recipe(args.recipe, args.changes)
    device = select_device_and_threads(args.device)
    start = time.perf_counter()
    if args.action == "save":
        save_bank(args.bank, recipe, device)
    else:
        if args.output is None:
            parser.error("train needs -o, the folder of the run")
        train(args.bank, recipe, args.output, device)
    _report(start, f"end of {args.action}")


if __name__ == "__main__":
    main()
