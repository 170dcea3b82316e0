"""Fit how the errors of shipped weights are correlated, and store it with their calibration.

``python -m studies.shipped_weights.joint_fit NAME SCALE OUTPUT.safetensors`` reads the weights that
ship under a name, fits joint errors on ``DIV2K_crops`` with the inputs of the calibration, and
writes the file. Weights, calibration and digest stay as they are.
"""

import sys
from pathlib import Path

from musigma.evaluation.joint import with_joint_errors
from musigma.evaluation.selection import select_inputs
from musigma.model import load
from musigma.types import ConfigError

HELD_OUT = "DIV2K_crops"


def main(name: str, scale: int, output: Path) -> None:
    """Fit, print the coverage of each kind of quantity, and write the file."""
    model = load(name, scale=scale)
    degradation = (model.require_calibration().protocol or {}).get("degradation")
    if degradation is None:
        raise ConfigError(f"{name} does not say for which inputs it was calibrated")
    texts = [degradation] if isinstance(degradation, str) else list(degradation)
    dataset, protocols = select_inputs(
        model.network, HELD_OUT, degradations=[] if texts == ["bicubic"] else texts
    )
    fitted, quantities = with_joint_errors(model, dataset, protocols)
    joint = fitted.require_joint()
    print(f"power {joint.power:g}")
    for share, factor in joint.factors:
        held = quantities.coverage_by_kind(factor)
        print(f"{share:g}: factor {factor:.3f}", {name: round(v, 3) for name, v in held.items()})
    fitted.save(output, half=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
