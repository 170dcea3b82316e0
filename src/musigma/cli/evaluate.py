"""``musigma evaluate``: measure a model on a data set."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from musigma.cli.common import parse_size, print_json, progress_bar, results

if TYPE_CHECKING:
    from musigma.evaluation import Protocol, Record
    from musigma.models import Model


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    epilog = "Examples: `musigma evaluate edsr-baseline --data Set5 --scale 2`, "
    epilog += "`musigma evaluate weights.pth --data ./photos --scale 4 --json`"
    app.command(epilog=epilog)(evaluate)


def evaluate(
    model: Annotated[str, typer.Argument(help="A name, or a weights file, foreign ones too.")],
    data: Annotated[str, typer.Option(help="A set under $MUSIGMA_DATA, or a folder of images.")],
    scale: Annotated[int | None, typer.Option(help="Zoom factor.")] = None,
    noise_std: Annotated[
        float | None, typer.Option(help="Noise level in 8-bit units, for denoisers.")
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
    from musigma.data.catalog import find_dataset
    from musigma.evaluation import evaluate_model
    from musigma.inference.device import pick_device
    from musigma.models import load

    loaded = load(model, scale=scale)
    protocol = protocol_for(loaded, noise_std)
    dataset = find_dataset(data)
    loaded.network.to(pick_device(device))
    with progress_bar(quiet=json) as bar:
        task = bar.add_task(dataset.name, total=len(dataset.items))
        found = evaluate_model(
            loaded,
            dataset,
            protocol,
            coverage=coverage,
            tile=tile,
            memory=parse_size(memory),
            progress=lambda done, _, name: bar.update(task, completed=done, description=name),
        )
    if json:
        print_json(
            {"model": model, "data": dataset.name, **found.result, "protocol": found.protocol}
        )
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

    table = Table(title=f"{record.model['name']} on {record.data['name']}")
    table.add_column("measure")
    table.add_column("value", justify="right")
    for name, value in record.result.items():
        table.add_row(name, f"{value:.4f}")
    results.print(table)
    results.print(f"protocol: {record.protocol}")
