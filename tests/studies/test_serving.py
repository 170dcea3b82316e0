"""The study of serving in its short form: hostile uploads against the app."""

import json
import sys

import pytest

from studies.measurements import serving

pytest.importorskip("gradio", reason="the app needs the extra app")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_uploads_are_many_and_always_the_same():
    uploads = [serving.hostile_upload(number) for number in range(200)]
    assert uploads == [serving.hostile_upload(number) for number in range(200)]
    assert len({body[:4] for _, body in uploads}) > 8


@pytest.mark.slow
def test_hostile_uploads_do_no_harm(tmp_path):
    record = tmp_path / "serving.json"
    serving.main(["hostile", "--count", "25", "--record", str(record)])
    result = json.loads(record.read_text())["result"]["hostile"]
    assert not {status for status in result["statuses"] if status.startswith("5")}
    assert sum(result["statuses"].values()) == 28
    assert result["server_alive"]
    assert result["next_good_upload"] == 200
    assert result["files_left"] == result["files_outside"] == []
