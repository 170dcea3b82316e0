"""The nodes: load a model, and restore pictures with it.

ComfyUI reads the names in capitals. Its pictures are tensors ``(B, H, W, C)`` from 0 to 1, its
masks are ``(B, H, W)``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from musigma.model import Model, load
from musigma.networks.weights_file import shipped_weights
from musigma.prediction.predict import Progress, progress_of_part
from musigma.restoration.array_source import ArraySource
from musigma.restoration.interactive import TILE, quick_engine
from musigma.restoration.restore_array import ArrayOptions, RestoredArray, restore_array

CATEGORY = "musigma"
MODEL = "MUSIGMA_MODEL"
COVERAGES = ["0.5", "0.8", "0.9", "0.95", "0.99"]
LEVELS = 255

Inputs = dict[str, dict[str, tuple[Any, ...]]]


class Outputs(NamedTuple):
    """What the node `Restore` returns, in the order of its outputs."""

    mean: Tensor
    sigma: Tensor
    unsure: Tensor
    report: str


class LoadModel:
    """Loads shipped weights by name, or a weights file."""

    CATEGORY = CATEGORY
    DESCRIPTION = "Loads shipped weights, or a weights file where its path is given."
    FUNCTION = "load"
    RETURN_TYPES = (MODEL,)
    RETURN_NAMES = ("model",)

    @classmethod
    def INPUT_TYPES(cls) -> Inputs:
        """Return the inputs of the node."""
        return {
            "required": {
                "weights": (weights_choices(), {"default": "photo x2"}),
                "device": (["auto", "cpu"], {"tooltip": "auto: a GPU if there is one"}),
            },
            "optional": {
                "file": ("STRING", {"default": "", "tooltip": "Path; goes before the weights"}),
            },
        }

    def load(self, weights: str, device: str, file: str = "") -> tuple[Model]:
        """Return the model."""
        if file.strip():
            return (load(file.strip()).to(device),)
        name, _, scale = weights.rpartition(" x")
        return (load(name, scale=int(scale)).to(device),)


class Restore:
    """Restores pictures: the mean, how sure it is, which pixels are unsure, and a report."""

    CATEGORY = CATEGORY
    DESCRIPTION = (
        "Restores pictures. sigma is the standard deviation of the error, times sigma_gain. "
        "unsure marks pixels whose interval is wider than +- unsure_above, in levels of 255."
    )
    FUNCTION = "restore"
    RETURN_TYPES = ("IMAGE", "IMAGE", "MASK", "STRING")
    RETURN_NAMES = Outputs._fields

    @classmethod
    def INPUT_TYPES(cls) -> Inputs:
        """Return the inputs of the node."""
        return {
            "required": {
                "model": (MODEL,),
                "image": ("IMAGE",),
                "coverage": (COVERAGES, {"default": "0.9"}),
                "unsure_above": ("FLOAT", _number(default=8.0, high=255.0, step=0.5)),
                "sigma_gain": ("FLOAT", _number(default=10.0, high=255.0, step=1.0)),
            },
            "optional": {
                "noise_std": (
                    "FLOAT",
                    _number(default=0.0, high=255.0, step=1.0)
                    | {"tooltip": "In levels of 255, for models that take it; 0: estimate"},
                ),
            },
        }

    def restore(
        self,
        model: Model,
        image: Tensor,
        coverage: str,
        unsure_above: float,
        sigma_gain: float,
        noise_std: float = 0.0,
    ) -> Outputs:
        """Return mean, sigma, mask and report of a batch of pictures."""
        options = ArrayOptions(
            coverage=float(coverage),
            noise_std=noise_std or None if model.takes_noise_level else None,
            tile=TILE,
        )
        with _progress_bar() as progress:
            results = restore_batch(model, image, options, progress=progress)
        return outputs_of(results, unsure_above=unsure_above, sigma_gain=sigma_gain)


def weights_choices() -> list[str]:
    """Return all shipped weights with their scales.

    Example:
        >>> "photo x2" in weights_choices()
        True
    """
    return [f"{name} x{scale}" for name, scales in shipped_weights().items() for scale in scales]


def restore_batch(
    model: Model, images: Tensor, options: ArrayOptions, *, progress: Progress | None = None
) -> list[RestoredArray]:
    """Restore pictures one by one: each has its own noise level and its own report.

    Args:
        model: What restores them.
        images: ``(B, H, W, C)`` from 0 to 1. Of four channels the last, opacity, is left out.
        options: How.
        progress: Called after each tile with the number done and the number in all.
    """
    results = []
    engine = quick_engine(model)
    for number, image in enumerate(images[..., :3]):
        is_gray = image.shape[-1] == 1
        values = (image[..., 0] if is_gray else image).detach().float().cpu().numpy()
        source = ArraySource(name=f"picture {number + 1}", data=values, rgb=not is_gray)
        part = progress_of_part(progress, number, len(images))
        results.append(restore_array(model, source, options, engine=engine, progress=part))
    return results


def outputs_of(results: list[RestoredArray], *, unsure_above: float, sigma_gain: float) -> Outputs:
    """Return the results as ComfyUI wants them: colors from 0 to 1, a mask and a text."""
    means = [_as_image(result.mean) for result in results]
    # A model without sigma says nothing, so that no pixel is sure.
    sigmas = [
        torch.ones_like(mean) if result.std is None else sigma_gain * _as_image(result.std)
        for mean, result in zip(means, results, strict=True)
    ]
    lines = [f"{result.name}: {' '.join(result.report)}" for result in results]
    return Outputs(
        mean=torch.stack(means).clamp(0, 1),
        sigma=torch.stack(sigmas).clamp(0, 1),
        unsure=torch.stack([_unsure(result, unsure_above / LEVELS) for result in results]),
        report="\n".join(lines),
    )


def _unsure(result: RestoredArray, limit: float) -> Tensor:
    """Return 1 where the interval of any color is wider than the limit to either side."""
    errors = result.std if result.half_width is None else result.half_width
    if errors is None:
        return torch.ones(result.mean.shape[:2])
    widest = errors.max(-1) if result.rgb else errors
    return torch.from_numpy((widest > limit).astype(np.float32))


def _as_image(values: np.ndarray[Any, Any]) -> Tensor:
    """Return ``(H, W, 3)``."""
    tensor = torch.from_numpy(values.astype(np.float32))
    return tensor if tensor.ndim == 3 else tensor[..., None].expand(-1, -1, 3)


@contextmanager
def _progress_bar() -> Iterator[Progress | None]:
    """Give a callback that shows progress and stops where the user does, inside ComfyUI."""
    try:
        from comfy.model_management import throw_exception_if_processing_interrupted
        from comfy.utils import ProgressBar
    except ImportError:
        yield None
        return
    bar = ProgressBar(1)

    def progress(done: int, total: int) -> None:
        throw_exception_if_processing_interrupted()
        bar.update_absolute(done, total)

    yield progress


def _number(*, default: float, high: float, step: float) -> dict[str, Any]:
    return {"default": default, "min": 0.0, "max": high, "step": step}


NODE_CLASS_MAPPINGS = {"MusigmaLoadModel": LoadModel, "MusigmaRestore": Restore}
NODE_DISPLAY_NAME_MAPPINGS = {
    "MusigmaLoadModel": "Load model (musigma)",
    "MusigmaRestore": "Restore with error bars (musigma)",
}
