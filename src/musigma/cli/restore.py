"""What ``upscale`` and ``denoise`` share: their options, and the loop over all files."""

import functools
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musigma.cli.common import (
    exit_on_sigterm,
    parse_size,
    print_error,
    print_json,
    print_line,
    print_warning,
    progress_bar,
)
from musigma.images.listing import printable

if TYPE_CHECKING:
    from musigma.images.listing import ImageSource
    from musigma.model import Model
    from musigma.restoration.batch import Failed
    from musigma.restoration.options import Options
    from musigma.restoration.restore_file import Restored
    from musigma.restoration.resume_log import ResumeLog

ModelName = Annotated[
    str | None, typer.Option("--model", help="Name of a shipped model, or path of a weights file.")
]
_MAX_NAMES = 3  # in a line about several files


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """The options that both commands have, as they are typed."""

    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT", help="Picture files, folders, or patterns."),
    ]
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")]
    sigma: Annotated[
        bool,
        typer.Option(
            help="Write error maps: NAME.sigma.png (predicted error), NAME.error-map.png (a "
            "picture to look at) and, for a calibrated model, NAME.std.png and NAME.interval.png."
        ),
    ] = False
    npz: Annotated[
        bool, typer.Option(help="Write mean and error maps to NAME.npz, too; includes --sigma.")
    ] = False
    page: Annotated[
        bool,
        typer.Option(help="Write NAME.html, a page that compares input, result and error maps."),
    ] = False
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Coverage of the intervals, e.g. 0.95; one that the model is calibrated for."
        ),
    ] = None
    engine: Annotated[
        str | None,
        typer.Option(
            help="What runs the network: torch (float32, the default), torch-bf16, torch-fp16, "
            "torch-tf32, torch-fp16-compiled, onnx (float32, the default for ONNX files), "
            "openvino, or auto for the fastest that is accurate enough. ray means --ray."
        ),
    ] = None
    ensemble: Annotated[
        bool, typer.Option(help="Average over flips and quarter turns, at eight times the cost.")
    ] = False
    tile: Annotated[
        str,
        typer.Option(
            metavar="PIXELS|auto", help="Largest side of a tile; auto uses what --memory allows."
        ),
    ] = "auto"
    memory: Annotated[str, typer.Option(help="Memory budget for one tile and its output rows.")] = (
        "2GiB"
    )
    max_pixels: Annotated[
        int | None,
        typer.Option(min=1, help="Refuse pictures with more pixels than this (default 500000000)."),
    ] = None
    frame: Annotated[
        int | None,
        typer.Option(min=0, help="Page or frame to read of files with several, from 0."),
    ] = None
    recursive: Annotated[bool, typer.Option(help="Search the folders below each folder.")] = False
    resume: Annotated[
        bool, typer.Option(help="Skip pictures that an earlier run has finished.")
    ] = False
    ray: Annotated[
        bool, typer.Option("--ray", help="Spread the files over the Ray cluster of RAY_ADDRESS.")
    ] = False
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:N.")] = "auto"
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False

    @property
    def uses_ray(self) -> bool:
        """Whether the files go to a Ray cluster."""
        return self.ray or self.engine == "ray"

    def to_options(self, **others: Any) -> "Options":
        """Read the values that were typed; `others` go to `Options` unchanged."""
        from musigma.images.image_io import MAX_PIXELS
        from musigma.restoration.options import Options
        from musigma.types import ConfigError

        if self.output.exists() and not self.output.is_dir():
            raise ConfigError(f"{self.output} is a file; --output names the folder for the results")
        return Options(
            folder=self.output,
            sigma=self.sigma,
            npz=self.npz,
            page=self.page,
            coverage=self.coverage,
            engine=None if self.engine == "ray" else self.engine,
            ensemble=self.ensemble,
            tile=parse_tile(self.tile),
            memory=parse_size(self.memory),
            max_pixels=self.max_pixels or MAX_PIXELS,
            frame=self.frame,
            **others,
        )


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the shared options to a command, which receives them as its argument ``shared``."""
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "shared"]
    shared = inspect.signature(SharedOptions).parameters.values()
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *shared)]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        typed = {field.name: values.pop(field.name) for field in fields(SharedOptions)}
        command(SharedOptions(**typed), **values)

    # Typer reads the options of a command from these two.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def restore_all(model: "Model", options: "Options", shared: SharedOptions) -> None:
    """Restore all inputs, report those that fail, and end with code 1 if there are any."""
    from musigma.restoration.run_lock import claim_folder

    with exit_on_sigterm(), claim_folder(options.folder) as other_process:
        if other_process is not None:
            print_warning(
                f"process {other_process} writes to {options.folder}, too; of a picture that both "
                "restore, the later result stays"
            )
        outcomes = _restore_all(model, options, shared)
    if outcomes.failed:
        raise typer.Exit(1)


@dataclass
class _Outcomes:
    """What became of the files of a run."""

    done: "list[Restored]"
    skipped: list[Path]
    failed: "list[Failed]"


def _restore_all(model: "Model", options: "Options", shared: SharedOptions) -> _Outcomes:
    log = _open_log(model, options)
    sources, failed = find_sources(shared.inputs, options, recursive=shared.recursive)
    skipped: list[Path] = []
    if shared.resume:
        sources, skipped = _without_done(log, sources)
    for failure in failed:
        print_error(failure.error)
    run = _run_on_ray if shared.uses_ray else _run_locally
    outcomes = _Outcomes([], skipped, failed)
    try:
        with closing(run(model, sources, options, device=shared.device, quiet=shared.json)) as new:
            _collect(new, log, outcomes, quiet=shared.json)
    except (KeyboardInterrupt, SystemExit):
        num_done = len(outcomes.done)
        print_line(f"Stopped: {num_done} of {len(sources)} written; --resume does the others")
        if shared.json:
            print_json(_to_json(vars(outcomes)))
        raise
    gallery = _write_gallery(options, outcomes.failed)
    if shared.json:
        print_json(_to_json(vars(outcomes)))
    else:
        _print_promises(options, outcomes.done)
        _print_summary(model, options, outcomes)
        if gallery is not None:
            print_line(f"All pages: {gallery}")
    return outcomes


def _open_log(model: "Model", options: "Options") -> "ResumeLog":
    """Open the log of the folder, and remove what killed runs left there."""
    from musigma.atomic import remove_abandoned_parts
    from musigma.restoration.resume_log import ResumeLog

    remove_abandoned_parts(options.folder)
    log = ResumeLog(model, options)
    num_damaged = log.num_damaged
    if aside := log.set_damaged_aside():
        print_warning(
            f"{num_damaged} lines of the log {log.path} are damaged; it is kept as {aside.name}, "
            "and the pictures of these lines count as not done"
        )
    return log


def _collect(
    outcomes: "Generator[Restored | Failed, None, None]",
    log: "ResumeLog",
    collected: _Outcomes,
    *,
    quiet: bool,
) -> None:
    """Sort outcomes as they arrive, report them, and log those that are done."""
    from musigma.restoration.batch import Failed

    for outcome in outcomes:
        if isinstance(outcome, Failed):
            collected.failed.append(outcome)
            print_error(outcome.error)
        else:
            collected.done.append(outcome)
            log.add(outcome)
            if not quiet:
                _print_notes(outcome)


def _write_gallery(options: "Options", failed: "list[Failed]") -> Path | None:
    """Write an overview of all pages in the folder, and return its path."""
    from musigma.restoration.viewer.gallery import write_gallery

    if not options.page:
        return None
    return write_gallery(options.folder, problems=[failure.error for failure in failed])


def parse_tile(text: str) -> int | None:
    """Read ``auto`` or a number of pixels.

    Example:
        >>> parse_tile("auto"), parse_tile("256")
        (None, 256)
    """
    from musigma.types import ConfigError

    if text == "auto":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise ConfigError(f"expected --tile auto or a number of pixels, got {text!r}")
    return int(text)


def find_sources(
    inputs: Sequence[str], options: "Options", *, recursive: bool
) -> "tuple[list[ImageSource], list[Failed]]":
    """Return the pictures of the inputs, each once, and the inputs that cannot be restored."""
    from musigma.images.listing import list_images
    from musigma.restoration.batch import Failed
    from musigma.restoration.output_files import find_clashes
    from musigma.types import ImageError

    sources: dict[Path, ImageSource] = {}
    failed = []
    for name in inputs:
        try:
            for source in list_images([name], recursive=recursive, results=options.folder):
                sources.setdefault(source.path.absolute(), source)
        except ImageError as error:
            failed.append(Failed(source=Path(name), error=str(error)))
    clashes = find_clashes(list(sources.values()), options)
    failed += [Failed(source=path, error=str(error)) for path, error in clashes.items()]
    return [source for source in sources.values() if source.path not in clashes], failed


def _without_done(
    log: "ResumeLog", sources: "Sequence[ImageSource]"
) -> "tuple[list[ImageSource], list[Path]]":
    """Divide sources into those that are left to do and the paths of those that are done."""
    remaining, skipped = [], []
    for source in sources:
        if log.is_done(source.path):
            skipped.append(source.path)
        else:
            remaining.append(source)
    return remaining, skipped


def _run_locally(
    model: "Model", sources: "list[ImageSource]", options: "Options", *, device: str, quiet: bool
) -> "Generator[Restored | Failed, None, None]":
    from musigma.prediction.device import limit_threads
    from musigma.restoration.batch import restore_files
    from musigma.restoration.options import engine_for

    limit_threads(model.to(device).device)
    engine = engine_for(model, options, report=(lambda _: None) if quiet else print_line)
    with progress_bar(quiet=quiet) as bar:
        pictures = bar.add_task("pictures", total=len(sources))
        tiles = bar.add_task("tiles", total=None)

        def show(source: "ImageSource", done: int, total: int) -> None:
            name = printable(source.path.name)
            bar.update(tiles, description=name, completed=done, total=total)

        for outcome in restore_files(model, sources, options, engine=engine, progress=show):
            bar.advance(pictures)
            yield outcome


def _run_on_ray(
    model: "Model", sources: "list[ImageSource]", options: "Options", *, device: str, quiet: bool
) -> "Generator[Restored | Failed, None, None]":
    from musigma.restoration.ray_cluster import restore_on_ray

    # Ray prints messages about its workers to stdout, which is for results.
    with redirect_stdout(sys.stderr), progress_bar(quiet=quiet) as bar:
        pictures = bar.add_task("pictures", total=len(sources))
        for outcome in restore_on_ray(model, sources, options, device=device):
            bar.advance(pictures)
            yield outcome


def _print_notes(restored: "Restored") -> None:
    """Print the estimated noise level of a picture, and what the user should know about it."""
    if restored.noise_estimated:
        print_line(f"{restored.source}: estimated noise level {restored.noise_std:.3g} of 255")
    for warning in restored.warnings:
        print_warning(f"{restored.source}: {warning}")


def _print_promises(options: "Options", done: "list[Restored]") -> None:
    """Print what the intervals promise, once for all files with the same promise."""
    if not options.shows_errors:
        return
    by_promise: dict[tuple[str | None, str | None], list[Path]] = defaultdict(list)
    for restored in done:
        by_promise[restored.promise, restored.promise_reason].append(restored.source)
    for (promise, reason), paths in by_promise.items():
        if reason is not None:
            which = _files(paths, len(done))
            print_warning(f"the promise does not hold for {which}: {reason}")
        elif promise is not None:
            which = "" if len(paths) == len(done) else f" of {_files(paths, len(done))}"
            print_line(f"Intervals{which}: {promise}.")


def _files(paths: Sequence[Path], num_all: int) -> str:
    if num_all == 1:
        return "this file"
    names = [path.name for path in paths[:_MAX_NAMES]] + ["..."] * (len(paths) > _MAX_NAMES)
    return f"{len(paths)} of {num_all} files ({', '.join(names)})"


def _print_summary(model: "Model", options: "Options", outcomes: _Outcomes) -> None:
    done, num_skipped = outcomes.done, len(outcomes.skipped)
    skipped = f", {num_skipped} were there already" if num_skipped else ""
    print_line(f"{len(done)} written to {options.folder}{skipped}, {len(outcomes.failed)} failed")
    num_approximate = sum(not restored.exact for restored in done)
    if num_approximate:
        print_line(
            f"{num_approximate} approximate: {model.name} looks at the whole picture, but each "
            "tile shows only a part of it; more --memory allows larger tiles"
        )


def _to_json(value: Any) -> Any:
    """Return outcomes and their paths as plain values."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    return _to_json(vars(value)) if hasattr(value, "__dict__") else value
