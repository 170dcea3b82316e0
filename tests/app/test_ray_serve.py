"""The API on a local Ray cluster, with a replica that is killed while it works."""

import base64
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from PIL import Image

from helpers.servers import SRC, Server, png
from musigma.app.server import free_port

pytest.importorskip("ray.serve", reason="needs Ray Serve (pip install 'musigma[ray]')")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray")
    port = free_port("127.0.0.1")
    environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    words = [sys.executable, "-m", "musigma", "serve", "--ray", "--port", str(port)]
    words += ["--device", "cpu", "--engine", "torch", "--token", "secret", "--max-bytes", "1MB"]
    url = f"http://127.0.0.1:{port}"
    name, _, value = cluster_mark(url).partition("=")
    environment[name] = value  # the workers of Ray inherit it
    # A background process, such as a test run may be, hands on that Ctrl-C is ignored.
    process = subprocess.Popen(
        words,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    server = Server(url, process, folder)
    try:
        server.wait_until_ready()
        yield server
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


TOKEN = {"Authorization": "Bearer secret"}


def replicas(server):
    """Return the processes of the predictors of this cluster."""
    mark = cluster_mark(server.url).encode()
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_ours = mark in (process / "environ").read_bytes()
            if is_ours and b"Predictor" in (process / "cmdline").read_bytes():
                pids.append(int(process.name))
    return pids


def cluster_mark(url):
    return f"MUSIGMA_TEST_CLUSTER={url}"


def test_answers_refusals_and_a_killed_replica(server):
    assert server.restore(png()).status == 401
    assert server.restore(b"x" * 10**6 + b"y", TOKEN).status == 413
    refused = server.restore(b"no picture", TOKEN)
    assert refused.status == 400
    assert "is not a PNG" in refused.json()["error"]
    report = server.restore(png(), TOKEN, scale=2).json()
    picture = base64.b64decode(report["files"]["picture"]["base64"])
    assert Image.open(io.BytesIO(picture)).size == (32, 24)
    (replica,) = replicas(server)
    answers = []
    body = png(120, 120)
    request = threading.Thread(target=lambda: answers.append(server.restore(body, TOKEN, scale=4)))
    request.start()
    time.sleep(1)
    os.kill(replica, signal.SIGKILL)
    request.join(200)
    assert [answer.status for answer in answers] == [200], answers
    assert json.loads(answers[0].body)["width"] == 480
    assert replica not in replicas(server)
