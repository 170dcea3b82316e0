"""Compare anybody's enlargement of a picture with what the picture allows.

A model restores the low-resolution picture with a standard deviation for every value. This gives
the probability that a pixel of the enlargement is far from the truth, which nobody has. Where the
enlargement lies outside the model's interval, detail was added or is missing. And an enlargement
that is shrunk again should give the picture back.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from musigma.functional.color import match_channels
from musigma.functional.resize import bicubic_up
from musigma.images.conversion import ImageLike, as_batch
from musigma.model import Model
from musigma.restoration.viewer.flipbook import write_flipbook
from musigma.types import ImageError, Prediction
from musigma.uncertainty.calibration import Calibration
from musigma.uncertainty.consistency import shrink

CELL = 16
"""Side of the squares, in result pixels, in which the report names places."""

MAX_PLACES = 10
TOLERANCE = 8 / 255
"""The shrunk enlargement may differ from the picture by so much."""

INVENTED_SHARE = 0.01
"""Share of the pixels that added detail may contradict: programs shrink in slightly other ways."""

USUAL_COVERAGE = 0.95
"""Coverage of the intervals where none is asked for, if the model has it."""

ALLOWANCE = 4.0
"""The share outside is 1 - coverage for true pictures on average; 2 % of them exceed this multiple.

Counted on every second validation crop, for edsr-baseline x4 at a coverage of 0.95.
"""

WRONG = 16 / 255
"""A pixel that is further from the truth, in any channel, counts as wrong."""

ORANGE = (0.90, 0.37, 0.0)


class Place(NamedTuple):
    """A square of the enlargement in which much is flagged; x and y are its upper left pixel."""

    x: int
    y: int
    size: int
    share: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Audit:
    """What an audit tells.

    Attributes:
        coverage: Coverage of the intervals.
        score: Distance from the mean in half-widths of the interval, the largest of the channels,
            ``(H, W)``; above 1 a pixel is outside.
        wrong_probability: Probability of each pixel to be further than `WRONG` from the truth,
            ``(H, W)``.
        added: Pixels outside at which the enlargement has more detail than the mean, ``(H, W)``.
        contradicts: Pixels of the low-resolution picture that the shrunk enlargement does not give
            back, ``(H / scale, W / scale)``.
        invents: Those of them at which the enlargement has more detail than the mean.
        outside_share: Share of the values, all channels, that lie outside.
        unlike: Sentences of `Model.check`: why the intervals may not hold for this picture.
        expected: What the model makes of the low-resolution picture, ``(1, C, H, W)``.
        least_wrong_share: Share of the pixels that would be expected to be wrong if the enlargement
            were `expected`.
    """

    coverage: float
    score: Tensor
    wrong_probability: Tensor
    added: Tensor
    contradicts: Tensor
    invents: Tensor
    outside_share: float
    unlike: tuple[str, ...]
    expected: Tensor
    least_wrong_share: float

    @property
    def outside(self) -> Tensor:
        """Pixels of which a channel lies outside its interval, ``(H, W)``."""
        return self.score > 1

    @property
    def contradicted_share(self) -> float:
        """Share of the low-resolution pixels that are contradicted."""
        return float(self.contradicts.float().mean())

    @property
    def invented_share(self) -> float:
        """Share of the low-resolution pixels that are contradicted by added detail."""
        return float(self.invents.float().mean())

    @property
    def wrong_share(self) -> float:
        """Share of the pixels that are expected to be wrong."""
        return float(self.wrong_probability.mean())

    @property
    def added_share(self) -> float:
        """Share of the pixels that are outside and have more detail than the mean."""
        return float(self.added.float().mean())

    @property
    def limit(self) -> float:
        """The share outside above which an enlargement is flagged."""
        return ALLOWANCE * (1 - self.coverage)

    @property
    def is_flagged(self) -> bool:
        """Whether the enlargement shows detail that the small picture does not support.

        Lost detail alone, as of a bicubic enlargement, is not flagged.
        """
        return self.outside_share > self.limit or self.invented_share > INVENTED_SHARE

    def places(self) -> list[Place]:
        """Return the squares with the largest flagged shares, the worst first."""
        cells = avg_pool2d(self.outside.float()[None, None], CELL, ceil_mode=True)[0, 0]
        shares, order = cells.flatten().sort(descending=True)
        chosen = zip(shares[:MAX_PLACES].tolist(), order[:MAX_PLACES].tolist(), strict=True)
        return [
            Place(number % cells.shape[1] * CELL, number // cells.shape[1] * CELL, CELL, share)
            for share, number in chosen
            if share > self.limit
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "flagged": self.is_flagged,
            "coverage": self.coverage,
            "wrong_share": self.wrong_share,
            "least_wrong_share": self.least_wrong_share,
            "wrong_levels": round(255 * WRONG),
            "outside_share": self.outside_share,
            "expected_share": 1 - self.coverage,
            "limit": self.limit,
            "added_share": self.added_share,
            "contradicted_share": self.contradicted_share,
            "invented_share": self.invented_share,
            "places": [square._asdict() for square in self.places()],
            "unlike": list(self.unlike),
        }

    def in_words(self) -> list[str]:
        """Return the result in whole sentences."""
        expected, outside = 100 * (1 - self.coverage), 100 * self.outside_share
        sentences = [
            f"About {100 * self.wrong_share:.0f} % of the pixels of the enlargement are expected "
            f"to be off by more than {255 * WRONG:.0f} of 255 levels, and "
            f"{100 * self.least_wrong_share:.0f} % of those of the model's own result.",
            f"{outside:.1f} % of its values lie outside the model's {100 * self.coverage:.4g} % "
            f"intervals; about {expected:.2g} % of the values of the true picture would.",
        ]
        if self.outside_share > self.limit:
            outside_pixels = max(float(self.outside.float().mean()), 1e-9)
            added = self.added_share / outside_pixels
            sentences.append(
                f"At {100 * added:.0f} % of the pixels outside, the enlargement has more detail "
                "than the model, and at the others less."
            )
        if self.contradicted_share > INVENTED_SHARE:
            lost = self.contradicted_share - self.invented_share
            sentences.append(
                f"Shrunk again, the enlargement contradicts {100 * self.contradicted_share:.1f} % "
                f"of the pixels of the small picture by more than {255 * TOLERANCE:.0f} of 255: "
                f"{100 * self.invented_share:.1f} % with added detail and {100 * lost:.1f} % with "
                "lost detail."
            )
        more = "more" if self.is_flagged else "no more"
        sentences.append(f"The enlargement shows {more} detail than the small picture supports.")
        sentences += [
            f"The intervals may not hold: {sentence[:1].lower()}{sentence[1:]}"
            for sentence in self.unlike
        ]
        return sentences


def audit(
    model: Model,
    low: ImageLike,
    high: ImageLike,
    *,
    coverage: float | None = None,
    prediction: Prediction | None = None,
) -> Audit:
    """Compare an enlargement with the intervals that a model gives for the small picture.

    Args:
        model: A calibrated model for the scale of the enlargement.
        low: The low-resolution picture.
        high: The enlargement, `Model.scale` times as large.
        coverage: One of `Calibration.coverages`; by default 0.95 where the model has it.
        prediction: What the model predicts for the small picture, where that is known already.
    """
    small = match_channels(as_batch(low), model.network.out_channels)
    large = match_channels(as_batch(high), model.network.out_channels)
    check_sizes(small, large, model.scale)
    share = usual_coverage(model.require_calibration()) if coverage is None else coverage
    prediction = prediction or model.predict(small)
    lower, upper = model.interval(prediction, coverage=share)
    # A picture file holds rounded values between 0 and 1: a difference by rounding is no invention.
    mean, rounding = prediction.mean.clamp(0, 1), 0.5 / 255
    distance = (large - mean).abs()
    ratio = (distance - rounding).clamp_min(0) / ((upper - lower) / 2)
    score = ratio[0].amax(0)
    more_detail = _detail(large) - _detail(mean)
    # The small picture was cut off at 0 and 1 when it was made, too.
    error = (shrink(large, model.scale).clamp(0, 1) - small).abs()[0].amax(0)
    contradicts = error > TOLERANCE
    std = model.std(prediction)
    least_wrong = probability_of_wrong(torch.zeros_like(std), std)[0].amax(0)
    return Audit(
        coverage=share,
        score=score,
        wrong_probability=probability_of_wrong(distance, std)[0].amax(0),
        added=(score > 1) & (more_detail > 0),
        contradicts=contradicts,
        invents=contradicts & (avg_pool2d(more_detail[None], model.scale)[0] > 0),
        outside_share=float((ratio > 1).float().mean()),
        unlike=tuple(model.check(small)),
        expected=mean,
        least_wrong_share=float(least_wrong.mean()),
    )


def usual_coverage(calibration: Calibration) -> float:
    """Return the largest fitted coverage up to `USUAL_COVERAGE`, or the least where all are larger.

    Intervals of a coverage near one are so wide that they hold inventions, too.
    """
    small_enough = [share for share in calibration.coverages if share <= USUAL_COVERAGE]
    return max(small_enough, default=min(calibration.coverages))


def probability_of_wrong(distance: Tensor, std: Tensor) -> Tensor:
    """Return the probability that a value is further than `WRONG` from the truth.

    Args:
        distance: Of the value from the mean, not negative.
        std: Standard deviation of the truth around the mean, by a normal distribution.

    Example:
        >>> probability_of_wrong(torch.tensor([0.0, WRONG, 1.0]), torch.full((3,), 1e-3))
        tensor([0.0000, 0.5000, 1.0000])
    """
    ends = ((side - distance) / std for side in (WRONG, -WRONG))
    above, below = (torch.special.ndtr(end) for end in ends)
    return 1 - (above - below)


def check_sizes(small: Tensor, large: Tensor, scale: int) -> None:
    """Refuse an enlargement of another size."""
    expected = tuple(scale * side for side in small.shape[-2:])
    if tuple(large.shape[-2:]) != expected:
        raise ImageError(
            f"the enlargement has {large.shape[-1]} x {large.shape[-2]} pixels, expected "
            f"{expected[1]} x {expected[0]}: {scale} times the small picture"
        )


def scale_of(small: tuple[int, ...], large: tuple[int, ...]) -> int:
    """Return the zoom factor between two sizes, height and width last.

    Example:
        >>> scale_of((1, 3, 20, 30), (1, 3, 80, 120))
        4
    """
    scale = large[-1] // small[-1]
    if scale < 1 or (large[-2], large[-1]) != (scale * small[-2], scale * small[-1]):
        raise ImageError(
            f"{large[-1]} x {large[-2]} pixels are no whole multiple of {small[-1]} x {small[-2]}; "
            "name the small picture first, and then an enlargement of all of it"
        )
    return scale


def overlay(high: Tensor, result: Audit) -> Tensor:
    """Return the enlargement in gray, with what is flagged in color, ``(1, 3, H, W)``.

    Added detail is orange, missing detail blue, and contradicted pixels are darkened to purple: the
    colors of Okabe and Ito.
    """
    picture = _in_light_gray(high).expand(3, -1, -1).clone()
    scale = high.shape[-1] // result.contradicts.shape[-1]
    wide = result.contradicts.repeat_interleave(scale, 0).repeat_interleave(scale, 1)
    marks = (
        (wide, (0.80, 0.47, 0.65)),
        (result.outside & ~result.added, (0.0, 0.45, 0.70)),
        (result.added, ORANGE),
    )
    for mask, color in marks:
        picture = torch.where(mask, torch.tensor(color)[:, None, None], picture)
    return picture[None]


def likely_wrong(high: Tensor, result: Audit) -> Tensor:
    """Return the enlargement in gray, the more orange the likelier a pixel is wrong."""
    orange = torch.tensor(ORANGE)[:, None, None]
    share = result.wrong_probability
    return ((1 - share) * _in_light_gray(high) + share * orange)[None]


def _in_light_gray(image: Tensor) -> Tensor:
    """Return an image in light gray, ``(H, W)``, so that marks in color stand out."""
    return 0.3 + 0.6 * match_channels(image, 1)[0, 0].clamp(0, 1)


def write_audit_page(path: Path, low: Tensor, high: Tensor, result: Audit, *, title: str) -> None:
    """Write a page on which one leafs through the pictures of an audit.

    Args:
        path: The file, replaced if it exists.
        low: The low-resolution picture, ``(1, C, h, w)``.
        high: The enlargement.
        result: What the audit told.
        title: Heading of the page.
    """
    pictures = {
        "The enlargement": high,
        f"Pixels that are likely off by more than {255 * WRONG:.0f} of 255": likely_wrong(
            high, result
        ),
        "Flagged: added detail orange, missing detail blue, contradictions purple": overlay(
            high, result
        ),
        "What the model expects": result.expected,
        "The small picture, enlarged by bicubic": bicubic_up(low, high.shape[-1] // low.shape[-1]),
    }
    write_flipbook(path, pictures, title=title, sentences=result.in_words())


def _detail(image: Tensor) -> Tensor:
    """Return the local variance of the gray picture over 5 x 5 pixels, ``(H, W)``."""
    gray = image.mean(1, keepdim=True)
    local_mean = partial(avg_pool2d, kernel_size=5, stride=1, padding=2, count_include_pad=False)
    return local_mean((gray - local_mean(gray)).square())[0, 0]
