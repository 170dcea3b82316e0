"""The paper's figures, drawn again from our own code and records: one function each."""

from collections.abc import Callable
from typing import NamedTuple

from musigma.types import ConfigError, nearest
from studies.paper.figures.cost import draw_trade_off
from studies.paper.figures.objective import draw_collapse, draw_landscape
from studies.paper.figures.photos import draw_comparison, draw_sigma
from studies.paper.figures.style import Drawing
from studies.paper.figures.training import draw_convergence, draw_study
from studies.paper.figures.zoo import draw_zoo
from studies.paper.measurements import RecordSet

__all__ = ["FIGURES", "Drawing", "Figure", "draw"]


class Figure(NamedTuple):
    """What a figure is about, and how it is drawn."""

    title: str
    draw: Callable[[RecordSet], Drawing]


FIGURES = {
    "sigma-collapse": Figure("How sigma collapses", draw_collapse),
    "landscape": Figure("The landscape of the naive objective", draw_landscape),
    "convergence": Figure("Convergence", draw_convergence),
    "trade-off": Figure("Quality against cost", draw_trade_off),
    "comparison": Figure("Visual comparison", draw_comparison),
    "sigma-error": Figure("Sigma against the true error", draw_sigma),
    "study": Figure("What objectives gain at equal budget", draw_study),
    "zoo": Figure("What l_E gives each network", draw_zoo),
}


def draw(name: str, record_set: RecordSet) -> Drawing:
    """Draw a figure by its name."""
    if name not in FIGURES:
        raise ConfigError(f"there is no figure {name!r}; {nearest(name, list(FIGURES))}")
    return FIGURES[name].draw(record_set)
