"""Published numbers come from records, and every record can be traced."""

import re

import pytest

from helpers.documents import DOCUMENTS, ROOT, name_of
from musigma.evaluation.record import load_record
from studies.commands.campaign import CAMPAIGN
from studies.documents.fill_documents import TABLE, VALUE, fill
from studies.paper.measurements import load_records
from studies.paper.study import find_studies
from studies.training_runs.campaign import load_campaign

RESULTS = ROOT / "studies" / "results"
RECORDS = sorted(RESULTS.rglob("*.json"))

MEASURED = re.compile(r"(?<![\w^])\d[\d.,]*\s?(?:dB|nats?|ms|MiB|TFLOP/s|%|times)(?![\w/])")
SETTINGS = re.compile(r"\b(?:90|95) %|\b(?:two|six|eight|ten|33) times\b")
"""Levels of intervals and numbers of the set-up: asked for, not measured."""
SOURCE = re.compile(r"<!-- source: (.*?) -->")
NOT_MEASURED = ("paper", "theory")
PRESENT = "edsr-baseline x2, 5,000 steps, batch 16"
OBJECTIVES = {"baseline-gaussian": "gaussian_nll", "baseline-laplace": "laplace_nll"}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_every_record_is_whole(path):
    record = load_record(path)
    assert record.provenance["commit"]
    assert record.provenance["device"]
    if record.kind in ("training", "evaluation"):
        assert len(record.data["hash"]) == 64
    if record.kind == "training":
        assert record.seed is not None
        assert record.model["recipe"]["seed"] == record.seed


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_tables_and_numbers_equal_the_records(path):
    text = path.read_text()
    assert text == fill(text, RESULTS), "run 'make tables'"


def typed_blocks(text: str) -> list[str]:
    """Return paragraphs, list items and typed tables, without code and what records fill."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = VALUE.sub("", TABLE.sub("", text))
    return re.split(r"\n\s*\n|\n(?=\s*- )", text)


def numbers_without_source(text: str) -> list[str]:
    found = []
    for block in typed_blocks(text):
        measured = MEASURED.findall(SETTINGS.sub("", block))
        if measured and not SOURCE.search(block):
            found.append(" ".join(block.split()))
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_a_measured_number_in_prose_has_a_source(path):
    """Either it stands in a mark that the records fill, or its paragraph names its source."""
    text = path.read_text()
    assert numbers_without_source(text) == []
    for source in SOURCE.findall(text):
        assert source in NOT_MEASURED or (ROOT / source).is_file(), source


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_typed_numbers_of_a_log_are_in_the_log(path):
    """A paragraph with a log as its source, and a table below it, repeat numbers of the log."""
    blocks = typed_blocks(path.read_text())
    for block, following in zip(blocks, [*blocks[1:], ""], strict=True):
        source = SOURCE.search(block)
        if source is None or source[1] in NOT_MEASURED:
            continue
        table = following if following.lstrip().startswith("|") else ""
        log = (ROOT / source[1]).read_text()
        decimals = re.findall(r"\d+\.\d{2,}", SOURCE.sub("", block + table))
        assert [number for number in decimals if number not in log] == []


@pytest.mark.parametrize(
    "text",
    ["The branch loses 7.17 dB.", "It takes 3.5 ms.", "| edsr | 37.99 dB |", "loses 12 %"],
)
def test_a_number_that_somebody_types_is_noticed(text):
    assert numbers_without_source(f"Before.\n\n{text}\n\nAfter.")


def test_what_records_fill_or_a_source_names_is_no_typed_number():
    filled = "It has <!--= evaluation/x; psnr_y; .2f -->37.96<!--/--> dB."
    assert not numbers_without_source(filled)
    assert not numbers_without_source("The paper prints 37.99 dB. <!-- source: paper -->")
    assert not numbers_without_source("A 90 % interval.\n\n```\nabout 9 dB\n```")


def test_losses_in_the_campaign_are_those_of_the_study():
    """A finding of the campaign that states a gain or a loss in decibels repeats the study."""
    (study,) = (s for s in find_studies(load_records()) if s.title == PRESENT)
    for plan in load_campaign(CAMPAIGN):
        objective = OBJECTIVES.get(plan.name)
        if objective is not None:
            (stated,) = re.findall(r"loses (\d\.\d+) dB to l1", plan.finding)
            assert stated == f"{-study.outcomes[objective]['all images'].gain:.2f}"
        else:
            assert not re.search(r"(gains|loses) \d", plan.finding)
