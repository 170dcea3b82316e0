"""The campaign: which training runs are still missing, and the next ones that fit a given time."""

import re
import tarfile
import time
import traceback
from collections import Counter
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

from musigma.datasets.catalog import Dataset, find_dataset
from musigma.datasets.patch_bank import Bank
from musigma.degradations.pairs import PAIRS
from musigma.evaluation.baseline_models import calibrated
from musigma.evaluation.evaluate import evaluate_model
from musigma.evaluation.record import Record
from musigma.losses import Objective, phases
from musigma.model import Model, load, save
from musigma.prediction.device import select_device_and_threads
from musigma.training.recipe import Recipe, read_toml
from musigma.training.run_log import RunLog, read_log
from musigma.training.run_record import record_of
from musigma.training.schedule import Clock
from musigma.training.setup import (
    BANK_KEYS,
    build_network,
    find_run,
    load_bank,
    set_up,
)
from musigma.training.step import Step
from musigma.training.trainer import WEIGHTS, loop, protocol_of, save_weights
from musigma.types import ConfigError, MusigmaError, nearest, short_repr
from musigma.uncertainty.methods import DEFAULT_COVERAGE
from studies.training_runs.study_recipes import load_study_recipe

PIECE = 15 * 2**20
"""Largest size of a packed file; a borrowed machine may limit what can be copied back."""

PACK_EVERY = 15.0
"""Seconds between two times at which finished results are packed."""

MAX_MINUTES = 1e6
MAX_SEEDS = 1000
MAX_RUNS = 1000
MAX_NAME = 100
"""Longest name; objective and seed are added to it in the names of files."""

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An entry of the campaign: one question, and the runs that answer it.

    Attributes:
        name: Name of the entry; the names of its records begin with it.
        why: The question, as a sentence.
        recipe: Name or path of the recipe.
        changes: Changes of the recipe, each as ``key=value``.
        objectives: One run for each; by default the recipe's own objective.
        seeds: One run for each.
        sets: Data sets on which the results are measured, besides the validation set.
        minutes: How long all runs together should take.
        keep: Whether the weights are kept.
        zoo: Whether the entry stands for its network in the study over all networks. Its error bars
            are calibrated before they are measured.
        records: Names of its records, if they do not follow from the name.
        finding: The result, as a sentence.
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
    zoo: bool = False
    records: tuple[str, ...] = ()
    finding: str = ""

    def jobs(self) -> list["Job"]:
        """Return its runs; runs that differ only in their seed follow each other."""
        base = load_study_recipe(self.recipe, self.changes)
        return [
            Job(
                name=_job_name(self.name, objective, seed),
                recipe=_changed(base, objective or base.objective, seed),
                sets=self.sets,
                keep=self.keep,
                calibrate=self.zoo,
                minutes=self.minutes / len(self.names()),
            )
            for objective, seed in product(self.objectives or ("",), self.seeds)
        ]

    def names(self) -> list[str]:
        """Return the names of its training records."""
        return list(self.records) or self.run_names()

    def run_names(self) -> list[str]:
        """Return the names of its runs, as they follow from its name."""
        runs = product(self.objectives or ("",), self.seeds)
        return [_job_name(self.name, *run) for run in runs]

    def done(self, results: Path) -> int:
        """Return how many of its training records exist."""
        return sum((results / "training" / f"{name}.json").is_file() for name in self.names())


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of a plan."""

    name: str
    recipe: Recipe
    sets: tuple[str, ...]
    keep: bool
    minutes: float
    calibrate: bool = False


def load_campaign(path: Path, *, only: Sequence[str] | None = None) -> list[Plan]:
    """Read a campaign file, or the entries named by `only`. Unknown keys and names are refused."""
    content = read_toml(path)
    for key in content.keys() - {"run"}:
        raise ConfigError(f"{path}: expected [[run]] alone, got {short_repr(key)}")
    entries = content.get("run", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{path}: entries must be tables, each below a line [[run]]")
    plans = [_plan(values, path) for values in entries]
    names = [plan.name for plan in plans]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path} has two entries called {name!r}")
    _check_names_differ(plans, path)
    for name in only or ():
        if name not in names:
            raise ConfigError(f"{path} has no entry {short_repr(name)}; {nearest(name, names)}")
    return [plan for plan in plans if not only or plan.name in only]


def next_jobs(plans: Iterable[Plan], results: Path, *, minutes: float) -> list[Job]:
    """Return the runs without a record, in order, as many as fit the given minutes."""
    chosen: list[Job] = []
    for plan in plans:
        if not plan.recipe:  # made before this file existed, so it cannot be repeated from it
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
    banks: dict[tuple[Any, ...], Bank] | None = None,
) -> None:
    """Train the runs one after another, and measure each result while the next run trains.

    Runs that differ only in their seed share one compiled step. Runs on the same data share one
    patch bank. An interrupted run continues from its checkpoint. A run that fails is reported, the
    others still run, and the error raised at the end names the failed ones.

    Args:
        jobs: The runs.
        folder: Output folder, for ``training`` and ``evaluation`` (records), ``weights``, ``runs``.
        device: Device to train and measure on.
        pack: Folder for tar files of at most 15 MiB with all records and weights so far.
        num_workers: Number of processes that measure.
        report: Called with a line of text for every result.
        banks: The patch bank of earlier runs of this process, which is used where it fits and
            replaced where it does not.
    """
    selected = select_device_and_threads(device)
    banks = {} if banks is None else banks
    waiting: list[tuple[Job, Future[str]]] = []
    failed: list[str] = []
    with ProcessPoolExecutor(num_workers, mp_context=get_context("spawn")) as pool:
        for same_step in _groups(jobs):
            step: Step | None = None
            for job in same_step:
                started = time.monotonic()
                with _failure_reported(job, failed, report):
                    step = train_job(job, folder, step, banks, selected)
                    report(f"{job.name}: {time.monotonic() - started:.0f} s")
                    waiting.append((job, pool.submit(measure_job, job, folder, device)))
                for measured in [pair for pair in waiting if pair[1].done()]:
                    with _failure_reported(measured[0], failed, report):
                        report(measured[1].result())
                    waiting.remove(measured)
                if pack:
                    pack_results(folder, pack)
        for job, result in waiting:
            with _failure_reported(job, failed, report):
                report(result.result())
    if pack:
        pack_results(folder, pack)
    if failed:
        raise MusigmaError(f"{len(failed)} failed: {', '.join(failed)}; the lines above say why")


@contextmanager
def _failure_reported(job: Job, failed: list[str], report: Report) -> Iterator[None]:
    """Report any error of a run, so that the other runs still use the machine."""
    try:
        yield
    except Exception:  # noqa: BLE001  any error; the other runs must go on
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
    """Run jobs in several processes: while one process compiles or measures, others train.

    Runs that differ only in their seed stay together. A process that is free takes the next ones in
    the given order, so that the first runs are complete if the time ends early. Each process prints
    its own results. Finished results are packed every few seconds. If a process fails, its error is
    raised after the others have ended.
    """
    run = partial(_run_beside_others, folder=folder, device=device)
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(run, group) for group in _groups(jobs)}
        ended: set[Future[None]] = set()
        while waiting:
            done, waiting = wait(waiting, timeout=PACK_EVERY)
            ended |= done
            if pack:
                pack_results(folder, pack)
    for future in ended:
        future.result()


_bank_of_this_process: dict[tuple[Any, ...], Bank] = {}


def _run_beside_others(jobs: Iterable[Job], *, folder: Path, device: str) -> None:
    """Run jobs in a process that others work beside; it keeps its patch bank for the next ones."""
    run_jobs(
        jobs,
        folder,
        device=device,
        num_workers=1,
        report=_print_line,
        banks=_bank_of_this_process,
    )


def _groups(jobs: Iterable[Job]) -> list[list[Job]]:
    """Group the jobs that differ only in their seed, since they share one compiled step.

    Jobs that are not compiled share nothing, so each is a group.
    """

    def shared(job: Job) -> Recipe:
        return replace(job.recipe, seed=0) if job.recipe.compile else job.recipe

    return [list(same) for _, same in groupby(jobs, key=shared)]


def _print_line(text: str) -> None:
    print(text, flush=True)


def train_job(
    job: Job,
    folder: Path,
    step: Step | None,
    banks: dict[tuple[Any, ...], Bank],
    device: torch.device,
) -> Step:
    """Train one run; `step` is reused if it was compiled for the same recipe with another seed."""
    recipe = job.recipe
    run = folder / "runs" / job.name
    content = find_run(recipe, run, world=1, resume=True)
    with RunLog(run, recipe, writes=True) as run_log:
        if step is None or content is not None:
            key = tuple(getattr(recipe, name) for name in BANK_KEYS)
            if key not in banks:
                banks.clear()
                banks[key] = load_bank(recipe, device, run_log)
            torch._dynamo.reset()
            step, clock = set_up(recipe, content, run_log, device=device, bank=banks[key])
        else:
            step.restart(build_network(recipe), recipe.seed)
            clock = Clock(recipe)
        loop(step, clock, run_log)
        save_weights(step, clock, run_log)
    return step


def measure_job(job: Job, folder: Path, device: str) -> str:
    """Measure the weights of a run, write its records and weights, and return a summary line."""
    run = folder / "runs" / job.name
    weights = (folder / "weights" if job.keep else run) / f"{job.name}.safetensors"
    trained = load(run / WEIGHTS)
    weights.parent.mkdir(parents=True, exist_ok=True)
    save(weights, trained.network, half=True, training=trained.metadata["training"])
    record = record_of(
        job.recipe, run / WEIGHTS, protocol_of(job.recipe, trained.network), read_log(run)
    )
    model = load(weights)
    model.network.to(select_device_and_threads(device))
    scores = []
    for name in filter(None, (job.recipe.validation, *job.sets)):
        if job.calibrate and name != job.recipe.validation:
            model = _calibrated(model, job.recipe)
        measured = measure_on(name, model, job.recipe)
        measured.save(folder / "evaluation" / f"{job.name}-{_measured_as(measured)}.json")
        if name == job.recipe.validation:
            record.result["validation"] = measured.result
        score = measured.result.get("psnr_y", measured.result.get("psnr"))
        scores.append(f"{measured.data['name']} {score:.3f}")
    # The training record comes last, because a run with this record counts as done.
    record.save(folder / "training" / f"{job.name}.json")
    return f"{job.name}: {', '.join(scores)}"


def measure_on(name: str, model: Model, recipe: Recipe) -> Record:
    """Measure a model on a set in the way of its recipe: by made inputs, or by the set's own."""
    return evaluate_model(model, _dataset(name, recipe), protocol_of(recipe, model.network))


def _calibrated(model: Model, recipe: Recipe) -> Model:
    """Return a model whose error bars, if it has any, are calibrated on the validation set."""
    if not model.has_sigma or model.calibration or not recipe.validation:
        return model
    held_out = _dataset(recipe.validation, recipe)
    protocols = [protocol_of(recipe, model.network)]
    return calibrated(model, held_out, protocols, coverage=DEFAULT_COVERAGE)


def _dataset(name: str, recipe: Recipe) -> Dataset:
    return find_dataset(name, scale=recipe.scale if recipe.degrade == PAIRS else None)


def _measured_as(record: Record) -> str:
    """Return the end of a record's name: the set, and the scale or the noise level."""
    name, scale = record.data["name"], record.model["scale"]
    if scale > 1:
        return f"{name}-x{scale}"
    level = record.protocol["noise_std"]
    return str(name) if level is None else f"{name}-{level:g}"


def pack_results(folder: Path, target: Path) -> list[Path]:
    """Pack records and weights into tar files of at most 15 MiB."""
    names = ("training", "evaluation", "weights")
    files = [path for name in names for path in sorted((folder / name).glob("[!.]*"))]
    pieces: list[list[Path]] = [[]]
    size = 0
    for path in files:
        # Tar rounds the size of a file up to 512 bytes and adds a header of 512 bytes.
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
    words = re.sub(r"[^a-z0-9_.]+", "-", objective.lower()).strip("-")[:100]
    return "-".join([plan, *([words] if words else []), f"s{seed}"])


def _changed(recipe: Recipe, objective: str, seed: int) -> Recipe:
    """Return a recipe with another objective and seed, and a sigma branch if it needs one."""
    if objective == recipe.objective:
        return replace(recipe, seed=seed)
    needs_sigma = any(Objective(part).needs_sigma for part in phases(objective))
    return replace(recipe, objective=objective, sigma=needs_sigma, seed=seed)


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_TEXTS = ("changes", "objectives", "sets", "records")


def _plan(values: Mapping[str, Any], path: Path) -> Plan:
    known = {item.name for item in fields(Plan)}
    for key in values:
        if key not in known:
            raise ConfigError(
                f"{path}: a run has no key {short_repr(key)}; {nearest(key, sorted(known))}"
            )
    for key in ("name", "why", "minutes"):
        if key not in values:
            raise ConfigError(f"{path}: run {short_repr(values.get('name', ''))} lacks {key!r}")
    if "recipe" not in values and "records" not in values:
        raise ConfigError(f"{path}: run {short_repr(values['name'])} lacks 'recipe'")
    for key, value in values.items():
        _check(key, value, f"{path}: run {short_repr(values['name'])}")
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    plan = Plan(**given)
    num_runs = max(1, len(plan.objectives)) * len(plan.seeds)
    if num_runs > MAX_RUNS:
        raise ConfigError(f"{path}: {plan.name!r} has {num_runs:,} runs, more than {MAX_RUNS:,}")
    name, number = Counter(plan.names() or [""]).most_common(1)[0]
    if number > 1:  # one of them would replace the records of the other
        raise ConfigError(f"{path}: two runs of {plan.name!r} are called {short_repr(name)}")
    return plan


def _check_names_differ(plans: Iterable[Plan], path: Path) -> None:
    """Refuse two entries with runs of one name: one would replace the records of the other."""
    owners: dict[str, str] = {}
    for plan in plans:
        for name in {*plan.names(), *(plan.run_names() if plan.recipe else ())}:
            if name in owners:
                raise ConfigError(
                    f"{path}: runs of {owners[name]!r} and {plan.name!r} are both called "
                    f"{short_repr(name)}; rename one of the entries"
                )
            owners[name] = plan.name


def _check(key: str, value: Any, title: str) -> None:
    """Refuse a value of the wrong type, and a name that would lead out of the output folder."""
    if key == "minutes":
        is_right, expected = _is_number(value) and 0 < value < MAX_MINUTES, "a number above zero"
    elif key in ("keep", "zoo"):
        is_right, expected = isinstance(value, bool), "true or false"
    elif key == "seeds":
        is_right = isinstance(value, list) and bool(value) and all(map(_is_seed, value))
        is_right = is_right and len(set(value)) == len(value) <= MAX_SEEDS
        expected = f"a list of up to {MAX_SEEDS} different whole numbers from 0"
    elif key in _TEXTS:
        is_right = isinstance(value, list) and all(isinstance(text, str) for text in value)
        expected = "a list of texts"
    else:
        is_right, expected = isinstance(value, str), "a text"
    if not is_right:
        raise ConfigError(f"{title}: {key} must be {expected}, got {short_repr(value)}")
    # Records and weights are written to files of these names.
    for name in {"name": [value], "records": value}.get(key, []):
        if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
            raise ConfigError(
                f"{title}: {key} may hold up to {MAX_NAME} letters, digits, '.', '_' and '-' only, "
                f"got {short_repr(name)}"
            )


def _is_seed(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
