"""``musigma evaluate``: measure a model on a data set."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musigma.cli.common import parse_size, print_json, progress_bar, results

if TYPE_CHECKING:
    from musigma.evaluation import Protocol, Record
    from musigma.model import Model


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    epilog = "Examples: `musigma evaluate edsr-baseline --data Set5 --scale 2`, "
    epilog += "`musigma evaluate weights.pth --data ./photos --scale 4 --json`, "
    epilog += "`musigma evaluate a.safetensors b.safetensors --baseline ensemble "
    epilog += "--calibrate-on DIV2K_crops --data Set5`"
    app.command(epilog=epilog)(evaluate)


def evaluate(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="A name, or a weights file, foreign ones too; several for an ensemble.",
        ),
    ],
    data: Annotated[str, typer.Option(help="A set under $MUSIGMA_DATA, or a folder of images.")],
    scale: Annotated[int | None, typer.Option(help="Zoom factor.")] = None,
    noise_std: Annotated[
        float | None, typer.Option(help="Noise level in 8-bit units, for denoisers.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Measure another way to an error bar: constant, ensemble, mc-dropout, "
            "self-ensemble or tta."
        ),
    ] = None,
    calibrate_on: Annotated[
        str | None,
        typer.Option(help="Held-out images, a set or folder, to calibrate on before measuring."),
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Of the intervals; that of the calibration, or 0.9.")
    ] = None,
    tile: Annotated[int | None, typer.Option(help="Largest side of a tile.")] = None,
    memory: Annotated[str, typer.Option(help="What a tile may need.")] = "2GiB",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    record: Annotated[Path | None, typer.Option(help="Write the record here.")] = None,
    json: Annotated[bool, typer.Option(help="Print the result as JSON.")] = False,
) -> None:
    """Measure PSNR and SSIM, and with a sigma branch how far its error bars can be trusted."""
    from musigma.datasets.catalog import find_dataset
    from musigma.evaluation import evaluate_model
    from musigma.evaluation.baseline_models import calibrated, make_baseline
    from musigma.model import load
    from musigma.prediction.device import limit_threads
    from musigma.types import ConfigError

    loaded = [load(model, scale=scale) for model in models]
    if baseline is None and len(loaded) > 1:
        raise ConfigError(f"got {len(loaded)} models; evaluate one, or give --baseline ensemble")
    measured = loaded[0]
    protocol, dataset = protocol_for(measured, noise_std), find_dataset(data)
    held_out = find_dataset(calibrate_on) if calibrate_on else None
    for one in loaded:
        limit_threads(one.to(device).device)
    with progress_bar(quiet=json) as bar:
        task = bar.add_task(dataset.name)
        options: dict[str, Any] = {
            "memory": parse_size(memory),
            "progress": lambda done, total, name: bar.update(
                task, completed=done, total=total, description=name
            ),
        }
        if baseline is not None:
            measured = make_baseline(
                baseline, loaded, protocol=protocol, held_out=held_out, **options
            )
        if held_out is not None:
            share = 0.9 if coverage is None else coverage
            measured = calibrated(measured, held_out, protocol, coverage=share, **options)
        found = evaluate_model(measured, dataset, protocol, coverage=coverage, tile=tile, **options)
    if json:
        facts: dict[str, Any] = {"model": " ".join(models), "data": dataset.name}
        if baseline is not None:
            facts["baseline"] = baseline
        print_json({**facts, **found.result, "protocol": found.protocol})
    else:
        _show(found)
    if record:  # last: should it fail, the numbers have been shown
        found.save(record)


def protocol_for(model: "Model", noise_std: float | None) -> "Protocol":
    """Return the protocol that fits what a model does."""
    from musigma.evaluation import denoising, super_resolution
    from musigma.types import ConfigError

    if model.scale > 1:
        if noise_std is not None:
            raise ConfigError(f"{model.name} enlarges; --noise-std goes with denoisers")
        return super_resolution(model.scale, luma_only=model.network.luma_only)
    if noise_std is None:
        raise ConfigError(f"{model.name} is a denoiser; give --noise-std, such as 25")
    return denoising(noise_std, channels=model.network.out_channels)


def _show(record: "Record") -> None:
    from rich.table import Table

    name = " ".join(record.model[key] for key in ("name", "baseline") if key in record.model)
    table = Table(title=f"{name} on {record.data['name']}")
    table.add_column("measure")
    table.add_column("value", justify="right")
    for name, value in record.result.items():
        table.add_row(name, f"{value:.4f}")
    results.print(table)
    results.print(f"protocol: {record.protocol}")
