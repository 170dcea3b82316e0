"""``musigma adapt``: weights and error bars for the pictures of a user."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musigma.cli.common import print_json, print_line, progress_bar
from musigma.cli.shared_options import DeviceOption, examples

if TYPE_CHECKING:
    from musigma.adaptation.adapt import Adapted

STOPPED = 130
"""The exit code of Ctrl-C."""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    epilog = examples(
        "musigma adapt photos/ -o mine --degrade 'blur(1.2) | area | noise(5)'",
        "musigma adapt sharp/ --low scans/ -o scanner",
        "musigma adapt first/ --noisy-pairs second/ -o microscope",
    )
    app.command(epilog=epilog)(adapt)


def adapt(
    pictures: Annotated[
        str,
        typer.Argument(
            metavar="PICTURES",
            help="Folder of pictures, at least 20: clean ones, from which inputs are made; the "
            "targets of --low; or the first pictures of --noisy-pairs.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for weights, card, report and record.")
    ],
    degrade: Annotated[
        str | None,
        typer.Option(
            help="How inputs are made from clean pictures, such as 'blur(1.2) | area | noise(5)'. "
            "By default as for the weights to start from."
        ),
    ] = None,
    low: Annotated[
        str | None, typer.Option(help="Folder of inputs, named as the files of PICTURES.")
    ] = None,
    noisy_pairs: Annotated[
        str | None,
        typer.Option(
            help="Folder of second pictures of the same scenes, named as the files of PICTURES and "
            "as noisy. No clean picture is needed."
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            help="Weights to start from: photo, edsr-baseline, or a file with a sigma branch. By "
            "default photo, where it exists for the scale."
        ),
    ] = None,
    scale: Annotated[
        int | None,
        typer.Option(
            "--scale", "-s", help="Zoom factor. By default that of the pairs, or 2; 1 to denoise."
        ),
    ] = None,
    value_range: Annotated[
        str | None,
        typer.Option(
            "--range",
            metavar="LOW,HIGH",
            help="Values that are black and white, for measured values in 16 bits. They are stored "
            "with the weights.",
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(help="Minutes that all of it may take.")] = 10.0,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed that decides which pictures train and which measure.")
    ] = 0,
    device: DeviceOption = "auto",
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the run in the folder after Ctrl-C or a crash."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Adapt weights and their error bars to pictures of your own.

    Every picture serves one purpose: training, validation, calibration, or, held back until the
    end, the numbers of the report. If training brings no gain, the weights of the start are kept.
    """
    from musigma.adaptation.adapt import Show
    from musigma.adaptation.adapt import adapt as run
    from musigma.adaptation.source import Settings
    from musigma.images.science.value_range import parse_range
    from musigma.training.trainer import StoppedError

    settings = Settings(
        pictures=_absolute(pictures),
        low=None if low is None else _absolute(low),
        noisy_pairs=None if noisy_pairs is None else _absolute(noisy_pairs),
        degrade=degrade,
        start=start,
        scale=scale,
        value_range=parse_range(value_range),
        minutes=minutes,
        seed=seed,
    )
    try:
        adapted = run(
            settings, output, resume=resume, device=device, show=Show(print_line, _bar_of(json))
        )
    except StoppedError as stopped:
        print_line(str(stopped))
        raise typer.Exit(stopped.exit_code) from stopped
    except KeyboardInterrupt:
        print_line("stopped; continue it with --resume")
        raise typer.Exit(STOPPED) from None
    if json:
        from dataclasses import asdict

        print_json({"folder": str(output), "improved": adapted.improved, **asdict(adapted.record)})
    else:
        _show(adapted)


def _absolute(folder: str) -> str:
    """Return the path of a folder; the name of a data set stays a name, also an empty one."""
    path = Path(folder).expanduser()
    return str(path.absolute()) if folder and path.is_dir() else folder


def _bar_of(quiet: bool) -> "Callable[[str], Any]":
    @contextmanager
    def bar(stage: str) -> Iterator[Callable[[int, int, str], None]]:
        with progress_bar(quiet=quiet) as progress:
            task = progress.add_task(stage)
            yield lambda done, total, _: progress.update(task, completed=done, total=total)

    return bar


def _show(adapted: "Adapted") -> None:
    after, folder = adapted.record.result, adapted.folder
    before = after["before"]
    if not adapted.improved:
        print_line(
            "training did not improve the start by more than chance: its results are kept, and "
            "only the error bars are fitted to these pictures"
        )
    for key, name, factor, unit in (
        ("psnr_y", "PSNR of luma", 1, " dB"),
        ("psnr", "PSNR", 1, " dB"),
        ("psnr_noisy", "PSNR to noisy pictures", 1, " dB"),
        ("coverage", "inside the 90 % interval", 100, " %"),
        ("coverage_noisy", "noisy values inside the widened 90 % interval", 100, " %"),
        ("width", "mean width of the interval", 255, " levels"),
    ):
        if key in after:
            earlier = f"{factor * before[key]:.2f} -> " if key in before else ""
            print_line(f"{name}: {earlier}{factor * after[key]:.2f}{unit}")
    print_line(f"{adapted.model.require_calibration().promise}")
    print_line(f"weights in {folder / 'model.safetensors'}, report in {folder / 'report.html'}")
