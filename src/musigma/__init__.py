"""Image super-resolution and denoising in which every pixel carries its error bar.

    >>> import musigma
    >>> model = musigma.load("bicubic", scale=2)
    >>> import torch
    >>> mean, sigma = model.predict(torch.rand(1, 3, 8, 8))
    >>> mean.shape
    torch.Size([1, 3, 16, 16])

Names are imported when they are first used, so that ``import musigma`` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from musigma._version import __version__

if TYPE_CHECKING:
    from musigma import losses
    from musigma.evaluation import evaluate
    from musigma.images.image_io import read_image, write_image
    from musigma.losses import Objective
    from musigma.model import Model, load, save
    from musigma.networks import Network, create, mean_only, register, with_sigma
    from musigma.prediction.predict import predict
    from musigma.types import MusigmaError, Prediction
    from musigma.uncertainty.calibration import Calibration
    from musigma.wrapping import wrap

_HOMES = {
    "Model": "musigma.model",
    "Calibration": "musigma.uncertainty.calibration",
    "MusigmaError": "musigma.types",
    "Network": "musigma.networks",
    "Objective": "musigma.losses",
    "Prediction": "musigma.types",
    "create": "musigma.networks",
    "evaluate": "musigma.evaluation",
    "load": "musigma.model",
    "mean_only": "musigma.networks",
    "predict": "musigma.prediction.predict",
    "read_image": "musigma.images.image_io",
    "register": "musigma.networks",
    "save": "musigma.model",
    "with_sigma": "musigma.networks",
    "wrap": "musigma.wrapping",
    "write_image": "musigma.images.image_io",
}

_MODULES = {"losses": "musigma.losses"}

__all__ = [
    "Calibration",
    "Model",
    "MusigmaError",
    "Network",
    "Objective",
    "Prediction",
    "__version__",
    "create",
    "evaluate",
    "load",
    "losses",
    "mean_only",
    "predict",
    "read_image",
    "register",
    "save",
    "with_sigma",
    "wrap",
    "write_image",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'musigma' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
