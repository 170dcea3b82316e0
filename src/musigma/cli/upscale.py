"""``musigma upscale``: enlarge picture files."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musigma.cli.common import parse_size, print_error, print_json, progress_bar, screen

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from musigma.inference.files import Options
    from musigma.models import Model


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    epilog = "Example: `musigma upscale photo.jpg scans/ -o large --scale 2 --sigma`"
    app.command(epilog=epilog)(upscale)


def upscale(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT...", help="Files or folders.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")],
    scale: Annotated[int | None, typer.Option(help="Zoom factor.")] = None,
    model: Annotated[str, typer.Option(help="A name, or a weights file.")] = "edsr-baseline",
    sigma: Annotated[bool, typer.Option(help="Write the error map of each picture too.")] = False,
    npz: Annotated[bool, typer.Option(help="Write mean and error map as NPZ too.")] = False,
    page: Annotated[bool, typer.Option(help="Write a page to look at for each picture.")] = False,
    coverage: Annotated[
        float | None, typer.Option(help="Of the intervals; the model must be calibrated for it.")
    ] = None,
    tile: Annotated[
        str, typer.Option(help="Largest side of a tile in pixels; auto: as --memory allows.")
    ] = "auto",
    memory: Annotated[str, typer.Option(help="What a tile may need.")] = "2GiB",
    recursive: Annotated[bool, typer.Option(help="Look into the folders below, too.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    json: Annotated[bool, typer.Option(help="Print the results as JSON.")] = False,
) -> None:
    """Enlarge pictures; each is written back in its own format, bit depth and profile."""
    from musigma.inference.device import pick_device
    from musigma.inference.files import Options
    from musigma.models import load
    from musigma.types import ConfigError

    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output} is a file; --output names the folder for the results")
    options = Options(
        folder=output,
        sigma=sigma,
        npz=npz,
        page=page,
        coverage=coverage,
        tile=parse_tile(tile),
        memory=parse_size(memory),
    )
    loaded = load(model, scale=scale)
    if loaded.scale == 1:
        raise ConfigError(f"{model} does not enlarge; 'musigma denoise' uses it")
    loaded.network.to(pick_device(device))
    restore_all(loaded, inputs, options, recursive=recursive, json=json)


def restore_all(
    model: "Model", inputs: list[str], options: "Options", *, recursive: bool, json: bool
) -> None:
    """Restore every input; what fails is reported, the rest is done, the exit code tells."""
    from musigma.data.files import ImageSource, list_images
    from musigma.inference.files import find_clashes, restore_file
    from musigma.types import ImageError

    done: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    sources: dict[Path, ImageSource] = {}

    def fail(source: str, error: ImageError) -> None:
        failed.append({"source": source, "error": str(error)})
        print_error(str(error))

    for item in inputs:
        try:
            for source in list_images([item], recursive=recursive):
                sources.setdefault(source.path.absolute(), source)
        except ImageError as error:
            fail(item, error)
    clashes = find_clashes(list(sources.values()), options)
    with progress_bar(quiet=json) as bar:
        files = bar.add_task("pictures", total=len(sources))
        for source in sources.values():
            tiles = bar.add_task(source.path.name, total=None)
            try:
                if source.path in clashes:
                    raise clashes[source.path]
                result = restore_file(model, source, options, progress=_shown(bar, tiles))
                done.append({key: _plain(value) for key, value in vars(result).items()})
            except ImageError as error:
                fail(str(source.path), error)
            bar.remove_task(tiles)
            bar.advance(files)
    if json:
        print_json({"done": done, "failed": failed})
    else:
        screen.print(f"{len(done)} written to {options.folder}, {len(failed)} failed")
    if failed:
        raise typer.Exit(1)


def _shown(bar: "Progress", task: "TaskID") -> Callable[[int, int], None]:
    return lambda done, total: bar.update(task, completed=done, total=total)


def parse_tile(text: str) -> int | None:
    """Read ``auto`` or a number of pixels."""
    from musigma.types import ConfigError

    if text == "auto":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise ConfigError(f"expected --tile auto or a number of pixels, got {text!r}")
    return int(text)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value
