"""A calibration for tests, whose numbers are easy to follow."""

from typing import Any

from musigma.uncertainty.calibration import Calibration


def calibration_of(**changes: Any) -> Calibration:
    """A standard deviation of 1.5 sigma, and a half-width of twice that; with changes."""
    values: dict[str, Any] = {
        "method": "conformal-risk-control",
        "knots": (1.0,),
        "values": (1.5,),
        "factor": 2.0,
        "coverage": 0.9,
        "confidence": None,
        "num_images": 9,
    }
    return Calibration(**(values | changes))
