"""How pictures are divided: whole, by name and seed, and never too few."""

import re
from pathlib import Path

import pytest

from musigma.adaptation.split import (
    LEAST_PICTURES,
    LEAST_TRAINING,
    PARTS,
    SHARES,
    count_parts,
    split,
)
from musigma.datasets.catalog import Item
from musigma.types import DataError


def items(num: int) -> list[Item]:
    return [Item(f"picture {number}", Path(f"{number}.png")) for number in range(num)]


@pytest.mark.parametrize("num", [LEAST_PICTURES, 30, 117, 5000])
def test_every_picture_is_in_one_part(num):
    parts = split(items(num))
    assert tuple(parts) == PARTS
    names = [item.name for part in parts.values() for item in part]
    assert sorted(names) == sorted(item.name for item in items(num))
    assert {part: len(each) for part, each in parts.items()} == count_parts(num)


@pytest.mark.parametrize("num", [LEAST_PICTURES, 30, 117, 5000])
def test_every_part_has_enough_and_measuring_does_not_take_all(num):
    counts = count_parts(num)
    assert counts["training"] >= LEAST_TRAINING
    for part, share in SHARES.items():
        assert share.least <= counts[part] <= share.most


def test_the_order_of_files_does_not_matter_but_the_seed_does():
    forward, backward = split(items(40)), split(reversed(items(40)))
    assert forward == backward
    assert split(items(40), seed=1) != forward


@pytest.mark.parametrize("num", [1, 5, LEAST_PICTURES - 1])
def test_too_few_are_refused_with_the_number_needed(num):
    with pytest.raises(DataError, match=re.escape(f"at least {LEAST_PICTURES} are needed")) as info:
        count_parts(num)
    assert f"add {LEAST_PICTURES - num} more" in str(info.value)
