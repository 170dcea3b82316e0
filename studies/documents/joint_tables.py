"""The tables of joint error bars and of the audit, and the figure of the box experiment.

``python -m studies.documents.joint_tables studies/results/joint-x4.json docs/figures/boxes.png``
draws the figure from a record of ``studies.measurements.joint_rows``.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from musigma.evaluation.record import Record, load_record
from musigma.restoration.figures import COLORS, INK, style, write_picture

KINDS = ("box 4", "box 8", "box 16", "box 32", "profile 16", "channel 8", "difference 8")
SIDES = (4, 8, 16, 32)
RULES = {
    "joint model": "joint",
    "independent pixels": "independent, normal factor",
    "bars averaged": "added, normal factor",
}
FITTED = "independent, factor for each kind"
PROGRAMS = {
    "truth": "the true picture",
    "bicubic": "bicubic",
    "edsr-baseline": "edsr-baseline, which audits",
    "imdn": "IMDN (released)",
    "realesrgan": "Real-ESRGAN x4plus, a GAN",
    "animevideo": "Real-ESRGAN animevideov3, a GAN",
}


def measured_sets(
    records: Iterable[Record], study: str = "joint-errors"
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Yield for every set that a study measured the first cells of its row, and its numbers."""
    for record in sorted(
        (record for record in records if record.protocol["name"] == study),
        key=lambda record: record.model["scale"],
    ):
        for name in record.data["name"].split(", "):
            result = record.result[name]
            yield [f"x{record.model['scale']}", f"{name} ({result['num_images']})"], result


def quantity_rows(records: Iterable[Record]) -> list[list[str]]:
    """Coverage of 90 % intervals, and their width over that of independent, fitted bars."""
    rows = []
    for first, result in measured_sets(records):
        joint, fitted = (
            [result["intervals"][rule][quantity] for quantity in KINDS]
            for rule in ("joint", FITTED)
        )
        cells = [
            f"{_coverage(own)} / {own['width'] / other['width']:.2f}"
            for own, other in zip(joint, fitted, strict=True)
        ]
        rows.append([*first, *cells])
    return rows


def _coverage(scores: dict[str, float]) -> str:
    """Write a coverage, with its standard error where the record has it."""
    error = f" ± {scores['coverage_error']:.1%}" if "coverage_error" in scores else ""
    return f"{scores['coverage']:.1%}{error}"


def likelihood_rows(records: Iterable[Record]) -> list[list[str]]:
    """Likelihood gained over independent errors."""
    return [
        [
            *first,
            f"{result['gain']:.2f} ± {result['gain_error']:.2f}",
            f"{result['least_gain']:.2f}",
            f"{result['num_negative_gains']}",
        ]
        for first, result in measured_sets(records, "joint-likelihood")
    ]


def sample_rows(records: Iterable[Record]) -> list[list[str]]:
    """What samples are like."""
    rows = []
    for first, result in measured_sets(records, "joint-samples"):
        samples = result["samples"]
        deviation, of_mean = (
            max(abs(value) for value in result[f"spectrum_of_{drawn}_db"])
            for drawn in ("samples", "mean")
        )
        cells = [
            f"{result['least_agreement_db']:.0f}",
            f"{samples['spread']:.2f}",
            f"{samples['mean_of_samples_db']:+.3f}",
            f"{samples['consistent_mean_db']:+.3f}",
            f"{deviation:.1f}",
            f"{of_mean:.1f}",
        ]
        rows.append([*first, *cells])
    return rows


def audit_rows(records: Iterable[Record]) -> list[list[str]]:
    """What audits of several programs gave."""
    rows = []
    for record in records:
        if record.protocol["name"] != "audit":
            continue
        for name, title in PROGRAMS.items():
            scores = record.result[name]
            auroc = f"{scores['auroc']:.3f}" if "auroc" in scores else "-"
            cells = [
                f"{scores['truly_wrong_share']:.1%}",
                f"{scores['wrong_share']:.1%}",
                f"{scores['strict_outside_share']:.2%}",
                f"{scores['invented_share']:.1%}",
                auroc,
                f"{scores['flagged']:.0%}",
            ]
            rows.append([title, *cells])
    return rows


@style()
def draw_boxes(record: Record) -> Figure:
    """Draw coverage and width of the intervals of box means by the side of the box."""
    name = record.data["name"].split(", ")[0]
    intervals = record.result[name]["intervals"]
    figure = Figure((7.2, 2.9), layout="constrained")
    coverage, width = figure.subplots(1, 2)
    for color, (title, rule) in zip(COLORS, RULES.items(), strict=False):
        rows = [intervals[rule][f"box {side}"] for side in SIDES]
        options: Any = {"color": color, "marker": "o", "label": title}
        coverage.plot(SIDES, [100 * row["coverage"] for row in rows], **options)
        width.plot(SIDES, [row["width"] for row in rows], **options)
    coverage.axhline(100 * record.protocol["coverage"], color=INK, linewidth=0.8, linestyle="--")
    coverage.set_ylabel("inside the interval (%)")
    coverage.legend(fontsize=8)
    width.set_ylabel("width of the interval (levels of 255)")
    width.set_yscale("log")
    for axes in (coverage, width):
        axes.set_xscale("log", base=2)
        axes.set_xticks(SIDES, [str(side) for side in SIDES])
        axes.set_xlabel("side of the box (pixels)")
    return figure


if __name__ == "__main__":
    write_picture(Path(sys.argv[2]), draw_boxes(load_record(Path(sys.argv[1]))))
