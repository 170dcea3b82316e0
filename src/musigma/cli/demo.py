"""``musigma demo``: enlarge the photo that ships with the package."""

from pathlib import Path
from typing import Annotated

import typer

from musigma.cli.common import print_json, print_line, progress_bar


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
    from musigma.images.image_io import write_image
    from musigma.model import load
    from musigma.prediction.predict import predict
    from musigma.restoration.error_maps import describe, draw_error_map
    from musigma.restoration.figures import draw_error_beside_sigma, write_picture
    from musigma.restoration.promise import Promise
    from musigma.restoration.viewer.page import write_page

    model, bicubic = load("edsr-baseline", scale=scale), load("bicubic", scale=scale)
    protocol = super_resolution(scale)
    degraded, target = protocol.pair(portrait(), "photo")
    with progress_bar(quiet=json) as bar:
        task = bar.add_task(f"enlarging x{scale} with {model.name}", total=None)
        prediction = predict(
            model.network,
            degraded,
            tile=160,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    sigma, calibration = prediction.sigma, model.calibration
    assert sigma is not None
    assert calibration is not None
    scores = {
        "bicubic": protocol.fidelity(predict(bicubic.network, degraded).mean, target)["psnr_y"],
        "musigma": protocol.fidelity(prediction.mean, target)["psnr_y"],
    }
    half_width = calibration.half_width(sigma)
    error = (prediction.mean - target).abs()
    inside = float((error <= half_width).float().mean())
    write_image(output / "small.png", degraded)
    write_image(output / "enlarged.png", prediction.mean)
    std_info = describe("std", calibration)
    draw_error_map(output / "error-map.png", calibration.std(sigma), "std", info=std_info)
    write_picture(output / "error-and-sigma.png", draw_error_beside_sigma(error, sigma))
    write_page(
        output / "index.html",
        before=degraded,
        prediction=prediction,
        half_width=half_width,
        coverage=calibration.coverage,
        truth=target,
        promise=Promise(calibration.promise, None),
        title=f"musigma demo: x{scale}",
        info={
            "Model": f"{model.name} x{scale}, with its sigma branch",
            "PSNR on Y, bicubic": f"{scores['bicubic']:.2f} dB",
            "PSNR on Y, this model": f"{scores['musigma']:.2f} dB",
        },
    )
    if json:
        print_json({**scores, "coverage": inside, "page": str(output / "index.html")})
        return
    gain = scores["musigma"] - scores["bicubic"]
    print_line(f"PSNR on Y: bicubic {scores['bicubic']:.2f} dB, musigma {scores['musigma']:.2f} dB")
    print_line(f"Gain: {gain:.2f} dB")
    print_line(f"Inside the {calibration.coverage:.0%} interval: {inside:.1%} of the values")
    print_line(f"Open {output / 'index.html'}")
