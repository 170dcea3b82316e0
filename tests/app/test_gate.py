"""A refused client has sent its request before it is answered, within limits."""

import asyncio
import json

import pytest

from musigma.app import gate
from musigma.app.gate import Gate
from musigma.app.limits import Limits

CHUNK = b"x" * 1000


async def application(scope, receive, send):
    """Read the whole request, then answer."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


class Client:
    """Sends so many chunks; the last one says that no more come."""

    def __init__(self, chunks, *, pause=0.0):
        self.left, self.pause = chunks, pause
        self.events = []

    async def receive(self):
        await asyncio.sleep(self.pause)
        self.left -= 1
        self.events.append("sent")
        return {"type": "http.request", "body": CHUNK, "more_body": self.left > 0}

    async def send(self, message):
        self.events.append(message)

    @property
    def answer(self):
        start, body = (event for event in self.events if event != "sent")
        return start["status"], json.loads(body["body"])


def ask(client, *headers, **options):
    scope = {"type": "http", "path": "/", "query_string": b"", "headers": list(headers)}
    door = Gate(application, limits=Limits(max_bytes=5000), **options)
    asyncio.run(door(scope, client.receive, client.send))
    return client.events


@pytest.mark.parametrize("headers", [[(b"content-length", b"20000")], []], ids=["told", "counted"])
def test_a_request_that_is_too_large_is_read_before_the_answer(headers):
    client = Client(20)
    events = ask(client, *headers)
    assert events[:20] == ["sent"] * 20
    assert client.answer[0] == 413
    assert "5,000" in client.answer[1]["error"]


def test_so_is_one_without_the_token():
    client = Client(3)
    events = ask(client, token="secret")
    assert events[:3] == ["sent"] * 3
    assert client.answer[0] == 401


def test_a_request_without_end_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(gate, "READ_BYTES", 10_000)
    client = Client(10**9)
    events = ask(client, (b"content-length", b"999999999"))
    assert events.count("sent") == 10
    assert client.answer[0] == 413


def test_a_slow_client_is_answered_after_a_while(monkeypatch):
    monkeypatch.setattr(gate, "READ_SECONDS", 0.1)
    client = Client(10**9, pause=0.03)
    ask(client, (b"content-length", b"999999999"))
    assert client.answer[0] == 413


def test_a_request_that_is_let_through_is_read_by_the_application():
    client = Client(4)
    ask(client)
    assert client.answer == (200, {})
    assert client.left == 0
