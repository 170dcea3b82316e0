"""``musigma calibrate``: make the error bars of a model hold."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from musigma.cli.common import parse_size, print_json, progress_bar, screen


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    epilog = "Example: `musigma calibrate new.safetensors --data DIV2K_crops -o new90.safetensors`"
    app.command(epilog=epilog)(calibrate)


def calibrate(
    model: Annotated[str, typer.Argument(help="A name or a weights file with a sigma branch.")],
    data: Annotated[
        str, typer.Option(help="Held-out images: a set under $MUSIGMA_DATA or a folder.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The weights with the calibration inside.")
    ],
    scale: Annotated[int | None, typer.Option(help="Zoom factor.")] = None,
    noise_std: Annotated[float | None, typer.Option(help="Noise level, for denoisers.")] = None,
    coverage: Annotated[float, typer.Option(help="Share that intervals should hold.")] = 0.9,
    method: Annotated[
        str, typer.Option(help="expected, average, scale, isotonic, conformal or risk_control.")
    ] = "expected",
    confidence: Annotated[
        float, typer.Option(help="Of the promise that conformal and risk_control make.")
    ] = 0.9,
    memory: Annotated[str, typer.Option(help="What a tile may need.")] = "2GiB",
    half: Annotated[bool, typer.Option(help="Store half-precision weights.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    json: Annotated[bool, typer.Option(help="Print the calibration as JSON.")] = False,
) -> None:
    """Fit intervals on held-out images and store them with the weights."""
    from musigma.cli.evaluate import protocol_for
    from musigma.datasets.catalog import data_hash, find_dataset
    from musigma.evaluation.calibrate import calibrate as fit
    from musigma.model import load, save
    from musigma.prediction.device import limit_threads

    loaded = load(model, scale=scale)
    protocol, dataset = protocol_for(loaded, noise_std), find_dataset(data)
    limit_threads(loaded.to(device).device)
    with progress_bar(quiet=json) as bar:
        task = bar.add_task(dataset.name, total=len(dataset.items))
        found = fit(
            loaded,
            dataset,
            protocol,
            method=method,
            coverage=coverage,
            confidence=confidence,
            memory=parse_size(memory),
            progress=lambda done, _, name: bar.update(task, completed=done, description=name),
        )
    source = {"name": dataset.name, "hash": data_hash(dataset)}
    save(output, replace(loaded, calibration=found), half=half, calibration_data=source)
    if json:
        print_json(found.to_dict())
    else:
        screen.print(f"{found.promise}; stored in {output}")
