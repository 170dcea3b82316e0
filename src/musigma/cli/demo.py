"""``musigma demo``: enlarge the photo that ships with the package."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from musigma.cli.common import print_json, print_line, progress_bar

if TYPE_CHECKING:
    from torch import Tensor

    from musigma.model import Model
    from musigma.types import Prediction

TILE = 160
"""Side of a tile: small, so that the bar moves."""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command()(demo)


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")] = Path(
        "musigma-demo"
    ),
    scale: Annotated[int, typer.Option(help="Zoom factor.")] = 2,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Shrink a photo, enlarge it again, and show where the result may be wrong."""
    from musigma.datasets.demo_photo import portrait
    from musigma.evaluation import super_resolution
    from musigma.model import load
    from musigma.prediction.predict import predict

    model, bicubic = load("edsr-baseline", scale=scale), load("bicubic", scale=scale)
    protocol = super_resolution(scale)
    degraded, target = protocol.pair(portrait(), "photo")
    prediction = _enlarge(model, degraded, quiet=json)
    means = {"bicubic": predict(bicubic.network, degraded).mean, "musigma": prediction.mean}
    scores = {name: protocol.fidelity(mean, target)["psnr_y"] for name, mean in means.items()}
    low, high = model.interval(prediction)
    inside = float(((low <= target) & (target <= high)).float().mean())
    page = _write_files(output, model, degraded, prediction, target, scores)
    if json:
        print_json({**scores, "coverage": inside, "page": str(page)})
        return
    coverage = model.require_calibration().coverage
    gain = scores["musigma"] - scores["bicubic"]
    print_line(f"PSNR on Y: bicubic {scores['bicubic']:.2f} dB, musigma {scores['musigma']:.2f} dB")
    print_line(f"Gain: {gain:.2f} dB")
    print_line(f"Inside the {coverage:.0%} interval: {inside:.1%} of the values")
    print_line(f"Open {page}")


def _enlarge(model: "Model", degraded: "Tensor", *, quiet: bool) -> "Prediction":
    from musigma.prediction.predict import predict

    with progress_bar(quiet=quiet) as bar:
        task = bar.add_task(f"enlarging x{model.scale} with {model.name}", total=None)
        return predict(
            model.network,
            degraded,
            tile=TILE,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )


def _write_files(
    folder: Path,
    model: "Model",
    degraded: "Tensor",
    prediction: "Prediction",
    target: "Tensor",
    scores: Mapping[str, float],
) -> Path:
    """Write the pictures and the page, and return the path of the page."""
    from musigma.images.image_io import write_image
    from musigma.restoration.error_maps import describe, draw_error_map
    from musigma.restoration.figures import draw_error_beside_sigma, write_picture
    from musigma.restoration.promise import Promise
    from musigma.restoration.viewer.page import write_page

    mean, sigma = prediction
    assert sigma is not None
    calibration, page = model.require_calibration(), folder / "index.html"
    write_image(folder / "small.png", degraded)
    write_image(folder / "enlarged.png", mean)
    std_info = describe("std", calibration)
    draw_error_map(folder / "error-map.png", calibration.std(sigma), "std", info=std_info)
    figure = draw_error_beside_sigma((mean - target).abs(), sigma)
    write_picture(folder / "error-and-sigma.png", figure)
    write_page(
        page,
        before=degraded,
        prediction=prediction,
        half_width=calibration.half_width(sigma),
        coverage=calibration.coverage,
        truth=target,
        promise=Promise(calibration.promise, None),
        title=f"musigma demo: x{model.scale}",
        info={
            "Model": f"{model.name} x{model.scale}, with its sigma branch",
            "PSNR on Y, bicubic": f"{scores['bicubic']:.2f} dB",
            "PSNR on Y, this model": f"{scores['musigma']:.2f} dB",
        },
    )
    return page
