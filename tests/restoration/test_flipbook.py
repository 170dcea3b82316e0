"""The flip-book: one page with all its pictures, which shows one at a time."""

import base64
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.browser import WIDTHS, launched_browser, opened_page, serious_violations
from musigma.functional.color import to_uint8
from musigma.restoration.viewer import flipbook
from musigma.restoration.viewer.flipbook import write_flipbook
from musigma.types import ImageError

PICTURES = {
    "First": torch.full((1, 3, 12, 16), 0.25),
    "<Second>": torch.rand(1, 3, 12, 16, generator=torch.Generator().manual_seed(0)),
}


def stored(page: str) -> list[np.ndarray]:
    """Return the pictures of a page."""
    contents = re.findall(r'src="data:image/(?:png|jpeg);base64,([^"]+)"', page)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))) for text in contents]


def test_small_pictures_are_stored_exactly_and_names_are_escaped(tmp_path):
    path = tmp_path / "book.html"
    write_flipbook(path, PICTURES, title="A & B", sentences=["Look < here."])
    page = path.read_text()
    for expected, picture in zip(PICTURES.values(), stored(page), strict=True):
        assert np.array_equal(to_uint8(expected)[0].permute(1, 2, 0).numpy(), picture)
    assert "A &amp; B" in page
    assert "Look &lt; here." in page
    assert "&lt;Second&gt;</figcaption>" in page
    assert "{{" not in page


def test_large_pictures_are_shown_smaller_and_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(flipbook, "MAX_PIXELS", 100)
    path = tmp_path / "book.html"
    write_flipbook(path, PICTURES, title="Small", sentences=[])
    assert {picture.shape for picture in stored(path.read_text())} == {(6, 8, 3)}
    assert "shown at 1/2 of their size" in path.read_text()


def test_pictures_of_several_sizes_and_an_empty_book_are_refused(tmp_path):
    with pytest.raises(ImageError, match="one size"):
        write_flipbook(tmp_path / "book.html", {}, title="", sentences=[])
    other = {**PICTURES, "Third": torch.zeros(1, 3, 5, 5)}
    with pytest.raises(ImageError, match="one size"):
        write_flipbook(tmp_path / "book.html", other, title="", sentences=[])


@pytest.mark.parametrize("device", WIDTHS)
def test_the_browser_shows_one_picture_at_a_time(tmp_path, device):
    path = tmp_path / "book.html"
    write_flipbook(path, PICTURES, title="Two", sentences=["Look."])
    with launched_browser() as browser, opened_page(browser, device) as page:
        page.goto(path.as_uri())
        assert serious_violations(page) == []
        slider, picture = (page.locator(name).bounding_box() for name in ("#number", "img:visible"))
        assert picture["y"] + picture["height"] - slider["y"] < 800  # one screen shows both
        shown = page.locator("figure:visible figcaption")
        assert shown.all_inner_texts() == ["First"]
        page.locator("#number").press("ArrowRight")
        assert shown.all_inner_texts() == ["<Second>"]
        page.get_by_role("button", name="Play").click()
        page.get_by_text("First", exact=True).wait_for(state="visible")
        page.get_by_role("button", name="Stop").click()
