"""The size of the page of a 12-megapixel result, and how exactly its values can be read.

``python -m studies.measurements.page_size RECORD`` makes a picture with the detail of a photograph,
writes the page of its enlargement and of its denoising, and compares what the page stores with the
picture.
"""

import base64
import io
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from musigma.evaluation.record import Record, provenance
from musigma.functional.color import to_uint8
from musigma.functional.resize import resize
from musigma.restoration.viewer.page import write_page
from musigma.restoration.viewer.tiles import TILE, error_level
from musigma.types import Prediction

HEIGHT, WIDTH = 3000, 4000
NOISE_STD = 5.0  # of the input, in 8-bit levels


def photo(height: int, width: int, seed: int = 0) -> Tensor:
    """Return a picture ``(1, 3, H, W)`` with edges, shading, texture and a little grain.

    The waves in it are weaker the shorter they are. JPEG needs 2.6 bits per pixel for it at quality
    92, which is a little more than for photographs.
    """
    generator = torch.Generator().manual_seed(seed)
    waves = _waves(height, width, generator, power=1.3)
    edges = torch.sign(_waves(height, width, generator, power=2))
    warmth = _waves(height, width, generator, power=1.8) * torch.tensor([1.0, 0, -1]).view(3, 1, 1)
    grain = torch.randn(3, height, width, generator=generator)
    tint = torch.tensor([0.9, 1.0, 1.1]).view(3, 1, 1)
    light = tint * (0.5 + 0.14 * waves + 0.1 * edges)
    return (light + 0.05 * warmth + 0.004 * grain).clamp(0, 1)[None]


def error_of(picture: Tensor) -> Tensor:
    """Return an error that is large at edges and in texture, as a network predicts it."""
    mean = avg_pool2d(picture, 5, stride=1, padding=2)
    spread = avg_pool2d(picture.square(), 5, stride=1, padding=2) - mean.square()
    return (0.004 + 0.3 * spread.clamp_min(0).sqrt()).clamp(0, 1)


def _waves(height: int, width: int, generator: torch.Generator, power: float) -> Tensor:
    noise = torch.fft.rfft2(torch.randn(height, width, generator=generator))
    frequency = torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)[None])
    frequency[0, 0] = 1
    waves = torch.fft.irfft2(noise / frequency**power, s=(height, width))
    return waves / waves.std()


def stored_samples(layer: dict[str, Any], level: int = 0) -> Tensor:
    """Return the bytes of a layer of a page, ``(1, C, H, W)``, put together from its tiles."""
    stored = layer["levels"][level]
    num_columns = -(-layer["size"][0] // stored["factor"] // TILE)
    tiles = [_decoded(text) for text in stored["tiles"]]
    rows = [tiles[start : start + num_columns] for start in range(0, len(tiles), num_columns)]
    return torch.cat([torch.cat(row, dim=3) for row in rows], dim=2)


def data_of(page: str) -> dict[str, Any]:
    """Return what the viewer of a page shows."""
    match = re.search(r'id="data">(.*?)</script>', page)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


def make_page(path: Path, *, height: int, width: int, scale: int) -> Prediction:
    """Write the page of a made picture, and return the result and half-width that it shows."""
    mean = photo(height, width)
    before = resize(mean, size=(height // scale, width // scale))
    noise = torch.randn(before.shape, generator=torch.Generator().manual_seed(1))
    sigma = error_of(mean)
    write_page(
        path,
        before=before + NOISE_STD / 255 * noise,
        prediction=Prediction(mean, sigma),
        half_width=2 * sigma,
        coverage=0.9,
        title=f"{width} x {height}",
        info={},
    )
    return Prediction(mean, 2 * sigma)


def measure(page: str, shown: Prediction) -> dict[str, float]:
    """Return the size of a page, and how far its values and half-widths are off."""
    assert shown.sigma is not None
    data, levels = data_of(page), 255 * shown.sigma
    result = stored_samples(data["layers"]["result"]).int()
    (half_width,) = (m for m in data["maps"] if m["quantity"] == "half_width")
    value = (result - to_uint8(shown.mean).int()).abs().numpy()
    share = (error_level(stored_samples(half_width["layer"])) - levels).abs() / (1 + levels)
    return {
        "megabytes": round(len(page) / 1e6, 2),
        "mean_error_of_values": round(float(value.mean()), 2),
        "value_error_95": float(np.percentile(value, 95)),
        "half_width_error_95": round(float(np.percentile(share.numpy(), 95)), 3),
    }


def _decoded(text: str) -> Tensor:
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(text))) as image:
        samples = np.asarray(image)
    return torch.from_numpy(samples.reshape(*samples.shape[:2], -1).transpose(2, 0, 1).copy())[None]


def main(record: Path) -> None:
    results = {}
    for title, scale in (("enlarged x2", 2), ("denoised", 1)):
        with tempfile.TemporaryDirectory() as folder:
            path, start = Path(folder) / "page.html", time.process_time()
            shown = make_page(path, height=HEIGHT, width=WIDTH, scale=scale)
            seconds = round(time.process_time() - start, 1)
            results[title] = {"cpu_seconds": seconds, **measure(path.read_text(), shown)}
            print(title, results[title], flush=True)
    Record(
        kind="benchmark",
        model={"name": "none", "scale": 2, "params": 0, "digest": ""},
        protocol={"name": "page-size", "width": WIDTH, "height": HEIGHT, "noise_std": NOISE_STD},
        data={"name": "a made picture with the detail of a photograph", "hash": "generated"},
        result=results,
        provenance=provenance(torch.device("cpu")),
    ).save(record)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
