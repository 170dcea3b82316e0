"""Names and defaults of calibration, without heavy imports, so that help texts can show them."""

from typing import Literal, get_args

Method = Literal[
    "conformal-risk-control",
    "pooled-quantile",
    "gaussian-scale",
    "isotonic",
    "conformal",
    "risk-control",
]
METHODS: tuple[Method, ...] = get_args(Method)
"""The ways to fit a calibration, the default first; `musigma.uncertainty.fitting` has them all."""

WITHOUT_FACTOR: tuple[Method, ...] = ("gaussian-scale", "isotonic")
"""The methods whose intervals are those of a normal distribution, with no factor to be fitted."""

FORMER_METHODS = {
    "expected": "conformal-risk-control",
    "average": "pooled-quantile",
    "scale": "gaussian-scale",
    "risk_control": "risk-control",
}
"""What the methods are called in files that were written before version 0.2."""

DEFAULT_COVERAGE = 0.9
"""The share of the values that intervals should hold, where nothing else is asked for."""

COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)
"""The coverages that every calibration is fitted for, as far as the held-out images allow."""

DEFAULT_CONFIDENCE = 0.9
"""The probability of a promise, where nothing else is asked for."""
