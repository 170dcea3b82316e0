"""The fuzzer notices what it is there to notice: each fault is made on purpose."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXPECTED = {
    "pass": "",
    "sys.exit(2)": "",
    "raise KeyError('x')": "traceback: KeyError",
    "while True: pass": "hang",
    "time.sleep(1000)": "hang",
    "os.abort()": "ended by signal 6",
    "bytearray(b'x') * (900 * 2**20)": "memory: ",
    "(folder / '.musigma-1-a.part').touch()": "left behind",
}
PROGRAM = """
import json, os, sys, tempfile, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from fuzz import targets
from fuzz.targets import LIMITS, Case, Target, faults_of
from helpers.forked import Limits, run_forked

targets.TARGETS["made"] = Target(make=lambda random: ("x", b""), use=lambda case, folder: None)
case, noticed = Case(kind="made", label="0", data=b""), {{}}
for body in json.loads({bodies!r}):
    folder = Path(tempfile.mkdtemp())
    # Only what hangs gets little time: on a busy machine the others may take theirs.
    limits = Limits(cpu_seconds=0.3) if "while" in body else LIMITS
    limits = Limits(wall_seconds=1.0) if "sleep" in body else limits
    ended = run_forked(lambda: exec(body), folder, limits)
    noticed[body] = "; ".join(faults_of(case, folder, ended))
print(json.dumps(noticed))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits and memory are measured as on Linux")
def test_faults_are_noticed():
    program = PROGRAM.format(tests=str(ROOT / "tests"), bodies=json.dumps(list(EXPECTED)))
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    noticed = json.loads(ended.stdout)
    for body, expected in EXPECTED.items():
        assert noticed[body].startswith(expected), body
        assert bool(noticed[body]) == bool(expected), body
