"""How the app holds: time of the first result, load, hostile uploads, and a kill under load.

``python -m studies.measurements.serving first load hostile kill --minutes 5 --count 1000`` starts
servers of its own, prints what it measures, and writes a JSON record. Run it on a machine that does
nothing else.
"""

import argparse
import http.client
import io
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from musigma.datasets.demo_photo import portrait
from musigma.evaluation.evaluate import describe_model
from musigma.evaluation.record import Record, provenance
from musigma.images.image_io import write_image
from musigma.model import load
from musigma.restoration.interactive import default_engine

Report = dict[str, Any]
NUM_CLIENTS = 64


class Server:
    """``musigma app`` in a process of its own; its temporary files are in `folder`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port: int = listener.getsockname()[1]
        words = [sys.executable, "-m", "musigma", "app", "--port", str(self.port), *options]
        start = time.monotonic()
        self.process = subprocess.Popen(words, env={**os.environ, "TMPDIR": str(folder)})  # noqa: S603
        self.page_seconds = self._wait(lambda _: True, start)
        self.ready_seconds = self._wait(lambda status: bool(status["ready"]), start)

    def _wait(self, is_there: Callable[[Report], bool], start: float) -> float:
        while self.process.poll() is None:
            with suppress(OSError, http.client.HTTPException):
                if is_there(json.loads(self.send("GET", "/api/status")[1])):
                    return time.monotonic() - start
            time.sleep(0.05)
        raise SystemExit("the server did not start")

    def send(
        self, method: str, path: str, body: bytes | None = None, *, seconds: float = 900
    ) -> tuple[int, bytes]:
        """Return status and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            connection.request(method, path, body)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def memory(self) -> int:
        """Return the resident memory in bytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(text.split("VmRSS:")[1].split()[0])

    def cpu_seconds(self) -> float:
        """Return the processor time so far; unlike other times it is much the same under load."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def files(self) -> list[str]:
        """Return the temporary files, without locks and example pictures."""
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        names = [path.relative_to(self.folder).as_posix() for path in paths]
        return [name for name in names if not name.endswith("/lock") and "/examples/" not in name]

    def stop(self) -> None:
        """End the server and wait for it."""
        self.process.terminate()
        self.process.wait()


def png(height: int, width: int, seed: int = 0) -> bytes:
    samples = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(samples).save(buffer, "PNG")
    return buffer.getvalue()


def measure_first(folder: Path, _: argparse.Namespace) -> Report:
    """Measure the time to start, and from the press of the button to the first x2 result."""
    picture = folder / "square.png"
    write_image(picture, portrait()[:, :, :512, :512])
    server = Server(folder)
    try:
        at_start = server.cpu_seconds()
        shown, done = _seconds_in_the_page(server, picture)
        of_result = server.cpu_seconds() - at_start
        start = time.monotonic()
        status = server.send("POST", "/api/restore?answer=picture", picture.read_bytes())[0]
        api = time.monotonic() - start
    finally:
        server.stop()
    return {
        "engine": default_engine(),
        "page_answers_s": round(server.page_seconds, 2),
        "weights_ready_s": round(server.ready_seconds, 2),
        "first_result_seen_s": round(shown, 2),
        "viewer_open_s": round(done, 2),
        "cpu_s_until_ready": round(at_start, 2),
        "cpu_s_of_the_result": round(of_result, 2),
        "api_status": status,
        "api_s": round(api, 2),
    }


def _seconds_in_the_page(server: Server, picture: Path) -> tuple[float, float]:
    """Use the page as a visitor does; return when the result is seen and when the viewer is."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(600_000)
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.set_input_files("#picture input[type=file]", picture)
        page.get_by_label("Remove Image").wait_for()
        start = time.monotonic()
        page.click("#start")
        page.wait_for_selector(".app-preview, .mu-stage")
        shown = time.monotonic() - start
        page.wait_for_selector(".mu-stage")
        done = time.monotonic() - start
        browser.close()
    return shown, done


def measure_load(folder: Path, options: argparse.Namespace) -> Report:
    """Let many clients send small pictures; count statuses and watch the memory."""
    server = Server(folder)
    end = time.monotonic() + 60 * options.minutes
    statuses: Counter[int] = Counter()
    accepted: list[float] = []
    honest = [0, 0]  # refusals, and those with a position
    lock = threading.Lock()

    def client(seed: int) -> None:
        body = png(32, 32, seed)
        while time.monotonic() < end:
            start = time.monotonic()
            status, answer = server.send("POST", "/api/restore?answer=picture", body)
            with lock:
                statuses[status] += 1
                if status == 200:
                    accepted.append(time.monotonic() - start)
                elif status in (429, 503):
                    honest[0] += 1
                    honest[1] += "position" in json.loads(answer)
            if status != 200:
                time.sleep(0.5)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(NUM_CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(60 * options.minutes / 5)
    early = server.memory()
    for thread in threads:
        thread.join()
    late = server.memory()
    left = server.files()
    server.stop()
    p50, p95 = np.percentile(accepted, [50, 95])
    return {
        "clients": NUM_CLIENTS,
        "minutes": options.minutes,
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "refusals_with_position": f"{honest[1]} of {honest[0]}",
        "accepted_p50_s": round(float(p50), 2),
        "accepted_p95_s": round(float(p95), 2),
        "memory_after_a_fifth_mib": round(early / 2**20, 1),
        "memory_at_the_end_mib": round(late / 2**20, 1),
        "memory_growth_percent": round(100 * (late / early - 1), 2),
        "files_left": left,
    }


def hostile_upload(number: int) -> tuple[str, bytes]:
    """Return the settings and the body of a request that should be refused, or do no harm."""
    draw = random.Random(number)  # noqa: S311 (no secret)
    good = png(24, 24, number)
    settings = draw.choice(
        ["", "?scale=4", "?weights=../../etc/passwd", "?box=9,9,9,9", "?scale=1e9", "?answer=../x"]
    )
    bodies = [
        good[: draw.randrange(len(good))],
        draw.randbytes(draw.randrange(1, 5000)),
        _bomb(draw.randrange(10_000, 100_000)),
        good[:8] + draw.randbytes(200),
        b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        b"GIF89a" + draw.randbytes(100),
        b"\xff\xd8\xff\xe0" + draw.randbytes(2000),
        b"RIFF" + struct.pack("<I", 2**31) + b"WEBPVP8 " + draw.randbytes(100),
        b"II*\0" + draw.randbytes(500),
        b"BM" + draw.randbytes(500),
        _flipped(good, draw),
        b"",
    ]
    return settings, draw.choice(bodies)


def _bomb(side: int) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + checksum

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = chunk(b"IDAT", zlib.compress(b"\0" * 10**6))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + rows + chunk(b"IEND", b"")


def _flipped(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(10):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def measure_hostile(folder: Path, options: argparse.Namespace) -> Report:
    """Send hostile uploads; see that nothing breaks and nothing is left."""
    server = Server(folder)
    statuses: Counter[int] = Counter()
    for number in range(options.count):
        settings, body = hostile_upload(number)
        statuses[server.send("POST", "/api/restore" + settings, body)[0]] += 1
    for path in ("/../../etc/passwd", "/results/../lock", "/gradio_api/file=/etc/passwd"):
        statuses[server.send("GET", path)[0]] += 1
    good, _ = server.send("POST", "/api/restore?answer=picture", png(24, 24))
    alive = server.process.poll() is None
    left = server.files()
    server.stop()
    outside = [path.name for path in folder.iterdir() if not path.name.startswith("musigma-")]
    return {
        "uploads": options.count,
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "server_alive": alive,
        "next_good_upload": good,
        "files_left": left,
        "files_outside": outside,
    }


def measure_kill(folder: Path, _: argparse.Namespace) -> Report:
    """Kill the server under load, start another one, and look for what is left."""
    server = Server(folder)

    def client(seed: int) -> None:
        with suppress(OSError, http.client.HTTPException):
            server.send("POST", "/api/restore", png(300, 300, seed))

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    server.process.kill()
    server.process.wait()
    for thread in threads:
        thread.join()
    at_kill = server.files()
    start = time.monotonic()
    again = Server(folder)
    after = again.files()
    seconds = time.monotonic() - start
    status = again.send("POST", "/api/restore?answer=picture", png(24, 24))[0]
    again.stop()
    return {
        "files_at_the_kill": len(at_kill),
        "files_after_the_restart": after,
        "seconds_to_the_restart": round(seconds, 1),
        "next_good_upload": status,
    }


MEASUREMENTS = {
    "first": measure_first,
    "load": measure_load,
    "hostile": measure_hostile,
    "kill": measure_kill,
}


def main(arguments: list[str] | None = None) -> None:
    """Measure what is named, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="*", metavar="|".join(MEASUREMENTS), default=[*MEASUREMENTS])
    parser.add_argument("--minutes", type=float, default=5.0, help="Length of the load.")
    parser.add_argument("--count", type=int, default=1000, help="Number of hostile uploads.")
    parser.add_argument("--record", type=Path, default=Path("studies/results/serving.json"))
    options = parser.parse_args(arguments)
    result = {}
    for name in options.what:
        with tempfile.TemporaryDirectory() as folder:
            result[name] = MEASUREMENTS[name](Path(folder), options)
        print(name, json.dumps(result[name], indent=1), flush=True)
    Record(
        kind="benchmark",
        model=describe_model(load("photo", scale=2)),
        protocol={"name": "serving", "threads": torch.get_num_threads()},
        data={"name": "the photo of the demo, and pictures made by code", "hash": "generated"},
        result=result,
        provenance=provenance(torch.device("cpu")),
    ).save(options.record)


if __name__ == "__main__":
    main()
