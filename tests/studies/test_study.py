"""The study pairs images and seeds, and takes nothing for equal that is not."""

import pytest

from helpers.records import evaluation, run, save_all
from musigma.types import DataError
from studies.paper.figures import draw
from studies.paper.measurements import load_records
from studies.paper.study import find_studies, study_table


def study_of(folder, **records):
    (study,) = find_studies(load_records(save_all(folder, **records)))
    return study


def test_means_spread_and_gain(tmp_path):
    study = study_of(
        tmp_path,
        a0=run("l1", 0, {"Set5": [36.0, 38.0]}),
        a1=run("l1", 1, {"Set5": [36.2, 38.2]}),
        b0=run("expected_l1", 0, {"Set5": [36.1, 38.1]}),
        b1=run("expected_l1", 1, {"Set5": [36.3, 38.3]}),
    )
    assert study.title == "edsr-baseline x2, 100 steps, batch 16"
    assert list(study.outcomes) == ["l1", "expected_l1"]
    l1, ours = study.outcomes["l1"]["Set5"], study.outcomes["expected_l1"]["Set5"]
    assert (l1.mean, l1.gain) == (pytest.approx(37.1), None)
    # Every pair differs by 0.1: nothing is left to chance. Spread of 37.1 and 37.3: 0.2 / sqrt 2.
    assert ours.gain == pytest.approx((0.1, 0.1, 0.1), abs=1e-5)
    assert ours.spread == pytest.approx(0.2 / 2**0.5)
    assert ours.sources == ("b0.json", "b1.json")
    assert study.sets == ("Set5", "held out", "all images")


def test_runs_on_patches_of_one_grid_are_a_study_of_their_own(tmp_path):
    older = [run(objective, 0, {"Set5": [36.0]}) for objective in ("l1", "l2")]
    for record in older:
        del record.model["recipe"]["swap_channels"]
    newer = [run(objective, 0, {"Set5": [37.0]}) for objective in ("l1", "l2")]
    records = dict(zip("abcd", [*older, *newer], strict=True))
    titles = [study.title for study in find_studies(load_records(save_all(tmp_path, **records)))]
    now = "edsr-baseline x2, 100 steps, batch 16"
    assert titles == [now, f"{now}, one grid"]


def test_a_seed_that_was_run_again_counts_by_the_mean_of_its_runs(tmp_path):
    study = study_of(
        tmp_path,
        a0=run("l1", 0, {"Set5": [36.0, 38.0]}),
        a0_again=run("l1", 0, {"Set5": [36.2, 38.4]}),
        a1=run("l1", 1, {"Set5": [36.0, 38.0]}),
        b0=run("l2", 0, {"Set5": [37.1, 39.2]}),
    )
    l1, l2 = study.outcomes["l1"]["Set5"], study.outcomes["l2"]["Set5"]
    assert l1.seeds == pytest.approx((37.15, 37.0))
    assert l1.sources == ("a0.json", "a0_again.json", "a1.json")
    assert l2.gain == pytest.approx((1.0, 1.0, 1.0))


def test_only_shared_images_and_seeds_are_compared(tmp_path):
    study = study_of(
        tmp_path,
        a0=run("l1", 0, {"Set5": {"baby": 30.0, "bird": 31.0}}),
        b0=run("l2", 0, {"Set5": {"baby": 31.0, "head": 90.0}}),
        b1=run("l2", 1, {"Set5": {"baby": 90.0}}),
    )
    assert study.outcomes["l2"]["Set5"].gain == pytest.approx((1.0, 1.0, 1.0))


def test_noise_levels_are_sets_of_their_own(tmp_path):
    records = {
        f"{objective}-{level:g}": evaluation(
            model={"name": "drunet-grey", "scale": 1},
            recipe={"objective": objective, "seed": 0},
            protocol={"name": "denoise", "noise_std": level, "channels": 1},
            result={"psnr": psnr},
            images={"test001": {"psnr": psnr}},
            data="BSD68",
        )
        for objective, level, psnr in (
            ("l1", 15.0, 31.0),
            ("l1", 50.0, 26.0),
            ("l2", 15.0, 31.5),
            ("l2", 50.0, 26.1),
        )
    }
    study = study_of(tmp_path, **records)
    gains = {name: outcome.gain.mean for name, outcome in study.outcomes["l2"].items()}
    assert gains == pytest.approx({"BSD68 15": 0.5, "BSD68 50": 0.1, "all images": 0.3})


@pytest.mark.parametrize("change", [{"batch": 32}, {"steps": 200}, {"steps": None, "seconds": 9.0}])
def test_unequal_runs_are_no_study(tmp_path, change):
    folder = save_all(
        tmp_path,
        a=run("l1", 0, {"Set5": [36.0]}),
        b=run("l2", 0, {"Set5": [36.0]}, **change),
    )
    record_set = load_records(folder)
    assert find_studies(record_set) == []
    assert study_table(record_set).notes[0].startswith("No records yet")
    with pytest.raises(DataError, match="no study"):
        draw("study", record_set)


def test_table_and_figure_tell_the_same_records(tmp_path):
    sigma = {"sigma": True}
    folder = save_all(
        tmp_path,
        a=run("l1", 0, {"Set5": [36.0, 38.0]}),
        b=run("expected_l1 + 0.01 * sigma_l1", 0, {"Set5": [36.5, 38.1]}, **sigma),
    )
    record_set = load_records(folder)
    table, drawing = study_table(record_set), draw("study", record_set)
    assert set(table.sources) == set(drawing.sources) == {"a.json", "b.json"}
    cell = table.rows[1].cells[table.headings.index("Set5") - table.num_names]
    assert cell.text.startswith("37.300 (+0.300: +0.100 to +0.500)")
    labels = [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()]
    assert labels == ["expected_l1 + 0.01 * sigma_l1"]
