"""What a run reports: a progress line, a log file, curves."""

import json
import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import IO, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from musigma.atomic import atomic_writer
from musigma.file_lock import open_here, try_lock
from musigma.training.recipe import Recipe
from musigma.training.schedule import Clock
from musigma.types import ConfigError

LOG = "log.jsonl"
MAX_FINITE = 1e39
"""A finite number of the log is not larger."""

_FIRST_LOSS = ("first_loss", "first_closing_loss")
"""Names in the log, by the number of the objective."""

log = logging.getLogger(__name__)


class RunLog:
    """Writes ``log.jsonl``, a progress line, and TensorBoard events where that is installed.

    While it is open, no other run can open the log of the same folder. It knows the first loss with
    each objective and the best validation of the run, also of a run that is resumed.

    Args:
        folder: Folder of the run.
        recipe: Recipe of the run.
        writes: Whether this process writes; of several processes only the first does.
    """

    def __init__(self, folder: Path, recipe: Recipe, *, writes: bool) -> None:
        self.folder, self.recipe, self.writes = folder, recipe, writes
        self.last: tuple[int, float] | None = None
        self.psnr: float | None = None
        self.best_psnr: float | None = None
        self.first_losses: dict[int, float] = {}
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not writes,
        )
        self.task = self.progress.add_task("loading", total=1.0)
        self.board: Any = None
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Self:
        if self.writes:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(f"cannot make the folder of the run: {error}") from error
            self._lock = _lock(self.folder / LOG)
            _end_last_line(self.folder / LOG)
            lines = read_log(self.folder)  # of the run that is resumed
            self.first_losses = _first_losses(lines)
            self.best_psnr = max((psnr for _, psnr in psnr_curve(lines)), default=None)
            self.board = _tensorboard(self.folder)
            self.progress.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()
        if self.board is not None:
            self.board.close()
        if self._lock is not None:
            self._lock.close()

    def loading(self, done: int, total: int) -> None:
        """Show how many images are loaded."""
        text = f"loading images {done}/{total}"
        self.progress.update(self.task, description=text, completed=done / total)

    def log(self, step: int, clock: Clock, **values: float) -> None:
        """Write the numbers of a step and update the progress line."""
        if not values or not self.writes:
            return
        speed = self._patches_per_second(step)
        line = {"step": step, "seconds": round(clock.seconds, 3), **values}
        if speed is not None:
            line["patches_per_second"] = round(speed, 1)
        self._append(line)
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, step)
        psnr = validated_psnr(values)
        if psnr is not None:
            self.psnr, self.best_psnr = psnr, max(psnr, self.best_psnr or psnr)
        parts = [f"step {step}"]
        if "loss" in values:
            parts.append(f"loss {values['loss']:.5f}")
        if self.psnr is not None:
            parts.append(f"PSNR {self.psnr:.2f}")
        if speed is not None:
            parts.append(f"{speed:.0f} patches/s")
        done = min(clock.progress(step), 1.0)
        self.progress.update(self.task, description="  ".join(parts), completed=done)

    def log_first_loss(self, step: int, clock: Clock, phase: int, loss: float) -> None:
        """Remember and write the loss of the first step with an objective, if it is finite."""
        if not math.isfinite(loss):
            return
        self.first_losses[phase] = loss
        if self.writes:
            seconds = round(clock.seconds, 3)
            self._append({"step": step, "seconds": seconds, _FIRST_LOSS[phase]: loss})

    def note(self, text: str) -> None:
        """Write a sentence to the log and above the progress line."""
        if self.writes:
            self._append({"note": text})
            self.progress.console.print(text, highlight=False, markup=False)

    def draw(self) -> Path | None:
        """Draw the curves of the whole run."""
        lines = read_log(self.folder)
        losses = _curve(lines, "loss")
        if not losses:
            return None
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        left = figure.add_subplot()
        left.plot(*zip(*losses, strict=True), color="#3b6ea5", linewidth=1)
        left.set_xlabel("step")
        left.set_ylabel("loss", color="#3b6ea5")
        if min(loss for _, loss in losses) > 0:
            left.set_yscale("log")
        left.set_title(f"{self.recipe.network} x{self.recipe.scale}: {self.recipe.objective}")
        scores = psnr_curve(lines)
        if scores:
            right = left.twinx()
            right.plot(*zip(*scores, strict=True), "o-", color="#b5482c", markersize=4)
            right.set_ylabel("validation PSNR (dB)", color="#b5482c")
        path = self.folder / "curves.png"
        with atomic_writer(path) as file:
            figure.savefig(file, format="png", dpi=120)
        return path

    def _patches_per_second(self, step: int) -> float | None:
        now, before = monotonic(), self.last
        self.last = (step, now)
        if before is None or step <= before[0]:
            return None
        return (step - before[0]) * self.recipe.batch / (now - before[1])

    def _append(self, line: Mapping[str, Any]) -> None:
        with (self.folder / LOG).open("a") as file:
            file.write(json.dumps(line) + "\n")


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's log; damaged lines, as a crash leaves them, are left out."""
    path = folder / LOG
    texts = path.read_text(errors="replace").splitlines() if path.is_file() else []
    lines = [_read_line(text) for text in texts]
    num_damaged = sum(line is None for line in lines)
    if num_damaged:
        log.warning("%s: %d damaged lines are left out", path, num_damaged)
    return [line for line in lines if line is not None]


def _read_line(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict):
        return None
    if line.keys() == {"note"}:
        return line
    is_complete = {"step", "seconds"} <= line.keys()
    return line if is_complete and all(map(_is_logged_number, line.values())) else None


def _is_logged_number(value: Any) -> bool:
    """Return whether a run can have written a value: losses are float32, some are not finite."""
    return type(value) in (int, float) and not MAX_FINITE < abs(value) < math.inf


def validated_psnr(values: Mapping[str, float]) -> float | None:
    """Return the PSNR by which validations are compared: of luma, or else of all channels.

    Example:
        >>> validated_psnr({"psnr": 30.0, "psnr_y": 31.5})
        31.5
    """
    return values.get("psnr_y", values.get("psnr"))


def psnr_curve(lines: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """Return the PSNR of the validations over the steps."""
    return _curve(lines, "psnr_y") or _curve(lines, "psnr")


def _curve(lines: list[dict[str, Any]], name: str) -> list[tuple[int, float]]:
    """Return a number over the steps; of a step that was done twice the later number counts."""
    return sorted({line["step"]: line[name] for line in lines if name in line}.items())


def _first_losses(lines: list[dict[str, Any]]) -> dict[int, float]:
    """Return the first loss with each objective; older logs have the mean of several steps only."""
    curves = [_curve(lines, name) for name in _FIRST_LOSS]
    curves[0] = curves[0] or _curve(lines, "loss")
    firsts = {phase: curve[0][1] for phase, curve in enumerate(curves) if curve}
    return {phase: loss for phase, loss in firsts.items() if math.isfinite(loss)}


def _lock(path: Path) -> IO[bytes]:
    """Keep other runs out of a folder until the returned file is closed, or this process ends."""
    try:
        file = os.fdopen(open_here(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written ({error.strerror}); choose another folder"
        ) from error
    if try_lock(file.fileno()) is False:
        file.close()
        raise ConfigError(
            f"another training is running in {path.parent}; wait for it or choose another folder"
        )
    return file


def _end_last_line(path: Path) -> None:
    """End a line that a crash cut off, so that the next line starts on its own."""
    if path.is_file() and path.read_bytes()[-1:] not in (b"", b"\n"):
        with path.open("a") as file:
            file.write("\n")


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"))
