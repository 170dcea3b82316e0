"""Objectives for a training loop, written as text: ``Objective("expected_l1 + 0.01 * sigma_l1")``.

The maths is in `musigma.functional.objectives`.
"""

from musigma.losses.objective import Objective
from musigma.losses.terms import names, register

__all__ = ["Objective", "names", "register"]
