"""What a run tells: a line that moves, a log that stays, curves to look at."""

import json
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from musigma.training.recipe import Recipe

if TYPE_CHECKING:
    from musigma.training.loop import Clock


class Journal:
    """Writes ``log.jsonl`` always, TensorBoard events where it is installed, and a progress line.

    Args:
        folder: Of the run.
        recipe: Of the run.
        writes: Whether this process is the one that writes.
    """

    def __init__(self, folder: Path, recipe: Recipe, *, writes: bool) -> None:
        self.folder, self.recipe, self.writes = folder, recipe, writes
        self.last: tuple[int, float] | None = None
        self.psnr: float | None = None
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not writes,
        )
        self.task = self.progress.add_task("loading", total=1.0)
        self.board = _tensorboard(folder) if writes else None

    def __enter__(self) -> Self:
        if self.writes:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()
        if self.board is not None:
            self.board.close()

    def loading(self, done: int, total: int) -> None:
        """Show how many images are loaded."""
        text = f"loading images {done}/{total}"
        self.progress.update(self.task, description=text, completed=done / total)

    def log(self, step: int, clock: "Clock", **values: float) -> None:
        """Write numbers of a step and move the progress line."""
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
        self.psnr = values.get("psnr_y", values.get("psnr", self.psnr))
        parts = [f"step {step}"]
        if "loss" in values:
            parts.append(f"loss {values['loss']:.5f}")
        if self.psnr is not None:
            parts.append(f"PSNR {self.psnr:.2f}")
        if speed is not None:
            parts.append(f"{speed:.0f} patches/s")
        done = min(clock.progress(step), 1.0)
        self.progress.update(self.task, description="  ".join(parts), completed=done)

    def note(self, text: str) -> None:
        """Write a sentence, in the log and above the progress line."""
        if self.writes:
            self._append({"note": text})
            self.progress.console.print(text, highlight=False)

    def draw(self) -> Path | None:
        """Draw the curves of the whole run."""
        lines = read_log(self.folder)
        losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
        if not losses:
            return None
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        left = figure.add_subplot()
        left.plot(*zip(*losses, strict=True), color="#3b6ea5", linewidth=1)
        left.set(xlabel="step", ylabel="loss", yscale="log")
        left.set_title(f"{self.recipe.network} x{self.recipe.scale}: {self.recipe.objective}")
        scores = [(line["step"], line["psnr_y"]) for line in lines if "psnr_y" in line]
        if scores:
            right = left.twinx()
            right.plot(*zip(*scores, strict=True), "o-", color="#b5482c", markersize=4)
            right.set_ylabel("validation PSNR (dB)", color="#b5482c")
        path = self.folder / "curves.png"
        figure.savefig(path, dpi=120)
        return path

    def _patches_per_second(self, step: int) -> float | None:
        now, before = monotonic(), self.last
        self.last = (step, now)
        if before is None or step <= before[0]:
            return None
        return (step - before[0]) * self.recipe.batch / (now - before[1])

    def _append(self, line: Mapping[str, Any]) -> None:
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's log; one cut off by a crash is left out."""
    lines = []
    for text in (folder / "log.jsonl").read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"))
