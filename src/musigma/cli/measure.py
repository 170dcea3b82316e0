"""``musigma measure``: the mean of a box of the restored picture, with its interval."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from musigma.cli.common import parse_size, print_json, print_line, print_warning
from musigma.cli.shared_options import JointModel

if TYPE_CHECKING:
    from musigma.uncertainty.quantities import Box


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    epilog = "Example: `musigma measure small.png --scale 4 --box 10,20,40,30`"
    app.command(epilog=epilog)(measure)


def measure(
    picture: Annotated[
        Path, typer.Argument(metavar="PICTURE", help="The picture to be restored and measured.")
    ],
    box: Annotated[
        str,
        typer.Option(
            help="The box as x,y,width,height in pixels of the result, counted from the upper left."
        ),
    ],
    minus: Annotated[
        str | None, typer.Option(help="A second box, whose mean is subtracted.")
    ] = None,
    input_pixels: Annotated[
        bool, typer.Option("--input-pixels", help="Boxes are in pixels of the input instead.")
    ] = False,
    channel: Annotated[
        int | None,
        typer.Option(help="0 red, 1 green, 2 blue; by default the mean of all channels."),
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Coverage of the interval, such as 0.95.")
    ] = None,
    model: JointModel = "edsr-baseline",
    scale: Annotated[int | None, typer.Option("--scale", "-s", help="Zoom factor.")] = None,
    noise_std: Annotated[
        float | None, typer.Option(help="Noise level in 8-bit levels, for models that take one.")
    ] = None,
    memory: Annotated[
        str,
        typer.Option(help="Memory for the picture and what is restored around the boxes."),
    ] = "4GiB",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure the mean of a box of the restored picture, with an interval for it.

    The interval allows for errors that neighboring pixels and channels share. Values are in levels
    of 255.
    """
    from musigma.functional.equal_channels import gray_if_equal
    from musigma.functional.picture_statistics import measure as measure_statistics
    from musigma.images.image_io import open_image
    from musigma.model import load
    from musigma.restoration.measure import predict_around
    from musigma.restoration.options import Options
    from musigma.restoration.promise import promise_for
    from musigma.uncertainty.quantities import in_words

    loaded = load(model, scale=scale)
    joint, calibration = loaded.require_joint(), loaded.require_calibration()
    zoom = loaded.scale if input_pixels else 1
    region = _read_box(box, zoom)
    subtracted = None if minus is None else _read_box(minus, zoom)
    opened = open_image(picture, memory=parse_size(memory))
    boxes = [region] if subtracted is None else [region, subtracted]
    prediction, (inside, *others) = predict_around(
        loaded, opened.colors, boxes, noise_std=noise_std, memory=parse_size(memory)
    )
    quantity = prediction.mean_over(
        inside, minus=others[0] if others else None, channel=channel, coverage=coverage
    )
    statistics = measure_statistics(gray_if_equal(opened.colors))
    options = Options(folder=Path(), noise_std=noise_std)
    reason = promise_for(calibration, opened.meta, options, statistics).reason
    promise = None if reason else joint.promise(quantity.coverage, calibration.conditions)
    if json:
        values = quantity._asdict()
        places = {"box": list(region), "minus": None if subtracted is None else list(subtracted)}
        print_json({**values, **places, "channel": channel, "promise": promise, "reason": reason})
        return
    print_line(f"{_name(region, subtracted)}: {in_words(quantity)}")
    text = f"the promise of the interval does not hold for this picture: {reason}"
    print_line(f"Interval: {promise}.") if promise else print_warning(text)


def _name(region: "Box", subtracted: "Box | None") -> str:
    """Say what was measured.

    Example:
        >>> from musigma.uncertainty.quantities import Box
        >>> _name(Box(4, 8, 16, 12), None)
        'Mean of the box 4,8,16,12 (pixels of the result)'
    """
    first, *second = (",".join(map(str, box)) for box in (region, subtracted) if box)
    minus = f" minus that of the box {second[0]}" if second else ""
    return f"Mean of the box {first}{minus} (pixels of the result)"


def _read_box(text: str, zoom: int) -> "Box":
    from musigma.uncertainty.quantities import Box, parse_box

    return Box(*(zoom * side for side in parse_box(text)))
