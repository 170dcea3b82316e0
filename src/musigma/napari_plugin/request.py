"""What the user asks for, and the one call of the plug-in that computes; napari is not needed."""

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

from musigma.model import Model, load
from musigma.networks.weights_file import build_skeleton, shipped_metadata
from musigma.prediction.engines import Engine
from musigma.prediction.predict import Progress
from musigma.restoration.array_source import ArraySource, num_bytes
from musigma.restoration.interactive import quick_engine
from musigma.restoration.restore_array import ArrayOptions, RestoredArray, restore_array
from musigma.types import ImageError
from musigma.uncertainty.calibration import Calibration

COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)
NUM_MODELS = 2
"""Models that are kept in memory with their engines."""


class CancelledError(Exception):
    """The user does not want the result any more; `progress` raises it to end the work."""


@dataclass(frozen=True, kw_only=True)
class LayerRequest:
    """What to do with a layer.

    Attributes:
        weights: Name of shipped weights, or the path of a weights file.
        scale: Zoom factor, 1 for denoising; `None` for the only one of the weights.
        options: How to restore it.
        intervals: Whether layers of the interval are wanted.
    """

    weights: str
    scale: int | None
    options: ArrayOptions
    intervals: bool = True


@lru_cache(maxsize=NUM_MODELS)
def load_model(weights: str, scale: int | None) -> Model:
    """Load shipped weights by name, or a weights file, on a GPU if there is one."""
    return load(weights, scale=scale).to("auto")


@lru_cache
def may_take_noise_level(weights: str, scale: int) -> bool:
    """Return whether shipped weights take a noise level, by what their file says.

    Example:
        >>> may_take_noise_level("drunet-small", 1), may_take_noise_level("photo", 1)
        (True, False)
    """
    metadata = shipped_metadata(weights, scale)
    return bool(metadata) and build_skeleton(metadata).takes_noise_level


@lru_cache
def coverages_of(weights: str, scale: int) -> tuple[float, ...]:
    """Return the coverages of shipped weights, by what their file says; usual ones for others.

    Example:
        >>> coverages_of("photo", 2), coverages_of("own.safetensors", 2)
        ((0.5, 0.8, 0.9, 0.95), (0.5, 0.8, 0.9, 0.95, 0.99))
    """
    stored = shipped_metadata(weights, scale).get("calibration")
    return Calibration.from_dict(stored).coverages if stored else COVERAGES


def engine_beside_a_window(model: Model) -> Engine:
    """Return what runs a model in the process of a viewer, in float32.

    OpenVINO is quicker on a CPU, but to convert a network for it imports triton where that is
    installed. The LLVM in triton and that of Mesa, which draws the window on Linux, end the process
    when they meet.
    """
    return model.engine() if find_spec("triton") else quick_engine(model)


def restore_layer(
    source: ArraySource,
    request: LayerRequest,
    *,
    progress: Progress | None = None,
) -> RestoredArray:
    """Load the weights of a request and restore a layer.

    Args:
        source: What the layer holds.
        request: What to do.
        progress: Called after each tile with the number done and the number in all. It may raise
            `CancelledError`.

    Raises:
        MusigmaError: The layer or the request cannot be used, and what to do.
    """
    model = load_model(request.weights, request.scale)
    num_planes = len(source.planes(all_planes=request.options.all_planes))
    num_layers = 1 + model.has_sigma * (1 + 2 * request.intervals)
    check_memory(num_bytes(source, num_planes, zoom=model.scale, num_arrays=num_layers))
    return restore_array(
        model, source, request.options, engine=engine_beside_a_window(model), progress=progress
    )


def check_memory(needed: int) -> None:
    """Refuse layers that would not fit, before the system ends the program."""
    with suppress(ImportError):  # comes with napari
        import psutil

        available = psutil.virtual_memory().available
        if needed > available:
            raise ImageError(
                f"the restored layers need {needed / 2**30:.1f} GiB of memory, and "
                f"{available / 2**30:.1f} are free; restore the shown plane alone, or leave out "
                "the layers of the interval"
            )
