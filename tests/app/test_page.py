"""The app in a real browser, at the width of a desktop and of a phone."""

import io
import json
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import pytest
import torch
from PIL import Image

from helpers.browser import WAIT, WIDTHS, chromium, serious_violations, wait_until
from helpers.servers import png, start_server
from musigma.images.image_io import read_image
from musigma.model import load
from musigma.restoration.error_maps import read_error_map
from musigma.uncertainty.box_statistics import box_statistics
from musigma.uncertainty.quantities import Box

pytest.importorskip("gradio", reason="the app needs the extra app")
EXAMPLE = "Portrait, shrunk by 2"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    chromium()  # skips the tests where there is none
    server = start_server("app", tmp_path_factory.mktemp("app"), "--max-pixels", "3000000")
    yield server
    server.stop()
    assert server.files() == [], "a server that ends leaves no file"
    assert all(path.name.startswith("musigma-") for path in server.folder.iterdir())


@pytest.fixture(scope="module")
def browser():
    path = chromium()
    from playwright.sync_api import sync_playwright

    camera = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    options = ["--no-sandbox", "--disable-dev-shm-usage", *camera]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


@contextmanager
def opened(browser, server, device, **options):
    """Open the app; see at the end that nothing was logged and no other host asked."""
    context = browser.new_context(viewport={"width": WIDTHS[device], "height": 900}, **options)
    context.set_default_timeout(WAIT)
    page = context.new_page()
    complaints = []
    page.on("console", lambda message: complaints.extend(errors(message)))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.extend(outside(server, request.url)))
    page.goto(server.url)
    page.wait_for_selector("#start")
    yield page
    context.close()
    assert complaints == []


def errors(message):
    return [message.text] if message.type == "error" else []


def outside(server, url):
    return [] if url.startswith((server.url, "data:", "blob:")) else [url]


def choose_example(page, title=EXAMPLE):
    page.get_by_role("button", name=title).click()
    page.wait_for_selector("#picture img")


def restore(page):
    """Press the button and wait for the viewer and its numbers."""
    page.click("#start")
    page.wait_for_selector(".mu-swatch[style]")
    page.wait_for_function("document.querySelector('#state').innerText.startsWith('Done')")


def upload(page, body, name="photo.png", kind="image/png"):
    page.set_input_files(
        "#picture input[type=file]", {"name": name, "mimeType": kind, "buffer": body}
    )


def rows_of(page, heading):
    """Return the numbers of a table beside the picture, by row."""
    panel = page.locator(".mu-panel", has=page.get_by_role("heading", name=heading))
    rows = panel.locator("tbody tr")
    texts = [rows.nth(i).locator("th, td").all_inner_texts() for i in range(rows.count())]
    return {name: cells for name, *cells in texts}


@pytest.mark.parametrize("device", WIDTHS)
def test_from_an_example_to_the_numbers(browser, server, device):
    with opened(browser, server, device) as page:
        assert serious_violations(page) == []
        choose_example(page)
        restore(page)
        assert serious_violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        links = use_downloads(page, server)
        use_slider(page)
        use_maps(page)
        use_zoom(page)
        use_box(page, links)


def use_downloads(page, server):
    links = {}
    for name in ("Picture", "Sigma", "Report"):
        link = page.get_by_role("link", name=name)
        assert link.get_attribute("download") is not None
        with urlopen(server.url + link.get_attribute("href")) as reply:
            links[name] = reply.read()
    assert Image.open(io.BytesIO(links["Picture"])).size == (320, 320)
    assert b"Content-Security-Policy" in links["Report"]
    assert page.locator(".mu-promise").inner_text().startswith("The 90 % intervals")
    return links


def use_slider(page):
    before = shown(page)
    slider = page.get_by_label("Boundary between input and result")
    slider.focus()
    for _ in range(4):
        page.keyboard.press("PageUp")
    assert float(slider.input_value()) > 50
    page.wait_for_function("value => drawn() !== value", arg=before)


def shown(page):
    """Return the picture as it is drawn, and let scripts ask for it."""
    page.evaluate(
        """globalThis.drawn ??= () => {
            const places = [...document.querySelectorAll("*")].filter((e) => e.shadowRoot);
            const inside = (e) => e.shadowRoot.querySelector(".mu-stage > canvas");
            return places.map(inside).find(Boolean).toDataURL();
        }"""
    )
    return page.evaluate("drawn()")


def use_maps(page):
    before = shown(page)
    page.get_by_label("90 % interval", exact=True).check()
    page.wait_for_function("value => drawn() !== value", arg=before)
    with_map = shown(page)
    page.get_by_label("Strength of the map").fill("20")
    page.wait_for_function("value => drawn() !== value", arg=with_map)
    page.get_by_label("Off", exact=True).check()
    without = shown(page)
    page.get_by_label("Show only the surest pixels").fill("40")
    page.wait_for_function("value => drawn() !== value", arg=without)
    panel = page.locator(".mu-panel", has=page.get_by_role("heading", name="Error map"))
    assert "least sure 60 %" in panel.inner_text()
    page.get_by_label("Show only the surest pixels").fill("100")


def use_zoom(page):
    stage = page.locator(".mu-stage")
    before = rows_of(page, "Pixel")
    stage.focus()
    for _ in range(3):
        page.keyboard.press("Shift+ArrowDown")
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Fit").click()
    wait_until(page, lambda: rows_of(page, "Pixel")["Result"] != before["Result"])
    after = rows_of(page, "Pixel")
    assert before.keys() == after.keys()
    assert all("±" in cell for cell in after["90 % interval"])


def use_box(page, links):
    """Draw a box, type another one, and compare its numbers with those of the files."""
    page.get_by_role("radio", name="Box").check()
    area = page.locator(".mu-stage").bounding_box()
    page.mouse.move(area["x"] + 60, area["y"] + 60)
    page.mouse.down()
    page.mouse.move(area["x"] + 120, area["y"] + 110, steps=4)
    page.mouse.up()
    width = page.get_by_role("spinbutton", name="Width")
    wait_until(page, lambda: int(width.input_value() or 0) > 5)
    for name, value in zip(("Left", "Top", "Width", "Height"), (30, 40, 50, 20), strict=True):
        page.get_by_role("spinbutton", name=name).fill(str(value))
        page.keyboard.press("Tab")
    panel = page.locator(".mu-panel", has=page.get_by_role("heading", name="Box"))
    panel.get_by_text("1000 pixels").wait_for()
    expected = statistics_of(links, Box(30, 40, 50, 20))
    table = rows_of(page, "Box")
    for row, numbers, tolerance in (
        ("Mean", expected.mean, 0.06),
        ("Least ±", expected.independent, 0.03),
        ("Most ±", expected.correlated, 0.6),
    ):
        cells = [float(cell) for cell in table[row]]
        assert cells == pytest.approx(numbers, abs=tolerance), row


def statistics_of(links, box):
    calibration = load("photo", scale=2).calibration
    with TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f"{name}.png" for name in ("Picture", "Sigma")}
        for name, path in paths.items():
            path.write_bytes(links[name])
        mean = read_image(paths["Picture"])[0]
        sigma = read_error_map(paths["Sigma"], "sigma").values
    return box_statistics(mean, calibration.half_width(sigma), box)


def test_a_box_has_an_interval_where_the_weights_know_how_errors_belong_together(browser, server):
    with opened(browser, server, "desktop") as page:
        upload(page, png(40, 48))
        page.wait_for_selector("#picture img")
        page.locator("#weights input").click()
        page.get_by_role("option", name="edsr-baseline").click()
        restore(page)
        for name, value in zip(("Left", "Top", "Width", "Height"), (10, 20, 16, 8), strict=True):
            page.get_by_role("spinbutton", name=name).fill(str(value))
            page.keyboard.press("Tab")
        page.get_by_text("From and to hold 90 % of such means").wait_for()
        table = rows_of(page, "Box")
        prediction = load("edsr-baseline", scale=2).predict_joint(
            Image.open(io.BytesIO(png(40, 48)))
        )
        expected = [prediction.mean_over((10, 20, 16, 8), channel=c) for c in range(3)]
        for row, ends in (("From", [q.low for q in expected]), ("To", [q.high for q in expected])):
            cells = [float(cell) for cell in table[row]]
            assert cells == pytest.approx([255 * end for end in ends], abs=0.06)
        assert serious_violations(page) == []


@pytest.mark.parametrize("device", WIDTHS)
def test_clean_a_picture_of_my_own_in_the_dark(browser, server, device):
    with opened(browser, server, device, color_scheme="dark") as page:
        upload(page, png(100, 120))
        page.wait_for_selector("#picture img")
        page.get_by_label("Clean, same size").check()
        page.locator("#weights input").click()
        page.get_by_role("option", name="drunet-small").click()
        level = page.locator("#noise input")
        level.wait_for()
        level.fill("30")
        restore(page)
        assert "noise level 30" in page.inner_text("#state")
        assert page.locator(".app-surface").get_attribute("data-theme") == "dark"
        assert serious_violations(page) == []


def test_a_result_does_not_stay_beside_the_error_of_another_picture(browser, server):
    with opened(browser, server, "phone") as page:
        upload(page, png(20, 24))
        page.wait_for_selector("#picture img")
        restore(page)
        # The numbers of a pixel are apart from each other on a narrow screen, too.
        cells = page.locator(".mu-numbers tbody td").all()
        assert all(cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth") for cell in cells)
        page.get_by_label("Remove Image").click()
        upload(page, png(500, 500), "large.png")
        page.get_by_label("Enlarge 4 times").check()
        page.wait_for_selector("#picture img")
        page.click("#start")
        page.locator(".app-error").get_by_text("choose a smaller scale").wait_for()
        assert page.locator(".app-result").count() == 0


def test_a_missing_or_damaged_picture_gets_an_error_message(browser, server):
    with opened(browser, server, "desktop") as page:
        page.click("#start")
        page.locator(".app-error").get_by_text(
            "Choose a picture or one of the examples first."
        ).wait_for()
        upload(page, png(60, 60)[:3000], "cut.png")
        page.wait_for_selector("#picture img")
        page.click("#start")
        page.locator(".app-error").get_by_text("cut: ").wait_for()
        assert serious_violations(page) == []


def test_cancel_stops_the_job_and_empties_the_queue(browser, server):
    with opened(browser, server, "desktop") as page:
        start_long(page, server)
        page.click("#cancel")
        page.locator("#state").get_by_text("Cancelled.").wait_for()
        assert emptied(server)


def test_who_leaves_frees_the_queue(browser, server):
    page = browser.new_page()
    page.set_default_timeout(WAIT)
    page.goto(server.url)
    start_long(page, server)
    page.close()
    assert emptied(server)


def start_long(page, server):
    upload(page, png(420, 420))
    page.wait_for_selector("#picture img")
    page.get_by_label("Enlarge 4 times").check()
    page.click("#start")
    page.wait_for_selector("#cancel:not([disabled])")
    assert queue_of(server) == 1


def emptied(server):
    deadline = time.monotonic() + WAIT / 1000
    while queue_of(server) and time.monotonic() < deadline:
        time.sleep(0.1)
    return queue_of(server) == 0


def queue_of(server):
    return server.get("/api/status").json()["queue"]


def test_a_photo_of_the_camera_becomes_the_picture(browser, server):
    with opened(browser, server, "desktop", permissions=["camera"]) as page:
        page.get_by_label("Capture from camera").click()
        page.get_by_text("Click to Access Webcam").click()
        page.wait_for_function("document.querySelector('#picture video')?.readyState >= 3")
        page.get_by_label("capture photo").click()
        page.get_by_label("Remove Image").wait_for()
        page.wait_for_function("document.querySelector('#picture img')?.naturalWidth > 0")
        assert page.locator("#picture img").count() == 1


def test_clipboard(browser, server):
    permissions = ["clipboard-read", "clipboard-write"]
    with opened(browser, server, "desktop", permissions=permissions) as page:
        page.evaluate(
            """async () => {
                const canvas = new OffscreenCanvas(20, 10);
                canvas.getContext("2d").fillRect(0, 0, 10, 10);
                const blob = await canvas.convertToBlob({ type: "image/png" });
                await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
            }"""
        )
        page.get_by_label("Paste from clipboard").click()
        page.get_by_label("Remove Image").wait_for()
        restore(page)
        assert "40 x 20 pixels" in page.inner_text("#state")


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "{folder}", "../../etc/passwd", "http://a.b/c.png"]
)
def test_files_outside_are_not_served(server, path):
    path = path.format(folder=server.folder)
    assert server.get(f"/gradio_api/file={path}").status in (403, 404)


@pytest.mark.parametrize("path", ["http://127.0.0.1:1/a.png", "{folder}/a.png", "/etc/passwd"])
def test_files_outside_are_not_read_and_nothing_is_fetched(server, tmp_path, path):
    (tmp_path / "a.png").write_bytes(png())
    picture = {"path": path.format(folder=tmp_path), "meta": {"_type": "gradio.FileData"}}
    body = json.dumps({"data": [picture, 2]}).encode()
    event = server.post("/gradio_api/call/restore", body, **{"Content-Type": "application/json"})
    if event.status == 200:
        reply = server.get(f"/gradio_api/call/restore/{event.json()['event_id']}").body
        assert b"event: error" in reply
        assert b"width" not in reply


def test_gradio_clients_can_restore(server, tmp_path):
    client = pytest.importorskip("gradio_client", reason="comes with gradio")
    (tmp_path / "a.png").write_bytes(png())
    link = client.Client(server.url, verbose=False, download_files=str(tmp_path / "down"))
    report = link.predict(client.handle_file(tmp_path / "a.png"), scale=2, api_name="/restore")
    assert report["width"] == 32
    picture = server.get(report["files"]["picture"]).body
    (tmp_path / "b.png").write_bytes(picture)
    expected = load("photo", scale=2).predict(read_image(tmp_path / "a.png")[0]).mean.clamp(0, 1)
    torch.testing.assert_close(read_image(tmp_path / "b.png")[0], expected, atol=0.6 / 255, rtol=0)
