"""The tables and the figure of joint errors, from records that are made up here."""

from dataclasses import replace

from musigma.evaluation.record import Record
from studies.documents.joint_tables import (
    FITTED,
    KINDS,
    PROGRAMS,
    RULES,
    audit_rows,
    draw_boxes,
    likelihood_rows,
    quantity_rows,
    sample_rows,
)


def record(name: str, result: dict, data: str = "B100") -> Record:
    return Record(
        kind="benchmark",
        model={"name": "edsr-baseline", "scale": 4},
        protocol={"name": name, "coverage": 0.9},
        data={"name": data},
        result=result,
        provenance={},
    )


def joint_record() -> Record:
    def scores(width: float) -> dict:
        return {name: {"coverage": 0.91, "width": width} for name in KINDS}

    numbers = {
        "num_images": 20,
        "intervals": {"joint": scores(3.0), FITTED: scores(4.0)}
        | {rule: scores(5.0) for rule in RULES.values() if rule != "joint"},
    }
    return record("joint-errors", {"B100": numbers, "Set14": numbers}, "B100, Set14")


def test_intervals_are_compared_with_fitted_independent_bars():
    rows = quantity_rows([joint_record(), record("other", {})])
    assert [row[:2] for row in rows] == [["x4", "B100 (20)"], ["x4", "Set14 (20)"]]
    assert set(rows[0][2:]) == {"91.0% / 0.75"}


def test_a_coverage_has_its_standard_error_where_the_record_has_it():
    measured = joint_record()
    for name in ("B100", "Set14"):
        for scores in measured.result[name]["intervals"]["joint"].values():
            scores["coverage_error"] = 0.012
    assert set(quantity_rows([measured])[1][2:]) == {"91.0% ± 1.2% / 0.75"}


def test_likelihood_has_rows_by_scale_and_set():
    gains = {"num_images": 7, "gain": 0.987, "gain_error": 0.051, "least_gain": -0.4}
    measured = record("joint-likelihood", {"Set14": gains | {"num_negative_gains": 1}}, "Set14")
    smaller = replace(measured, model={"scale": 2})
    rows = likelihood_rows([measured, joint_record(), smaller])
    assert rows[1] == ["x4", "Set14 (7)", "0.99 ± 0.05", "-0.40", "1"]
    assert [row[0] for row in rows] == ["x2", "x4"]


def test_samples_have_the_largest_difference_of_their_spectrum():
    numbers = {
        "num_images": 20,
        "samples": {"spread": 0.95, "mean_of_samples_db": 0.01, "consistent_mean_db": -0.02},
        "least_agreement_db": 72.4,
        "spectrum_of_samples_db": [0.1, -1.2],
        "spectrum_of_mean_db": [0.0, -9.5],
    }
    (row,) = sample_rows([record("joint-samples", {"B100": numbers})])
    assert row[2:] == ["72", "0.95", "+0.010", "-0.020", "1.2", "9.5"]


def test_an_audit_has_a_row_for_each_program():
    shares = ("truly_wrong_share", "wrong_share", "strict_outside_share", "invented_share")
    scores = dict.fromkeys((*shares, "flagged"), 0.25)
    result = {name: scores | {"auroc": 0.9} for name in PROGRAMS} | {"truth": scores}
    rows = audit_rows([record("audit", result)])
    assert rows[0] == ["the true picture", "25.0%", "25.0%", "25.00%", "25.0%", "-", "25%"]
    assert rows[1][-2:] == ["0.900", "25%"]


def test_the_figure_has_a_line_for_each_way_to_make_intervals():
    coverage, width = draw_boxes(joint_record()).axes
    assert [line.get_ydata()[0] for line in width.lines] == [3.0, 5.0, 5.0]
    assert coverage.lines[0].get_ydata()[0] == 91.0
