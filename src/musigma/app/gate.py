"""What stands before every request: known host, token, size; and headers behind every answer."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from musigma.app.limits import Limits, TooLargeError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

Refusal = tuple[int, str, dict[str, str]]
"""Status, text and headers."""

COOKIE = "musigma_token"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; object-src 'none'; base-uri 'self'; frame-ancestors 'self'"
)
"""The browser is told to fetch nothing from other hosts."""

READ_BYTES = 2**25
READ_SECONDS = 30.0
"""How much of a refused request is read, and how long, before it is answered."""

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class Gate:
    """An ASGI application in front of another one.

    Args:
        app: The application.
        limits: Its `max_bytes` holds for every request.
        token: What clients must know; `None` for nothing.
        hosts: Names under which the server may be addressed; empty for any. A page of another site
            could otherwise reach a server on this machine through a name of its own.
    """

    def __init__(
        self, app: AsgiApp, *, limits: Limits, token: str | None = None, hosts: tuple[str, ...] = ()
    ) -> None:
        self._app, self._limits, self._token, self._hosts = app, limits, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it with a refusal."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":  # nobody here needs one
                await send({"type": "websocket.close", "code": 1008})
                return
            await self._app(scope, receive, send)
            return
        refusal = self.refusal(scope)
        if refusal is not None:
            await _read_rest(receive)
            await _answer(send, *refusal)
            return
        await self._pass(scope, receive, send)

    def refusal(self, scope: Scope) -> Refusal | None:
        """Return why a request is refused, or `None` if it is let through."""
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        host = headers.get("host", "")
        if self._hosts and _name_of(host) not in self._hosts:
            return 421, f"this server is not called {host!r}", {}
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return 403, "a page of another site must not use this server", {}
        if self._token is not None:
            return self._refusal_of_token(scope, headers)
        return self._refusal_of_length(headers)

    def _refusal_of_token(self, scope: Scope, headers: dict[str, str]) -> Refusal | None:
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if self._knows_token(query.pop("token", [""])[0]):
            # The token goes into a cookie, and out of the address, which browsers remember.
            cookie = f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"
            target = "/" + quote(scope["path"].lstrip("/"))
            target += "?" + urlencode(query, doseq=True) if query else ""
            return 303, "", {"location": target, "set-cookie": cookie}
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if not self._knows_token(bearer) and not self._knows_token(_cookie(headers)):
            text = (
                "give the token, as 'Authorization: Bearer TOKEN' or as ?token=TOKEN in a browser"
            )
            return 401, text, {"www-authenticate": "Bearer"}
        return self._refusal_of_length(headers)

    def _refusal_of_length(self, headers: dict[str, str]) -> Refusal | None:
        length = headers.get("content-length", "0")
        try:
            self._limits.check_bytes(int(length))
        except TooLargeError as error:
            return error.status, str(error), {"connection": "close"}
        except ValueError:
            return 400, f"the content length {length!r} is no number", {}
        return None

    def _knows_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), (self._token or "").encode())

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        num_bytes, started = 0, False

        async def count() -> Message:
            nonlocal num_bytes
            message = await receive()
            num_bytes += len(message.get("body", b""))
            self._limits.check_bytes(num_bytes)
            return message

        async def add_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message["headers"], *_encoded(HEADERS)]
            await send(message)

        try:
            # A server that stops cancels what is open; that is no error.
            with suppress(asyncio.CancelledError):
                await self._app(scope, count, add_headers)
        except TooLargeError as error:
            if started:
                raise
            await _read_rest(receive)
            await _answer(send, error.status, str(error), {"connection": "close"})


def _name_of(host: str) -> str:
    """Return the name in a ``Host`` header.

    Example:
        >>> _name_of("localhost:7860"), _name_of("[::1]:7860")
        ('localhost', '::1')
    """
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _cookie(headers: dict[str, str]) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(key.encode(), value.encode("latin-1")) for key, value in headers.items()]


async def _read_rest(receive: Receive) -> None:
    """Read what a refused client sends, within limits.

    Most clients look for an answer only after they have sent everything. If the connection is
    closed before, they report a broken pipe instead of the refusal.
    """
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(_read(receive, READ_BYTES), READ_SECONDS)


async def _read(receive: Receive, max_bytes: int) -> None:
    num_bytes, more = 0, True
    while more and num_bytes < max_bytes:
        message = await receive()
        num_bytes += len(message.get("body", b""))
        more = bool(message.get("more_body", False))


async def _answer(send: Send, status: int, text: str, headers: dict[str, str]) -> None:
    import json

    body = json.dumps({"error": text}).encode() if text else b""
    all_headers = {**HEADERS, "content-type": "application/json", **headers}
    await send({"type": "http.response.start", "status": status, "headers": _encoded(all_headers)})
    await send({"type": "http.response.body", "body": body})
