"""``musigma audit``: compare an enlargement with what the small picture allows."""

from pathlib import Path
from typing import Annotated

import typer

from musigma.cli.common import parse_size, print_json, print_line

FLAGGED = 3
"""Exit code where the enlargement shows detail that the small picture does not support."""


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    epilog = "Example: `musigma audit small.png enlarged.png -o flagged.png`"
    app.command(epilog=epilog)(audit)


def audit(
    low: Annotated[Path, typer.Argument(metavar="LOW", help="The low-resolution picture.")],
    high: Annotated[
        Path, typer.Argument(metavar="HIGH", help="An enlargement of it, made by any program.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write the enlargement in gray with what is flagged in color: added detail "
            "orange, missing detail blue, contradictions purple.",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            help="Write an HTML page that shows the pictures of the audit one after the other."
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(help="Name of a calibrated model, or a weights file.")
    ] = "edsr-baseline",
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Coverage of the intervals; by default 0.95, or the next lower one of the model."
        ),
    ] = None,
    memory: Annotated[
        str, typer.Option(help="Memory for both pictures; what needs more is refused.")
    ] = "4GiB",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Tell which details of an enlargement the small picture does not support.

    It estimates how many pixels are wrong. A detail is flagged where it lies outside the interval
    of the model, or where the enlargement, shrunk again, contradicts the small picture. The exit
    code is 3 if the enlargement shows more detail than the small picture supports, and 0 otherwise.
    Both pictures must show the whole scene, uncropped.
    """
    from musigma.images.image_io import read_image, write_image
    from musigma.model import load
    from musigma.restoration.audit import audit as compare
    from musigma.restoration.audit import overlay, scale_of, write_audit_page
    from musigma.restoration.whole_picture import INPUT_BYTES, RESULT_BYTES, check_memory

    for path, for_each in ((low, INPUT_BYTES), (high, RESULT_BYTES)):
        check_memory(path, parse_size(memory), bytes_per_pixel=for_each)
    small, large = read_image(low)[0], read_image(high)[0]
    loaded = load(model, scale=scale_of(tuple(small.shape), tuple(large.shape)))
    result = compare(loaded, small, large, coverage=coverage)
    if output is not None:
        write_image(output, overlay(large, result))
    if page is not None:
        title = f"Audit of {high.name}, an enlargement of {low.name}"
        write_audit_page(page, small, large, result, title=title)
    if json:
        print_json(result.to_dict())
    else:
        for sentence in result.in_words():
            print_line(sentence)
        for x, y, size, share in result.places()[:3] if result.is_flagged else ():
            print_line(
                f"Of the {size} x {size} pixels at {x},{y}, {100 * share:.0f} % lie outside."
            )
    raise typer.Exit(FLAGGED if result.is_flagged else 0)
