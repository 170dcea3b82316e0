"""The campaign: which runs are still to be made, and the next of them, within a stated time."""

import re
import tarfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import groupby, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from musigma.datasets.catalog import find_dataset
from musigma.datasets.patch_bank import Bank
from musigma.evaluation.evaluate import evaluate_model
from musigma.losses import Objective
from musigma.model import load, save
from musigma.prediction.device import select_device_and_threads
from musigma.training.recipe import Recipe, load_recipe
from musigma.training.run_log import Journal, read_log
from musigma.training.run_record import record_of
from musigma.training.schedule import Clock
from musigma.training.setup import (
    WHAT_A_BANK_DEPENDS_ON,
    build_network,
    find_run,
    load_bank,
    set_up,
)
from musigma.training.step import Step
from musigma.training.trainer import WEIGHTS, loop, protocol_of, save_weights
from musigma.types import ConfigError, MusigmaError, nearest

PIECE = 15 * 2**20
"""Largest size of a packed file: what comes back from a borrowed machine is limited."""

PACK_EVERY = 15.0
"""Seconds between two packings of what several processes have made so far."""

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An entry of the campaign: one question, and the runs that answer it.

    Attributes:
        name: What it is called; records are called after it.
        why: The question.
        recipe: What is trained.
        changes: ``key=value`` on the recipe.
        objectives: One run for each; the recipe's own if none.
        seeds: One run for each.
        sets: On which the results are measured, besides the validation set.
        minutes: How long all of it should take.
        keep: Whether the weights are worth keeping.
        records: Names of its records where they are not called after it.
        finding: What came out, in a sentence.
    """

    name: str
    why: str
    minutes: float
    recipe: str = ""
    changes: tuple[str, ...] = ()
    objectives: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    sets: tuple[str, ...] = ()
    keep: bool = True
    records: tuple[str, ...] = ()
    finding: str = ""

    def jobs(self) -> list["Job"]:
        """Return its runs, those that differ in their seed alone side by side."""
        base = load_recipe(self.recipe, self.changes)
        each = self.minutes / len(self.names())
        return [
            Job(
                name=_job_name(self.name, objective, seed),
                recipe=_changed(base, objective or base.objective, seed),
                sets=self.sets,
                keep=self.keep,
                minutes=each,
            )
            for objective, seed in product(self.objectives or ("",), self.seeds)
        ]

    def names(self) -> list[str]:
        """Return the names of the records it ends in."""
        runs = product(self.objectives or ("",), self.seeds)
        return list(self.records) or [_job_name(self.name, *run) for run in runs]

    def done(self, results: Path) -> int:
        """Return how many of its records there are."""
        return sum((results / "training" / f"{name}.json").is_file() for name in self.names())


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of a plan."""

    name: str
    recipe: Recipe
    sets: tuple[str, ...]
    keep: bool
    minutes: float


def load_campaign(path: Path, *, only: Sequence[str] | None = None) -> list[Plan]:
    """Read a campaign file, or some of its entries; unknown keys and names are refused."""
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} is no campaign: {error}") from error
    plans = [_plan(values, path) for values in content.get("run", [])]
    names = [plan.name for plan in plans]
    for name in only or ():
        if name not in names:
            raise ConfigError(f"{path} has no entry {name!r}; {nearest(name, names)}")
    return [plan for plan in plans if not only or plan.name in only]


def next_jobs(plans: Iterable[Plan], results: Path, *, minutes: float) -> list[Job]:
    """Return the runs without a record, in order, as many as fit a number of minutes."""
    chosen: list[Job] = []
    for plan in plans:
        if not plan.recipe:  # made before there was this file; nothing says how
            continue
        for job in plan.jobs():
            if (results / "training" / f"{job.name}.json").is_file():
                continue
            if job.minutes > minutes + 1e-9:
                return chosen
            minutes -= job.minutes
            chosen.append(job)
    return chosen


def run_jobs(
    jobs: Iterable[Job],
    folder: Path,
    *,
    device: str = "auto",
    pack: Path | None = None,
    num_workers: int = 3,
    report: Report = lambda _: None,
) -> None:
    """Train, and measure each result while the next is being trained.

    Runs that differ in their seed alone share one compiled step, and all runs on the same data one
    bank. A run that was cut goes on from its checkpoint. A run that fails is reported, and named in
    the error raised at the end; the others are made all the same.

    Args:
        jobs: What to run.
        folder: Gets ``training`` and ``evaluation`` (records), ``weights`` and ``runs``.
        device: Where.
        pack: Where records and weights are put together after each run, in files of 15 MiB.
        num_workers: Processes that measure.
        report: Told of every result.
    """
    where = select_device_and_threads(device)
    banks: dict[tuple[Any, ...], Bank] = {}
    waiting: list[tuple[Job, Future[str]]] = []
    failed: list[str] = []
    with ProcessPoolExecutor(num_workers, mp_context=get_context("spawn")) as pool:
        for twins in _groups(jobs):
            step: Step | None = None
            for job in twins:
                started = time.monotonic()
                with _noted(job, failed, report):
                    step = train_job(job, folder, step, banks, where)
                    report(f"{job.name}: {time.monotonic() - started:.0f} s")
                    waiting.append((job, pool.submit(measure_job, job, folder, device)))
                for one in [one for one in waiting if one[1].done()]:
                    with _noted(one[0], failed, report):
                        report(one[1].result())
                    waiting.remove(one)
                if pack:
                    pack_results(folder, pack)
        for job, result in waiting:
            with _noted(job, failed, report):
                report(result.result())
    if pack:
        pack_results(folder, pack)
    if failed:
        raise MusigmaError(f"{len(failed)} failed: {', '.join(failed)}; what is above says why")


@contextmanager
def _noted(job: Job, failed: list[str], report: Report) -> Iterator[None]:
    """Report what goes wrong with a run and go on: the hour of the machine is worth the others."""
    try:
        yield
    except Exception:  # noqa: BLE001  whatever it is, the other runs are not to blame
        report(f"{job.name} failed:\n{traceback.format_exc()}")
        failed.append(job.name)


def run_side_by_side(
    jobs: Iterable[Job],
    folder: Path,
    *,
    at_once: int,
    device: str = "auto",
    pack: Path | None = None,
) -> None:
    """Do as `run_jobs` in several processes: while one compiles or measures, others train.

    Each has its own bank and says on its own what comes out. What ends is packed as it comes, and a
    process that fails is heard of when the others have ended.
    """
    shares: list[list[Job]] = [[] for _ in range(at_once)]
    for group in sorted(_groups(jobs), key=lambda group: -sum(job.minutes for job in group)):
        min(shares, key=lambda share: sum(job.minutes for job in share)).extend(group)
    run = partial(run_jobs, folder=folder, device=device, num_workers=1, report=_say)
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(run, share) for share in shares if share}
        ended: set[Future[None]] = set()
        while waiting:
            done, waiting = wait(waiting, timeout=PACK_EVERY)
            ended |= done
            if pack:
                pack_results(folder, pack)
    for future in ended:
        future.result()


def _groups(jobs: Iterable[Job]) -> list[list[Job]]:
    """Return those that differ in their seed alone together: they share one compiled step."""
    return [list(twins) for _, twins in groupby(jobs, key=lambda job: replace(job.recipe, seed=0))]


def _say(text: str) -> None:
    print(text, flush=True)


def train_job(
    job: Job,
    folder: Path,
    step: Step | None,
    banks: dict[tuple[Any, ...], Bank],
    device: torch.device,
) -> Step:
    """Train one run; a step of a twin run, where given, serves again."""
    recipe = job.recipe
    run = folder / "runs" / job.name
    content = find_run(recipe, run, world=1, resume=True)
    with Journal(run, recipe, writes=True) as journal:
        if step is None or content is not None:
            key = tuple(getattr(recipe, name) for name in WHAT_A_BANK_DEPENDS_ON)
            if key not in banks:
                banks.clear()
                banks[key] = load_bank(recipe, device, journal)
            torch._dynamo.reset()
            step, clock = set_up(recipe, content, journal, device=device, bank=banks[key])
        else:
            step.restart(build_network(recipe), recipe.seed)
            clock = Clock(recipe)
        loop(step, clock, journal)
        save_weights(step, clock, journal)
    return step


def measure_job(job: Job, folder: Path, device: str) -> str:
    """Measure what a run ended in; write its records and weights, and say how it did."""
    run = folder / "runs" / job.name
    weights = (folder / "weights" if job.keep else run) / f"{job.name}.safetensors"
    trained = load(run / WEIGHTS)
    weights.parent.mkdir(parents=True, exist_ok=True)
    save(weights, trained.network, half=True, training=trained.metadata["training"])
    record = record_of(run / WEIGHTS, protocol_of(job.recipe, trained.network), read_log(run))
    model = load(weights)
    model.network.to(select_device_and_threads(device))
    parts = []
    for name in filter(None, (job.recipe.validation, *job.sets)):
        found = evaluate_model(model, find_dataset(name), protocol_of(job.recipe, model.network))
        ending = f"x{model.scale}" if model.scale > 1 else f"{found.protocol['noise_std']:g}"
        found.save(folder / "evaluation" / f"{job.name}-{found.data['name']}-{ending}.json")
        if name == job.recipe.validation:
            record.result["validation"] = found.result
        score = found.result.get("psnr_y", found.result.get("psnr"))
        parts.append(f"{found.data['name']} {score:.3f}")
    # Last, because a run with this record counts as done.
    record.save(folder / "training" / f"{job.name}.json")
    return f"{job.name}: {', '.join(parts)}"


def pack_results(folder: Path, target: Path) -> list[Path]:
    """Put records and weights together in tar files small enough to bring back."""
    kinds = ("training", "evaluation", "weights")
    files = [path for kind in kinds for path in sorted((folder / kind).glob("[!.]*"))]
    pieces: list[list[Path]] = [[]]
    size = 0
    for path in files:
        # A member takes its size rounded up to 512 bytes, and as much again for its head.
        more = path.stat().st_size + 1024
        if pieces[-1] and size + more > PIECE - 10240:
            pieces.append([])
            size = 0
        pieces[-1].append(path)
        size += more
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for number, piece in enumerate(pieces):
        written.append(target / f"campaign-{number}.tar")
        with tarfile.open(written[-1], "w") as archive:
            for path in piece:
                archive.add(path, arcname=str(path.relative_to(folder)))
    return written


def _job_name(plan: str, objective: str, seed: int) -> str:
    """Return the name of a run.

    Example:
        >>> _job_name("study", "expected_l1 + 0.01 * sigma_l1", 2)
        'study-expected_l1-0.01-sigma_l1-s2'
    """
    words = re.sub(r"[^a-z0-9_.]+", "-", objective.lower()).strip("-")
    return "-".join([plan, *([words] if words else []), f"s{seed}"])


def _changed(recipe: Recipe, objective: str, seed: int) -> Recipe:
    """Return a recipe with another objective and seed, and a branch where one is needed."""
    if objective == recipe.objective:
        return replace(recipe, seed=seed)
    needs_sigma = Objective(objective).needs_sigma
    return replace(recipe, objective=objective, sigma=needs_sigma, seed=seed)


def _plan(values: Mapping[str, Any], path: Path) -> Plan:
    known = {one.name for one in fields(Plan)}
    for key in values:
        if key not in known:
            raise ConfigError(f"{path}: a run has no key {key!r}; {nearest(key, sorted(known))}")
    for key in ("name", "why", "minutes"):
        if key not in values:
            raise ConfigError(f"{path}: run {values.get('name', '')!r} lacks {key!r}")
    if "recipe" not in values and "records" not in values:
        raise ConfigError(f"{path}: run {values['name']!r} lacks 'recipe'")
    plan: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return Plan(**plan)
