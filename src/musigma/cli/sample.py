"""``musigma sample``: pictures that the input may come from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from musigma.cli.common import print_line

if TYPE_CHECKING:
    from torch import Tensor

COLUMNS = 4


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    epilog = "Example: `musigma sample small.png --scale 4 --count 8 -o maybe`"
    app.command(epilog=epilog)(sample)


def sample(
    picture: Annotated[Path, typer.Argument(help="The picture to be restored.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.")],
    count: Annotated[int, typer.Option(min=1, max=64, help="Number of pictures.")] = 8,
    model: Annotated[
        str, typer.Option(help="Name of a model, or a weights file, calibrated with --joint.")
    ] = "edsr-baseline",
    scale: Annotated[int | None, typer.Option("--scale", "-s", help="Zoom factor.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
) -> None:
    """Draw pictures that differ as the truth may differ from the result.

    With a model for bicubic inputs, each of them gives the input back when it is shrunk. The folder
    gets the pictures and a contact sheet of all.
    """
    from musigma.images.image_io import read_image, write_image
    from musigma.model import load

    loaded = load(model, scale=scale)
    samples = loaded.sample(read_image(picture)[0], count, seed=seed)
    for number, drawn in enumerate(samples, start=1):
        write_image(output / f"{picture.stem}.sample-{number}.png", drawn[None])
    write_image(output / f"{picture.stem}.samples.png", contact_sheet(samples))
    print_line(f"{count} samples and a contact sheet are in {output}")
    for sentence in loaded.check(read_image(picture)[0]):
        print_line(f"the samples may not differ as the truth does: {sentence}")


def contact_sheet(samples: "Tensor") -> "Tensor":
    """Put pictures ``(N, C, H, W)`` side by side, four in a row, with white lines between them.

    Example:
        >>> import torch
        >>> contact_sheet(torch.zeros(6, 3, 10, 12)).shape
        torch.Size([1, 3, 22, 54])
    """
    import torch
    from torch.nn.functional import pad

    framed = pad(samples, (0, 2, 0, 2), value=1.0)
    columns = min(COLUMNS, len(framed))
    missing = -len(framed) % columns
    full = torch.cat([framed, framed.new_ones(missing, *framed.shape[1:])])
    rows = [torch.cat(list(row), 2) for row in torch.split(full, columns)]
    return torch.cat(rows, 1)[None, :, :-2, :-2]
