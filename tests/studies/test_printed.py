"""The printed numbers are the paper's, and every row asks for something that can exist."""

import json
from pathlib import Path

import pytest

from musigma.losses import Objective
from musigma.networks import entries
from musigma.types import ConfigError
from studies.measurements.real_cameras import INPUT
from studies.paper.measurements import RELEASED
from studies.paper.printed import TABLES, printed_table

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "paper_numbers.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", TABLES)
def test_all_numbers_of_a_table_add_up_to_those_of_the_paper(name):
    cells = [cell for row in printed_table(name).rows for cell in row.cells]
    numbers = [float(number) for cell in cells if cell for number in cell.split(" / ")]
    count, total = GOLDEN["totals"][name]
    assert len(numbers) == count
    assert sum(numbers) == pytest.approx(total, abs=1e-6)


@pytest.mark.parametrize(("name", "block", "row", "column", "text"), GOLDEN["cells"])
def test_cell_is_where_the_paper_has_it(name, block, row, column, text):
    table = printed_table(name)
    (found,) = [one for one in table.rows if (one.block, one.name) == (block, row)]
    assert found.cells[[heading for heading, _ in table.columns].index(column)] == text


@pytest.mark.parametrize("name", TABLES)
def test_table_is_whole(name):
    table = printed_table(name)
    assert len(table.metrics) == len(table.decimals)
    for row in table.rows:
        assert len(row.properties) == len(table.properties), row
        assert len(row.cells) == len(table.columns), row


@pytest.mark.parametrize("name", TABLES)
def test_rows_ask_for_networks_and_objectives_that_exist(name):
    known = {entry.name for entry in entries()} | {INPUT}
    for row in printed_table(name).rows:
        if row.conditions is not None:
            assert set(row.conditions["networks"]) <= known, row
            for objective in set(row.conditions["objectives"]) - {
                RELEASED,
                "",
                "l1 + distillation",
            }:
                assert str(Objective(objective)) == objective


def test_unknown_table_is_named():
    with pytest.raises(ConfigError, match="did you mean 'ablation'"):
        printed_table("ablaton")
