"""How far the intervals hold on inputs of many kinds, made by Pillow and not by our own code.

``MUSIGMA_DATA=... python -m studies.measurements.unlike_inputs MODEL RECORD`` takes crops of ten
benchmark pictures, makes the small input in several ways (JPEG, blur, other resampling, noise),
enlarges it with shipped weights and counts how many values lie inside their 90 % interval. The
calibration of ``edsr-baseline`` was made for bicubic inputs without JPEG, blur or noise, so it
promises nothing for the others; that of ``photo`` was made for a mixture.
"""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor

from musigma.datasets.catalog import data_hash, find_dataset
from musigma.evaluation.evaluate import describe_model
from musigma.evaluation.protocol import super_resolution
from musigma.evaluation.record import Record, provenance
from musigma.functional.geometry import crop_to_multiple
from musigma.images.image_io import read_image
from musigma.model import Model, load
from musigma.types import DataError

SCALE, SIDE, SEED = 2, 256, 0
PICTURES = {
    "Set14": ("barbara", "flowers", "lenna", "monarch", "zebra"),
    "B100": ("101085", "148026", "21077", "299086", "45096"),
}


def to_picture(image: Tensor) -> Image.Image:
    """Return a tensor ``(1, 3, H, W)`` in ``[0, 1]`` as an 8-bit picture."""
    levels = (image[0].clamp(0, 1) * 255).round().byte()
    return Image.fromarray(levels.permute(1, 2, 0).numpy())


def to_tensor(picture: Image.Image) -> Tensor:
    """Return a picture as a tensor ``(1, 3, H, W)`` in ``[0, 1]``."""
    levels = torch.from_numpy(np.array(picture.convert("RGB")))
    return levels.permute(2, 0, 1)[None].float() / 255


def bicubic(target: Tensor) -> Tensor:
    """Return the input that the calibration was made for."""
    return super_resolution(SCALE).pair(target, "").degraded


def jpeg(target: Tensor, quality: int) -> Tensor:
    """Return the bicubic input after JPEG with the usual 4:2:0 chroma."""
    buffer = io.BytesIO()
    to_picture(bicubic(target)).save(buffer, "JPEG", quality=quality)
    return to_tensor(Image.open(buffer))


def blurred(target: Tensor, radius: float) -> Tensor:
    """Return the bicubic input of a blurred target."""
    soft = to_picture(target).filter(ImageFilter.GaussianBlur(radius))
    return bicubic(to_tensor(soft))


def resized(target: Tensor, method: Image.Resampling) -> Tensor:
    """Return the target downscaled by Pillow."""
    height, width = target.shape[2] // SCALE, target.shape[3] // SCALE
    return to_tensor(to_picture(target).resize((width, height), method))


def noisy(target: Tensor, noise_std: float) -> Tensor:
    """Return the bicubic input with white noise, in 8-bit levels."""
    degraded = bicubic(target)
    noise = torch.randn(degraded.shape, generator=torch.Generator().manual_seed(SEED))
    return to_tensor(to_picture(degraded + noise * noise_std / 255))


INPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "bicubic": bicubic,
    "bicubic + JPEG 95": lambda target: jpeg(target, 95),
    "bicubic + JPEG 90": lambda target: jpeg(target, 90),
    "bicubic + JPEG 75": lambda target: jpeg(target, 75),
    "blur 0.8 + bicubic": lambda target: blurred(target, 0.8),
    "blur 1.6 + bicubic": lambda target: blurred(target, 1.6),
    "bilinear": lambda target: resized(target, Image.Resampling.BILINEAR),
    "area": lambda target: resized(target, Image.Resampling.BOX),
    "bicubic + noise 5": lambda target: noisy(target, 5),
}


def measure(model: Model, target: Tensor, degraded: Tensor) -> dict[str, float]:
    """Return PSNR on Y, coverage and full width of the interval in 8-bit levels."""
    prediction = model.predict(degraded)
    low, high = model.interval(prediction)
    inside = (low <= target) & (target <= high)
    protocol = super_resolution(SCALE)
    return {
        "psnr_y": protocol.fidelity(prediction.mean, target)["psnr_y"],
        "coverage": float(inside.double().mean()),
        "width_levels": 255 * float((high - low).double().mean()),
    }


def main(name: str, path: Path) -> None:
    """Measure every kind of input on every picture and write the record."""
    model = load(name, scale=SCALE)
    targets, hashes = [], []
    for data, names in PICTURES.items():
        dataset = find_dataset(data)
        items = {item.name: item.target for item in dataset.items}
        if missing := set(names) - set(items):
            raise DataError(f"{data} lacks {', '.join(sorted(missing))}")
        hashes.append(data_hash(dataset))
        for picture in names:
            image = read_image(items[picture])[0]
            targets.append(crop_to_multiple(image[..., :SIDE, :SIDE], SCALE))
    result = {}
    for kind, make in INPUTS.items():
        measured = [measure(model, target, make(target)) for target in targets]
        result[kind] = {key: float(np.mean([m[key] for m in measured])) for key in measured[0]}
        result[kind]["least_coverage"] = min(m["coverage"] for m in measured)
        print(kind, result[kind], flush=True)
    assert model.calibration is not None
    Record(
        kind="benchmark",
        model=describe_model(model),
        protocol={"name": "unlike-inputs", "side": SIDE, "coverage": model.calibration.coverage},
        data={"name": "crops of Set14 and B100", "hash": "+".join(hashes), "images": PICTURES},
        result=result,
        provenance=provenance(torch.device("cpu")),
        seed=SEED,
    ).save(path)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
