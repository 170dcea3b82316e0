"""What ``upscale`` and ``denoise`` share: their options, and the loop over all files."""

import functools
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stdout
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
    require_stdout,
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
FORMATS = {
    "png": ("PNG", ".png"),
    "jpg": ("JPEG", ".jpg"),
    "jpeg": ("JPEG", ".jpg"),
    "webp": ("WEBP", ".webp"),
    "tif": ("TIFF", ".tif"),
    "tiff": ("TIFF", ".tif"),
    "bmp": ("BMP", ".bmp"),
}
"""Formats by the word that is typed, with the suffix of their files."""
_MAX_NAMES = 3  # in a line about several files


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """The options that both commands have, as they are typed."""

    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT", help="Picture files, folders, or patterns."),
    ]
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Folder for the results; or the file, where there is one input."
        ),
    ]
    format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Format of the results: png, jpg, webp, tif or bmp; by default that of the input.",
        ),
    ] = None
    quality: Annotated[
        int | None,
        typer.Option(
            min=1, max=100, help="Quality of JPEG and WebP (default 95); 100: lossless WebP."
        ),
    ] = None
    suffix: Annotated[
        str, typer.Option(help="Added to the names of the results, such as -x2: photo-x2.jpg.")
    ] = ""
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", help="Skip pictures whose result is there already.")
    ] = False
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
    value_range: Annotated[
        str | None,
        typer.Option(
            "--range",
            metavar="LOW,HIGH",
            help="Values of scientific files (GeoTIFF, OME-TIFF, FITS) that are black and white; "
            "by default the file says them.",
        ),
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
    def names_file(self) -> bool:
        """Whether the output is the file of one result, and not a folder."""
        from musigma.images.listing import (
            FORMAT_OF_SUFFIX,
            OTHER_PICTURES,
            READ_ONLY,
            SCIENCE_SUFFIXES,
        )

        suffixes = (*FORMAT_OF_SUFFIX, *SCIENCE_SUFFIXES, *OTHER_PICTURES, *READ_ONLY)
        return self.output.suffix.lower() in suffixes and not self.output.is_dir()

    @property
    def folder(self) -> Path:
        """The folder for the results."""
        return self.output.parent if self.names_file else self.output

    def result_name(self, name: Path) -> Path:
        """Return the name of a result that these options ask for.

        Args:
            name: Its name without these options.
        """
        from musigma.images.listing import format_of

        if self.names_file:
            return Path(self.output.name)
        ending = name.suffix
        if self.format and FORMATS[self.format.lower()][0] != format_of(name):
            ending = FORMATS[self.format.lower()][1]
        return name.with_name(f"{name.stem}{self.suffix}{ending}")

    @property
    def uses_ray(self) -> bool:
        """Whether the files go to a Ray cluster."""
        return self.ray or self.engine == "ray"

    def to_options(self, **others: Any) -> "Options":
        """Read the values that were typed; `others` go to `Options` unchanged."""
        from musigma.images.image_io import MAX_PIXELS
        from musigma.images.science.value_range import parse_range
        from musigma.restoration.options import Options

        if self.json:
            require_stdout()  # before hours of work
        self._check_names()
        return Options(
            folder=self.folder,
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
            quality=self.quality,
            value_range=parse_range(self.value_range),
            **others,
        )

    def _check_names(self) -> None:
        from musigma.images.listing import format_of
        from musigma.types import ConfigError, nearest

        if self.output.exists() and not self.output.is_dir() and not self.names_file:
            raise ConfigError(f"{self.output} is a file; --output names the folder for the results")
        if self.format is not None and self.format.lower() not in FORMATS:
            hint = nearest(self.format.lower(), tuple(FORMATS))
            raise ConfigError(f"no results can be written as {self.format!r}; {hint}")
        if {"/", "\\", "\0"} & set(self.suffix):
            raise ConfigError(f"--suffix is part of a file name, got {self.suffix!r}")
        if self.names_file:
            format_name = format_of(self.output)
            if self.suffix or (self.format and FORMATS[self.format.lower()][0] != format_name):
                text = f"--output names the file {self.output}; leave --format and --suffix out"
                raise ConfigError(text)


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
    with exit_on_sigterm(), _claimed(options.folder, shared):
        outcomes = _restore_all(model, options, shared)
    if outcomes.failed:
        raise typer.Exit(1)


@dataclass
class _Outcomes:
    """What became of the files of a run."""

    done: "list[Restored]"
    skipped: list[Path]
    failed: "list[Failed]"
    left_out: list[Path]


@contextmanager
def _claimed(folder: Path, shared: SharedOptions) -> Iterator[None]:
    """Claim the folder of the results, and tell of another run that has it."""
    from musigma.restoration.run_lock import claim_folder

    if shared.names_file:  # the folder of a single file belongs to the user
        yield
        return
    with claim_folder(folder) as other_process:
        if other_process is not None:
            print_warning(
                f"process {other_process} writes to {folder}, too; of a picture that both "
                "restore, the later result stays"
            )
        yield


def _restore_all(model: "Model", options: "Options", shared: SharedOptions) -> _Outcomes:
    from musigma.images.listing import other_files

    log = _open_log(model, options) if shared.resume or not shared.names_file else None
    sources, failed = find_sources(shared, options)
    sources, skipped = _without_done(log if shared.resume else None, sources, shared)
    _remove_parts(options.folder, sources)
    left_out = other_files(shared.inputs, recursive=shared.recursive, results=options.folder)
    outcomes = _Outcomes([], skipped, failed, left_out)
    for failure in failed:
        print_error(failure.error)
    run = _run_on_ray if shared.uses_ray else _run_locally
    try:
        with closing(run(model, sources, options, device=shared.device, quiet=shared.json)) as new:
            _collect(new, log, outcomes, quiet=shared.json, show_noise=model.scale == 1)
    except (KeyboardInterrupt, SystemExit):
        num_done = len(outcomes.done)
        print_line(f"Stopped: {num_done} of {len(sources)} written; --resume does the others")
        if shared.json:
            print_json(_to_json(vars(outcomes)))
        raise
    gallery = None if shared.names_file else _write_gallery(options, outcomes.failed)
    if shared.json:
        print_json(_to_json(vars(outcomes)))
    else:
        _print_promises(options, outcomes.done)
        _print_summary(model, options, outcomes)
        if gallery is not None:
            print_line(f"All pages: {gallery}")
    return outcomes


def _open_log(model: "Model", options: "Options") -> "ResumeLog":
    """Open the log of the folder; one that is damaged is set aside."""
    from musigma.restoration.resume_log import ResumeLog

    log = ResumeLog(model, options)
    num_damaged = log.num_damaged
    if aside := log.set_damaged_aside():
        print_warning(
            f"{num_damaged} lines of the log {log.path} are damaged; it is kept as {aside.name}, "
            "and the pictures of these lines count as not done"
        )
    return log


def _remove_parts(folder: Path, sources: "Sequence[ImageSource]") -> None:
    """Remove what killed runs left in the folders of the results."""
    from musigma.atomic import remove_abandoned_parts

    for parent in {folder, *((folder / source.name).parent for source in sources)}:
        remove_abandoned_parts(parent)


def _collect(
    outcomes: "Generator[Restored | Failed, None, None]",
    log: "ResumeLog | None",
    collected: _Outcomes,
    *,
    quiet: bool,
    show_noise: bool,
) -> None:
    """Sort outcomes as they arrive, report them, and log those that are done."""
    from musigma.restoration.batch import Failed

    for outcome in outcomes:
        if isinstance(outcome, Failed):
            collected.failed.append(outcome)
            print_error(outcome.error)
        else:
            collected.done.append(outcome)
            if log is not None:
                _log(log, outcome)
            if not quiet:
                _print_notes(outcome, show_noise=show_noise)


def _log(log: "ResumeLog", restored: "Restored") -> None:
    try:
        log.add(restored)
    except OSError as error:
        print_warning(
            f"{restored.source} is done, but {log.path} could not be written ({error.strerror}); "
            "--resume will do it again"
        )


def _write_gallery(options: "Options", failed: "list[Failed]") -> Path | None:
    """Write an overview of all pages in the folder, and return its path."""
    from musigma.restoration.viewer.gallery import write_gallery

    if not options.page:
        return None
    try:
        return write_gallery(options.folder, problems=[failure.error for failure in failed])
    except (OSError, ValueError) as error:
        print_warning(f"the overview of all pages was not written ({error})")
        return None


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
    shared: SharedOptions, options: "Options"
) -> "tuple[list[ImageSource], list[Failed]]":
    """Return the pictures of the inputs, each once, and the inputs that cannot be restored."""
    from musigma.images.listing import ImageSource, list_images
    from musigma.restoration.batch import Failed
    from musigma.restoration.output_files import find_clashes
    from musigma.types import ConfigError, ImageError

    sources: dict[Path, ImageSource] = {}
    failed = []
    for name in shared.inputs:
        try:
            listed = list_images([name], recursive=shared.recursive, results=options.folder)
        except ImageError as error:
            failed.append(Failed(source=Path(name), error=str(error)))
            continue
        for path, result in listed:
            sources.setdefault(path.absolute(), ImageSource(path, shared.result_name(result)))
    if shared.names_file and len(sources) > 1:
        text = f"--output names the file {shared.output}, and there are {len(sources)} pictures"
        raise ConfigError(f"{text}; give a folder")
    clashes = find_clashes(list(sources.values()), options)
    failed += [Failed(source=path, error=str(error)) for path, error in clashes.items()]
    return [source for source in sources.values() if source.path not in clashes], failed


def _without_done(
    log: "ResumeLog | None", sources: "Sequence[ImageSource]", shared: SharedOptions
) -> "tuple[list[ImageSource], list[Path]]":
    """Divide sources into those that are left to do and the paths of those that are done."""
    remaining, skipped = [], []
    for source in sources:
        is_done = log is not None and log.is_done(source.path, source.name)
        if is_done or (shared.skip_existing and (shared.folder / source.name).exists()):
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


def _print_notes(restored: "Restored", *, show_noise: bool) -> None:
    """Print the estimated noise level of a picture, and what the user should know about it."""
    if show_noise:
        white = "" if restored.noise_is_white else ", not white"
        level = f"{restored.estimated_noise_std:.3g} of 255{white}"
        print_line(f"{restored.source}: estimated noise level {level}")
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
    return f"{len(paths)} of {num_all} files ({_first_names(paths)})"


def _first_names(paths: Sequence[Path]) -> str:
    names = [path.name for path in paths[:_MAX_NAMES]] + ["..."] * (len(paths) > _MAX_NAMES)
    return ", ".join(names)


def _print_summary(model: "Model", options: "Options", outcomes: _Outcomes) -> None:
    done, num_skipped = outcomes.done, len(outcomes.skipped)
    skipped = f", {num_skipped} were there already" if num_skipped else ""
    if outcomes.left_out:
        names = _first_names(outcomes.left_out)
        print_line(f"{len(outcomes.left_out)} left out, which are no pictures to read: {names}")
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
