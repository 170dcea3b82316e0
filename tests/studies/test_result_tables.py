"""What README and docs print: a mean that was kept is not told twice, and weights speak first."""

import pytest

from helpers.records import RECIPE, evaluation
from musigma.evaluation.record import Record, load_record
from studies.documents.result_tables import (
    denoising_table,
    fidelity_table,
    runs_table,
    uncertainty_table,
)

SHIPPED = {"steps": None, "seconds": 60.0, "objective": "sigma_l2"}
SIGMA = {"psnr_y": 33.0, "ssim_y": 0.9, "pll": 2.5, "pll_calibrated": 3.0, "sigma_psnr": 35.0}


def measured(method: str, coverage: float, **recipe: object) -> Record:
    training = {"recipe": RECIPE | SHIPPED | recipe, "seconds": 60.0}
    return evaluation(
        model={"training": training, "calibration": {"method": method}},
        result=SIGMA | {"coverage": coverage},
    )


@pytest.mark.parametrize("order", [1, -1])
def test_the_calibration_of_the_weights_stands_before_one_made_in_memory(order):
    records = [measured("conformal-risk-control", 0.91), measured("pooled-quantile", 0.9)][::order]
    (row,) = uncertainty_table(records).splitlines()[2:]
    assert row.split(" | ")[2] == "2.50 / 3.00 / 35.00 / - / 91.0%"


def test_a_mean_that_was_kept_has_its_row_already():
    kept = {"keep_mean": True, "start_from": "runs/imdn_x2.pth"}
    record = measured("conformal-risk-control", 0.91, **kept)
    assert "Set14" in fidelity_table([record])  # the heading
    assert "33.00" not in fidelity_table([record])
    assert "edsr-baseline x2, mean of imdn_x2, sigma_l2, 60 s" in uncertainty_table([record])
    assert "33.00" in fidelity_table([measured("conformal-risk-control", 0.91)])


def test_runs_that_trained_no_mean_or_were_not_validated_are_left_out_of_the_runs():
    def trained(psnr: float | None = 34.86, **recipe: object) -> Record:
        chosen = RECIPE | SHIPPED | {"optimizer": "adam", "learning_rate": 1e-4} | recipe
        return Record(
            kind="training",
            model={"name": "imdn", "scale": 2, "params": 1, "digest": "", "recipe": chosen},
            protocol={"name": "sr-y"},
            data={"name": "train", "hash": "h"},
            result={
                "steps": 9,
                "seconds": 60.0,
                "validation": {} if psnr is None else {"psnr_y": psnr},
            },
            provenance=evaluation().provenance,
        )

    assert runs_table([trained()]).count("34.86") == 1
    assert runs_table([trained(keep_mean=True)]).count("34.86") == 0
    assert runs_table([trained(steps=100)]).count("34.86") == 0
    assert "imdn" not in runs_table([trained(psnr=None)])


def test_an_infinite_psnr_is_shown(tmp_path):
    """A record holds null for it; an image that is restored exactly has one."""
    perfect = {"psnr_y": float("inf"), "ssim_y": 1.0}
    evaluation(recipe={"steps": None, "seconds": 9.0}, result=perfect).save(tmp_path / "a.json")
    record = load_record(tmp_path / "a.json")
    record.model["training"]["seconds"] = 9.0
    record.model["training"]["recipe"]["objective"] = "l1"
    assert "inf / 1.0000" in fidelity_table([record])


def test_short_runs_of_the_study_stay_out_of_the_table_of_denoisers():
    protocol = {"name": "denoise", "noise_std": 25.0, "channels": 3}
    common = {"protocol": protocol, "result": {"psnr": 31.0}, "data": "CBSD68"}
    released = evaluation(model={"name": "dncnn-colour", "scale": 1}, **common)
    short = evaluation(
        model={"name": "ffdnet-colour", "scale": 1},
        recipe={"steps": 5000, "objective": "l1"},
        **common,
    )
    table = denoising_table([released, short])
    assert "dncnn-colour (released weights)" in table
    assert "ffdnet-colour" not in table
