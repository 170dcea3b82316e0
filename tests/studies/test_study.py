"""The study pairs images and seeds, and takes nothing for equal that is not."""

import pytest

from helpers.records import evaluation, run, save_all
from musigma.types import DataError
from studies.paper.figures import draw
from studies.paper.measurements import load_records
from studies.paper.study import (
    corrected_p_values,
    find_studies,
    objective_studies,
    study_table,
)


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
    assert ours.gain == pytest.approx(0.1)
    assert ours.difference.interval() == pytest.approx((0.1, 0.1, 0.1), abs=1e-5)
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
    assert l2.gain == pytest.approx(1.0)
    assert l2.difference is None  # one shared seed says nothing about others


def test_only_shared_images_and_seeds_are_compared(tmp_path):
    study = study_of(
        tmp_path,
        a0=run("l1", 0, {"Set5": {"baby": 30.0, "bird": 31.0}}),
        b0=run("l2", 0, {"Set5": {"baby": 31.0, "head": 90.0}}),
        b1=run("l2", 1, {"Set5": {"baby": 90.0}}),
    )
    assert study.outcomes["l2"]["Set5"].gain == pytest.approx(1.0)


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
    gains = {name: outcome.gain for name, outcome in study.outcomes["l2"].items()}
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
        c=run("l1", 1, {"Set5": [36.0, 38.0]}),
        d=run("expected_l1 + 0.01 * sigma_l1", 1, {"Set5": [36.5, 38.1]}, **sigma),
    )
    record_set = load_records(folder)
    table, drawing = study_table(record_set), draw("study", record_set)
    assert set(table.sources) == set(drawing.sources) == {"a.json", "b.json", "c.json", "d.json"}
    cell = table.rows[1].cells[table.headings.index("Set5") - table.num_names]
    # Gains of 0.5 and 0.1: t with one degree of freedom is 12.7, the standard error 0.2.
    assert cell.text == "37.300 ± 0.000 (+0.300: -2.241 to +2.841)"
    assert [cell.text for cell in table.rows[1].cells[-2:]] == ["0.37", "0.37"]
    labels = [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()]
    assert labels == ["expected_l1 + 0.01 * sigma_l1"]


def test_one_seed_has_a_gain_and_no_interval(tmp_path):
    folder = save_all(
        tmp_path,
        a=run("l1", 0, {"Set5": [36.0, 38.0]}),
        b=run("l2", 0, {"Set5": [36.5, 38.1]}),
    )
    table = study_table(load_records(folder))
    cell = table.rows[1].cells[table.headings.index("Set5") - table.num_names]
    assert cell.text == "37.300 (+0.300)"


def test_p_values_are_corrected_for_all_comparisons(tmp_path):
    gains = {"l2": (0.1, 0.11, 0.09), "charbonnier": (0.1, -0.2, 0.15)}
    records = {f"l1-{seed}": run("l1", seed, {"Set5": [36.0, 38.0]}) for seed in range(3)}
    for objective, values in gains.items():
        for seed, gain in enumerate(values):
            scores = {"Set5": [36.0 + gain, 38.0 + gain]}
            records[f"{objective}-{seed}"] = run(objective, seed, scores)
    p_values = corrected_p_values(find_studies(load_records(save_all(tmp_path, **records))))
    by_objective = {objective: values for (_, objective), values in p_values.items()}
    assert by_objective["l2"].corrected == pytest.approx(2 * by_objective["l2"].plain)
    assert by_objective["charbonnier"].corrected == by_objective["charbonnier"].plain > 0.5


def test_the_study_over_all_networks_stays_out_of_the_study_of_objectives(tmp_path):
    records = {
        f"{prefix}-{objective}": run(objective, 0, {"Set5": [36.0, 38.0]}, network=network)
        for prefix, network in (("zoo-srcnn", "srcnn"), ("networks-vdsr", "vdsr"))
        for objective in ("l1", "l2")
    }
    record_set = load_records(save_all(tmp_path, **records))
    assert len(find_studies(record_set)) == 2
    assert [study.recipe["network"] for study in objective_studies(record_set)] == ["vdsr"]
