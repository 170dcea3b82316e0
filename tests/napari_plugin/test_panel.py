"""The panel in Qt without a screen, with the layers of napari and a worker in its thread."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import musigma
from helpers.networks import build
from helpers.science import CALIBRATION
from musigma.model import Model
from musigma.napari_plugin import panel as panel_module
from musigma.napari_plugin.samples import noisy_stack_layer, portrait_layer

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of napari and Qt are not ours

pytest.importorskip("napari", reason="the plug-in needs the extra napari")

# In a process of its own first: a Qt that lacks a system library may end the whole process.
PROBE = [sys.executable, "-c", "from qtpy.QtWidgets import QApplication; QApplication([])"]
probed = subprocess.run(PROBE, capture_output=True, text=True, check=False)
if probed.returncode:
    words = probed.stderr.strip().rpartition("\n")[2]
    pytest.skip(f"the panel needs a Qt binding that starts: {words}", allow_module_level=True)

from qtpy.QtWidgets import QApplication  # noqa: E402 -- only where it starts

SECONDS = 300  # how long a worker may take on a busy machine


@pytest.fixture(scope="module")
def application() -> QApplication:
    return QApplication.instance() or QApplication([])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    network = build("edsr-baseline", 2, sigma=True)
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    musigma.save(path, Model(network=network, name="tiny", calibration=CALIBRATION))
    return path


@pytest.fixture
def panel(application, tiny, tmp_path, monkeypatch) -> Iterator[panel_module.Panel]:
    """A panel that is set to tiny weights, beside a viewer without a window."""
    monkeypatch.setattr(
        "musigma.restoration.interactive.default_engine", lambda: "torch"
    )  # starts quickly
    monkeypatch.setenv("NAPARI_CONFIG", str(tmp_path / "settings.yaml"))
    from napari.components import ViewerModel

    panel = panel_module.Panel(ViewerModel())
    panel.controls["weights"].value = panel_module.OWN_FILE
    panel.controls["file"].value = tiny
    yield panel
    panel.cancel()
    wait(lambda: panel.worker is None)
    panel.widget.close()


def wait(condition: Callable[[], bool]) -> None:
    """Let Qt work until something holds."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {SECONDS} s"
        QApplication.processEvents()
        time.sleep(0.01)


def restored(panel: panel_module.Panel) -> list[str]:
    """Press the button, wait, and return the names of all layers."""
    panel.controls["restore"].changed.emit(True)
    wait(lambda: panel.worker is None)
    return [layer.name for layer in panel.viewer.layers]


def add_stack(panel: panel_module.Panel, **properties: object) -> object:
    from napari.layers import Image

    data, usual, _ = noisy_stack_layer()[0]
    return panel.viewer.add_layer(Image(data[:, :24, :32], **(usual | properties)))


def assert_same_edges(source: object, result: object, zoom: int, first: float = 0) -> None:
    """The outer edges of the first plane of a result are those of its source."""
    height, width = source.data.shape[-2:]
    for corner in ((0, 0), (0, width), (height, 0), (height, width)):
        at_source = source.data_to_world((first, *(n - 0.5 for n in corner)))
        at_result = result.data_to_world((0, *(zoom * n - 0.5 for n in corner)))
        assert np.asarray(at_result) == pytest.approx(np.asarray(at_source))


def test_a_stack_gets_layers_of_mean_sigma_and_interval_that_cover_it(panel):
    source = add_stack(panel, translate=(3, 10, -4), rotate=30)
    names = restored(panel)
    assert names == ["cells", "cells sigma", "cells lower 90 %", "cells upper 90 %", "cells mean"]
    layers = [panel.viewer.layers[name] for name in names[1:]]
    for layer in layers:
        assert layer.data.shape == (3, 48, 64)
        assert layer.units == source.units
        assert_same_edges(source, layer, zoom=2)
    sigma, lower, upper, mean = (layer.data for layer in layers)
    assert upper - lower == pytest.approx(2 * 1.5 * sigma, rel=1e-3)
    assert (lower + upper) / 2 == pytest.approx(mean, rel=1e-4)
    assert tuple(layers[3].contrast_limits) == (0, 4095)
    assert "promise nothing" in panel.controls["report"].value
    assert "promise nothing" in layers[3].metadata["musigma"]["report"]


def test_the_shown_plane_alone_lies_where_it_was(panel):
    source = add_stack(panel, translate=(3, 10, -4))
    panel.viewer.dims.set_current_step(0, 2)
    panel.controls["all_planes"].value = False
    panel.controls["intervals"].value = False
    assert restored(panel) == ["cells", "cells sigma", "cells mean"]
    mean = panel.viewer.layers["cells mean"]
    assert mean.data.shape == (1, 48, 64)
    assert_same_edges(source, mean, zoom=2, first=2)


def test_colors_keep_their_type(panel):
    from napari.layers import Image

    data, properties, _ = portrait_layer()[0]
    panel.viewer.add_layer(Image(data[:20, :24], **properties))
    restored(panel)
    mean = panel.viewer.layers["portrait mean"]
    assert (mean.data.shape, mean.data.dtype, mean.rgb) == ((40, 48, 3), np.uint8, True)
    assert panel.viewer.layers["portrait sigma"].data.shape == (40, 48)


def test_the_finest_of_several_resolutions_is_restored(panel):
    from napari.layers import Image

    data = noisy_stack_layer()[0][0][0, :24, :32]
    panel.viewer.add_layer(Image([data, data[::2, ::2]], multiscale=True, name="pyramid"))
    restored(panel)
    assert panel.viewer.layers["pyramid mean"].data.shape == (48, 64)


def test_the_status_bar_says_value_and_interval(panel):
    source = add_stack(panel)
    restored(panel)
    mean = panel.viewer.layers["cells mean"]
    at = source.data_to_world((1, 4, 5))
    status = mean.get_status(at, world=True, dims_displayed=[1, 2])
    # The center of a source pixel is the corner of four: either of them is right.
    values = [f"{mean.data[1, y, x]:.4g}" for y in (8, 9) for x in (10, 11)]
    assert any(f"mean {value}, 90 % interval" in status["coordinates"] for value in values)
    outside = mean.get_status((0, -50, -50), world=True, dims_displayed=[1, 2])
    assert "interval" not in outside["coordinates"]
    assert "interval" not in mean.get_status()["coordinates"]


def test_boxes_are_measured_in_the_shown_plane_as_soon_as_they_are_drawn(panel):
    add_stack(panel)
    restored(panel)
    panel.controls["measure"].changed.emit(True)
    assert "Draw a rectangle" in panel.controls["report"].value
    boxes = panel.viewer.layers[panel_module.BOXES]
    panel.viewer.dims.set_current_step(0, 1)
    # Pixels of 0.2: the edges of the source pixels 2 to 5 and 3 to 4.
    corners = 0.2 * np.array([[1.5, 2.5], [1.5, 4.5], [5.5, 4.5], [5.5, 2.5]])
    boxes.add_rectangles(corners)
    mean = panel.viewer.layers["cells mean"].data[1, 4:12, 6:10].mean(dtype=np.float64)
    text = panel.controls["report"].value
    assert text.startswith("Box of 4 x 8 pixels at 6, 4, 90 % interval: ")
    assert f"Mean {mean:.4g}." in text
    assert "the model does not say how much more" in text


def test_what_the_user_can_put_right_is_said_in_the_panel(panel, tmp_path):
    from napari.layers import Points

    panel.viewer.add_layer(Points(np.zeros((1, 2))))
    panel.controls["restore"].changed.emit(True)
    assert panel.controls["report"].value == "select one image layer in the list of layers"
    panel.controls["measure"].changed.emit(True)
    assert "restore a layer first" in panel.controls["report"].value
    add_stack(panel)
    panel.controls["value_range"].value = "5,1"
    panel.controls["restore"].changed.emit(True)
    assert "LOW below HIGH" in panel.controls["report"].value
    panel.controls["from_contrast"].changed.emit(True)
    assert panel.controls["value_range"].value == "0,4095"
    panel.controls["task"].value = "Enlarge by 4"
    restored(panel)  # the worker itself meets what is wrong
    assert "4" in panel.controls["report"].value
    panel.controls["task"].value = "Enlarge by 2"
    panel.controls["noise_std"].value = 5
    restored(panel)
    assert panel.controls["report"].value.endswith("takes no noise level; set Noise level to 0")
    panel.controls["noise_std"].value = 0
    panel.controls["file"].value = tmp_path / "none.safetensors"
    panel.controls["restore"].changed.emit(True)
    assert "choose a weights file" in panel.controls["report"].value


def test_cancel_ends_the_work_after_a_tile(panel, monkeypatch):
    """The work waits after its first tile until the button is pressed."""
    add_stack(panel)
    tiles = []

    def slow(source, request, *, progress):
        for done in range(1, 4):
            tiles.append(done)
            progress(done, 3)
            while not panel.worker.abort_requested:
                time.sleep(0.01)
        raise AssertionError("the work was not cancelled")

    monkeypatch.setattr(panel_module, "restore_layer", slow)
    panel.controls["restore"].changed.emit(True)
    wait(lambda: panel.controls["progress"].value == 1)
    assert panel.controls["cancel"].enabled
    assert not panel.controls["restore"].enabled
    panel.controls["cancel"].changed.emit(True)
    wait(lambda: panel.worker is None)
    assert tiles == [1, 2]
    assert len(panel.viewer.layers) == 1
    assert "Cancelled" in panel.controls["report"].value
    assert panel.controls["restore"].enabled


def test_weights_are_offered_by_what_is_to_be_done(panel):
    fresh = panel_module.Panel(panel.viewer)
    assert (fresh.request().weights, fresh.request().scale) == ("photo", 2)
    fresh.widget.close()
    controls = panel.controls
    assert controls["weights"].choices[0] == "photo"
    assert controls["coverage"].choices == (0.5, 0.8, 0.9, 0.95, 0.99)
    controls["weights"].value = "photo"
    assert controls["coverage"].choices == (0.5, 0.8, 0.9, 0.95)
    assert controls["coverage"].value == 0.9
    controls["task"].value = "Clean or denoise"
    assert controls["weights"].choices == ("photo", "drunet-small", panel_module.OWN_FILE)
    controls["weights"].value = "drunet-small"
    controls["noise_std"].value = 12
    request = panel.request()
    assert (request.weights, request.scale, request.options.noise_std) == ("drunet-small", 1, 12)
    controls["weights"].value = "photo"  # takes no level
    assert panel.request().options.noise_std is None
    controls["task"].value = "Enlarge by 3"
    assert "photo" not in controls["weights"].choices
    assert panel.request().options.noise_std is None


def test_choices_stay_when_napari_asks_for_them_anew(panel):
    """napari does so whenever a layer comes or goes."""
    panel.controls["task"].value = "Clean or denoise"
    panel.controls["weights"].value = "drunet-small"
    panel.widget.reset_choices()
    assert panel.controls["weights"].value == "drunet-small"
    assert len(panel.controls["weights"].choices) == 3
