"""Let things go wrong around ``musigma upscale``, and check what must hold afterwards.

``python tests/faults/run.py --kills 100 --pictures 50 --record studies/results/faults.json`` is the
long form of ``make faults``; ``make test`` runs a short one.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from faults.scenarios import kills, scenarios
from helpers.forked import warm_up
from musigma.evaluation.record import Record, provenance


def in_new_folder(function: Callable[[Path], Any]) -> Any:
    """Call a function with an empty folder, which is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="musigma-faults-"))
    try:
        return function(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Run the scenarios; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--pictures", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=[*scenarios(), "kills"])
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    warm_up()
    wanted = arguments.only or [*scenarios(), "kills"]
    outcomes: dict[str, list[str] | None] = {}
    for name in wanted:
        if name != "kills":
            outcomes[name] = in_new_folder(scenarios()[name])
            show(name, outcomes[name])
    counts: dict[str, int] = {}
    if "kills" in wanted:
        outcomes["kills"], counts = in_new_folder(
            lambda folder: kills(
                folder,
                num_kills=arguments.kills,
                num_pictures=arguments.pictures,
                seed=arguments.seed,
            )
        )
        show("kills", outcomes["kills"], counts)
    if arguments.record:
        save(arguments, outcomes, counts)
    return int(any(outcomes.values()))


def show(name: str, faults: list[str] | None, counts: dict[str, int] | None = None) -> None:
    """Print how a scenario went."""
    word = "cannot be made here" if faults is None else "FAULT" if faults else "holds"
    print(f"{name}: {word} {counts or ''}", *(faults or ()), sep="\n  ", flush=True)


def save(
    arguments: argparse.Namespace, outcomes: dict[str, list[str] | None], counts: dict[str, int]
) -> None:
    """Write a record of a run."""
    Record(
        kind="benchmark",
        model={"name": "small random weights", "scale": 2, "params": 0, "digest": ""},
        protocol={
            "name": "faults",
            "pictures": arguments.pictures,
            "kills": arguments.kills,
            "left_out": [name for name, faults in outcomes.items() if faults is None],
        },
        data={"name": "noise drawn by code", "hash": "generated"},
        result={
            "counts": counts,
            "faults": {
                name: len(faults) for name, faults in outcomes.items() if faults is not None
            },
        },
        provenance=provenance(torch.device("cpu")),
        seed=arguments.seed,
    ).save(arguments.record)


if __name__ == "__main__":
    sys.exit(main())
