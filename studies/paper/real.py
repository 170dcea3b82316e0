"""Pairs of real cameras: what l_E gives each network, and what the error bars hold.

The networks are those of the campaign's entries ``realsr-short-...``, whether they were run or not.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from studies.commands.campaign import CAMPAIGN
from studies.paper.measurements import RecordSet
from studies.paper.study import PValues, p_text
from studies.paper.tables import Cell, Row, Table
from studies.paper.zoo import (
    NOT_RUN,
    Entry,
    corrected,
    find_entries,
    joint_interval,
    sources_of,
)
from studies.training_runs.campaign import Plan, load_campaign

ENTRIES = "realsr-short-"
COVERAGE_RECORD = "real-coverage.json"
TITLE = "Real cameras: what l_E gives each network"
COVERAGE_TITLE = "Real cameras: what the error bars hold"
_HEADINGS = ("updates", "l1", "gain", "interval for all networks", "p", "p, corrected")
_GROUPS = {
    "NikonD5500": "City100 Nikon D5500",
    "iPhoneX": "City100 iPhone X",
    "RealSR_ntire2019_middle": "NTIRE 2019",
}


def real_plans() -> list[Plan]:
    """Return the entries of the campaign that compare objectives on real pairs, on a CPU."""
    return [plan for plan in load_campaign(CAMPAIGN) if plan.name.startswith(ENTRIES)]


def real_table(record_set: RecordSet, plans: Sequence[Plan] | None = None) -> Table:
    """Return the table of gains over l1, corrected for the number of networks."""
    entries = find_entries(record_set, real_plans() if plans is None else plans)
    p_values = corrected(entries)
    rows = [
        Row((entry.recipe["network"],), _cells(entry, p_values, len(entries))) for entry in entries
    ]
    return Table(
        name="real",
        title=TITLE,
        caption="The paper's full objective against l1 at equal updates, data and seeds; PSNR (dB) "
        "on Y over the middle of 10 pairs of City100 and 16 pairs of the NTIRE 2019 challenge.",
        headings=("network", *_HEADINGS),
        rows=tuple(rows),
        notes=(
            "In brackets: the 95 % interval of one gain by itself, which counts seeds and images. "
            "The next column holds for all networks together (Bonferroni), and the corrected p "
            "counts all of them (Holm), those that were not run included.",
        ),
    )


def _cells(entry: Entry, p_values: Mapping[str, PValues], num_networks: int) -> tuple[Cell, ...]:
    if entry.difference is None or entry.reference is None:
        return (Cell(NOT_RUN), *(Cell(),) * (len(_HEADINGS) - 1))
    mean, low, high = entry.difference.interval()
    _, lowest, highest = joint_interval(entry.difference, num_networks)
    p_value = p_values[entry.name]
    return (
        Cell(f"{entry.recipe['steps']:,}"),
        Cell(f"{entry.reference.mean:.3f}"),
        Cell(f"{mean:+.3f} ({low:+.3f} to {high:+.3f})", sources_of(entry)),
        Cell(f"{lowest:+.3f} to {highest:+.3f}"),
        Cell(p_text(p_value.plain)),
        Cell(p_text(p_value.corrected)),
    )


def real_coverage_table(record_set: RecordSet) -> Table:
    """Return what 90 % intervals hold, by the camera that they were fitted on."""
    record = record_set.records.get(COVERAGE_RECORD)
    results: Mapping[str, Any] = record.result if record else {}
    rows = [
        Row((name, _GROUPS[camera]), tuple(_share(by_group[group]) for group in _GROUPS))
        for name, result in results.items()
        for camera, by_group in result["fitted_on"].items()
    ]
    missing = "No records yet: `python -m studies.measurements.real_cameras` makes them."
    return Table(
        name="real-coverage",
        title=COVERAGE_TITLE,
        caption="Share of the true values inside 90 % intervals that were fitted on ten pairs of "
        "one camera, and the mean width of the intervals in 8-bit levels.",
        headings=("run", "fitted on", *_GROUPS.values()),
        rows=tuple(rows),
        notes=() if rows else (missing,),
    )


def _share(measured: Mapping[str, float]) -> Cell:
    text = f"{measured['coverage']:.1%}, {255 * measured['width']:.0f} wide"
    return Cell(text, (COVERAGE_RECORD,))
