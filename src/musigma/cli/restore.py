"""What ``upscale`` and ``denoise`` share: their options, and the way through all files."""

import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musigma.cli.common import parse_size, print_error, print_json, progress_bar, screen

if TYPE_CHECKING:
    from musigma.images.listing import ImageSource
    from musigma.model import Model
    from musigma.restoration.batch import Failed
    from musigma.restoration.restore_file import Options, Restored

Inputs = Annotated[list[str], typer.Argument(metavar="INPUT...", help="Files or folders.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")]
ModelName = Annotated[str, typer.Option("--model", help="A name, or a weights file.")]
Sigma = Annotated[bool, typer.Option(help="Write the error map of each picture too.")]
Npz = Annotated[bool, typer.Option(help="Write mean and error map as NPZ too.")]
Page = Annotated[bool, typer.Option(help="Write a page to look at for each picture.")]
Coverage = Annotated[
    float | None, typer.Option(help="Of the intervals; the model must be calibrated for it.")
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help="What runs the network: torch (float32), torch-bf16, torch-fp16, torch-tf32, "
        "torch-fp16-compiled, onnx, openvino, or auto for the fastest that is exact enough; "
        "ray for torch on every worker of a cluster, as --ray.",
    ),
]
Ensemble = Annotated[
    bool, typer.Option(help="Average over flips and quarter turns, at eight times the cost.")
]
TileSide = Annotated[
    str, typer.Option("--tile", help="Largest side of a tile in pixels; auto: as --memory allows.")
]
Memory = Annotated[str, typer.Option(help="For a tile and the rows that are being made.")]
Recursive = Annotated[bool, typer.Option(help="Look into the folders below, too.")]
Resume = Annotated[bool, typer.Option(help="Leave out what an earlier run has done.")]
OnRay = Annotated[
    bool, typer.Option("--ray", help="Spread the files over the Ray cluster of RAY_ADDRESS.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]


def make_options(output: Path, *, tile: str, memory: str, **others: Any) -> "Options":
    """Read what was typed; the others go to `Options` as they are."""
    from musigma.restoration.restore_file import Options
    from musigma.types import ConfigError

    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output} is a file; --output names the folder for the results")
    return Options(folder=output, tile=parse_tile(tile), memory=parse_size(memory), **others)


def restore_all(
    model: "Model",
    inputs: list[str],
    options: "Options",
    *,
    device: str,
    recursive: bool,
    resume: bool,
    ray: bool,
    json: bool,
) -> None:
    """Restore every input; what fails is reported, the rest is done, the exit code tells."""
    from musigma.restoration.batch import Failed
    from musigma.restoration.resume_log import Journal

    if options.engine == "ray":
        ray, options = True, replace(options, engine="torch")
    journal = Journal(model, options)
    sources, failed = _find(inputs, options, recursive=recursive)
    skipped = []
    if resume:
        journal.remove_parts()
        skipped = [source.path for source in sources if journal.is_done(source.path)]
        sources = [source for source in sources if source.path not in set(skipped)]
    for failure in failed:
        print_error(failure.error)
    done: list[Restored] = []
    run = _on_ray if ray else _here
    for outcome in run(model, sources, options, device=device, quiet=json):
        if isinstance(outcome, Failed):
            failed.append(outcome)
            print_error(outcome.error)
        else:
            done.append(outcome)
            journal.add(outcome)
    if json:
        print_json(
            {
                "done": [_plain(one) for one in done],
                "skipped": [str(path) for path in skipped],
                "failed": [_plain(one) for one in failed],
            }
        )
    else:
        _print_summary(model, options, done, len(skipped), len(failed))
    if failed:
        raise typer.Exit(1)


def parse_tile(text: str) -> int | None:
    """Read ``auto`` or a number of pixels."""
    from musigma.types import ConfigError

    if text == "auto":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise ConfigError(f"expected --tile auto or a number of pixels, got {text!r}")
    return int(text)


def _find(
    inputs: list[str], options: "Options", *, recursive: bool
) -> "tuple[list[ImageSource], list[Failed]]":
    """Return the pictures behind the inputs, each once, and what is wrong with the others."""
    from musigma.images.listing import list_images
    from musigma.restoration.batch import Failed
    from musigma.restoration.restore_file import find_clashes
    from musigma.types import ImageError

    found: dict[Path, ImageSource] = {}
    failed = []
    for item in inputs:
        try:
            for source in list_images([item], recursive=recursive, results=options.folder):
                found.setdefault(source.path.absolute(), source)
        except ImageError as error:
            failed.append(Failed(source=Path(item), error=str(error)))
    clashes = find_clashes(list(found.values()), options)
    failed += [Failed(source=path, error=str(error)) for path, error in clashes.items()]
    return [source for source in found.values() if source.path not in clashes], failed


def _here(
    model: "Model", sources: "list[ImageSource]", options: "Options", *, device: str, quiet: bool
) -> "Iterator[Restored | Failed]":
    from musigma.prediction.device import limit_threads
    from musigma.restoration.batch import restore_files
    from musigma.restoration.restore_file import engine_for

    limit_threads(model.to(device).device)
    report = (lambda _: None) if quiet else screen.print
    engine = engine_for(model, options.engine, ensemble=options.ensemble, report=report)
    with progress_bar(quiet=quiet) as bar:
        pictures = bar.add_task("pictures", total=len(sources))
        tiles = bar.add_task("tiles", total=None)

        def show(source: "ImageSource", done: int, total: int) -> None:
            bar.update(tiles, description=source.path.name, completed=done, total=total)

        for outcome in restore_files(model, sources, options, engine=engine, progress=show):
            bar.advance(pictures)
            yield outcome


def _on_ray(
    model: "Model", sources: "list[ImageSource]", options: "Options", *, device: str, quiet: bool
) -> "Iterator[Restored | Failed]":
    from musigma.restoration.ray_cluster import restore_on_ray

    # Ray prints what befalls its workers; stdout is for results.
    with redirect_stdout(sys.stderr), progress_bar(quiet=quiet) as bar:
        pictures = bar.add_task("pictures", total=len(sources))
        for outcome in restore_on_ray(model, sources, options, device=device):
            bar.advance(pictures)
            yield outcome


def _print_summary(
    model: "Model", options: "Options", done: "list[Restored]", num_skipped: int, num_failed: int
) -> None:
    skipped = f", {num_skipped} were there already" if num_skipped else ""
    screen.print(f"{len(done)} written to {options.folder}{skipped}, {num_failed} failed")
    num_approximate = sum(not one.exact for one in done)
    if num_approximate:
        screen.print(
            f"{num_approximate} approximate: {model.name} looks at the whole picture, and tiles "
            "show it parts; more --memory makes them larger"
        )


def _plain(outcome: "Restored | Failed") -> dict[str, Any]:
    values = vars(outcome)
    return {key: str(one) if isinstance(one, Path) else one for key, one in values.items()}
