"""The corpus of what once failed, and a few new hostile inputs of each kind."""

import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.targets import TARGETS, make_case

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"


def fuzz(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the fuzzer in a process of its own, which may fork."""
    command = [sys.executable, str(ROOT / "tests/fuzz/run.py"), "--keep", str(tmp_path), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.skipif(sys.platform != "linux", reason="limits and memory are measured as on Linux")
def test_hostile_inputs_are_refused_in_one_line(tmp_path):
    """The whole corpus and 8 new inputs of each kind; `make fuzz` tries as many as wanted."""
    ended = fuzz(tmp_path, "--cases", "8")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for kind in TARGETS:
        num_tried = 8 + len(list((CORPUS / kind).iterdir()))
        assert f"{kind}: {num_tried} tried, 0 with faults" in ended.stdout


@pytest.mark.parametrize("kind", TARGETS)
def test_a_seed_gives_the_same_input(kind):
    assert make_case(kind, 5) == make_case(kind, 5)
    assert len({make_case(kind, seed).data for seed in range(20)}) > 10


def test_the_corpus_is_small_and_of_known_kinds():
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    # Packages that read scientific files may be missing.
    assert {path.parent.name for path in files} == {*TARGETS, "science"}
    assert sum(path.stat().st_size for path in files) < 200_000
