"""Start a server of musigma in a process of its own, and talk to it."""

import io
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import numpy as np
from PIL import Image

from musigma.app.server import free_port

SRC = Path(__file__).parents[2] / "src"


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    def json(self):
        return json.loads(self.body)


@dataclass
class Server:
    url: str
    process: subprocess.Popen
    folder: Path

    def get(self, path, **headers):
        return self.send("GET", path, None, **headers)

    def post(self, path, body, **headers):
        return self.send("POST", path, body, **headers)

    def restore(self, body, headers=(), **settings):
        return self.post("/api/restore?" + urlencode(settings), body, **dict(headers))

    def send(self, method, path, body, **headers):
        """Return the answer, whatever its status; the machine may be busy, so wait long."""
        request = Request(self.url + path, body, headers, method=method)
        try:
            with urlopen(request, timeout=300) as reply:
                return Answer(reply.status, dict(reply.headers), reply.read())
        except HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers), error.read())

    def files(self):
        """Return the files of all servers below the folder, without their locks."""
        paths = self.folder.rglob("*")
        return [p for p in paths if p.is_file() and p.name != "lock" and "examples" not in p.parts]

    def wait_until_ready(self, seconds=300):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with code {self.process.returncode}")
            try:
                if self.get("/api/status").status in (200, 401):
                    return
            except (URLError, OSError):
                pass
            time.sleep(0.1)
        raise AssertionError("the server did not start")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_server(command, folder, *options):
    """Start ``musigma app`` or ``musigma serve`` with its temporary files in a folder."""
    port = free_port("127.0.0.1")
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(SRC)}
    words = [sys.executable, "-m", "musigma", command, "--port", str(port), "--device", "cpu"]
    process = subprocess.Popen([*words, "--engine", "torch", *options], env=environment)
    server = Server(f"http://127.0.0.1:{port}", process, folder)
    try:
        server.wait_until_ready()
    except BaseException:
        server.stop()
        raise
    return server


def png(height=12, width=16, seed=0):
    """Return a small picture with some structure, as a PNG file."""
    generator = np.random.default_rng(seed)
    samples = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(samples).save(buffer, "PNG")
    return buffer.getvalue()
