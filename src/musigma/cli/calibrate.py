"""``musigma calibrate``: fit the intervals of a model to held-out images."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from musigma.cli.common import parse_size, print_json, print_line, show_progress
from musigma.cli.shared_options import (
    DegradeOption,
    DeviceOption,
    LowOption,
    MemoryOption,
    NetworkOption,
    NoiseOption,
    ScaleOption,
    TrustOption,
    examples,
)
from musigma.uncertainty.methods import COVERAGES, DEFAULT_CONFIDENCE, DEFAULT_COVERAGE, METHODS

if TYPE_CHECKING:
    from musigma.uncertainty.calibration import Calibration
    from musigma.uncertainty.fitting import HeldOut


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    epilog = examples(
        "musigma calibrate new.safetensors --data DIV2K_crops -o new90.safetensors",
        "musigma calibrate new.safetensors --data sharp --low scans -o scans.safetensors",
    )
    app.command(epilog=epilog)(calibrate)


def calibrate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Name of a model, or a weights file, with a sigma branch."
        ),
    ],
    data: Annotated[
        str,
        typer.Option(
            help="Held-out images: a data set under $MUSIGMA_DATA or a folder. The model must not "
            "have been trained on them."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Weights file to write, with the calibration inside."),
    ],
    low: LowOption = None,
    degrade: DegradeOption = None,
    scale: ScaleOption = None,
    noise_std: NoiseOption = None,
    coverage: Annotated[
        float,
        typer.Option(
            help="Share of the values that intervals hold by default. Others are fitted as well: "
            f"{', '.join(f'{share:g}' for share in COVERAGES)}."
        ),
    ] = DEFAULT_COVERAGE,
    method: Annotated[
        str, typer.Option(help=f"How to fit the intervals: {', '.join(METHODS)}.")
    ] = METHODS[0],
    confidence: Annotated[
        float,
        typer.Option(
            help="Probability of the promise, for the methods conformal and risk-control."
        ),
    ] = DEFAULT_CONFIDENCE,
    joint: Annotated[
        bool,
        typer.Option(
            "--joint",
            help="Also fit how the errors of neighbors are correlated, for 'musigma measure' and "
            "'musigma sample'. This runs the model over the images once more.",
        ),
    ] = False,
    memory: MemoryOption = "2GiB",
    half: Annotated[
        bool, typer.Option("--half", help="Store the weights in half precision, at half the size.")
    ] = False,
    network: NetworkOption = None,
    trust_network: TrustOption = False,
    device: DeviceOption = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the calibration as JSON.")] = False,
) -> None:
    """Fit intervals on held-out images and store them with the weights.

    The intervals hold for images like these, degraded as these are. With several --degrade and at
    least 50 images, every fifth image is used to fit how the error grows with sigma.
    """
    from musigma.evaluation.calibrate import calibrate_with_groups
    from musigma.evaluation.joint import with_joint_errors
    from musigma.evaluation.selection import select_inputs
    from musigma.model import load, save
    from musigma.networks.weights_file import check_weights_path
    from musigma.prediction.device import limit_threads

    check_weights_path(output)
    loaded = load(model, scale=scale, network=network, trust_network=trust_network)
    dataset, protocols = select_inputs(
        loaded.network, data, low=low, degradations=degrade or (), noise_std=noise_std
    )
    limit_threads(loaded.to(device).device)
    with show_progress(quiet=json) as progress:
        calibration, held_out = calibrate_with_groups(
            loaded,
            dataset,
            protocols,
            method=method,
            coverage=coverage,
            confidence=confidence,
            memory=parse_size(memory),
            progress=progress,
        )
        calibrated = replace(loaded, calibration=calibration)
        if joint:
            calibrated, _ = with_joint_errors(
                calibrated, dataset, protocols, memory=parse_size(memory), progress=progress
            )
    save(output, calibrated, half=half)
    if json:
        print_json(calibration.to_dict())
        return
    print_line(f"{calibration.promise}; stored in {output}")
    _show_coverages(calibration)
    if len(held_out.groups) > 1 and method != "isotonic":
        _show_groups(calibration, held_out)


def _show_coverages(calibration: "Calibration") -> None:
    from musigma.uncertainty.conformal import images_needed

    fitted = ", ".join(f"{share:g}" for share in calibration.coverages)
    print_line(f"fitted for coverages of {fitted}")
    for share in sorted({*COVERAGES} - {*calibration.coverages}):
        needed = images_needed(calibration.method, share, calibration.confidence)
        if needed > calibration.num_images:
            numbers = f"{needed} images for the factors, and there were {calibration.num_images}"
            print_line(f"not fitted for {share:g}, which needs {numbers}")


def _show_groups(calibration: "Calibration", held_out: "HeldOut") -> None:
    for group in held_out.groups:
        share = held_out.of_group(group).coverage_of(calibration)
        print_line(f"{100 * share:.1f} % of the values are inside for {group}")
