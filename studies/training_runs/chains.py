"""Chains of trainings, side by side, on a GPU that is lent for a limited time.

``python -m studies.training_runs.chains PLAN.toml --seconds 1100 -o RUNS --pack OUT`` makes the
patch banks of a plan, each in a process, and then the runs of every chain one after the other,
with the chains side by side. Each run gets its share of what is left of the time when it starts.
Whatever is finished is packed at once, and the best weights of unfinished runs every few seconds,
so that little is lost if the machine is taken away. Where a GPU is shared through NVIDIA's MPS,
processes take turns step by step, so that runs side by side make about equally many steps.

A plan has keys that hold for all runs, banks, and chains::

    common = ["teach_once=true", "validations=4"]

    [banks.x2]
    recipe = "large"
    changes = ["scale=2", "patch=64", "teacher=TEACHER"]

    [[chain]]
    runs = [
        { name = "fast-x2", bank = "x2", recipe = "span", changes = ["teacher=TEACHER"] },
        { name = "fast-x4", bank = "x4", recipe = "span", changes = ["start_from={fast-x2}"] },
    ]

``{NAME}`` is the weights file of an earlier run. A run can have a `share`, which is 1 by default.
"""

import argparse
import re
import subprocess
import sys
import tarfile
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from musigma.atomic import atomic_writer
from musigma.model import load
from musigma.training.recipe import load_recipe
from musigma.training.trainer import BEST, WEIGHTS
from musigma.types import ConfigError

READY = 60.0
"""Seconds of a run that are not training: to start, load, compile, validate and write."""

PACK_EVERY = 20.0
"""Seconds between two looks for weights that are better than those that were packed."""

LOGS = "logs.tar.gz"

SHARED_BANK = "studies.training_runs.shared_bank"

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Training:
    """One run of a chain, or the data of a bank, whose name is then its own.

    Attributes:
        name: Of the run, and of its files.
        recipe: As for ``musigma train``.
        changes: Keys that change it.
        bank: The bank with its data.
        share: Of the time of its chain.
    """

    name: str
    recipe: str
    changes: tuple[str, ...]
    bank: str
    share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Banks and chains of runs.

    Attributes:
        banks: Each with the recipe whose data it holds.
        chains: The runs of each chain, in their order.
    """

    banks: tuple[Training, ...]
    chains: tuple[tuple[Training, ...], ...]


@dataclass
class Workplace:
    """Where a plan is carried out.

    Attributes:
        runs: Folder with a folder for each run.
        banks: Folder of the banks, such as one in memory.
        device: As for ``musigma train``.
        deadline: When the last runs are to end, by `time.monotonic`.
        say: Reports a line.
        ready: Set for each bank once it can be used.
    """

    runs: Path
    banks: Path
    device: str
    deadline: float
    say: Say
    ready: dict[str, threading.Event] = field(default_factory=dict)


def read_plan(path: Path) -> Plan:
    """Read a plan, and refuse recipes that cannot be trained before anything starts."""
    values = tomllib.loads(path.read_text())
    common = tuple(values.get("common", ()))

    def make(row: dict[str, Any], bank: str) -> Training:
        changes = (*common, *row.get("changes", ()))
        return Training(**(row | {"changes": changes, "bank": bank}))

    banks = tuple(make({"name": name} | row, name) for name, row in values["banks"].items())
    chains = tuple(
        tuple(make(row, row["bank"]) for row in chain["runs"]) for chain in values["chain"]
    )
    for training in (*banks, *(run for chain in chains for run in chain)):
        if training.bank not in values["banks"]:
            raise ConfigError(f"{path}: {training.name} has no bank {training.bank!r}")
        load_recipe(training.recipe, [*_filled(training.changes, Path()), "seconds=1"])
    return Plan(banks=banks, chains=chains)


def carry_out(plan: Plan, place: Workplace, pack_into: Path | None = None) -> list[str]:
    """Make banks and runs; return the names of what failed."""
    place.ready = {bank.name: threading.Event() for bank in plan.banks}
    failed: list[str] = []
    done = threading.Event()
    with ThreadPoolExecutor(len(plan.banks) + len(plan.chains) + 1) as pool:
        waiting = [pool.submit(_make_bank, bank, place) for bank in plan.banks]
        waiting += [pool.submit(_run_chain, chain, place) for chain in plan.chains]
        if pack_into:
            pool.submit(_keep_packing, place.runs, pack_into, done)
        for future in waiting:
            failed += future.result()
        done.set()
    if pack_into:
        pack(place.runs, pack_into)
    return failed


def _make_bank(bank: Training, place: Workplace) -> list[str]:
    words = ["save", str(place.banks / f"{bank.name}.pt"), bank.recipe]
    succeeded = _call(bank.name, [*words, *bank.changes, "seconds=1"], place)
    place.ready[bank.name].set()
    return [] if succeeded else [bank.name]


def _run_chain(chain: Sequence[Training], place: Workplace) -> list[str]:
    for number, training in enumerate(chain):
        place.ready[training.bank].wait()
        seconds = seconds_of(chain[number:], place.deadline - time.monotonic())
        words = ["train", str(place.banks / f"{training.bank}.pt"), training.recipe]
        words += [*_filled(training.changes, place.runs), f"seconds={seconds:.0f}"]
        if not _call(training.name, [*words, "-o", str(place.runs / training.name)], place):
            return [training.name for training in chain[number:]]
    return []


def seconds_of(chain: Sequence[Training], left: float) -> float:
    """Return the seconds of training of the first of the runs that share the time that is left.

    Example:
        >>> run = Training(name="a", recipe="smoke", changes=(), bank="x2")
        >>> seconds_of([run, run], 320.0)
        100.0
    """
    shares = sum(training.share for training in chain)
    return max(1.0, (left - READY * len(chain)) * chain[0].share / shares)


def _call(name: str, words: Sequence[str], place: Workplace) -> bool:
    """Run a process of `studies.training_runs.shared_bank`; say how it ended."""
    start = time.monotonic()
    place.say(f"{name} starts")
    command = [sys.executable, "-m", SHARED_BANK, *words, "--device", place.device]
    log = place.runs / f"{name}.log"
    with log.open("w") as file:
        ended = subprocess.run(command, stdout=file, stderr=file, check=False)  # noqa: S603
    seconds = time.monotonic() - start
    if ended.returncode:
        last = " / ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
        place.say(f"{name} FAILED after {seconds:.0f} s: {last}")
    else:
        place.say(f"{name} took {seconds:.0f} s")
    return ended.returncode == 0


def _filled(changes: Sequence[str], runs: Path) -> list[str]:
    """Put the weights files of earlier runs in the place of their names."""
    return [
        re.sub(r"\{([\w.-]+)\}", lambda m: str(runs / m[1] / WEIGHTS), text) for text in changes
    ]


def _keep_packing(runs: Path, target: Path, done: threading.Event) -> None:
    while not done.wait(PACK_EVERY):
        pack(runs, target)


def pack(runs: Path, target: Path) -> list[Path]:
    """Write the newest weights of each run in half precision, and all logs and records as one file.

    Weights of unfinished runs are the best ones so far, if the recipe keeps them (`keep_best`).
    Those that were packed before are left alone.
    """
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for run in sorted(path for path in runs.iterdir() if path.is_dir()):
        found = [run / name for name in (WEIGHTS, BEST) if (run / name).is_file()]
        packed = target / f"{run.name}.safetensors"
        if found and (not packed.exists() or packed.stat().st_mtime < found[0].stat().st_mtime):
            model = load(found[0])
            model.save(packed, half=True, training=model.metadata["training"])
            written.append(packed)
    with atomic_writer(target / LOGS) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for pattern in ("*.log", "*/log.jsonl", "*/record.json"):
            for path in sorted(runs.glob(pattern)):
                archive.add(path, arcname=str(path.relative_to(runs)))
    return written


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--banks", type=Path, help="folder of the banks; the output by default")
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    start = time.monotonic()
    args.output.mkdir(parents=True, exist_ok=True)
    place = Workplace(
        runs=args.output,
        banks=args.banks or args.output,
        device=args.device,
        deadline=start + args.seconds,
        say=lambda text: print(f"{time.monotonic() - start:.0f} s: {text}", flush=True),
    )
    failed = carry_out(read_plan(args.plan), place, args.pack)
    if failed:
        sys.exit(f"failed, or not begun: {', '.join(failed)}")


if __name__ == "__main__":
    main()
