"""Small scientific files, a network that changes nothing, and restoring one with the other."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers.calibrations import calibration_of
from musigma.images.listing import ImageSource
from musigma.model import Model
from musigma.networks import Network, NetworkInfo, create, with_sigma
from musigma.restoration.options import Options
from musigma.restoration.restore_file import restore_file
from musigma.restoration.restored import Restored
from musigma.uncertainty.calibration import Calibration

CALIBRATION = calibration_of(
    method="conformal",
    knots=(0.01,),
    values=(0.02,),
    factor=1.5,
    confidence=0.9,
    num_images=100,
    protocol={"degradation": "bicubic", "scale": 1},
)
"""A standard deviation of twice sigma."""


class Unchanged(Network):
    """A network of scale 1 that returns its input.

    Args:
        channels: Of the image.
    """

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.info = NetworkInfo(
            scale=1,
            task="denoising",
            feature_channels=channels,
            feature_scale=1,
            feature_receptive_radius=0,
            receptive_radius=0,
            in_channels=channels,
            out_channels=channels,
        )

    def features(self, degraded: Tensor) -> Tensor:
        return degraded

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        return degraded


def unchanged(channels: int = 3, *, calibration: Calibration | None = CALIBRATION) -> Model:
    """Return a model that changes nothing and predicts some errors."""
    torch.manual_seed(0)
    network = with_sigma(Unchanged(channels), width=4, depth=2)
    return Model(network=network.eval(), name="unchanged", calibration=calibration)


def bicubic(scale: int = 2) -> Model:
    return Model(network=create("bicubic", scale=scale), name="bicubic")


def restored(model: Model, path: Path, **options: Any) -> Restored:
    """Restore a file into the folder ``out`` beside it."""
    source = ImageSource(path, Path(path.name))
    return restore_file(model, source, Options(folder=path.parent / "out", **options))


def waves(height: int, width: int, *, low: float = 0, high: float = 1, seed: int = 0) -> np.ndarray:
    """Return a smooth picture with some noise, in a range of values."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    values = 0.5 + 0.3 * np.sin(x / 3 + seed) * np.cos(y / 4) + random.normal(0, 0.02, y.shape)
    return low + (high - low) * values.clip(0, 1)


def write_geotiff(path: Path, bands: np.ndarray, **profile: Any) -> dict[str, Any]:
    """Write bands with a georeference; return the profile."""
    import rasterio

    whole: Mapping[str, Any] = {
        "driver": "GTiff",
        "count": len(bands),
        "height": bands.shape[1],
        "width": bands.shape[2],
        "dtype": bands.dtype,
        "crs": "EPSG:32632",
        "transform": rasterio.Affine(10.0, 0.0, 500_000.0, 0.0, -10.0, 5_400_000.0),
    }
    whole = {**whole, **profile}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(path, "w", **whole) as dataset:
            dataset.write(bands)
    return dict(whole)
