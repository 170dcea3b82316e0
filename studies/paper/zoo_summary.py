"""What the study says about all networks together: the mean gain, and whether distance matters.

Each network is one observation here, so that the intervals are about other networks. Single gains
and their p-values stand in the table of all networks.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from studies.paper.measurements import RecordSet
from studies.paper.study import p_text
from studies.paper.tables import Cell, Row, Table
from studies.paper.two_level import Interval, t_quantile
from studies.paper.zoo import Entry, find_entries

TITLE = "All networks together"

LEAST_NETWORKS = 3
"""Below this number a group of networks has no row."""

NUM_ORDERS = 20_000
"""Random orders with which a rank correlation is compared."""


@dataclass(frozen=True)
class Correlation:
    """How two orders agree, from -1 to 1, and how often chance agrees as well or better."""

    value: float
    p_value: float


def mean_over_networks(gains: Sequence[float]) -> Interval:
    """Return the mean gain with its 95 % interval over networks (Student's t).

    Example:
        >>> mean, low, high = mean_over_networks([0.0, 0.01, 0.02])
        >>> f"{mean:.3f} from {low:.3f} to {high:.3f}"
        '0.010 from -0.015 to 0.035'
    """
    mean = float(np.mean(gains))
    error = float(np.std(gains, ddof=1)) / math.sqrt(len(gains))
    half = t_quantile(0.95, len(gains) - 1) * error
    return Interval(mean, mean - half, mean + half)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> Correlation:
    """Return Spearman's rank correlation; its p-value is two-sided, from random orders.

    Example:
        >>> rank_correlation([1, 2, 3, 4, 5, 6, 7], [1, 3, 2, 4, 5, 6, 7]).value.__round__(3)
        0.964
    """
    ranks = [_centered_ranks(values) for values in (first, second)]
    scale = math.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum())
    value = float(ranks[0] @ ranks[1]) / scale
    generator = np.random.default_rng(0)
    by_chance = generator.permuted(np.tile(ranks[1], (NUM_ORDERS, 1)), axis=1) @ ranks[0] / scale
    as_large = int((np.abs(by_chance) >= abs(value) - 1e-12).sum())
    return Correlation(value, (1 + as_large) / (1 + NUM_ORDERS))


def _centered_ranks(values: Sequence[float]) -> np.ndarray:
    """Return ranks less their mean; equal values share the mean of their ranks."""
    array = np.asarray(values, dtype=float)
    below = (array[:, None] > array).sum(1)
    equal = (array[:, None] == array).sum(1)
    ranks = below + (equal - 1) / 2
    return ranks - ranks.mean()


def summary_table(record_set: RecordSet) -> Table:
    """Return the mean gain over the networks of each task, and how it goes with the distance."""
    return Table(
        name="zoo-summary",
        title=TITLE,
        caption="The gains of the paper's full objective over l1, one for each network.",
        headings=("networks", "number", "above 0", "mean gain", "rank correlation", "p"),
        rows=tuple(_rows(find_entries(record_set))),
        notes=(
            "In brackets: the 95 % interval over networks. The records are those of the table zoo.",
            "Rank correlation: of the gain and of how far the loss of l1 still fell, over the "
            "networks whose logs tell it. Its p comes from random orders.",
        ),
    )


def _rows(entries: Sequence[Entry]) -> Iterator[Row]:
    groups = {
        "all": entries,
        "those that enlarge": [entry for entry in entries if entry.recipe["scale"] > 1],
        "denoisers": [entry for entry in entries if entry.recipe["scale"] == 1],
    }
    for name, group in groups.items():
        gains = [(e, e.difference.mean) for e in group if e.difference is not None]
        if len(gains) < LEAST_NETWORKS:
            continue
        mean, low, high = mean_over_networks([gain for _, gain in gains])
        known = [(e.loss_fall, gain) for e, gain in gains if e.loss_fall is not None]
        law = rank_correlation(*zip(*known, strict=True)) if len(known) >= LEAST_NETWORKS else None
        yield Row(
            (name,),
            (
                Cell(str(len(gains))),
                Cell(str(sum(gain > 0 for _, gain in gains))),
                Cell(f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"),
                Cell(f"{law.value:+.2f}" if law else ""),
                Cell(p_text(law.p_value) if law else ""),
            ),
        )
