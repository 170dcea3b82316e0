"""The HTTP API: one picture in, one JSON answer or one file out; nothing is kept."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from musigma._version import __version__
from musigma.app.boxes import (
    KEPT_INPUT,
    KEPT_REQUEST,
    describe_box,
    measure_kept_box,
    small_joint_box,
)
from musigma.app.job_queue import JobQueue, Ticket
from musigma.app.limits import BusyError, CancelledError, Limits, RefusedError
from musigma.app.restorer import MEDIA_TYPES, Restorer, RestoreRequest, check_settings
from musigma.app.workspace import Workspace
from musigma.restoration.interactive import weights_for
from musigma.types import ConfigError, MusigmaError, nearest
from musigma.uncertainty.quantities import parse_box

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

ANSWERS = ("json", *MEDIA_TYPES)
"""What a client can ask for: everything as JSON, or one file."""

POLL_SECONDS = 0.05


class Service(NamedTuple):
    """What the page and the API share."""

    restorer: Restorer
    queue: JobQueue
    workspace: Workspace

    @property
    def limits(self) -> Limits:
        """What is admitted."""
        return self.restorer.limits


class ApiRequest(NamedTuple):
    """A request of the API.

    Attributes:
        restore: What to do with the picture.
        answer: One of `ANSWERS`.
        box: A box of the result to be described, as text; empty for none.
    """

    restore: RestoreRequest
    answer: str
    box: str

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> "ApiRequest":
        """Read the settings of an address.

        Example:
            >>> ApiRequest.parse({"scale": "4", "answer": "picture"}).answer
            'picture'
        """
        settings = dict(values)
        check_settings(settings, [*RestoreRequest.__dataclass_fields__, "answer", "box"])
        answer, box = settings.pop("answer", "json"), settings.pop("box", "")
        if answer not in ANSWERS:
            raise ConfigError(f"there is no answer {answer!r}; {nearest(answer, ANSWERS)}")
        if box:
            parse_box(box)
        return cls(RestoreRequest.parse(settings), answer, box)


class Answer(NamedTuple):
    """What goes back: a media type, and JSON values or bytes."""

    media_type: str
    content: dict[str, Any] | bytes


def answer_request(
    restorer: Restorer, source: Path, request: ApiRequest, folder: Path, ticket: Ticket | None
) -> Answer:
    """Restore a picture and put the answer together; all files stay inside `folder`."""
    progress = None if ticket is None else ticket.report
    page = request.answer in ("json", "report")
    result = restorer.restore(source, request.restore, folder, page=page, progress=progress)
    if request.answer != "json":
        path = result.files.get(request.answer)
        if path is None:
            raise ConfigError(f"{request.restore.weights} gives no {request.answer}")
        return Answer(MEDIA_TYPES[request.answer], path.read_bytes())
    files = {name: _as_json(name, path) for name, path in result.files.items()}
    report = dict(result.report)
    if request.box:
        model = restorer.model(request.restore.weights, request.restore.scale)
        noise_std = request.restore.noise_std
        report["box"] = describe_box(result, request.box) | {
            "joint": small_joint_box(model, source, request.box, noise_std=noise_std)
        }
    return Answer("application/json", {**report, "files": files})


async def handle_box(service: Service, request: "Request") -> "Response":
    """Answer ``GET /results/KEY/box?box=x,y,width,height`` for a result of the page."""
    from starlette.responses import JSONResponse

    key, text = request.path_params["key"], request.query_params.get("box", "")
    kept = (service.workspace.result_file(key, name) for name in (KEPT_INPUT, KEPT_REQUEST))
    source, stored = kept
    if source is None or stored is None:
        return JSONResponse({"error": "there is no such result, or no more"}, 404)
    try:
        ticket = service.queue.submit(
            lambda _: Answer(
                "application/json", measure_kept_box(service.restorer, source, stored, text)
            )
        )
        return to_response(await _finished(ticket, request))
    except MusigmaError as error:
        return error_response(error)


def status_json(service: Service, *, ready: bool) -> dict[str, Any]:
    """Return what a server can do and how busy it is, as plain JSON values."""
    return {
        "musigma": __version__,
        "ready": ready,
        "queue": len(service.queue),
        "limits": asdict(service.limits),
        "weights": {str(scale): weights_for(scale) for scale in (1, 2, 3, 4)},
    }


def _as_json(name: str, path: Path) -> dict[str, str]:
    data = base64.b64encode(path.read_bytes()).decode()
    return {"name": path.name, "type": MEDIA_TYPES[name], "base64": data}


async def handle_restore(service: Service, request: "Request") -> "Response":
    """Answer ``POST /api/restore``: the body is the picture file, the address has the settings."""
    try:
        asked = ApiRequest.parse(dict(request.query_params))
        if request.headers.get("content-type", "").startswith("multipart/"):
            raise ConfigError(
                "the body must be the picture file itself, and not a form; with curl, send it by "
                "--data-binary @photo.png"
            )
        with service.workspace.scratch() as folder:
            source = folder / "source"
            await save_body(request.stream(), source, service.limits)
            ticket = service.queue.submit(
                lambda ticket: answer_request(
                    service.restorer, source, asked, folder / "out", ticket
                )
            )
            return to_response(await _finished(ticket, request))
    except MusigmaError as error:
        return error_response(error)


async def save_body(chunks: AsyncIterator[bytes], path: Path, limits: Limits) -> None:
    """Write what arrives to a file, as long as it is not too much."""
    num_bytes = 0
    with path.open("wb") as file:
        async for chunk in chunks:
            num_bytes += len(chunk)
            limits.check_bytes(num_bytes)
            file.write(chunk)


async def _finished(ticket: Ticket, request: "Request") -> Answer:
    """Wait for a job; cancel it where the client has gone, and wait until its files are closed."""
    try:
        while not ticket.finished.is_set():
            if await request.is_disconnected():
                ticket.cancel()
            await asyncio.sleep(POLL_SECONDS)
    except asyncio.CancelledError:
        ticket.cancel()
        raise
    answer: Answer = ticket.result(0)
    return answer


def to_response(answer: Answer) -> "Response":
    """Return an answer as HTTP."""
    from starlette.responses import JSONResponse, Response

    if isinstance(answer.content, bytes):
        return Response(answer.content, media_type=answer.media_type)
    return JSONResponse(answer.content)


def error_response(error: MusigmaError) -> "Response":
    """Return an error as HTTP: what the client can correct is 400, a refusal has its own status."""
    from starlette.responses import JSONResponse

    status = error.status if isinstance(error, RefusedError) else 400
    content: dict[str, Any] = {"error": str(error)}
    headers = {}
    if isinstance(error, BusyError):
        content |= {"position": error.position, "retry_after": error.retry_after}
        headers["Retry-After"] = str(error.retry_after)
    if isinstance(error, CancelledError):
        headers["Connection"] = "close"
    return JSONResponse(content, status, headers)
