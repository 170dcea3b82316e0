"""An HTML page that compares input and result, with error maps and the values of every pixel."""

from collections.abc import Mapping
from html import escape
from pathlib import Path

from torch import Tensor

from musigma.atomic import write_atomically
from musigma.functional.color import match_channels
from musigma.functional.finite import is_finite
from musigma.functional.scores import interval_coverage
from musigma.restoration.promise import Promise
from musigma.restoration.viewer.data import ViewerData
from musigma.restoration.viewer.template import VIEWER, json_for_html, make_document
from musigma.restoration.viewer.tiles import Size
from musigma.types import ConfigError, ImageError, Prediction

_ROWS = 512  # how many rows of a tensor are encoded at a time


def write_page(
    path: Path | str,
    *,
    before: Tensor,
    prediction: Prediction,
    half_width: Tensor | None = None,
    coverage: float | None = None,
    truth: Tensor | None = None,
    alpha: Tensor | None = None,
    promise: Promise | None = None,
    title: str,
    info: Mapping[str, str],
) -> None:
    """Write one HTML file that shows a prediction and needs no other file.

    A slider divides input and result. A map of sigma, of the interval's half-width or of the true
    error can be laid over the result; the values of the pixel under the pointer are listed beside
    it. With the truth, the page also shows the share of values inside the interval. A large result
    is stored with some loss, and the page says how exactly its values can be read.

    Args:
        path: The file, replaced if it exists.
        before: The input, ``(1, 1 or 3, h, w)`` in ``[0, 1]``, of any size.
        prediction: The result, ``(1, 1 or 3, H, W)``.
        half_width: Half the width of the interval around the mean, in the shape of the mean.
        coverage: The share of values that the interval should hold; goes with `half_width`.
        truth: The true image, in the shape of the mean.
        alpha: The opacity of the result, ``(1, 1, H, W)``.
        promise: What the intervals promise for this picture.
        title: Heading of the page.
        info: What the page says about the result, such as the model, in this order.

    Raises:
        ImageError: If a shape does not fit, a value is not finite or an error negative.
        ConfigError: If only one of `half_width` and `coverage` is given.
    """
    if (half_width is None) != (coverage is None):
        raise ConfigError("half_width and coverage go together: give both, or neither")
    mean = _checked("mean", prediction.mean)
    before = match_channels(_checked("before", before), mean.shape[1])
    data = ViewerData(
        _size(mean), before=_size(before), num_channels=mean.shape[1], coverage=coverage
    )
    images = {"sigma": prediction.sigma, "half_width": half_width, "truth": truth}
    checked = {
        name: _checked(name, image, shape=tuple(mean.shape))
        for name, image in images.items()
        if image is not None
    }
    if alpha is not None:
        checked["alpha"] = _checked("alpha", alpha, shape=(1, 1, *_size(mean)))
    info = dict(info)
    if "truth" in checked:
        if "half_width" in checked:
            inside = interval_coverage(mean, checked["truth"], checked["half_width"])
            info["Inside the interval"] = f"{100 * float(inside):.1f} % of the values"
        checked["error"] = (mean - checked.pop("truth")).abs()
    for top in range(0, before.shape[2], _ROWS):
        data.add_before(before[:, :, top : top + _ROWS])
    for top in range(0, mean.shape[2], _ROWS):
        rows = slice(top, top + _ROWS)
        parts = {name: image[:, :, rows] for name, image in checked.items()}
        data.add(mean[:, :, rows], **parts)
    write_viewer_page(path, data, title=title, info=info, promise=promise)


def write_viewer_page(
    path: Path | str,
    data: ViewerData,
    *,
    title: str,
    info: Mapping[str, str],
    promise: Promise | None = None,
) -> None:
    """Write the page of a result whose rows `data` has received.

    Args:
        path: The file, replaced if it exists.
        data: With all rows of input and result.
        title: Heading of the page.
        info: What the page says about the result, such as the model, in this order.
        promise: What the intervals promise for this picture.
    """
    pixels = dict.fromkeys(_pixels(size) for size in (data.before, data.size))
    info = {**info, "Pixels": " \N{RIGHTWARDS ARROW} ".join(pixels)}
    typical = data.typical_half_width
    if typical is not None:
        info["Typical interval"] = f"value \N{PLUS-MINUS SIGN} {typical:.1f} levels of 255"
    layers = data.to_json()
    summary = json_for_html(_summary(data, title, info, promise))
    holds = promise is not None and promise.text is not None
    words = promise_html(data, promise)
    parts = {
        "title": escape(title),
        "alerts": ("" if holds else words) + _warning(info.pop("Warning", None)),
        "promise": words if holds else "",
        "info": "".join(_row(name, value) for name, value in info.items()),
        "explanation": explanation_html(data),
        "note": escape(" ".join(_notes(data))),
        "data": json_for_html(layers),
    }
    document = make_document(
        "page.html",
        parts,
        generator="musigma",
        script_name=VIEWER,
        summary=f'<script type="application/json" id="summary">{summary}</script>',
    )
    write_atomically(Path(path), document.encode())


def promise_html(data: ViewerData, promise: Promise | None) -> str:
    """Return in words what the intervals promise for this picture, as HTML; it may be empty.

    Args:
        data: The maps that are shown.
        promise: What is promised; `None` where it is not known.
    """
    if "half_width" not in data.quantities:
        if "sigma" not in data.quantities:
            return ""
        reason = "The model is not calibrated: sigma is its own guess of the error."
        return _banner("No promise for this picture", reason, holds=False)
    if promise is None:
        return ""
    name = data.name_of("half_width")
    if promise.text is not None:
        return _banner(f"The {name}s come with a promise", f"{promise.text}.", holds=True)
    text = f"The {name}s may hold far fewer of the true values than they say: {promise.reason}."
    return _banner("No promise for this picture", text, holds=False)


def explanation_html(data: ViewerData) -> str:
    """Return two plain sentences about sigma and interval, as HTML; empty without an error map.

    Args:
        data: The maps that are shown.
    """
    sentences = []
    if "sigma" in data.quantities:
        sentences.append(
            "Sigma is how far the network expects each value to be off, in levels of 255: small "
            "where it is sure, large where it had to guess detail."
        )
    if "half_width" in data.quantities and data.coverage is not None:
        sentences.append(
            f"The interval, value \N{PLUS-MINUS SIGN} half-width, is made from sigma and is meant "
            f"to hold the true value for {100 * data.coverage:g} % of all values."
        )
    if not sentences:
        return ""
    paragraphs = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return (
        '<section class="mu-panel mu-explanation" aria-labelledby="meaning">'
        f'<h2 id="meaning">What the error bars mean</h2>{paragraphs}</section>'
    )


def _banner(heading: str, text: str, *, holds: bool) -> str:
    style = "mu-promise" if holds else "mu-promise mu-none"
    return f'<section class="{style}"><h2>{escape(heading)}</h2><p>{escape(text)}</p></section>'


def _warning(text: str | None) -> str:
    return "" if text is None else _banner("Please note", text, holds=False)


def _summary(
    data: ViewerData, title: str, info: Mapping[str, str], promise: Promise | None
) -> dict[str, object]:
    """Return what the gallery shows of this page."""
    keys = [key for key in info if key != "Warning"]
    return {
        "title": title,
        "info": [[key, info[key]] for key in keys],
        "promise": None if promise is None else promise.text is not None,
        "warning": info.get("Warning"),
        "thumbnails": data.thumbnails(),
        "error_top": data.thumbnail_top,
    }


def _notes(data: ViewerData) -> list[str]:
    notes = []
    if data.shown != data.size:
        shown = f"shown and read at {_pixels(data.shown)}"
        notes.append(f"The result of {_pixels(data.size)} pixels is {shown}.")
    value, before, error = data.resolution
    errors = f"{100 * error:.0f} % or {error:.2f} levels, whichever is more"
    if not (value or before):
        text = "This page holds the values exactly, in 8 bits"
        text += f", and the errors to within {errors}" if data.quantities else ""
    else:
        text = (
            "To stay small, this page stores the pictures with some loss: for 95 % of the pixels, "
            f"a value read here is off by at most {value} of 255 levels (of the input: {before})"
        )
        text += f", and an error by at most {errors}" if data.quantities else ""
    notes.append(f"{text}.")
    if data.quantities and data.num_channels > 1:
        notes.append("The error map shows the mean of red, green and blue.")
    return notes


def _checked(name: str, image: Tensor, *, shape: tuple[int, ...] | None = None) -> Tensor:
    """Return an image in host memory, or raise an error that says what is wrong with it."""
    own = tuple(image.shape)
    if len(own) != 4 or own[0] != 1 or own[1] not in (1, 3) or not image.numel():
        raise ImageError(f"{name} must have the shape (1, 1 or 3, H, W), got {own}")
    if shape is not None and own != shape:
        raise ImageError(f"{name} must have the shape of mean, {shape}, got {own}")
    image = image.detach().float().cpu()
    if not is_finite(image):
        raise ImageError(f"{name} holds NaN or infinite values; check where it comes from")
    if name in ("sigma", "half_width") and bool((image < 0).any()):
        raise ImageError(f"{name} must not be negative, got {float(image.min()):g}")
    return image


def _size(image: Tensor) -> Size:
    return image.shape[-2], image.shape[-1]


def _pixels(size: Size) -> str:
    return f"{size[1]} \N{MULTIPLICATION SIGN} {size[0]}"


def _row(name: str, value: str) -> str:
    return f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
