"""Records find the cells that ask for them, and no others."""

from itertools import product
from pathlib import Path

import pytest

from helpers.records import evaluation, run, save_all
from musigma.types import DataError
from studies.paper.measurements import load_records
from studies.paper.tables import SHORT, paper_table

LE = "expected_l1 + 0.01 * sigma_l1"


def measured(table, *names):
    """Return the measured rows below a printed one, without its names."""
    return [
        (row.names[-1], [cell.text for cell in row.cells])
        for row in table.rows
        if not row.printed and row.names[: len(names)] == names
    ]


def test_evaluation_lands_below_its_row(tmp_path):
    folder = save_all(
        tmp_path,
        l1=evaluation(recipe={"objective": "l1", "seed": 0}),
        ours=evaluation(recipe={"objective": "expected_l1+0.01*sigma_l1", "seed": 0}),
        other=evaluation(recipe={"objective": "charbonnier", "seed": 0}),
        luma=evaluation(recipe={"objective": "l1", "seed": 0}, protocol={"name": "sr-luma"}),
    )
    table = paper_table("ablation", load_records(folder))
    assert measured(table, "l1") == [("ours, 100 steps", ["", "33.00 / 0.9000"])]
    assert measured(table, "l_E + auxiliary") == [("ours, 100 steps", ["", "33.00 / 0.9000"])]
    assert table.sources == ("l1.json", "ours.json")
    assert table.notes[-1].startswith("2 of the 5 printed cells")
    assert "33.00 / 0.9000 [2]" in table.as_markdown()


def test_seeds_are_averaged_with_their_spread(tmp_path):
    seeds = {
        f"seed{seed}": evaluation(
            recipe={"objective": "l1", "seed": seed}, result={"psnr_y": psnr, "ssim_y": 0.9}
        )
        for seed, psnr in enumerate((33.0, 33.2, 33.4))
    }
    table = paper_table("ablation", load_records(save_all(tmp_path, **seeds)))
    # Mean 33.2; deviations -0.2, 0, 0.2 give sqrt(0.08 / 2) = 0.2.
    assert measured(table, "l1") == [("ours, 100 steps", ["", "33.20 ± 0.20 / 0.9000"])]
    assert table.sources == ("seed0.json", "seed1.json", "seed2.json")


@pytest.mark.parametrize("name", ["lightweight", "uncertainty"])
def test_the_shipped_weights_stand_beside_the_paper(name):
    # A new objective for them would otherwise drop them from the tables without a word.
    sources = paper_table(name, load_records(Path("studies/results"))).sources
    for scale, data in product((2, 3, 4), ("Set5", "Set14", "B100", "Urban100")):
        assert f"evaluation/edsr-baseline-{data}-x{scale}.json" in sources


def test_training_run_fills_cells_too(tmp_path):
    folder = save_all(tmp_path, run=run(LE, 0, {"Set14": [33.0, 34.0], "Set5": {"baby": 38.0}}))
    record_set = load_records(folder)
    assert {one.data for one in record_set.measurements} == {"held out", "Set14", "Set5"}
    table = paper_table("beta", record_set)
    assert measured(table, "0.01") == [("ours, 100 steps", ["33.500"])]


def test_released_weights_and_facts(tmp_path):
    released = evaluation(
        model={"name": "imdn", "params": 694404}, data="B100", result={"psnr_y": 32.19}
    )
    table = paper_table("lightweight", load_records(save_all(tmp_path, imdn=released)))
    found = measured(table, "x2", "IMDN")
    # 694,404 parameters and 158.8 GMACs: musigma's own count, as in tests/models/test_imdn.py.
    assert found == [("released weights", ["694K", "158.8G", "", "", "", "32.19", ""])]


def test_noise_level_and_channels_choose_the_column(tmp_path):
    model = {"name": "drunet-grey", "scale": 1}
    protocol = {"name": "denoise", "noise_std": 25.0, "channels": 1}
    one = evaluation(model=model, data="BSD68", protocol=protocol, result={"psnr": 29.5})
    color = evaluation(
        model=model, data="BSD68", protocol=protocol | {"channels": 3}, result={"psnr": 31.0}
    )
    folder = save_all(tmp_path, gray=one, color=color)
    table = paper_table("denoise-grey", load_records(folder))
    (row,) = measured(table, "DRUNet")
    assert dict(zip(table.headings[2:], row[1], strict=True))["BSD68 25"] == "29.50"
    assert sum(text != "" for text in row[1]) == 1


def test_html_links_each_cell_to_its_record(tmp_path):
    folder = save_all(tmp_path, one=evaluation(recipe={"objective": "l1", "seed": 0}))
    html = paper_table("ablation", load_records(folder)).as_html()
    assert '33.00 / 0.9000<sup><a href="#record-1">1</a></sup>' in html
    assert '<li id="record-1">one.json</li>' in html


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_without_records_the_error_says_where_they_were_looked_for(tmp_path, name):
    folder = tmp_path / name
    if name == "empty":
        folder.mkdir()
    with pytest.raises(DataError, match=str(folder)):
        load_records(folder)


def test_networks_trained_here_say_their_objective_budget_and_size(tmp_path):
    small = {"network": "rcan", "settings": {"num_groups": 1, "num_blocks": 1}, "steps": 2000}
    folder = save_all(
        tmp_path,
        san=evaluation(model={"name": "san"}, recipe={"objective": "l1", "network": "san"}),
        rcan=evaluation(model={"name": "rcan"}, recipe={"objective": "l1", **small}),
    )
    table = paper_table("heavy", load_records(folder))
    rows = {row.names[-1]: row.cells[0].text for row in table.rows if not row.printed}
    assert rows == {
        "ours, l1, 100 steps": "15.67M",
        "ours, 2,000 steps, num_blocks 1, num_groups 1": "300K",
    }
    assert SHORT in table.notes


def test_weights_of_others_need_no_note_on_our_training(tmp_path):
    folder = save_all(tmp_path, imdn=evaluation(model={"name": "imdn"}))
    table = paper_table("lightweight", load_records(folder))
    assert [row.names[-1] for row in table.rows if not row.printed] == ["released weights"]
    assert SHORT not in table.notes


def test_denoisers_trained_here_stand_in_the_paper_s_tables(tmp_path):
    protocol = {"name": "denoise", "noise_std": 25.0, "channels": 1}
    recipe = {"network": "dncnn", "objective": "l1", "scale": 1}
    record = evaluation(
        model={"name": "dncnn", "scale": 1},
        recipe=recipe,
        protocol=protocol,
        data="BSD68",
        result={"psnr": 29.0},
    )
    table = paper_table("denoise-grey", load_records(save_all(tmp_path, dncnn=record)))
    assert measured(table, "DnCNN")[0][0] == "ours, l1, 100 steps"
