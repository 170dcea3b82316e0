"""What ``upscale`` and ``denoise`` do: find the files, restore them one by one, and report."""

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from musigma.cli.common import (
    print_error,
    print_json,
    print_line,
    print_warning,
    progress_bar,
)
from musigma.cli.restore_options import RestoreOptions
from musigma.cli.restore_report import Outcomes, print_notes, print_promises, print_summary
from musigma.images.listing import printable

if TYPE_CHECKING:
    from musigma.images.listing import ImageSource
    from musigma.model import Model
    from musigma.restoration.batch import Failed
    from musigma.restoration.options import Options
    from musigma.restoration.restored import Restored
    from musigma.restoration.resume_log import ResumeLog


def restore_all(model: "Model", options: "Options", shared: RestoreOptions) -> None:
    """Restore all inputs, report those that fail, and end with code 1 if there are any."""
    with _claimed(options.folder, shared):
        outcomes = _restore_all(model, options, shared)
    if outcomes.failed:
        raise typer.Exit(1)


@contextmanager
def _claimed(folder: Path, shared: RestoreOptions) -> Iterator[None]:
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


def _restore_all(model: "Model", options: "Options", shared: RestoreOptions) -> Outcomes:
    from musigma.images.listing import other_files

    log = _open_log(model, options) if shared.resume or not shared.names_file else None
    sources, failed = find_sources(shared, options)
    sources, skipped = _without_done(log if shared.resume else None, sources, shared)
    _remove_parts(options.folder, sources)
    left_out = other_files(shared.inputs, recursive=shared.recursive, results=options.folder)
    outcomes = Outcomes([], skipped, failed, left_out)
    if shared.resume and log is not None:
        _tell_what_is_done_again(log, sources)
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
            print_json(outcomes.to_json())
        raise
    gallery = None if shared.names_file else _write_gallery(options, outcomes.failed)
    if shared.json:
        print_json(outcomes.to_json())
    else:
        print_promises(options, outcomes.done)
        print_summary(model, shared.output, outcomes)
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
    collected: Outcomes,
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
                print_notes(outcome, show_noise=show_noise)


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


def find_sources(
    shared: RestoreOptions, options: "Options"
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
    log: "ResumeLog | None", sources: "Sequence[ImageSource]", shared: RestoreOptions
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


def _tell_what_is_done_again(log: "ResumeLog", sources: "Sequence[ImageSource]") -> None:
    number = sum(log.knows(source.path) for source in sources)
    if number:
        pictures = "1 picture" if number == 1 else f"{number} pictures"
        print_line(
            f"{pictures} of an earlier run will be restored again: the options, the weights, the "
            "pictures or their results have changed"
        )


def _run_locally(
    model: "Model", sources: "list[ImageSource]", options: "Options", *, device: str, quiet: bool
) -> "Generator[Restored | Failed, None, None]":
    from musigma.prediction.device import limit_threads
    from musigma.prediction.heap import reuse_large_buffers
    from musigma.restoration.batch import restore_files
    from musigma.restoration.options import engine_for

    limit_threads(model.to(device).device)
    reuse_large_buffers(options.memory)
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
