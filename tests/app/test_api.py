"""The HTTP API of a server in a process of its own."""

import base64
import http.client
import io
import pickle
import signal
import struct
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

from helpers.servers import png, start_server
from musigma.app.limits import BusyError
from musigma.model import load

pytest.importorskip("uvicorn", reason="the server needs the extra app")
LIMITS = ("--max-bytes", "200kB", "--max-pixels", "40000", "--max-waiting", "2", "--timeout", "200")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = start_server("serve", tmp_path_factory.mktemp("server"), *LIMITS)
    yield server
    server.stop()
    assert server.files() == [], "a server that ends leaves no file"


def test_the_answer_has_picture_sigma_report_and_calibration(server):
    answer = server.restore(png(), scale=2, box="2,3,10,8")
    assert answer.status == 200
    report = answer.json()
    model = load("photo", scale=2)
    assert (report["width"], report["height"]) == (32, 24)
    assert report["digest"] == model.digest
    assert report["calibration"]["coverage"] == model.calibration.coverage
    assert report["calibration"]["conditions"] == model.calibration.conditions
    assert report["promise"].startswith("On average")
    assert report["box"]["independent"][0] < report["box"]["correlated"][0]
    assert set(report["files"]) == {"picture", "sigma", "report"}
    picture = base64.b64decode(report["files"]["picture"]["base64"])
    assert Image.open(io.BytesIO(picture)).size == (32, 24)
    assert server.files() == []


def test_weights_with_joint_errors_tell_the_interval_of_a_box(server):
    box = server.restore(png(), scale=2, weights="edsr-baseline", box="2,3,10,8").json()["box"]
    for low, mean, high in zip(box["joint"]["low"], box["mean"], box["joint"]["high"], strict=True):
        assert low < mean < high
    assert box["joint"]["coverage"] == 0.9
    assert server.restore(png(), scale=2, box="2,3,10,8").json()["box"]["joint"] is None


@pytest.mark.parametrize("path", ["/api", "/api/restore", "/api/upscale"])
def test_an_address_that_does_not_exist_tells_which_do(server, path):
    """Somebody who opens the address of the API in a browser sends GET and no picture."""
    answer = server.get(path)
    assert answer.status == 404
    assert answer.json()["error"].startswith(f"there is no GET {path}; POST a picture file to /api")


@pytest.mark.parametrize(
    ("answer", "start"), [("picture", b"\x89PNG"), ("sigma", b"\x89PNG"), ("report", b"<!doctype")]
)
def test_one_file_can_be_asked_for(server, answer, start):
    reply = server.restore(png(), scale=1, answer=answer)
    assert reply.status == 200
    assert reply.body.startswith(start)


def test_the_status_tells_limits_and_weights(server):
    status = server.get("/api/status").json()
    assert status["limits"]["max_pixels"] == 40000
    assert "photo" in status["weights"]["2"]


def bomb():
    """A PNG of a few bytes that says it has 10 ** 9 pixels."""

    def chunk(name, data):
        sum_ = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + sum_

    head = struct.pack(">IIBBBBB", 100_000, 10_000, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * 10_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


HOSTILE = {
    "nothing": (b"", 400),
    "text": (b"hello", 400),
    "cut off": (png(60, 60)[:4000], 400),
    "bomb": (bomb(), 413),
    "too many pixels": (png(101, 100), 413),
    "too many bytes": (b"\xff\xd8\xff" * 100_000, 413),
    "html": (b"<svg onload=alert(1)>", 400),
    "gzip": (zlib.compress(b"\0" * 10**6), 400),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_uploads_are_refused_and_the_next_good_one_is_served(server, name):
    body, status = HOSTILE[name]
    answer = server.restore(body)
    assert answer.status == status, answer.body
    assert answer.json()["error"]
    assert str(server.folder) not in answer.body.decode()
    assert server.restore(png(4, 4)).status == 200
    assert server.files() == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"scale": 7}, "not 7"),
        ({"weights": "../../etc/passwd"}, "no weights"),
        ({"answer": "everything"}, "no answer"),
        ({"box": "1,2,3"}, "x,y,width,height"),
        ({"box": "9" * 5000 + ",0,1,1"}, "x,y,width,height"),
        ({"box": "0,0,99,99"}, "does not lie inside"),
        ({"colour": "red"}, "no setting 'colour'; known: answer, box, noise_std, scale, weights"),
    ],
)
def test_wrong_settings_are_explained(server, settings, words):
    answer = server.restore(png(), **settings)
    assert answer.status == 400
    assert words in answer.json()["error"]


def test_a_form_is_refused_with_the_way_to_send_a_file(server):
    head = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = server.restore(b"--x\r\n" + png(), head, scale=2)
    assert answer.status == 400
    assert "must be the picture file itself, and not a form" in answer.json()["error"]


def test_a_port_that_is_used_is_told_in_one_line(server):
    port = server.url.rsplit(":", 1)[1]
    words = [sys.executable, "-m", "musigma", "serve", "--port", port]
    ended = subprocess.run(words, check=False, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        f"error: cannot listen on port {port} of 127.0.0.1 (another program uses it); choose "
        "another by --port, or 0 for a free one"
    ]


def test_a_length_that_lies_is_caught_while_the_body_arrives(server):
    host = server.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=300)
    body = (b"x" * 50_000 for _ in range(8))
    connection.request(
        "POST", "/api/restore", body, encode_chunked=True, headers={"Transfer-Encoding": "chunked"}
    )
    reply = connection.getresponse()
    assert reply.status == 413
    reply.read()
    connection.close()


@pytest.mark.parametrize(
    "path",
    [
        "/results/../secret",
        "/results/%2e%2e/lock",
        "/results/a/..%2f..%2flock",
        "/etc/passwd",
        "/results/a/b",
    ],
)
def test_paths_outside_the_api_are_not_found(server, path):
    assert server.get(path).status == 404


def test_other_sites_and_other_names_are_refused(server):
    assert server.get("/api/status", Origin="http://evil.example").status == 403
    assert server.get("/api/status", Host="evil.example").status == 421


def test_a_full_queue_answers_503_with_the_position(server):
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda seed: server.restore(png(90, 90, seed)), range(12)))
    statuses = [answer.status for answer in answers]
    assert set(statuses) == {200, 503}
    for answer in answers:
        if answer.status == 503:
            assert answer.json()["position"] >= 1
            assert int({k.lower(): v for k, v in answer.headers.items()}["retry-after"]) >= 1
    assert server.files() == []


def test_a_client_that_goes_away_frees_its_place(server):
    host = server.url.removeprefix("http://")
    for _ in range(5):  # more than the queue holds
        connection = http.client.HTTPConnection(host, timeout=300)
        connection.request("POST", "/api/restore", png(90, 90))
        time.sleep(0.2)
        connection.close()
    deadline = time.monotonic() + 300
    while server.get("/api/status").json()["queue"] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert server.restore(png(4, 4)).status == 200
    assert server.files() == []


def test_a_token_is_asked_for(tmp_path):
    server = start_server("serve", tmp_path, "--token", "secret")
    try:
        assert server.get("/api/status").status == 401
        assert server.restore(png(4, 4)).status == 401
        assert server.get("/api/status", Authorization="Bearer wrong").status == 401
        assert server.get("/api/status", Authorization="Bearer secret").status == 200
        assert server.get("/api/status", Cookie="musigma_token=secret").status == 200
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=300)
        connection.request("GET", "/api/status?token=secret")
        reply = connection.getresponse()
        assert (reply.status, reply.getheader("location")) == (303, "/api/status")
        assert "musigma_token=secret; HttpOnly; SameSite=Strict" in reply.getheader("set-cookie")
        connection.close()
        # Killed while it works: the next server removes what is left.
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=300)
        connection.request(
            "POST", "/api/restore", png(200, 200), {"Authorization": "Bearer secret"}
        )
        deadline = time.monotonic() + 300
        while not server.files() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert server.files()
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        connection.close()
        again = start_server("serve", tmp_path)
        assert again.files() == []
        again.stop()
    finally:
        server.stop()


def test_a_refusal_travels_between_machines():
    error = pickle.loads(pickle.dumps(BusyError("full", position=3, retry_after=7)))
    assert (str(error), error.position, error.retry_after) == ("full", 3, 7)
