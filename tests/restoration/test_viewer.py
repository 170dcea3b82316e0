"""The page and the gallery in a real browser, at the width of a desktop and of a phone."""

import base64
import re
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from helpers.browser import (
    address,
    launched_browser,
    opened_page,
    serious_violations,
    wait_until,
)
from musigma.restoration.promise import Promise
from musigma.restoration.viewer.gallery import write_gallery
from musigma.restoration.viewer.page import write_page
from musigma.restoration.viewer.tiles import error_code, error_level
from musigma.types import Prediction

HEIGHT, WIDTH = 600, 1600  # several tiles, two levels, and nothing is lost
RED = (200, 40, 40)


@pytest.fixture(scope="module")
def browser():
    with launched_browser() as browser:
        yield browser


def case():
    """A red input, and a result and an error that tell the place: R = x, G = 128, B = y."""
    y, x = torch.meshgrid(torch.arange(HEIGHT), torch.arange(WIDTH), indexing="ij")
    result = torch.stack([x % 256, torch.full_like(x, 128), y % 256])[None] / 255
    half_width = (1 + (x % 40)[None, None].expand(1, 3, -1, -1)) / 255
    before = (torch.tensor(RED) / 255).view(1, 3, 1, 1).expand(1, 3, HEIGHT // 2, WIDTH // 2)
    return before.clone(), result, half_width


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    before, result, half_width = case()
    before[:, 1, :, ::2] = 60 / 255  # stripes, which smoothing averages
    shared = {
        "before": before,
        "prediction": Prediction(result, half_width / 2),
        "half_width": half_width,
        "coverage": 0.9,
        "info": {"Model": "edsr-baseline"},
    }
    held, broken = Promise("It holds", None), Promise(None, "it is a JPEG")
    write_page(folder / "a.html", title="a.png", promise=held, **shared)
    alpha = torch.zeros(1, 1, HEIGHT, WIDTH)
    alpha[..., WIDTH // 2 :] = 1
    title = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    write_page(folder / "sub" / "alpha.html", title=title, alpha=alpha, promise=broken, **shared)
    write_gallery(folder, problems=["b.jpg: <i>is damaged</i>"])
    return folder


@pytest.fixture(params=["desktop", "phone"])
def page(request, browser, folder):
    with opened_page(browser, request.param) as page:
        page.device = request.param
        page.goto(address(folder / "a.html"))
        settle(page)
        yield page


def settle(page):
    """Wait until all tiles are decoded and drawn, and the numbers are there."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    page.locator(".mu-stage[aria-busy=false]").first.wait_for()


def pixels(page):
    """What the canvas shows, ``(H, W, 4)``."""
    width, height, text = page.evaluate(
        """() => {
            const canvas = document.querySelector(".mu-stage > canvas");
            const { width, height } = canvas;
            const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            let text = "";
            for (let i = 0; i < data.length; i += 8192) {
                text += String.fromCharCode(...data.subarray(i, i + 8192));
            }
            return [width, height, btoa(text)];
        }"""
    )
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(height, width, 4)


def boundary(page):
    """The share of the picture's width that shows the input, from its colors."""
    shown = pixels(page)
    row = shown[shown.shape[0] // 2]
    is_input = (row[:, 1] < 90) & (row[:, 3] > 0)
    return is_input.sum() / (row[:, 3] > 0).sum()


def box_of(page, selector=".mu-stage"):
    return page.locator(selector).bounding_box()


def place(page, across, down):
    page.locator(".mu-stage").scroll_into_view_if_needed()
    stage = box_of(page)
    return stage["x"] + across * stage["width"], stage["y"] + down * stage["height"]


def drag(page, start, end):
    page.mouse.move(*place(page, *start))
    page.mouse.down()
    page.mouse.move(*place(page, *end), steps=4)
    page.mouse.up()
    settle(page)


def zoom_level(page):
    return float(page.locator(".mu-zoom").inner_text().removesuffix(" %"))


def click(page, name):
    page.get_by_role("button", name=name).click()
    settle(page)


def choose(page, name):
    page.get_by_role("radio", name=name).check()
    settle(page)


def set_range(page, name, value):
    page.get_by_label(name).fill(str(value))
    settle(page)


def position(page):
    text = page.get_by_role("heading", name="Pixel").inner_text()
    return tuple(map(int, re.search(r"x (\d+), y (\d+)", text).groups()))


def reading(page, name):
    rows = page.locator("section").filter(has=page.get_by_role("heading", name="Pixel"))
    row = rows.get_by_role("row").filter(has_text=name)
    return row.first.locator("td").all_inner_texts()


def assert_reads_its_place(page):
    x, y = position(page)
    assert reading(page, "Result") == [str(x % 256), "128", str(y % 256)]
    level = shown_level(1 + x % 40)
    assert reading(page, "90 %") == [
        f"{v}\u2009\u00b1\u202f{level}" for v in (x % 256, 128, y % 256)
    ]
    assert reading(page, "Sigma") == [shown_level((1 + x % 40) / 2)] * 3


def shown_level(level):
    """An error as the page shows it, after it was stored in 8 bits."""
    stored = float(error_level(error_code(torch.tensor([float(level)])))[0])
    assert stored == pytest.approx(level, rel=0.011, abs=0.011)
    return f"{stored:.1f}" if stored < 9.95 else f"{stored:.0f}"


def test_it_opens_on_the_result_and_fits_the_screen(page):
    assert page.get_by_role("radio", name="Off").is_checked()
    assert page.locator(".mu-scale").is_hidden()
    assert boundary(page) == pytest.approx(0.5, abs=0.01)
    result = pixels(page)
    result = result[result.shape[0] // 2, int(0.6 * result.shape[1]) :]
    assert (result[result[:, 3] > 0][:, 1] == 128).mean() > 0.99  # no map lies over it
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    assert page.get_by_text("The 90 % intervals come with a promise").is_visible()
    assert page.get_by_text("It holds.").is_visible()
    assert page.get_by_text(
        "This page holds the values exactly, in 8 bits, and the errors to within 1 %"
    ).is_visible()


def test_a_drag_anywhere_moves_the_slider(page):
    drag(page, (0.6, 0.3), (0.8, 0.3))
    assert boundary(page) == pytest.approx(0.8, abs=0.02)
    drag(page, (0.8, 0.5), (0.2, 0.5))  # at the handle
    assert boundary(page) == pytest.approx(0.2, abs=0.02)
    slider = page.get_by_role("slider", name="Boundary")
    slider.press("End")
    settle(page)
    assert boundary(page) == 1
    slider.press("Home")
    settle(page)
    assert boundary(page) == 0
    assert slider.get_attribute("aria-valuetext") == "0 % input"


def test_slider_and_labels_stay_in_view_when_zoomed(page):
    click(page, "Zoom in")
    click(page, "One picture pixel per screen pixel")
    assert zoom_level(page) == 100
    assert page.get_by_role("radio", name="Move").is_checked()
    drag(page, (0.3, 0.2), (0.1, 0.2))  # moves the picture, not the slider
    assert boundary(page) == pytest.approx(0.5, abs=0.01)
    drag(page, (0.5, 0.5), (0.7, 0.5))  # at the handle
    assert boundary(page) == pytest.approx(0.7, abs=0.02)
    choose(page, "Slider")
    drag(page, (0.3, 0.3), (0.4, 0.4))
    assert boundary(page) == pytest.approx(0.4, abs=0.02)
    stage = box_of(page)
    for label in (".mu-left", ".mu-right"):
        tag = box_of(page, label)
        assert stage["x"] <= tag["x"]
        assert tag["x"] + tag["width"] <= stage["x"] + stage["width"]
    click(page, "Fit the picture")
    assert zoom_level(page) < 100


def test_one_to_one_is_a_pixel_for_a_pixel(page):
    page.get_by_role("slider", name="Boundary").press("Home")
    click(page, "One picture pixel per screen pixel")
    shown = pixels(page).astype(int)
    middle = shown[shown.shape[0] // 2]
    assert set(np.diff(middle[:, 0]) % 256) == {1}
    assert (middle[:, 2] == middle[0, 2]).all()
    assert set(np.diff(shown[:, 0, 2]) % 256) == {1}


@pytest.mark.parametrize("page", ["desktop"], indirect=True)
def test_wheel_zooms_where_the_pointer_is(page):
    before = zoom_level(page)
    page.mouse.move(*place(page, 0.8, 0.5))
    settle(page)
    at = position(page)
    for _ in range(4):
        page.mouse.wheel(0, -300)
    wait_until(page, lambda: zoom_level(page) > 3 * before)  # the wheel is heard some time later
    settle(page)
    page.mouse.move(*place(page, 0.8, 0.501))
    settle(page)
    assert np.allclose(position(page), at, atol=3)
    for _ in range(6):
        page.mouse.wheel(0, 300)
    wait_until(page, lambda: zoom_level(page) == before)


@pytest.mark.parametrize("page", ["phone"], indirect=True)
def test_a_pinch_zooms(page):
    session = page.context.new_cdp_session(page)
    (x, y), before = place(page, 0.5, 0.5), zoom_level(page)

    def touch(kind, distance):
        points = [{"x": x - distance, "y": y}, {"x": x + distance, "y": y}] if distance else []
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 20)
    for distance in (30, 45, 60):
        touch("touchMove", distance)
    touch("touchEnd", 0)
    settle(page)
    assert zoom_level(page) == pytest.approx(3 * before, rel=0.1)
    assert page.evaluate("visualViewport.scale") == 1  # the document itself was not zoomed


def test_the_value_and_interval_under_pointer_or_finger(page):
    for across, down in ((0.62, 0.4), (0.9, 0.8), (0.97, 0.1)):
        at = place(page, across, down)
        page.touchscreen.tap(*at) if page.device == "phone" else page.mouse.move(*at)
        settle(page)
        assert position(page)[0] == pytest.approx(across * WIDTH, abs=4)
        assert_reads_its_place(page)
        assert reading(page, "Input")[0] == str(RED[0])


def test_the_keyboard_reads_and_zooms(page):
    stage = page.get_by_role("application")
    stage.focus()
    x, y = position(page)
    for key in ("ArrowRight", "Shift+ArrowRight", "ArrowDown", "Shift+ArrowUp", "ArrowLeft"):
        stage.press(key)
    settle(page)
    assert position(page) == (x + 10, y - 9)
    assert_reads_its_place(page)
    spoken = page.locator(".mu-stage ~ .mu-tools [role=status]").inner_text()
    assert spoken.startswith(f"x {x + 10}, y {y - 9}. Input {RED[0]}")
    before = zoom_level(page)
    stage.press("+")
    settle(page)
    assert zoom_level(page) == pytest.approx(1.5 * before, rel=0.05)
    stage.press("1")
    settle(page)
    assert zoom_level(page) == 100
    for _ in range(12):
        stage.press("Shift+ArrowUp")
    settle(page)
    mark, around = box_of(page, ".mu-mark"), box_of(page)
    assert around["y"] <= mark["y"] + mark["height"] / 2 <= around["y"] + around["height"]
    stage.press("0")
    settle(page)
    assert zoom_level(page) == before


def test_each_map_lies_over_the_result_only(page):
    plain = pixels(page)
    strength = page.get_by_label("Strength of the map")
    assert strength.is_disabled()
    for name, caption in (("Sigma", "not calibrated"), ("90 % interval", "half the width")):
        choose(page, name)
        assert caption in page.locator(".mu-scale").inner_text()
        changed = (pixels(page) != plain).any(axis=2)
        middle = changed.shape[1] // 2
        assert not changed[:, : middle - 2].any()
        assert changed[:, middle + 2 :].mean() > 0.5
    weak = pixels(page).astype(int)
    set_range(page, "Strength of the map", 100)
    assert np.abs(pixels(page).astype(int) - weak).max() > 20
    choose(page, "Off")
    assert (pixels(page) == plain).all()


def test_unsure_parts_are_striped(page):
    choose(page, "Move")
    click(page, "One picture pixel per screen pixel")
    plain = pixels(page)
    set_range(page, "Show only the surest pixels", 50)
    # Half of the columns have a half-width of at most 20.5 levels.
    text = page.inner_text("body")
    assert re.search(r"the least sure 50 %, where half the interval is over 2[01] levels", text)
    changed = (pixels(page) != plain).any(axis=2)
    middle = changed.shape[1] // 2
    assert not changed[:, :middle].any()
    assert changed[:, middle:].mean() == pytest.approx(0.5, abs=0.06)
    set_range(page, "Show only the surest pixels", 100)
    assert (pixels(page) == plain).all()


def box_numbers(page, name):
    section = page.locator("section").filter(has=page.get_by_role("heading", name="Box"))
    row = section.get_by_role("row").filter(has_text=name)
    return row.locator("td").all_inner_texts()


def field(page, name):
    return page.get_by_role("spinbutton", name=name)


def test_the_mean_of_a_box(page):
    choose(page, "Box")
    drag(page, (0.6, 0.2), (0.8, 0.9))
    page.get_by_text(re.compile(r"^\d+ pixels\.$")).wait_for()
    names = ("Left", "Top", "Width", "Height")
    left, top, width, height = (int(field(page, name).input_value()) for name in names)
    assert left == pytest.approx(0.6 * WIDTH, abs=4)
    assert width == pytest.approx(0.2 * WIDTH, abs=5)
    x, y = np.arange(left, left + width), np.arange(top, top + height)
    expected = [(x % 256).mean(), 128, (y % 256).mean()]
    assert [float(text) for text in box_numbers(page, "Mean")] == pytest.approx(expected, abs=0.051)
    levels, total = 1.0 + x % 40, width * height
    least = np.sqrt(height * (levels**2).sum()) / total
    assert [float(text) for text in box_numbers(page, "Least")] == pytest.approx(
        [least] * 3, rel=0.06
    )
    assert float(box_numbers(page, "Most")[0]) == pytest.approx(levels.mean(), abs=0.6)
    assert page.locator(".mu-frame").is_visible()
    assert page.get_by_text("cannot be computed from those of its pixels").is_visible()


def test_a_box_can_be_typed_and_cleared(page):
    for name, value in (("Left", 500), ("Top", 510), ("Width", 5000), ("Height", 4)):
        field(page, name).fill(str(value))
    field(page, "Height").press("Tab")
    page.get_by_text("4400 pixels.", exact=True).wait_for()  # the box ends where the picture ends
    x = np.arange(500, WIDTH)
    expected = [(x % 256).mean(), 128, (np.arange(510, 514) % 256).mean()]
    assert [float(text) for text in box_numbers(page, "Mean")] == pytest.approx(expected, abs=0.051)
    assert field(page, "Width").input_value() == str(WIDTH - 500)
    click(page, "Clear")
    assert box_numbers(page, "Mean") == ["\u2013"] * 3
    assert page.locator(".mu-frame").is_hidden()


def test_the_input_pixel_by_pixel(page):
    choose(page, "Move")
    click(page, "One picture pixel per screen pixel")
    choose(page, "Pixels")
    stripes = pixels(page)[5, 10:100, 1]
    assert set(stripes) == {40, 60}
    choose(page, "Smooth")
    smooth = pixels(page)[5, 10:100, 1]
    assert smooth.min() > 40
    assert smooth.max() < 60


@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_transparent_parts_show_a_checkerboard_and_no_promise_is_seen_first(
    browser, folder, device
):
    with opened_page(browser, device) as page:
        page.goto(address(folder / "sub" / "alpha.html"))
        settle(page)
        shown = pixels(page)
        middle = shown.shape[1] // 2
        rows = np.flatnonzero(shown[:, middle, 3])  # the picture may be less high than its frame
        shown = shown[rows[20] : rows[-20]]
        grays = shown[:, 20 : middle - 20, :3]
        assert {tuple(color) for color in grays.reshape(-1, 3)} == {(201,) * 3, (242,) * 3}
        assert (shown[:, middle + 20 : -20, 1] == 128).all()
        assert reading(page, "Opacity")[0] == "100 %"
        banner, stage = box_of(page, ".mu-promise"), box_of(page)
        assert banner["y"] + banner["height"] <= stage["y"]
        assert "No promise for this picture" in page.locator(".mu-promise").inner_text()
        assert page.locator("h1 *").count() == 0  # the name of the file is text


@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_the_gallery_leads_to_each_page(browser, folder, device):
    with opened_page(browser, device) as page:
        page.goto(address(folder / "index.html"))
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
        assert page.get_by_text("b.jpg: <i>is damaged</i>").is_visible()
        images = page.locator("img")
        assert images.count() == 6
        page.wait_for_function("[...document.images].every((image) => image.naturalWidth > 0)")
        page.get_by_role("link").nth(1).click()
        page.wait_for_selector(".mu-stage")
        assert page.url.endswith("/sub/alpha.html")


@pytest.mark.skipif(find_spec("axe_core_python") is None, reason="needs axe-core-python")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_axe_finds_nothing_serious(browser, folder, device, scheme):
    with opened_page(browser, device, color_scheme=scheme) as page:
        for name in ("a.html", "sub/alpha.html", "index.html"):
            page.goto(address(folder / name))
            if name == "a.html":
                page.get_by_role("radio", name="90 % interval").check()
            assert serious_violations(page) == [], name


def test_a_viewer_can_be_embedded_and_removed(page):
    """Another document mounts the viewer in an element of its own, as the app does."""
    page.evaluate(
        """() => {
            const data = JSON.parse(document.getElementById("data").textContent);
            const element = document.createElement("div");
            element.textContent = "What was there";
            document.querySelector("main").append(element);
            globalThis.second = musigmaViewer.mount(element, data);
        }"""
    )
    assert page.locator(".mu-stage").count() == 2
    assert page.get_by_text("What was there").is_visible()
    page.evaluate("second.destroy()")
    assert page.locator(".mu-stage").count() == 1
    assert page.get_by_text("What was there").is_visible()
