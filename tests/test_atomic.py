"""Files that appear whole or not at all, alone and together."""

import os
import signal
import subprocess
import sys

import pytest

from musigma.atomic import (
    PARTS,
    atomic_writer,
    remove_abandoned_parts,
    write_atomically,
    written_together,
)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_files_of_one_block_appear_at_its_end(tmp_path):
    with written_together():
        write_atomically(tmp_path / "a", b"a")
        write_atomically(tmp_path / "below" / "b", b"b")
        assert not (tmp_path / "a").exists()
    assert files(tmp_path) == ["a", "below"]
    assert files(tmp_path / "below") == ["b"]


def test_on_failure_none_appears_and_the_old_ones_stay(tmp_path):
    (tmp_path / "a").write_bytes(b"old")

    def write_both():
        with written_together():
            write_atomically(tmp_path / "a", b"new")
            with atomic_writer(tmp_path / "b") as file:
                file.write(b"half")
                raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        write_both()
    assert files(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_name_that_cannot_be_taken_leaves_none(tmp_path):
    (tmp_path / "b").mkdir()

    def write_both():
        with written_together():
            write_atomically(tmp_path / "a", b"a")
            write_atomically(tmp_path / "b", b"b")

    with pytest.raises(OSError, match="b"):
        write_both()
    assert files(tmp_path) == ["b"]


HOLD = """
import sys, time
from pathlib import Path
from musigma.atomic import atomic_writer, write_atomically, written_together

with written_together():
    write_atomically(Path(sys.argv[1]) / "complete", b"1")
    with atomic_writer(Path(sys.argv[1]) / "half") as file:
        print("open", flush=True)
        time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")
def test_parts_of_living_processes_stay_and_those_of_killed_ones_go(tmp_path):
    program = [sys.executable, "-c", HOLD, tmp_path]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "open\n"
            assert remove_abandoned_parts(tmp_path) == 0
            assert len(list(tmp_path.glob(PARTS))) == 2
        finally:
            os.kill(process.pid, signal.SIGKILL)
    assert remove_abandoned_parts(tmp_path) == 2
    assert files(tmp_path) == []
