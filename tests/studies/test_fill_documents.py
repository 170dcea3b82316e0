"""Tables in documents: filled from records, without what nobody has measured."""

import pytest

from helpers.records import evaluation, save_all
from musigma.types import DataError
from studies.documents.fill_documents import fill

RESULT = {"psnr_y": 37.0, "pll_calibrated": 3.0, "crps_calibrated": 0.01, "ause": 0.2}


def measured(**model):
    data = {"name": "held out", "hash": "h"}
    calibration = {"calibration": {"method": "pooled-quantile", "coverage": 0.9, "data": data}}
    recipe = {"objective": "expected_l1 + 0.01 * sigma_l1", "seed": 0}
    training = {"recipe": recipe | {"steps": 100, "batch": 16, "swap_channels": False}}
    return evaluation(model=calibration | {"training": training} | model, result=RESULT)


def test_only_what_was_measured_stands_there(tmp_path):
    records = save_all(tmp_path, a=measured(), b=measured(baseline="tta", num_passes=8))
    text = fill("before\n<!-- table: leaderboard -->\nold\n<!-- end -->\nafter", records)
    lines = text.splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "old" not in text
    rows = [line.split(" | ")[2] for line in lines if line.startswith("| edsr")]
    assert rows == ["sigma branch", "test-time augmentation"]


def test_a_table_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(DataError, match="no table 'leaderbord'"):
        fill("<!-- table: leaderbord -->\n<!-- end -->", tmp_path)


def filled(mark: str, folder) -> str:
    return fill(f"<!--= {mark} -->old<!--/-->", folder).partition("-->")[2].partition("<")[0]


def test_a_number_comes_from_its_record(tmp_path):
    record = evaluation(result={"psnr_y": 37.962, "timings": {"a": {"ms": 8.0}, "b": {"ms": 2.0}}})
    save_all(tmp_path, a=record, b=evaluation(result={"psnr_y": 36.5}))
    assert filled("a; psnr_y; .2f", tmp_path) == "37.96"
    assert filled("a; timings/a/ms; .1f", tmp_path) == "8.0"
    assert filled("a; timings/a/ms over timings/b/ms; .1f", tmp_path) == "4.0"
    assert filled("a minus b; psnr_y; .2f", tmp_path) == "1.46"


@pytest.mark.parametrize(
    ("mark", "line"),
    [
        ("a; psnr; .2f", "has no result 'psnr'"),
        ("a; psnr_y", "expected 'RECORD; KEY; FORMAT'"),
        ("missing; psnr_y; .2f", "could not be read"),
        ("study; runs; l1; Set5", "no gain of 'l1'"),
    ],
)
def test_a_mark_that_cannot_be_filled_is_named(tmp_path, mark, line):
    save_all(tmp_path, a=evaluation())
    with pytest.raises(DataError, match=line):
        filled(mark, tmp_path)
