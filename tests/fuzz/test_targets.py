"""The fuzzer notices what it is there to notice: each fault is made on purpose."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, sys, tempfile, time
from pathlib import Path
sys.path[:0] = [{tests!r}]
from dataclasses import replace
from fuzz import targets
from fuzz.targets import Case, Target, faults_of
from helpers.forked import Limits, run_forked

def use(case, folder):
    {body}

folder = Path(tempfile.mkdtemp())
targets.TARGETS["made"] = Target(make=lambda random: ("x", b""), use=use)
case = Case(kind="made", label="0", data=b"")
limits = Limits(cpu_seconds=0.5, wall_seconds=3.0)
print(faults_of(case, folder, run_forked(lambda: use(case, folder), folder, limits)))
"""


def faults(body: str) -> str:
    """Return what the fuzzer says of a case that does something wrong."""
    program = PROGRAM.format(tests=str(ROOT / "tests"), body=body)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return ended.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="limits and memory are measured as on Linux")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("pass", "[]"),
        ("sys.exit(2)", "[]"),
        ("raise KeyError('x')", "traceback: KeyError"),
        ("while True: pass", "hang"),
        ("time.sleep(100)", "hang"),
        ("os.abort()", "ended by signal 6"),
        ("b'x' * (900 * 2**20)", "memory: "),
        ("(folder / '.musigma-1-a.part').touch()", "left behind"),
    ],
)
def test_a_fault_is_noticed(body, expected):
    assert expected in faults(body)
