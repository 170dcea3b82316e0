"""Compare anybody's enlargement of a picture with what the picture allows.

A model restores the low-resolution picture with an interval for every value. Where the enlargement
lies outside, it shows what the picture does not support: detail that was added, or detail that is
missing. And an enlargement that is shrunk again should give the picture back.
"""

from dataclasses import dataclass
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
from musigma.types import ImageError
from musigma.uncertainty.consistency import shrink

CELL = 16
"""Side of the squares, in result pixels, in which the report names places."""

MAX_PLACES = 10
TOLERANCE = 8 / 255
"""The shrunk enlargement may differ from the picture by so much."""

CONTRADICTED_SHARE = 0.01
"""So many pixels of the picture may be contradicted: rounding, other ways of shrinking."""

ALLOWANCE = 2.0
"""The flagged share of a true picture is 1 - coverage on average; up to this multiple is usual."""


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
        added: Pixels outside at which the enlargement has more detail than the mean, ``(H, W)``.
        contradicts: Pixels of the low-resolution picture that the shrunk enlargement does not give
            back, ``(H / scale, W / scale)``.
        outside_share: Share of the values, all channels, that lie outside.
        unlike: Sentences of `Model.check`: why the intervals may not hold for this picture.
        expected: What the model makes of the low-resolution picture, ``(1, C, H, W)``.
    """

    coverage: float
    score: Tensor
    added: Tensor
    contradicts: Tensor
    outside_share: float
    unlike: tuple[str, ...]
    expected: Tensor

    @property
    def outside(self) -> Tensor:
        """Pixels of which a channel lies outside its interval, ``(H, W)``."""
        return self.score > 1

    @property
    def contradicted_share(self) -> float:
        """Share of the low-resolution pixels that are contradicted."""
        return float(self.contradicts.float().mean())

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
        """Whether more lies outside, or is contradicted, than in a true picture."""
        return self.outside_share > self.limit or self.contradicted_share > CONTRADICTED_SHARE

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
            "outside_share": self.outside_share,
            "expected_share": 1 - self.coverage,
            "limit": self.limit,
            "added_share": self.added_share,
            "contradicted_share": self.contradicted_share,
            "places": [place._asdict() for place in self.places()],
            "unlike": list(self.unlike),
        }

    def in_words(self) -> list[str]:
        """Return the result in whole sentences."""
        expected, outside = 100 * (1 - self.coverage), 100 * self.outside_share
        sentences = [
            f"{outside:.1f} % of the values lie outside the intervals of coverage "
            f"{self.coverage:g}; about {expected:.2g} % would in a true picture."
        ]
        if self.outside_share > self.limit:
            outside_pixels = max(float(self.outside.float().mean()), 1e-9)
            added = self.added_share / outside_pixels
            sentences.append(
                f"At {100 * added:.0f} % of these pixels the enlargement has more detail than the "
                "model, and at the others less."
            )
        if self.contradicted_share > CONTRADICTED_SHARE:
            sentences.append(
                f"Shrunk again, it contradicts {100 * self.contradicted_share:.1f} % of the pixels "
                f"of the small picture by more than {255 * TOLERANCE:.0f} of 255."
            )
        if not self.is_flagged:
            sentences.append("Nothing is flagged beyond what a true picture shows.")
        sentences += [f"The intervals may not hold: {sentence}" for sentence in self.unlike]
        return sentences


def audit(model: Model, low: ImageLike, high: ImageLike, *, coverage: float | None = None) -> Audit:
    """Compare an enlargement with the intervals that a model gives for the small picture.

    Args:
        model: A calibrated model for the scale of the enlargement.
        low: The low-resolution picture.
        high: The enlargement, `Model.scale` times as large.
        coverage: One of `Calibration.coverages`; by default the largest.
    """
    small = match_channels(as_batch(low), model.network.out_channels)
    large = match_channels(as_batch(high), model.network.out_channels)
    check_sizes(small, large, model.scale)
    calibration = model.require_calibration()
    share = max(calibration.coverages) if coverage is None else coverage
    prediction = model.predict(small)
    lower, upper = model.interval(prediction, coverage=share)
    # A picture file holds rounded values between 0 and 1: so much is no invention.
    mean, rounding = prediction.mean.clamp(0, 1), 0.5 / 255
    distance = ((large - mean).abs() - rounding).clamp_min(0) / ((upper - lower) / 2)
    score = distance[0].amax(0)
    has_more = _detail(large) > _detail(mean)
    # The small picture was cut off at 0 and 1 when it was made, too.
    error = (shrink(large, model.scale).clamp(0, 1) - small).abs()[0].amax(0)
    return Audit(
        coverage=share,
        score=score,
        added=(score > 1) & has_more,
        contradicts=error > TOLERANCE,
        outside_share=float((distance > 1).float().mean()),
        unlike=tuple(model.check(small)),
        expected=mean,
    )


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
            "give an enlargement of the whole picture"
        )
    return scale


def overlay(high: Tensor, result: Audit) -> Tensor:
    """Return the enlargement in grey, with what is flagged in colour, ``(1, 3, H, W)``.

    Added detail is orange, missing detail blue, and contradicted pixels are darkened to purple: the
    colours of Okabe and Ito.
    """
    grey = 0.3 + 0.6 * match_channels(high, 1)[0, 0].clamp(0, 1)
    picture = grey.expand(3, -1, -1).clone()
    scale = high.shape[-1] // result.contradicts.shape[-1]
    wide = result.contradicts.repeat_interleave(scale, 0).repeat_interleave(scale, 1)
    marks = (
        (wide, (0.80, 0.47, 0.65)),
        (result.outside & ~result.added, (0.0, 0.45, 0.70)),
        (result.added, (0.90, 0.37, 0.0)),
    )
    for mask, colour in marks:
        picture = torch.where(mask, torch.tensor(colour)[:, None, None], picture)
    return picture[None]


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
        "Flagged: added detail orange, missing detail blue, contradictions purple": overlay(
            high, result
        ),
        "What the model expects": result.expected,
        "The small picture, enlarged by bicubic": bicubic_up(low, high.shape[-1] // low.shape[-1]),
    }
    write_flipbook(path, pictures, title=title, sentences=result.in_words())


def _detail(image: Tensor) -> Tensor:
    """Return the local variance of the grey picture over 5 x 5 pixels, ``(H, W)``."""
    grey = image.mean(1, keepdim=True)
    options = {"kernel_size": 5, "stride": 1, "padding": 2, "count_include_pad": False}
    mean = avg_pool2d(grey, **options)  # type: ignore[arg-type]
    return avg_pool2d((grey - mean).square(), **options)[0, 0]  # type: ignore[arg-type]
