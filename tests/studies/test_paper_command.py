"""``python -m studies paper``: list, tables, figures, and all of it on one page."""

import json

from helpers.records import evaluation, run, save_all
from studies.paper import report
from studies.paper.figures import FIGURES, Figure
from studies.paper.figures.objective import draw_landscape
from studies.paper.figures.training import draw_study
from studies.paper.printed import TABLES


def test_list_names_every_table_and_figure(studies):
    done = studies("paper", "--json")
    found = json.loads(done.out)
    assert list(found["tables"]) == [*TABLES, *report.OWN_TABLES]
    assert list(found["figures"]) == list(FIGURES)
    assert "lightweight" in studies("paper").out


def test_table_is_printed_and_written(studies, tmp_path):
    folder = save_all(tmp_path / "records", l1=evaluation(recipe={"objective": "l1", "seed": 0}))
    words = ("paper", "table", "ablation", "--records", folder)
    done = studies(*words)
    assert done.code == 0
    assert "|  | ours, 100 steps |  | 33.00 / 0.9000 [1] |" in done.out
    (row,) = [r for r in json.loads(studies(*words, "--json").out)["rows"] if r["from"] != "paper"]
    assert row["Set14"] == {"text": "33.00 / 0.9000", "records": ["l1.json"]}
    studies(*words, "-o", tmp_path / "table.html")
    assert "33.00 / 0.9000" in (tmp_path / "table.html").read_text()


def test_mistakes_end_in_one_line(studies, tmp_path):
    nowhere = tmp_path / "nowhere"
    for words, hint in (
        (("table", "ablation", "--records", nowhere), str(nowhere)),
        (("table", "ablaton"), "did you mean 'ablation'"),
        (("table", "ablation", "-o", tmp_path / "table.txt"), ".md or .html"),
        (("figure", "landscap", "-o", tmp_path / "a.png"), "did you mean 'landscape'"),
    ):
        done = studies("paper", *words)
        assert done.code == 2
        assert len(done.errors) == 1
        assert hint in done.err.replace("\n", "")


def test_figure_is_written(studies, tmp_path):
    folder = save_all(tmp_path / "records", l1=run("l1", 0, {}))
    done = studies("paper", "figure", "convergence", "-o", tmp_path / "a.svg", "--records", folder)
    assert done.code == 0
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


def test_all_writes_a_page_that_needs_nothing_else(studies, tmp_path, monkeypatch):
    # Two figures stand for all: one is drawn, one has no records.
    few = {"landscape": Figure("L", draw_landscape), "study": Figure("S", draw_study)}
    monkeypatch.setattr(report, "FIGURES", few)
    folder = save_all(tmp_path / "records", l1=evaluation(recipe={"objective": "l1", "seed": 0}))
    out = tmp_path / "out"
    done = studies("paper", "all", "-o", out, "--records", folder, "--json")
    files = json.loads(done.out)["files"]
    assert files[0] == str(out / "index.html")
    page = (out / "index.html").read_text()
    assert page.count("<section") == len(report.TABLE_NAMES) + len(few) + 1
    assert "data:image/svg+xml;base64," in page
    assert "no study among the records" in page
    assert '<a href="../records/l1.json">l1.json</a>' in page
    assert "http" not in page.replace("http-equiv", "")
    for kind in ("md", "html"):
        assert (out / "tables" / f"ablation.{kind}").stat().st_size > 500
    assert {path.name for path in (out / "figures").iterdir()} == {"landscape.png", "landscape.svg"}
