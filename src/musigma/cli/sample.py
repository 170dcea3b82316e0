"""``musigma sample``: pictures that the input may come from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from musigma.cli.common import parse_size, print_line
from musigma.cli.shared_options import JointModel

if TYPE_CHECKING:
    from torch import Tensor

COLUMNS = 4
MEANING = (
    "Each picture is one that the input may come from, as far as the model knows. Where "
    "they differ, the input does not tell what is true. None of them is better than the restored "
    "picture."
)


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    epilog = "Example: `musigma sample small.png --scale 4 --samples 8 -o maybe`"
    app.command(epilog=epilog)(sample)


def sample(
    picture: Annotated[Path, typer.Argument(metavar="PICTURE", help="The picture to be restored.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the pictures.")],
    samples: Annotated[int, typer.Option(min=1, max=64, help="Number of pictures.")] = 8,
    model: JointModel = "edsr-baseline",
    scale: Annotated[int | None, typer.Option("--scale", "-s", help="Zoom factor.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    memory: Annotated[
        str, typer.Option(help="Memory for all samples; a picture that needs more is refused.")
    ] = "4GiB",
) -> None:
    """Draw pictures that the input may have come from, to show what else it could be.

    They differ from each other as the truth may differ from the result. With a model for bicubic
    inputs, each of them gives the input back when it is shrunk. The folder gets the pictures, a
    contact sheet, and a page that shows them one after the other.
    """
    from musigma.images.image_io import read_image, write_image
    from musigma.model import load
    from musigma.restoration.viewer.flipbook import write_flipbook
    from musigma.restoration.whole_picture import RESULT_BYTES, SAMPLE_BYTES, check_memory

    loaded = load(model, scale=scale)
    for_each = loaded.scale**2 * (RESULT_BYTES + samples * SAMPLE_BYTES)
    check_memory(picture, parse_size(memory), bytes_per_pixel=for_each)
    image = read_image(picture)[0]
    drawn = loaded.sample(image, samples, seed=seed)
    pages = {f"Sample {number}": each[None] for number, each in enumerate(drawn, start=1)}
    for number, each in enumerate(pages.values(), start=1):
        write_image(output / f"{picture.stem}.sample-{number}.png", each)
    write_image(output / f"{picture.stem}.samples.png", contact_sheet(drawn))
    page = output / f"{picture.stem}.samples.html"
    warnings = [
        f"The samples may differ too little or too much: {sentence[:1].lower()}{sentence[1:]}"
        for sentence in loaded.check(image)
    ]
    sentences = [MEANING, *warnings]
    write_flipbook(page, pages, title=f"What else could {picture.name} be?", sentences=sentences)
    print_line(f"{samples} samples, a contact sheet and the page {page.name} are in {output}")
    for warning in warnings:
        print_line(warning)


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
