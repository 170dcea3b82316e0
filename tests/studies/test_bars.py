"""Records that the pages speak of keep within the limits that were set for them."""

import json

import pytest

from studies.paper.interval_coverage import RANGE
from studies.paper.measurements import RESULTS


def result_of(name):
    return json.loads((RESULTS / f"{name}.json").read_text())["result"]


@pytest.mark.parametrize("written", ["PNG", "JPEG 95", "WebP 95"])
def test_a_written_file_is_covered_as_the_float_result(written):
    coverage = result_of("written-coverage")["coverage"]
    assert coverage[written] == pytest.approx(coverage["float"], abs=0.01)


def test_intervals_of_the_study_hold_the_truth():
    low, high = RANGE
    result = result_of("interval-coverage")
    assert len(result["comparisons"]) == result["num_comparisons"]
    for name, shares in result["comparisons"].items():
        assert low <= shares["two_level"] <= high, name


def test_kills_lose_nothing_and_leave_nothing():
    result = result_of("faults")
    counts = result["counts"]
    assert counts["kills"] >= 100
    assert [counts[key] for key in ("differing results", "parts after SIGTERM")] == [0, 0]
    assert counts["parts after SIGINT"] == 0
    assert not any(result["faults"].values())
