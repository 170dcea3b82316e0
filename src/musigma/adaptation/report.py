"""The report page of an adaptation: what was gained, what the error bars hold, and pictures."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from musigma.adaptation.crops import Window
from musigma.adaptation.noisy_truth import NoisyCalibration
from musigma.adaptation.source import Inputs
from musigma.adaptation.split import PICTURES_FOR_PROMISE, Part, in_words
from musigma.atomic import write_atomically
from musigma.datasets.catalog import Dataset
from musigma.evaluation.protocol import Protocol
from musigma.evaluation.record import Record
from musigma.evaluation.restored_pairs import Progress, read_pair, restored_pairs
from musigma.functional.color import match_channels, to_uint8
from musigma.model import Model
from musigma.restoration.viewer.template import make_document
from musigma.types import Prediction
from musigma.uncertainty.calibration import describe_inputs

SHOWN_SIDE = 192
"""Side of the windows that are shown, in pixels of the result."""

NUM_LISTED = 24
"""Most pictures in the table of single pictures."""

PLUS_MINUS = "\N{PLUS-MINUS SIGN}"


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the page is made from.

    Attributes:
        model: The adapted weights.
        start: The weights it started from.
        start_name: What these are called.
        record: The numbers on the pictures held back, those of the start under ``before``.
        counts: Pictures of each part.
        held_back: The pictures held back.
        protocol: How they are measured.
        inputs: Where the inputs come from.
        warnings: What the user should know of the pictures.
        noisy: What is known of noisy targets.
    """

    model: Model
    start: Model
    start_name: str
    record: Record
    counts: Mapping[Part, int]
    held_back: Dataset
    protocol: Protocol
    inputs: Inputs
    warnings: Sequence[str]
    noisy: NoisyCalibration | None


class Example(NamedTuple):
    """A picture held back, restored by the adapted weights.

    Attributes:
        name: Of the picture.
        coverage: Share of the values of the target inside their intervals.
        half_width: Mean half-width of the intervals for the clean picture.
        window: What is shown of it, in pixels of the input.
        prediction: The result inside the window.
    """

    name: str
    coverage: float
    half_width: float
    window: Window
    prediction: Prediction


def write_report(path: Path, report: Report, *, progress: Progress | None = None) -> None:
    """Write the page, one HTML file that needs no other.

    Args:
        path: The file, replaced if it exists.
        report: What to show.
        progress: Called before each picture.
    """
    examples = restore_examples(report, progress)
    body = [
        _lead(report),
        *(_banner("Please note", f"{warning}.", holds=False) for warning in report.warnings),
        _promise(report),
        _gain(report),
        _coverages(report),
        _strips(report, examples),
        _pictures(report, examples),
        _making(report),
        _use(report),
    ]
    title = f"{report.model.name}: weights adapted to {report.held_back.name}"
    parts = {"title": escape(title), "body": "\n".join(body)}
    document = make_document("report.html", parts, generator="musigma report")
    write_atomically(path, document.encode(errors="replace"))


def restore_examples(report: Report, progress: Progress | None = None) -> list[Example]:
    """Restore the pictures held back and measure the intervals of each."""
    examples = []
    side = SHOWN_SIDE // report.model.scale
    for item, (mean, sigma), target in restored_pairs(
        report.model.network, report.held_back, report.protocol, progress=progress
    ):
        assert sigma is not None
        half_width = report.model.require_calibration().half_width(sigma)
        of_target = half_width
        if report.noisy is not None:
            of_target = report.noisy.noisy_half_width(mean, sigma)
        inside = float(((mean - target).abs() <= of_target).double().mean())
        height, width = (length // report.model.scale for length in mean.shape[-2:])
        window = Window(
            max(0, height - side) // 2,
            max(0, width - side) // 2,
            min(side, height),
            min(side, width),
        )
        large = window.times(report.model.scale)
        shown = Prediction(large.of(mean), large.of(sigma))
        examples.append(Example(item.name, inside, float(half_width.mean()), window, shown))
    return examples


def _lead(report: Report) -> str:
    steps = report.model.metadata["training"]["steps"]
    after, before = (_psnr(values) for values in (report.record.result, _before(report)))
    if not steps:
        text = (
            f"Training did not improve {report.start_name} by more than chance on the pictures for "
            "validation. Its results are kept as they are; only its error bars are fitted to "
            "these pictures."
        )
    elif after is None or before is None:
        text = f"{report.start_name} was trained further on these pictures."
    else:
        text = (
            f"{report.start_name} was trained further on these pictures. On "
            f"{report.counts['held-back']} pictures that it has never seen, PSNR went from "
            f"{before:.2f} to {after:.2f} dB."
        )
    return f"<p>{escape(text)}</p>"


def _promise(report: Report) -> str:
    calibration = report.model.require_calibration()
    sentence = f"{calibration.promise}."
    if report.noisy is not None:
        sentence += (
            " The pictures that it was fitted to are noisy themselves. The variance of their "
            "noise, measured from the difference of the two pictures of each pair, was taken off. "
            "So the intervals are meant for the clean scene, not for another noisy picture. That "
            "is right if the noise has mean zero and is independent in the two pictures. It cannot "
            "be checked without a clean picture; what can be checked is stated below."
        )
    elif not calibration.has_guarantee:
        sentence += (
            f" With {calibration.num_images} pictures for calibration nothing can be promised "
            "without intervals that are far too wide; the numbers below show what the intervals "
            f"hold on pictures that were used for nothing else. From {PICTURES_FOR_PROMISE} "
            "pictures on, the same command gives a promise."
        )
    heading = "What the error bars promise"
    return _banner(heading, sentence, holds=calibration.has_guarantee)


def _gain(report: Report) -> str:
    before, after = _before(report), report.record.result
    rows = []
    for key, name, factor, digits in _ROWS:
        if key in after:
            rows.append(
                [
                    name,
                    _number(before.get(key), factor, digits),
                    _number(after[key], factor, digits),
                ]
            )
    table = _table(["on the pictures held back", report.start_name, report.model.name], rows)
    note = ""
    if report.noisy is not None:
        std = after["noise_std"]
        note = (
            f"<p>The noise of a picture has a standard deviation of {std:.1f} levels of 255. "
            "PSNR to the clean scene is estimated: the variance of the noise is taken off the "
            "squared error to the second noisy picture.</p>"
        )
    return f'<section class="mu-panel"><h2>Before and after</h2>{table}{note}</section>'


_ROWS = (
    ("psnr_y", "PSNR of luma (dB)", 1, 2),
    ("psnr", "PSNR (dB)", 1, 2),
    ("psnr_noisy", "PSNR to the second noisy picture (dB)", 1, 2),
    ("ssim_y", "SSIM of luma", 1, 4),
    ("coverage", "values inside their 90 % interval (%)", 100, 1),
    ("coverage_noisy", "noisy values inside their widened 90 % interval (%)", 100, 1),
    ("width", "mean width of the interval (levels of 255)", 255, 1),
    ("pll_calibrated", "log-likelihood (nats per value)", 1, 3),
    ("ause", "AUSE (0: the error bars order the errors perfectly)", 1, 3),
)


def _coverages(report: Report) -> str:
    """Show what each interval holds beside what it should hold."""
    result = report.record.result
    calibration = report.model.require_calibration()
    if report.noisy is not None:
        share = result["coverage_noisy"]
        text = (
            f"Intervals for a new noisy picture of the scene, which are wider by its noise, should "
            f"hold 90 % and hold {100 * share:.1f} % on the pictures held back. If this were far "
            "from 90 %, the intervals for the clean scene would be wrong, too."
        )
        return f'<section class="mu-panel"><h2>Check</h2><p>{escape(text)}</p></section>'
    rows = []
    for share in calibration.coverages:
        key = "coverage" if share == calibration.coverage else f"coverage_{100 * share:g}"
        rows.append([f"{100 * share:g} %", f"{100 * result[key]:.1f} %"])
    table = _table(["interval", "values inside, on the pictures held back"], rows)
    return f'<section class="mu-panel"><h2>What the intervals hold</h2>{table}</section>'


def _strips(report: Report, examples: Sequence[Example]) -> str:
    ordered = sorted(examples, key=lambda example: example.coverage)
    names = ("fewest values inside", "middle", "most values inside")
    chosen = dict(zip(names, (ordered[0], ordered[len(ordered) // 2], ordered[-1]), strict=True))
    strips = [
        f'<h3>{escape(example.name)} <span class="mu-quiet">({escape(name)}: '
        f"{100 * example.coverage:.1f} %)</span></h3>{_strip(report, example)}"
        for name, example in chosen.items()
    ]
    text = (
        "The middle of three of the pictures held back. The two maps of a picture share a scale: "
        "black is no error, bright a large one."
    )
    return (
        f'<section class="mu-panel"><h2>Pictures</h2><p class="mu-quiet">{text}</p>'
        f"{''.join(strips)}</section>"
    )


def _strip(report: Report, example: Example) -> str:
    item = next(item for item in report.held_back.items if item.name == example.name)
    degraded, target = read_pair(item, report.protocol)
    noise_std = report.protocol.noise_level(report.start.network, item.name)
    before = report.start.predict(example.window.of(degraded), noise_std=noise_std).mean
    mean, sigma = example.prediction
    truth = example.window.times(report.model.scale).of(target)
    assert sigma is not None
    std = report.model.require_calibration().std(sigma)
    error = (mean - truth).abs()
    top = max(float(np.quantile(_gray(each), 0.995)) for each in (error, std)) or 1.0
    noisy = report.noisy is not None
    figures = {
        "input": _picture(example.window.of(degraded)),
        f"before, {report.start_name}": _picture(before),
        "after": _picture(mean),
        "second noisy picture" if noisy else "truth": _picture(truth),
        "difference to it" if noisy else "true error": _map(error, top),
        "predicted error": _map(std, top),
    }
    return (
        '<div class="mu-strip">'
        + "".join(
            f'<figure><img alt="{escape(caption)} of {escape(example.name)}" '
            f'src="data:image/png;base64,{data}"><figcaption>{escape(caption)}</figcaption></figure>'
            for caption, data in figures.items()
        )
        + "</div>"
    )


def _pictures(report: Report, examples: Sequence[Example]) -> str:
    rows = [
        [
            example.name,
            f"{100 * example.coverage:.1f} %",
            f"{PLUS_MINUS} {255 * example.half_width:.1f}",
        ]
        for example in sorted(examples, key=lambda example: example.coverage)[:NUM_LISTED]
    ]
    shares = [example.coverage for example in examples]
    spread = float(np.std(shares, ddof=1)) if len(shares) > 1 else 0.0
    error = spread / len(shares) ** 0.5
    what = "noisy values inside the widened interval" if report.noisy else "values inside"
    heads = ["picture", what, "mean half-width (levels of 255)"]
    text = (
        f"The mean over pictures is {100 * float(np.mean(shares)):.1f} % {PLUS_MINUS} "
        f"{100 * error:.1f} % (standard error); single pictures vary by {100 * spread:.1f} %."
    )
    return (
        f'<section class="mu-panel"><h2>Single pictures</h2><p>{escape(text)}</p>'
        f"{_table(heads, rows)}</section>"
    )


def _making(report: Report) -> str:
    training = report.model.metadata["training"]
    recipe = training["recipe"]
    sources = {
        "made": describe_inputs(report.protocol.as_json()),
        "pairs": "read: pairs of files",
        "noisy-pairs": "read: pairs of noisy pictures; each is the input of the other",
    }
    rows = {
        "Pictures": f"{sum(report.counts.values())}: {in_words(report.counts)}",
        "Inputs": sources[report.inputs],
        "Started from": report.start_name,
        "Trained": f"{training['steps']} steps kept, of batch {recipe['batch']} and patch "
        f"{recipe['patch']}, with {recipe['objective']}",
        "Time of the training": f"{training['seconds']:.0f} s on {training['device']}",
        "SHA-256 of the weights": report.model.digest,
    }
    table = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(str(value))}</td></tr>'
        for name, value in rows.items()
    )
    return (
        '<section class="mu-panel"><h2>How it was made</h2>'
        f'<table class="mu-info"><tbody>{table}</tbody></table></section>'
    )


def _use(report: Report) -> str:
    name = "denoise" if report.model.scale == 1 else "upscale"
    scale = "" if report.model.scale == 1 else f" --scale {report.model.scale}"
    command = f"musigma {name} PICTURE -o OUT{scale} --model {report.model.name}/model.safetensors"
    text = (
        "The error bars are for pictures like these, degraded as these are. A picture from another "
        "camera, in another format or of another kind of scene may have larger errors than its "
        "error bars say; the program compares noise, sharpness and JPEG blocks of a picture with "
        "those of these pictures and says so where they differ."
    )
    return (
        f'<section class="mu-panel"><h2>How to use it</h2><p><code>{escape(command)} --sigma --page'
        f"</code></p><p>{text}</p></section>"
    )


def _before(report: Report) -> dict[str, Any]:
    return dict(report.record.result["before"])


def _psnr(values: Mapping[str, Any]) -> float | None:
    return values.get("psnr_y", values.get("psnr", values.get("psnr_noisy")))


def _number(value: Any, factor: float, digits: int) -> str:
    return "" if value is None else f"{factor * value:.{digits}f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="mu-scroll" tabindex="0"><table class="mu-table"><thead><tr>{top}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _banner(heading: str, text: str, *, holds: bool) -> str:
    style = "mu-promise" if holds else "mu-promise mu-none"
    return f'<section class="{style}"><h2>{escape(heading)}</h2><p>{escape(text)}</p></section>'


def _picture(image: Tensor) -> str:
    samples = to_uint8(match_channels(image, 3))[0].permute(1, 2, 0).numpy()
    return _png(samples)


def _map(values: Tensor, top: float) -> str:
    from matplotlib import colormaps

    colors = colormaps["inferno"](np.clip(_gray(values) / top, 0, 1))[..., :3]
    return _png((255 * colors + 0.5).astype(np.uint8))


def _gray(values: Tensor) -> Any:
    return values[0].mean(0).double().numpy()


def _png(samples: NDArray[np.uint8]) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(samples).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()
