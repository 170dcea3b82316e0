"""What must hold when the world around a batch fails; `make faults` is the long form."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="kills and limits are those of Linux")
@pytest.mark.slow
def test_nothing_is_lost_and_nothing_half_is_left():
    command = [sys.executable, str(ROOT / "tests/faults/run.py"), "--kills", "3", "--pictures", "4"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "FAULT" not in ended.stdout
    assert "'parts after SIGTERM': 0" in ended.stdout
    assert "'parts after SIGINT': 0" in ended.stdout
