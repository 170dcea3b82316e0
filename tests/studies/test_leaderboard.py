"""The leaderboard compares methods of equal budget on one set, and leaves the unmeasured empty."""

import pytest

from helpers.records import RECIPE, evaluation, save_all
from studies.documents.leaderboard import COLUMNS, METHODS, leaderboard_table
from studies.documents.result_tables import fidelity_table
from studies.paper.measurements import load_records
from studies.paper.report import make_table
from studies.paper.study import find_studies

OURS = "expected_l1 + 0.01 * sigma_l1"


def measured(
    pll,
    *,
    objective=OURS,
    seed=0,
    baseline=None,
    settings=None,
    data="Set5",
    method="pooled-quantile",
    **recipe,
):
    result = {"psnr_y": 37.0, "ssim_y": 0.9, "pll_calibrated": pll, "crps_calibrated": 0.0078}
    result |= {"ause": 0.16, "coverage": 0.9, "width": 0.04}
    chosen = {"objective": objective, "seed": seed, "settings": settings or {}, **recipe}
    model = {"baseline": baseline, "num_passes": 8} if baseline else {}
    model["calibration"] = {
        "method": method,
        "coverage": 0.9,
        "data": {"name": "held out", "hash": "h"},
    }
    return evaluation(
        recipe=chosen,
        model=model | {"training": {"recipe": RECIPE | chosen}},
        data=data,
        result=result,
    )


def board(folder, **records):
    return leaderboard_table(load_records(save_all(folder, **records)))


def test_methods_by_baseline_and_by_objective(tmp_path):
    table = board(
        tmp_path,
        a=measured(3.0),
        b=measured(2.9, objective="gaussian_nll", clip=1.0),
        c=measured(2.8, objective="l1 + 0.01 * sigma_quantile(level=0.9)"),
        d=measured(2.7, baseline="tta"),
        e=measured(2.6, objective="l1", baseline="mc-dropout", settings={"dropout": 0.1}),
    )
    place = table.headings.index("PLL") - table.num_names
    found = {row.names[2]: row.cells[place].text for row in table.rows}
    assert tuple(found) == METHODS
    assert found == dict.fromkeys(METHODS, "") | {
        "sigma branch": "3.000",
        "Gaussian NLL head": "2.900",
        "quantile head": "2.800",
        "test-time augmentation": "2.700",
        "MC dropout": "2.600",
    }
    assert {row.names[:2] for row in table.rows} == {
        ("edsr-baseline x2, 100 steps, batch 16", "Set5")
    }
    ours = table.rows[0]
    assert ours.names[3] == OURS
    texts = ["37.00", "3.000", "0.00780", "0.1600", "0.9000", "0.0400", "1"]
    assert [cell.text for cell in ours.cells] == texts
    assert ours.cells[0].sources == ("a.json",)
    tta = next(row for row in table.rows if row.names[2] == "test-time augmentation")
    assert tta.cells[-1].text == "8"
    assert "| MC dropout | l1 |" in table.as_markdown()


def test_seeds_are_averaged(tmp_path):
    table = board(
        tmp_path, a=measured(3.0), b=measured(3.2, seed=1), c=measured(2.5, baseline="constant")
    )
    cell = table.rows[0].cells[list(COLUMNS).index("PLL")]
    assert cell.text == "3.100 ± 0.141"  # 0.2 / sqrt 2
    assert cell.sources == ("a.json", "b.json")


@pytest.mark.parametrize(
    "change", [{"steps": 200}, {"batch": 32}, {"data": "Set14"}, {"method": "isotonic"}]
)
def test_nothing_is_compared_that_is_not_equal(tmp_path, change):
    table = board(tmp_path, a=measured(3.0), b=measured(2.9, baseline="tta", **change))
    assert table.rows == ()
    assert table.notes[0].startswith("No records yet")


def test_baselines_are_on_no_other_table(tmp_path):
    """Test-time augmentation has a better PSNR, and is no network that anybody trained."""
    record_set = load_records(save_all(tmp_path, a=measured(3.0), b=measured(2.9, baseline="tta")))
    assert [one.source for one in record_set.measurements] == ["a.json"]
    assert [one.source for one in record_set.baselines] == ["b.json"]
    assert make_table("uncertainty", record_set).sources == ()
    assert find_studies(record_set) == []
    assert make_table("leaderboard", record_set).sources == ("a.json", "b.json")
    assert fidelity_table([record_set.records["b.json"]]).count("\n") == 1


def test_a_constant_sigma_is_the_baseline_of_the_paper(tmp_path):
    record = measured(2.5, objective="l1", baseline="constant")
    record.result.update(pll=2.6, sigma_psnr_y=36.0)
    table = make_table("uncertainty", load_records(save_all(tmp_path, a=record)))
    (row,) = [row for row in table.rows if not row.printed]
    assert row.names[0] == "EDSR"
    assert row.cells[0].text == "2.60 / 36.00 / 2.50"
