"""Two runs in one folder know of each other."""

import os
import signal
import subprocess
import sys

import pytest

from musigma.restoration.run_lock import NAME, claim_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")

HOLD = """
import sys, time
from pathlib import Path
from musigma.restoration.run_lock import claim_folder

with claim_folder(Path(sys.argv[1])):
    print("claimed", flush=True)
    time.sleep(600)
"""


def test_the_second_run_learns_of_the_first_until_that_is_killed(tmp_path):
    folder = tmp_path / "out"
    program = [sys.executable, "-c", HOLD, folder]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "claimed\n"
            with claim_folder(folder) as other:
                assert other == process.pid
            assert (folder / NAME).exists()  # which the first run still needs
        finally:
            os.kill(process.pid, signal.SIGKILL)
    assert (folder / NAME).exists()
    with claim_folder(folder) as other:
        assert other is None
    assert not (folder / NAME).exists()


def test_a_folder_in_which_nothing_was_written_is_not_left(tmp_path):
    with claim_folder(tmp_path / "out") as other:
        assert other is None
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_bytes(b"")
    with claim_folder(tmp_path / "file") as other:  # cannot be claimed; writing will say why
        assert other is None
