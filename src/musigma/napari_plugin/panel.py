"""The panel of the plug-in: controls, a worker in a thread of its own, and the layers it adds.

Everything that computes is in the other modules; this one needs napari and Qt, and imports them
when the panel is made.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from musigma.images.science.value_range import parse_range
from musigma.napari_plugin.measure import box_in_words, box_of, pixel_at, value_in_words
from musigma.napari_plugin.request import (
    COVERAGES,
    CancelledError,
    LayerRequest,
    coverages_of,
    may_take_noise_level,
    restore_layer,
)
from musigma.napari_plugin.result_layers import Placement, placement_of, result_layers
from musigma.prediction.predict import Progress
from musigma.restoration.array_source import ArraySource
from musigma.restoration.interactive import TILE, weights_for
from musigma.restoration.restore_array import ArrayOptions, RestoredArray
from musigma.types import ConfigError, MusigmaError

TASKS = {"Enlarge by 2": 2, "Enlarge by 3": 3, "Enlarge by 4": 4, "Clean or denoise": 1}
OWN_FILE = "a weights file"
ERROR_LABELS = {
    "leave `noise_std` out": "set Noise level to 0",
    "--range": "Value range",
    "`model`": "Weights",
}
PLACED = ("rotate", "shear", "affine", "units", "axis_labels")
"""Properties of a layer that say where it lies, beside ``scale`` and ``translate``."""

BOXES = "boxes"
"""Name of the layer in which boxes are drawn."""


def restore_panel(viewer: Any = None) -> Any:
    """Return the panel as a widget for napari, which calls this function without arguments.

    Args:
        viewer: To which layers are added; by default that which is open.
    """
    from napari import current_viewer

    return Panel(current_viewer() if viewer is None else viewer).widget


class Panel:
    """The controls, and what they do.

    Args:
        viewer: A viewer of napari, or its model.
    """

    def __init__(self, viewer: Any) -> None:
        self.viewer = viewer
        self.results: WeakKeyDictionary[Any, RestoredArray] = WeakKeyDictionary()
        self.worker: Any = None
        self.controls = _make_controls()
        self.widget = _make_widget(self.controls)
        self._connect()
        self._offer_weights()

    def _connect(self) -> None:
        """Connect by functions, which the controls keep alive; methods they would forget."""
        controls = self.controls
        controls["task"].changed.connect(lambda _: self._offer_weights())
        controls["weights"].changed.connect(lambda _: self._show_what_is_needed())
        controls["from_contrast"].changed.connect(lambda _: self._take_contrast_limits())
        controls["restore"].changed.connect(lambda _: self._guarded(self.start))
        controls["cancel"].changed.connect(lambda _: self.cancel())
        controls["measure"].changed.connect(lambda _: self._guarded(self.measure))

    def _offer_weights(self) -> None:
        _offer(self.controls["weights"], lambda: (*weights_for(self.scale), OWN_FILE))
        self._show_what_is_needed()

    def _show_what_is_needed(self) -> None:
        weights = self.controls["weights"]
        _offer(self.controls["coverage"], lambda: coverages_of(weights.value, self.scale))
        self.controls["file"].visible = weights.value == OWN_FILE
        self.controls["noise_std"].visible = self._takes_noise_level()

    def _takes_noise_level(self) -> bool:
        """Return whether the chosen weights take a noise level; a file of one's own may do."""
        weights = self.controls["weights"].value
        return weights == OWN_FILE or may_take_noise_level(weights, self.scale)

    @property
    def scale(self) -> int:
        """The zoom factor that is chosen."""
        return TASKS[self.controls["task"].value]

    def request(self) -> LayerRequest:
        """Return what the controls ask for."""
        controls = self.controls
        is_own = controls["weights"].value == OWN_FILE
        level = controls["noise_std"].value if self._takes_noise_level() else 0
        return LayerRequest(
            weights=_chosen_file(controls["file"].value) if is_own else controls["weights"].value,
            scale=self.scale,
            options=ArrayOptions(
                noise_std=level or None,
                coverage=controls["coverage"].value,
                value_range=parse_range(controls["value_range"].value.strip() or None),
                all_planes=controls["all_planes"].value,
                tile=TILE,
            ),
            intervals=controls["intervals"].value,
        )

    def layer(self) -> Any:
        """Return the image layer that is selected."""
        from napari.layers import Image

        selected = self.viewer.layers.selection.active
        if not isinstance(selected, Image):
            raise ConfigError("select one image layer in the list of layers")
        return selected

    def start(self) -> None:
        """Restore the selected layer in a thread of its own."""
        from napari.qt.threading import create_worker
        from superqt.utils import ensure_main_thread

        if self.worker is not None:
            raise ConfigError("a layer is being restored; wait for it, or cancel it")
        layer, request = self.layer(), self.request()
        show = ensure_main_thread(self._show_progress)

        def progress(done: int, total: int) -> None:
            if self.worker is None or self.worker.abort_requested:
                raise CancelledError
            show(done, total)

        source = source_of(layer, self.viewer.dims.point)
        self.worker = create_worker(_work, source, request, progress)
        self.worker.returned.connect(lambda result: self._finish(layer, request, result))
        self.worker.errored.connect(lambda error: self.say(f"It failed: {error}"))
        self.worker.finished.connect(self._end)
        self._set_running(running=True)
        self.say("Loading the model.")
        self.worker.start()

    def cancel(self) -> None:
        """Ask the worker to stop after the tile that it computes."""
        if self.worker is not None:
            self.worker.quit()
            self.say("Cancelled; the tile that is being computed is the last one.")

    def _finish(self, layer: Any, request: LayerRequest, result: RestoredArray | str) -> None:
        if isinstance(result, str):
            self.say(result)
            return
        self.add(layer, result, intervals=request.intervals)
        self.say("\n".join(result.report))

    def _end(self) -> None:
        self.worker = None
        self._set_running(running=False)

    def add(self, layer: Any, restored: RestoredArray, *, intervals: bool = True) -> None:
        """Add the layers of a result, which say value and interval in the status bar."""
        from napari.layers import Image

        look = look_of(layer) | placement_of(restored, placement_in_world(layer))
        for data, properties in result_layers(restored, look=look, intervals=intervals):
            added = Image(data, **properties)
            added.get_status = status_with_interval(added, restored)
            self.results[added] = restored
            self.viewer.add_layer(added)

    def measure(self) -> None:
        """Say the mean of the boxes; where none is drawn yet, let the user draw one."""
        restored_layer = self._measured_layer()
        boxes = self._boxes(restored_layer)
        if not len(boxes.data):
            self.viewer.layers.selection.active = boxes
            boxes.mode = "add_rectangle"
            self.say("Draw a rectangle over the result; its mean will be shown.")
            return
        point = self.viewer.dims.point
        texts = [
            self._box_in_words(restored_layer, boxes, n, point) for n in range(len(boxes.data))
        ]
        self.say("\n".join(texts))

    def _box_in_words(self, layer: Any, boxes: Any, number: int, point: Sequence[float]) -> str:
        restored = self.results[layer]
        corners = [_in_data(boxes, corner, layer, point) for corner in boxes.data[number]]
        positions = np.array(corners, np.float64)
        index = pixel_at(restored, positions.mean(0).tolist())
        if index is None:
            return f"Box {number + 1} does not lie over {layer.name}."
        try:
            box = box_of(positions[:, -2:], restored.mean.shape[len(index) - 2 :][:2])
            return box_in_words(restored, index[:-2], box)
        except ConfigError as error:
            return f"Box {number + 1}: {error}."

    def _boxes(self, layer: Any) -> Any:
        """Return the layer of boxes, which is made once, in the units of a layer."""
        if BOXES in self.viewer.layers:
            return self.viewer.layers[BOXES]
        from napari.layers import Shapes

        look: dict[str, Any] = {"face_color": "transparent", "edge_color": "yellow"}
        look["edge_width"] = float(layer.scale[-1])  # a pixel of the result
        if hasattr(layer, "units"):
            look["units"] = layer.units[-2:]
        boxes = Shapes(name=BOXES, ndim=2, **look)
        boxes.events.data.connect(lambda event: self._measure_after(event))
        return self.viewer.add_layer(boxes)

    def _measure_after(self, event: Any) -> None:
        """Measure when a box was drawn, moved or removed, and not while that lasts."""
        if str(getattr(event, "action", "")).rpartition(".")[2].lower() in ("added", "changed"):
            self._guarded(self.measure)

    def _measured_layer(self) -> Any:
        """Return the selected layer if it is a result, else the highest result."""
        selected = self.viewer.layers.selection.active
        candidates = [selected, *reversed(self.viewer.layers)]
        for layer in candidates:
            if layer is not None and layer in self.results:
                return layer
        raise ConfigError("restore a layer first; boxes are measured in the result")

    def _take_contrast_limits(self) -> None:
        self._guarded(lambda: self._set_range(self.layer().contrast_limits))

    def _set_range(self, limits: Sequence[float]) -> None:
        self.controls["value_range"].value = ",".join(f"{limit:g}" for limit in limits)

    def _show_progress(self, done: int, total: int) -> None:
        self.controls["progress"].max = total
        self.controls["progress"].value = done
        self.say(f"{done} of {total} tiles.")

    def _set_running(self, *, running: bool) -> None:
        self.controls["restore"].enabled = not running
        self.controls["cancel"].enabled = running
        self.controls["progress"].value = 0

    def say(self, text: str) -> None:
        """Show a text in the panel."""
        self.controls["report"].value = text

    def _guarded(self, action: Callable[[], None]) -> None:
        """Show what the user can put right in the panel."""
        try:
            action()
        except MusigmaError as error:
            self.say(_with_labels(str(error)))


def _offer(control: Any, choices: Callable[[], tuple[Any, ...]]) -> None:
    """Offer choices, and keep what is chosen where it is among them."""
    chosen = control.value
    with control.changed.blocked():
        control.choices = ()  # choices that stay would keep their old order
    # A function, because napari asks for the choices anew whenever a layer comes or goes.
    control.choices = lambda _: choices()
    if chosen in control.choices:
        control.value = chosen


def _work(
    source: ArraySource, request: LayerRequest, progress: Progress
) -> RestoredArray | str | None:
    """Return the result, or what the user can put right; nothing if it was cancelled."""
    try:
        return restore_layer(source, request, progress=progress)
    except CancelledError:
        return None
    except MusigmaError as error:
        return _with_labels(str(error))


def _with_labels(text: str) -> str:
    """Return an error text with the labels of the panel in place of names of arguments."""
    for name, label in ERROR_LABELS.items():
        text = text.replace(name, label)
    return text


def source_of(layer: Any, point: Sequence[float]) -> ArraySource:
    """Return what an image layer of napari holds.

    Args:
        layer: The layer; of several resolutions the finest is taken.
        point: Where the sliders of the viewer stand, in world coordinates.
    """
    data = layer.data[0] if layer.multiscale else layer.data
    num_leading = layer.ndim - 2
    position = layer.world_to_data(point)[:num_leading]
    limits = data.shape[:num_leading]
    shown = tuple(
        int(np.clip(round(float(number)), 0, length - 1))
        for number, length in zip(position, limits, strict=True)
    )
    path = layer.source.path
    return ArraySource(
        name=layer.name,
        data=data,
        rgb=layer.rgb,
        shown=shown,
        path=Path(path) if isinstance(path, str) else None,
    )


def placement_in_world(layer: Any) -> Placement:
    """Return where the pixels of a layer lie, before its own further transform ``affine``."""
    from napari.utils.transforms import Affine

    affine = Affine(scale=layer.scale, rotate=layer.rotate, shear=layer.shear, ndim=layer.ndim)
    return Placement(
        np.array(layer.scale), np.array(layer.translate), np.array(affine.linear_matrix)
    )


def look_of(layer: Any) -> dict[str, Any]:
    """Return how a layer is shown, for layers that should look like it."""
    # Some of these are younger than the oldest napari that is admitted.
    look = {name: getattr(layer, name) for name in PLACED if hasattr(layer, name)}
    if layer.rgb:
        return look
    limits = tuple(layer.contrast_limits)
    return look | {"contrast_limits": limits, "colormap": layer.colormap, "gamma": layer.gamma}


def status_with_interval(layer: Any, restored: RestoredArray) -> Callable[..., dict[str, str]]:
    """Return what replaces ``get_status`` of a layer: the same, and the interval of the pixel."""
    plain = layer.get_status

    def get_status(position: Any = None, *, world: bool = False, **options: Any) -> dict[str, str]:
        status: dict[str, str] = plain(position, world=world, **options)
        if position is None:
            return status
        in_data = layer.world_to_data(position) if world else position
        index = pixel_at(restored, [float(number) for number in in_data[-layer.ndim :]])
        if index is not None:
            text = f"  mean {value_in_words(restored, index)}"
            status["value"] += text
            status["coordinates"] += text
        return status

    return get_status


def _in_data(
    boxes: Any, corner: Sequence[float], layer: Any, point: Sequence[float]
) -> Sequence[float]:
    """Return a corner of a box in data coordinates of a layer, which may have further axes."""
    world = list(point)
    in_world = boxes.data_to_world(corner)
    world[len(world) - len(in_world) :] = in_world
    position: Sequence[float] = layer.world_to_data(world)
    return position


def _chosen_file(path: Path | None) -> str:
    if path is None or not path.is_file():
        raise ConfigError(f"choose a weights file; there is none at {str(path or '')!r}")
    return str(path)


def _make_controls() -> dict[str, Any]:
    from magicgui import widgets

    return {
        "task": widgets.ComboBox(label="What to do", choices=tuple(TASKS)),
        "weights": widgets.ComboBox(label="Weights", choices=weights_for(2)),
        "file": widgets.FileEdit(label="File", filter="Weights (*.safetensors *.onnx *.pt *.pth)"),
        "noise_std": widgets.FloatSpinBox(
            label="Noise level", max=255, tooltip="In 1/255 of the value range; 0 to estimate it."
        ),
        "coverage": widgets.ComboBox(label="Coverage", choices=COVERAGES, value=0.9),
        "value_range": widgets.LineEdit(
            label="Value range",
            tooltip="Black and white, such as 0,4095. Empty: by the type of the values.",
        ),
        "from_contrast": widgets.PushButton(text="Range from the contrast limits"),
        "all_planes": widgets.CheckBox(text="All planes of a stack", value=True),
        "intervals": widgets.CheckBox(text="Layers of the interval", value=True),
        "restore": widgets.PushButton(text="Restore the selected layer"),
        "cancel": widgets.PushButton(text="Cancel", enabled=False),
        "progress": widgets.ProgressBar(value=0, max=1),
        "measure": widgets.PushButton(text="Measure boxes"),
        "report": widgets.TextEdit(value=""),
    }


def _make_widget(controls: dict[str, Any]) -> Any:
    from magicgui import widgets

    controls["report"].read_only = True
    for name, control in controls.items():
        control.name = name
    below = [controls[name] for name in ("restore", "cancel", "progress", "measure", "report")]
    above = [control for control in controls.values() if control not in below]
    settings = widgets.Container(widgets=above, name="settings")
    return widgets.Container(widgets=[settings, *below], labels=False)
