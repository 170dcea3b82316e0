"""A page that shows pictures of the same place one after the other, as a flip-book."""

import base64
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from torch import Tensor
from torch.nn.functional import avg_pool2d

from musigma.atomic import write_atomically
from musigma.functional.color import to_uint8
from musigma.restoration.viewer.data import LOSSLESS_PIXELS
from musigma.restoration.viewer.template import make_document
from musigma.restoration.viewer.tiles import encoded_picture
from musigma.types import ImageError

MAX_PIXELS = 32_000_000
"""Pixels of all pictures of a flip-book together; larger ones are shown smaller."""


def write_flipbook(
    path: Path | str, pictures: Mapping[str, Tensor], *, title: str, sentences: Sequence[str]
) -> None:
    """Write one HTML file that shows pictures one after the other and needs no other file.

    Args:
        path: The file, replaced if it exists.
        pictures: By what each shows, ``(1, 1 or 3, H, W)`` in ``[0, 1]``, all of one size.
        title: Heading of the page.
        sentences: What the page says above the pictures.

    Raises:
        ImageError: If there is no picture, or if sizes differ.
    """
    sizes = {tuple(picture.shape[-2:]) for picture in pictures.values()}
    if len(sizes) != 1:
        raise ImageError(f"a flip-book has pictures of one size, got the sizes {sorted(sizes)}")
    num_pixels = len(pictures) * math.prod(sizes.pop())
    factor = math.ceil(math.sqrt(num_pixels / MAX_PIXELS))
    if factor > 1:
        sentences = [*sentences, f"The pictures are shown at 1/{factor} of their size."]
    exact = num_pixels <= LOSSLESS_PIXELS
    figures = [
        _figure(name, avg_pool2d(picture, factor), exact=exact)
        for name, picture in pictures.items()
    ]
    parts = {
        "title": escape(title),
        "sentences": "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences),
        "last": str(len(figures) - 1),
        "pictures": "\n".join(figures),
    }
    document = make_document(
        "flipbook.html", parts, generator="musigma flip-book", script_name="flipbook.js"
    )
    write_atomically(Path(path), document.encode())


def _figure(name: str, picture: Tensor, *, exact: bool) -> str:
    samples = to_uint8(picture)[0].permute(1, 2, 0).numpy()
    form, options = ("PNG", {}) if exact else ("JPEG", {"quality": 90, "subsampling": 0})
    content = base64.b64encode(encoded_picture(samples, form, **options)).decode()
    source = f"data:image/{form.lower()};base64,{content}"
    caption = escape(name)
    return (
        f'<figure><figcaption>{caption}</figcaption><img src="{source}" alt="{caption}"></figure>'
    )
