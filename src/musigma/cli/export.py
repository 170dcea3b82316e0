"""``musigma export``: a model as an ONNX file."""

from pathlib import Path
from typing import Annotated

import typer

from musigma.cli.common import print_json, print_line


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    epilog = "Example: `musigma export edsr-baseline --scale 2 -o edsr-x2.onnx`"
    app.command(epilog=epilog)(export)


def export(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Name of a model, or a weights file, also one of another project."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The ONNX file to write.")],
    scale: Annotated[int | None, typer.Option(help="Zoom factor.")] = None,
    opset: Annotated[
        int | None,
        typer.Option(help="Version of the ONNX operator set; by default PyTorch chooses."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the metadata of the file as JSON.")
    ] = False,
) -> None:
    """Write a model as an ONNX file for any image size.

    The file gives mean, sigma and, for a calibrated model, the half-width of the interval.
    """
    from musigma.model import load
    from musigma.prediction.engines import read_metadata

    load(model, scale=scale).export(output, opset=opset)
    if json:
        print_json(read_metadata(output))
    else:
        print_line(f"{output} written, {output.stat().st_size / 1e6:.1f} MB")
