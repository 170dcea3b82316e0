"""An HTML page that compares input and result, with error maps and the values of every pixel."""

import base64
import io
import json
import math
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from musigma.atomic import write_atomically
from musigma.functional.color import match_channels, quantise, to_uint8
from musigma.functional.fidelity import psnr
from musigma.functional.resize import resize
from musigma.functional.scores import check_share, interval_coverage
from musigma.types import ConfigError, ImageError, Prediction

Size = tuple[int, int]
"""Height and width."""

MAX_SIDE = 2048
"""A result with a longer side is shown smaller; the page would have hundreds of megabytes."""


def write_page(
    path: Path | str,
    *,
    before: Tensor,
    prediction: Prediction,
    half_width: Tensor | None = None,
    coverage: float | None = None,
    truth: Tensor | None = None,
    title: str,
    info: Mapping[str, str],
    sizes: tuple[Size, Size] | None = None,
) -> None:
    """Write one HTML file that shows a prediction and needs no other file.

    A slider divides input and result. A map of sigma, of the interval's half-width or of the true
    error can be laid over the result; the values of the pixel under the pointer are listed beside
    it. A result larger than `MAX_SIDE` is shown smaller, and the page says so. With the truth, the
    page also shows PSNR and the share of values inside the interval.

    Args:
        path: The file, replaced if it exists.
        before: The input, ``(1, 1 or 3, h, w)`` in ``[0, 1]``, of any size.
        prediction: The result, ``(1, 1 or 3, H, W)``.
        half_width: Half the width of the interval around the mean, in the shape of the mean.
        coverage: The share of values that the interval should hold; goes with `half_width`.
        truth: The true image, in the shape of the mean.
        title: Heading of the page.
        info: What the page says about the result, such as the model, in this order.
        sizes: Height and width of input and result, where `before` and `prediction` are smaller
            views of them.

    Raises:
        ImageError: If a shape does not fit, a value is not finite or an error negative.
        ConfigError: If only one of `half_width` and `coverage` is given.
    """
    mean = _checked("mean", prediction.mean)
    before = match_channels(_checked("before", before), mean.shape[1])
    sigma, half_width, truth = (
        None if image is None else _checked(name, image, like=mean)
        for name, image in zip(
            ("sigma", "half_width", "truth"), (prediction.sigma, half_width, truth), strict=True
        )
    )
    maps = _error_maps(mean, sigma, half_width, coverage, truth)
    sizes = sizes or (_size(before), _size(mean))
    names = dict.fromkeys(_pixels(size) for size in sizes)
    info = {**info, "Pixels": " \N{RIGHTWARDS ARROW} ".join(names)}
    if truth is not None:
        info |= _measure(before, mean, half_width, truth)
    page = _render(before, mean, maps, title, info, sizes[1])
    write_atomically(Path(path), page.encode())


class _ErrorMap(NamedTuple):
    quantity: Literal["sigma", "half_width", "error"]
    name: str
    meaning: str
    levels: Tensor  # (1, C, H, W), of 255


def _checked(name: str, image: Tensor, like: Tensor | None = None) -> Tensor:
    """Return an image in host memory, or raise an error that says what is wrong with it."""
    shape = tuple(image.shape)
    if len(shape) != 4 or shape[0] != 1 or shape[1] not in (1, 3) or not image.numel():
        raise ImageError(f"{name} must have the shape (1, 1 or 3, H, W), got {shape}")
    if like is not None and shape != like.shape:
        raise ImageError(f"{name} must have the shape of mean, {tuple(like.shape)}, got {shape}")
    image = image.detach().float().cpu()
    if not bool(image.isfinite().all()):
        raise ImageError(f"{name} holds NaN or infinite values; check where it comes from")
    if name in ("sigma", "half_width") and bool((image < 0).any()):
        raise ImageError(f"{name} must not be negative, got {float(image.min()):g}")
    return image


def _error_maps(
    mean: Tensor,
    sigma: Tensor | None,
    half_width: Tensor | None,
    coverage: float | None,
    truth: Tensor | None,
) -> list[_ErrorMap]:
    if (half_width is None) != (coverage is None):
        raise ConfigError("half_width and coverage go together: give both, or neither")
    maps = []
    if sigma is not None:
        meaning = "the absolute error that the network predicts, not calibrated"
        maps.append(_ErrorMap("sigma", "Sigma", meaning, 255 * sigma))
    if half_width is not None and coverage is not None:
        share = f"{100 * check_share('coverage', coverage):g} %"
        meaning = "half the width of the interval around each value"
        maps.append(_ErrorMap("half_width", f"{share} interval", meaning, 255 * half_width))
    if truth is not None:
        error = 255 * (mean - truth).abs()
        maps.append(_ErrorMap("error", "True error", "the distance from the truth", error))
    return maps


def _measure(
    before: Tensor, mean: Tensor, half_width: Tensor | None, truth: Tensor
) -> dict[str, str]:
    """Compare with the truth; PSNR is over all pixels and channels, rounded to 8 bits."""
    enlarged = resize(before, size=_size(mean))
    of_input, of_result = (
        float(psnr(quantise(image), truth, data_range=1, shave=0)) for image in (enlarged, mean)
    )
    measured = {
        "PSNR, input": f"{of_input:.2f} dB",
        "PSNR, result": f"{of_result:.2f} dB",
    }
    if half_width is not None:
        inside = float(interval_coverage(mean, truth, half_width))
        measured["Inside the interval"] = f"{100 * inside:.1f} %"
    return measured


def _render(
    before: Tensor,
    mean: Tensor,
    maps: list[_ErrorMap],
    title: str,
    info: Mapping[str, str],
    full: Size,
) -> str:
    num_channels, size = mean.shape[1], _shown_size(full)
    if size != _size(mean):
        mean = resize(mean, size=size)
        # The linear kernel has no negative lobes, so that errors stay positive.
        maps = [m._replace(levels=resize(m.levels, size=size, kernel="linear")) for m in maps]
    has_pixels = before.shape[-2] < size[0] and before.shape[-1] < size[1]
    data = {
        "shown": size[::-1],
        "full": full[::-1],
        "numChannels": num_channels,
        "pixels": _png(to_uint8(before)) if has_pixels else None,
        "maps": [_stored(map_, top) for map_, top in zip(maps, _tops(maps), strict=True)],
    }
    channels = ["R", "G", "B"] if num_channels == 3 else ["Grey"]
    names = [map_.name for map_ in maps]
    parts = {
        "title": escape(title),
        "width": str(size[1]),
        "height": str(size[0]),
        "result": _png(to_uint8(mean)),
        "input": _png(to_uint8(resize(before, size=size))),
        "colours": _png(_colours()),
        "channels": "".join(f'<th scope="col">{name}</th>' for name in channels),
        "rows": "".join(_row(name, [""] * num_channels) for name in ["Result", *names]),
        "choices": _choice(-1, "Off") + "".join(_choice(i, name) for i, name in enumerate(names)),
        "info": "".join(_row(name, [value]) for name, value in info.items()),
        "explanation": escape(" ".join(_explanation(maps))),
        "note": " ".join(_notes(full, size, maps)),
        # "</" would end the script element that holds the data.
        "data": json.dumps(data).replace("</", "<\\/"),
    }
    template = files("musigma.restoration.viewer").joinpath("page.html").read_text(encoding="utf-8")
    # In one pass, so that a title that looks like a placeholder is not replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _stored(map_: _ErrorMap, top: float) -> dict[str, object]:
    """Return a map as the page stores it, in bytes ``round(255 sqrt(levels / largest))``.

    Small errors need finer steps: v levels are read with an error of ``sqrt(v largest) / 255``.
    """
    largest = float(map_.levels.max()) or 1.0
    return {
        "quantity": map_.quantity,
        "caption": f"{map_.name} (levels of 255): {map_.meaning}",
        "top": top,
        "largest": largest,
        "image": _png(to_uint8((map_.levels / largest).sqrt())),
    }


def _tops(maps: list[_ErrorMap]) -> list[float]:
    """Return the end of the colour scale of each map; sigma and true error share one."""
    tops = {map_.quantity: _round_top(map_.levels) for map_ in maps}
    shared = max((tops[name] for name in ("sigma", "error") if name in tops), default=0.0)
    return [tops[m.quantity] if m.quantity == "half_width" else shared for m in maps]


def _round_top(levels: Tensor) -> float:
    """Return a round number of levels that at most 0.5 % of the pixels exceed."""
    top = float(np.percentile(levels.mean(1).numpy(), 99.5))
    if top <= 0:
        return 1.0
    exponent = math.floor(math.log10(top))
    ends = (float(f"{digit}e{exponent}") for digit in (1, 2, 3, 4, 5, 6, 8, 10))
    return next(end for end in ends if end >= top)


def _size(image: Tensor) -> Size:
    return image.shape[-2], image.shape[-1]


def _shown_size(full: Size) -> Size:
    factor = min(1.0, MAX_SIDE / max(full))
    return max(1, round(factor * full[0])), max(1, round(factor * full[1]))


def _notes(full: Size, shown: Size, maps: list[_ErrorMap]) -> list[str]:
    notes = []
    if shown != full:
        notes.append(f"The result of {_pixels(full)} pixels is shown and read at {_pixels(shown)}.")
    if maps:
        largest = max(float(map_.levels.max()) for map_ in maps)
        near, far = (math.sqrt(level * largest) / 255 for level in (1, 10))
        notes.append("The map shows the mean of the channels.")
        notes.append(
            f"Errors are stored in 8 bits: to within {near:.2f} at 1 level, {far:.2f} at 10 levels."
        )
    if any(map_.quantity == "error" for map_ in maps):
        notes.append("PSNR is over all pixels and channels, in 8 bits.")
    return notes


def _explanation(maps: list[_ErrorMap]) -> list[str]:
    """Return one plain sentence about each quantity that the network predicts."""
    sentences = []
    for map_ in maps:
        if map_.quantity == "sigma":
            sentences.append(
                "Sigma is the error that the network expects for each value: large sigma means "
                "that the network is not sure."
            )
        elif map_.quantity == "half_width":
            share = map_.name.removesuffix(" interval")
            sentences.append(
                f"The interval, value \N{PLUS-MINUS SIGN} half-width, is meant to hold the true "
                f"value for {share} of all values."
            )
    return sentences


def _pixels(size: Size) -> str:
    return f"{size[1]} \N{MULTIPLICATION SIGN} {size[0]}"


def _row(name: str, cells: list[str]) -> str:
    inside = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(name)}</th>{inside}</tr>'


def _choice(value: int, name: str) -> str:
    checked = " checked" if value < 0 else ""  # the page opens with the result itself
    button = f'<input type="radio" name="map" value="{value}"{checked}>'
    return f"<label>{button}<span>{escape(name)}</span></label>"


def _colours() -> Tensor:
    """Return the 256 colours of the error map, ``(1, 3, 1, 256)`` uint8."""
    import matplotlib

    colours = matplotlib.colormaps["magma"](np.arange(256), bytes=True)[:, :3]
    return torch.from_numpy(colours.T.copy())[None, :, None]


def _png(image: Tensor) -> str:
    """Return a ``(1, C, H, W)`` uint8 image as a data URI."""
    from PIL import Image

    samples = image[0].permute(1, 2, 0).contiguous().numpy()
    picture = Image.fromarray(samples[..., 0] if samples.shape[2] == 1 else samples)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=3)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
