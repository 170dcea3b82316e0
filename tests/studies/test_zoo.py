"""The study over all networks: its entries, costs, table and figure, and the time of its steps."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from helpers.records import run, save_all
from musigma.evaluation.record import load_record
from studies.documents.result_tables import steps_table
from studies.paper.figures import draw
from studies.paper.figures.zoo import spread
from studies.paper.measurements import load_records
from studies.paper.zoo import NOT_RUN, corrected, find_entries, longer_entries, zoo_table
from studies.paper.zoo_summary import mean_over_networks, rank_correlation
from studies.training_runs.campaign import Plan
from studies.training_runs.zoo import CAPTURE, FULL, costs, zoo_plans, zoo_recipes

RUN_TINY = """
[[run]]
name = "denoisers-tiny"
why = "to see"
recipe = "study-denoise"
changes = [
    "network=ffdnet", "settings={num_layers=3}", "channels=1", "batch=2", "patch=8", "steps=3",
]
zoo = true
minutes = 1

[[run]]
name = "not-in-the-study"
why = "to see"
recipe = "study"
minutes = 1
"""


@pytest.fixture
def tiny_campaign(tmp_path):
    path = tmp_path / "campaign.toml"
    path.write_text(RUN_TINY)
    return path


def plan_of(*changes: str) -> Plan:
    return Plan(name="x", why="", minutes=1, recipe="study", changes=changes, zoo=True)


def records_of(folder, gains, **recipe):
    """Runs of both objectives with as many seeds as there are gains."""
    base = json.loads(json.dumps(plan_recipe())) | recipe
    records = {}
    for seed, gain in enumerate(gains):
        for name, objective, shift in (("l1", "l1", 0.0), ("full", FULL, gain)):
            scores = {"Set5": [36.0 + shift, 38.0 + shift + 0.001 * seed]}
            record = run(objective, seed, scores, **base)
            record.result["loss_curve"] = [
                [s, 0.1, 1.2 if s < 70 else 1.0] for s in range(5, 101, 5)
            ]
            record.result["seconds"] = 9.0
            records[f"{recipe.get('steps', 100)}-{name}-{seed}"] = record
    return save_all(folder, **records)


def plan_recipe():
    recipe = zoo_recipes(plan_of("network=espcn", "steps=100"))["l1"].published()
    return {k: v for k, v in recipe.items() if k not in ("objective", "seed", "sigma")}


def test_every_entry_compares_two_objectives_with_three_seeds():
    plans = zoo_plans()
    assert len({plan.name for plan in plans}) == len(plans)
    for plan in plans:
        assert {"l1", FULL} <= set(plan.objectives)
        assert len(plan.seeds) >= 3
    tasks = [plan.recipe for plan in plans]
    assert tasks.count("study") >= 15
    assert tasks.count("study-denoise") >= 10


def test_the_study_has_the_networks_of_the_paper_that_train():
    networks = {change.partition("=")[2] for plan in zoo_plans() for change in plan.changes}
    light = {"srcnn", "fsrcnn", "espcn", "vdsr", "idn", "carn", "imdn", "oisr-rk2-s", "srresnet"}
    heavy = {"edsr", "rcan", "san", "han", "nlsn", "swinir-light"}
    color = {"dncnn-colour", "ircnn-colour", "ffdnet-colour", "drunet", "drunet-small", "ridnet"}
    more = {"brdnet", "mwcnn", "rnan", "rdn-denoise", "ipt", "n3net", "nlrn", "focnet"}
    assert light | heavy | color | more <= networks


def test_costs_follow_from_multiply_adds():
    plan = plan_of("network=espcn", "steps=100", "batch=4096")
    (small,) = costs(plan.jobs())
    (captured,) = costs(plan_of("network=espcn", "steps=100", "compile=false").jobs())
    assert captured.preparation == CAPTURE
    # ESPCN x2: 5x5x3x64 + 3x3x64x32 + 3x3x32x12 multiply-adds for each pixel of a patch.
    per_pixel = 25 * 3 * 64 + 9 * 64 * 32 + 9 * 32 * 12
    assert small.gigamacs == pytest.approx(48**2 * per_pixel / 1e9)
    assert small.step == pytest.approx(6 * 4096 * 48**2 * per_pixel / 60e12)
    assert small.seconds == pytest.approx(small.preparation + 100 * small.step)


def test_a_network_without_records_is_not_yet_run(tmp_path):
    folder = records_of(tmp_path, (0.1, 0.11, 0.12))
    plans = [plan_of("network=espcn", "steps=100"), plan_of("network=fsrcnn", "steps=100")]
    ran, missing = find_entries(load_records(folder), plans)
    assert ran.difference.mean == pytest.approx(0.11)
    assert ran.seconds == 9
    assert ran.loss_fall == pytest.approx(0.2)
    assert missing.difference is None
    # The one that is missing counts in the correction.
    p_value = corrected([ran, missing])["espcn"]
    assert p_value.corrected == pytest.approx(2 * p_value.plain)


def test_runs_of_another_length_are_found(tmp_path):
    records_of(tmp_path, (0.1, 0.11, 0.12))
    folder = records_of(tmp_path, (0.0, 0.01, 0.02), steps=600)
    record_set = load_records(folder)
    entries = find_entries(record_set, [plan_of("network=espcn", "steps=100")])
    (longer,) = longer_entries(entries, record_set)
    assert longer.recipe["steps"] == 600
    assert longer.difference.mean == pytest.approx(0.01)


def test_a_network_with_a_part_of_its_runs_is_not_yet_run(tmp_path):
    folder = records_of(tmp_path, (0.1, 0.11, 0.12))
    plan = replace(plan_of("network=espcn", "steps=100"), seeds=(0, 1, 2, 3))
    (entry,) = find_entries(load_records(folder), [plan])
    assert entry.difference is None


def test_networks_that_were_run_come_first_in_their_task(tmp_path):
    folder = records_of(tmp_path, (0.1, 0.11, 0.12))
    plans = [
        plan_of("network=dncnn", "scale=1", "channels=1", "noise_std=[25, 25]", "steps=100"),
        plan_of("network=fsrcnn", "steps=100"),
        plan_of("network=espcn", "steps=100"),
    ]
    entries = find_entries(load_records(folder), plans)
    assert [entry.recipe["network"] for entry in entries] == ["espcn", "fsrcnn", "dncnn"]


def test_the_mean_over_networks_has_an_interval_over_networks():
    from scipy import stats

    gains = [0.02, -0.01, 0.03, 0.0, 0.05]
    mean, low, high = mean_over_networks(gains)
    expected = stats.ttest_1samp(gains, 0).confidence_interval(0.95)
    assert (mean, low, high) == pytest.approx((0.018, expected.low, expected.high), abs=1e-6)


def test_rank_correlations_are_those_of_scipy():
    from scipy import stats

    generator = np.random.default_rng(3)
    first = generator.normal(size=9)
    second = first + generator.normal(size=9)
    second[4] = second[2]  # equal values share a rank
    ours, theirs = rank_correlation(first, second), stats.spearmanr(first, second)
    assert ours.value == pytest.approx(theirs.statistic)
    assert ours.p_value == pytest.approx(theirs.pvalue, abs=0.02)


def test_names_are_spread_without_changing_their_order():
    places = spread([1.0, 1.1, 1.2, 5.0, 5.05], least_gap=0.5)
    assert np.diff(places).min() >= 0.5 - 1e-9
    assert np.mean(places[:3]) == pytest.approx(1.1)
    assert spread([1.0, 3.0], least_gap=0.5) == [1.0, 3.0]


def test_table_and_figure_of_the_records():
    record_set = load_records()
    table, drawing = zoo_table(record_set), draw("zoo", record_set)
    by_name = {
        name: [cell.text for cell in row.cells]
        for row in table.rows
        for name in row.names[1].split("; ")
    }
    assert len(by_name) == len(zoo_plans())
    for name in ("edsr-baseline", "vdsr", "carn", "idn", "imdn", "srresnet"):
        gain = by_name[name][table.headings.index("gain") - 2]
        assert math.isfinite(float(gain.split()[0]))
    not_run = [name for name, cells in by_name.items() if NOT_RUN in cells]
    lines = [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()]
    assert len([line for line in lines if line]) == len(by_name) - len(not_run)
    assert set(table.sources) <= set(drawing.sources)


def test_steps_are_measured_and_recorded(studies, tiny_campaign, tmp_path):
    record = tmp_path / "record.json"
    words = ["--file", tiny_campaign, "--steps", 2, "--device", "cpu", "--record", record]
    assert studies("bench", "zoo", *words).code == 0
    result = load_record(record).result
    assert list(result) == ["denoisers-tiny"]
    timings = result["denoisers-tiny"]["timings"]
    assert set(timings) == {"plain loop", "l1", FULL}
    for ours in (timings["l1"], timings[FULL]):
        assert ours["median_ms"] > 0
        assert math.isfinite(ours["last_loss"])
    (row,) = steps_table([load_record(record)]).splitlines()[2:]
    assert row.startswith("| denoisers-tiny | 0.0")
    assert row.endswith("| compiled |")
    # What is there already is not measured again.
    again = studies("bench", "zoo", *words, "--json")
    assert json.loads(again.out) == result
    assert "plain loop" not in again.err


def test_a_network_that_fails_leaves_the_others(studies, tiny_campaign, tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr("studies.bench.training.time_plain", fail)
    words = ["--file", tiny_campaign, "--steps", 2, "--device", "cpu", "--json"]
    result = studies("bench", "zoo", *words)
    assert json.loads(result.out) == {"denoisers-tiny": {"error": "out of memory"}}


def test_l1_can_be_timed_alone(studies, tiny_campaign):
    words = ["--file", tiny_campaign, "--steps", 2, "--device", "cpu", "--l1-only", "--json"]
    (result,) = json.loads(studies("bench", "zoo", *words).out).values()
    assert set(result["timings"]) == {"plain loop", "l1"}
    assert result["times_faster_than_plain"] > 0


def test_the_command_prints_costs(studies, tiny_campaign, tmp_path):
    result = studies("campaign", "cost", "--file", tiny_campaign, "--results", tmp_path, "--json")
    (row,) = json.loads(result.out)["runs"]
    assert (row["name"], row["runs"], row["updates"]) == ("denoisers-tiny", 1, 3)
