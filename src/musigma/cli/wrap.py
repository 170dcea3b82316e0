"""``musigma wrap``: error bars for anybody's network."""

from pathlib import Path
from typing import Annotated

import typer

from musigma.cli.common import print_json, print_line, show_progress
from musigma.cli.shared_options import (
    DegradeOption,
    DeviceOption,
    LowOption,
    NoiseOption,
    TrustOption,
    examples,
)
from musigma.uncertainty.methods import DEFAULT_COVERAGE


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    epilog = examples(
        "musigma wrap net.onnx --data photos -o sigma.safetensors",
        "musigma upscale a.png -o large --model sigma.safetensors --network net.onnx --sigma",
        "musigma wrap mine.py:enlarge --data photos -o sigma.safetensors",
    )
    app.command(epilog=epilog)(wrap)


def wrap(
    network: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK",
            help="An ONNX file; a Python function as package.module:function or file.py:function; "
            "a TorchScript file with --trust-network; or weights that spandrel knows.",
        ),
    ],
    data: Annotated[
        str,
        typer.Option(
            help="Sharp pictures that the network was not trained on: a data set under "
            "$MUSIGMA_DATA or a folder."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write, which ends in .safetensors.")
    ],
    scale: Annotated[
        int | None,
        typer.Option(help="Zoom factor that is expected; by default a test picture tells it."),
    ] = None,
    low: LowOption = None,
    degrade: DegradeOption = None,
    noise_std: NoiseOption = None,
    held_out: Annotated[
        str | None,
        typer.Option(
            help="Pictures for the calibration, a data set or a folder; by default every fourth "
            "picture of --data is held out."
        ),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option(
            help="Minutes for running the network and for training; the calibration comes on top."
        ),
    ] = 10.0,
    value_range: Annotated[
        float | None,
        typer.Option(
            "--range",
            help="Largest value that the network of a file works with, 1 or 255; by default the "
            "one with the smaller error on some pictures.",
        ),
    ] = None,
    coverage: Annotated[
        float, typer.Option(help="Share of the values that intervals hold by default.")
    ] = DEFAULT_COVERAGE,
    trust_network: TrustOption = False,
    seed: Annotated[int, typer.Option(help="Seed of the crops and of the initial weights.")] = 0,
    device: DeviceOption = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the calibration as JSON.")] = False,
) -> None:
    """Learn error bars for a network of somebody else, which stays as it is.

    The network restores small degraded crops. A side network learns from the results how large the
    errors are, and is calibrated on pictures that were held out. The file that is written holds the
    side network alone, so the results of your network do not change by a bit. For a network that
    'musigma models' lists, 'musigma train' with keep_mean gives better error bars.
    """
    from musigma.networks.weights_file import check_weights_path
    from musigma.prediction.device import limit_threads, select_device
    from musigma.wrapping import WrapSettings
    from musigma.wrapping import wrap as wrap_network

    check_weights_path(output)
    limit_threads(select_device(device))
    with show_progress(quiet=json) as progress:
        model = wrap_network(
            network,
            data,
            scale=scale,
            low=low,
            degradations=degrade or (),
            noise_std=noise_std,
            held_out=held_out,
            value_range=value_range,
            trust_network=trust_network,
            coverage=coverage,
            settings=WrapSettings(minutes=minutes, seed=seed),
            device=device,
            progress=progress,
            report=(lambda _: None) if json else print_line,
        )
    model.save(output)
    calibration = model.require_calibration()
    if json:
        print_json(calibration.to_dict())
    else:
        print_line(f"{calibration.promise}; stored in {output}")
