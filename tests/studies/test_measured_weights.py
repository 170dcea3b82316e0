"""What is told of the weights that ship comes from the records."""

import musigma
from helpers.documents import ROOT
from helpers.records import evaluation
from musigma.evaluation.record import load_record
from musigma.networks.weight_choices import MEASURED
from studies.documents.measured_weights import measured_weights, text
from studies.documents.result_tables import read_records, weights_table

RECORDS = read_records(ROOT / "studies" / "results")


def test_the_file_is_what_the_records_give():
    assert MEASURED.read_text() == text(measured_weights(RECORDS)), "run 'make tables'"


def test_scores_and_times_are_those_of_their_records():
    results = ROOT / "studies" / "results"
    score = load_record(results / "evaluation" / "edsr-baseline-Urban100-x4.json").result
    numbers = measured_weights(RECORDS)
    assert numbers["edsr-baseline-x4"]["psnr_y"]["Urban100"] == round(score["psnr_y"], 3)
    assert numbers["edsr-baseline-x4"]["pll"]["Urban100"] == round(score["pll_calibrated"], 3)
    timed = load_record(results / "infer-cpu.json")
    milliseconds = timed.result["timings"]["openvino"]["median_ms"]
    times = numbers["edsr-baseline-x2"]["times"][timed.provenance["device"]]
    # 320x180 becomes 640x360, which is 0.2304 megapixels.
    assert abs(times["s_per_megapixel"] - milliseconds / 230.4) < 1e-3


def test_other_inputs_other_weights_and_other_calibrations_do_not_count():
    digest = musigma.load("photo", scale=2).digest
    scores = {"psnr_y": 33.0, "pll_calibrated": 3.0}

    def record(psnr, *, protocol="sr-y", digest=digest, method="conformal-risk-control"):
        return evaluation(
            model={"digest": digest, "calibration": {"method": method}},
            protocol={"name": protocol},
            result=scores | {"psnr_y": psnr},
        )

    records = [
        record(33.0),
        record(30.0, protocol="degraded"),
        record(31.0, digest="another"),
        record(32.0, method="pooled-quantile"),
    ]
    assert measured_weights(records)["photo-x2"]["psnr_y"] == {"Set14": 33.0}


def test_the_table_has_a_row_for_each_choice_that_ships():
    rows = weights_table(RECORDS).splitlines()[2:]
    assert {row.split("`")[1] for row in rows} <= {"fast", "standard", "large"}
    assert any(row.startswith("| `standard` x2") for row in rows)
