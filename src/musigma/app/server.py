"""The server: the page, the API and the results behind one gate."""

import asyncio
import os
import random
import secrets
import socket
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from errno import EADDRINUSE
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from musigma.app.api import Service, handle_box, handle_restore, status_json
from musigma.app.gate import LOOPBACK, AsgiApp, Gate
from musigma.app.job_queue import JobQueue
from musigma.app.limits import Limits
from musigma.app.restorer import Restorer
from musigma.app.workspace import Workspace
from musigma.types import ConfigError

CLEANING_SECONDS = 20.0


def default_token(host: str, token: str | None) -> str | None:
    """Return the token of a server: none on this machine alone, a random one for others.

    Example:
        >>> default_token("127.0.0.1", None), default_token("0.0.0.0", "off")
        (None, None)
        >>> len(default_token("0.0.0.0", None))
        22
    """
    if token == "off":  # noqa: S105 (a word that users type)
        return None
    if token is None and host not in LOOPBACK:
        return secrets.token_urlsafe(16)
    return token or None


def make_service(
    limits: Limits, *, engine: str | None = None, device: str = "auto", base: Path | None = None
) -> Service:
    """Return what does the work of a server."""
    restorer = Restorer(limits, engine=engine, device=device)
    queue = JobQueue(max_waiting=limits.max_waiting, seconds=limits.seconds)
    return Service(restorer, queue, Workspace(base))


def make_app(
    service: Service, *, page: bool = True, token: str | None = None, hosts: tuple[str, ...] = ()
) -> AsgiApp:
    """Return the ASGI application of a server.

    Args:
        service: What does the work.
        page: Whether to serve the page for browsers, besides the API.
        token: What clients must know.
        hosts: Names under which the server may be addressed; empty for any.
    """
    _require_packages()
    if page:
        _prepare_gradio(service)
    from fastapi import FastAPI

    ready = threading.Event()
    app = FastAPI(
        openapi_url=None, docs_url=None, redoc_url=None, lifespan=_lifespan(service, ready)
    )
    _add_routes(app, service, ready)
    if page:
        app = _with_page(app, service)
    return Gate(app, limits=service.limits, token=token, hosts=hosts)


def _lifespan(service: Service, ready: threading.Event) -> Any:
    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        def warm_up(_: object) -> None:
            service.restorer.warm_up()
            ready.set()

        service.queue.submit(warm_up)
        cleaning = asyncio.create_task(_clean(service))
        try:
            yield
        finally:
            cleaning.cancel()
            await asyncio.to_thread(service.queue.close)
            service.workspace.close()

    return lifespan


async def _clean(service: Service) -> None:
    while True:
        await asyncio.sleep(CLEANING_SECONDS)
        await asyncio.to_thread(service.workspace.remove_old, service.limits.keep_seconds)


def _add_routes(app: Any, service: Service, ready: threading.Event) -> None:
    from starlette.requests import Request
    from starlette.responses import FileResponse, JSONResponse, Response

    async def restore(request: Request) -> Response:
        return await handle_restore(service, request)

    async def status(_: Request) -> Response:
        return JSONResponse(status_json(service, ready=ready.is_set()))

    async def result(request: Request) -> Response:
        path = service.workspace.result_file(**request.path_params)
        if path is None:
            return JSONResponse({"error": "there is no such result, or no more"}, 404)
        return FileResponse(path)

    async def box(request: Request) -> Response:
        return await handle_box(service, request)

    async def unknown(request: Request) -> Response:
        wanted = f"{request.method} {request.url.path}"
        known = "POST a picture file to /api/restore, or GET /api/status"
        return JSONResponse({"error": f"there is no {wanted}; {known}"}, 404)

    app.add_route("/api/restore", restore, methods=["POST"])
    app.add_route("/api/status", status, methods=["GET"])
    app.add_route("/results/{key}/box", box, methods=["GET"])
    app.add_route("/results/{key}/{name}", result, methods=["GET"])
    for others in ("/api", "/api/{name:path}"):
        app.add_route(others, unknown, methods=["GET", "POST", "PUT", "DELETE"])


def _with_page(app: Any, service: Service) -> Any:
    import gradio as gr

    from musigma.app.examples import write_examples
    from musigma.app.page import build_page, head

    folder = service.workspace.folder / "examples"
    page = build_page(service, write_examples(folder))
    return gr.mount_gradio_app(
        app,
        page,
        path="/",
        theme=_theme(gr),
        head=head(),
        ssr_mode=False,
        max_file_size=service.limits.max_bytes,
        allowed_paths=[],
        footer_links=[],
        show_error=True,
    )


def _theme(gr: Any) -> Any:
    fonts = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Liberation Sans", "sans-serif"]
    mono = ["ui-monospace", "Consolas", "Liberation Mono", "monospace"]
    theme = gr.themes.Default(font=fonts, font_mono=mono, primary_hue="blue", neutral_hue="stone")
    # Colors as in the stylesheet of the viewer, and letters that can be read.
    return theme.set(
        body_background_fill="#f6f6f4",
        body_background_fill_dark="#141518",
        block_background_fill="#fff",
        block_background_fill_dark="#1d1f23",
        block_label_background_fill="#fff",
        block_label_background_fill_dark="#1d1f23",
        input_background_fill="#fff",
        input_background_fill_dark="#1d1f23",
        border_color_primary="#d9d7d0",
        border_color_primary_dark="#3a3d44",
        button_secondary_background_fill="#fff",
        button_secondary_background_fill_hover="#f6f6f4",
        button_secondary_background_fill_dark="#1d1f23",
        button_secondary_background_fill_hover_dark="#2a2d33",
        button_secondary_border_color="#85827a",
        button_secondary_border_color_dark="#7d8089",
        button_border_width="1px",
        checkbox_border_color="#85827a",
        checkbox_border_color_dark="#7d8089",
        checkbox_background_color_dark="#141518",
        checkbox_label_background_fill_dark="#1d1f23",
        checkbox_label_background_fill_hover_dark="#2a2d33",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
    )


def _prepare_gradio(service: Service) -> None:
    """Keep gradio inside the folder of the server and off the network, before it is imported."""
    uploads = str(service.workspace.uploads)
    os.environ["GRADIO_TEMP_DIR"] = uploads
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_OFFLINE"] = "1"
    tempfile.tempdir = uploads  # uploads that are under way are there, too
    from gradio import processing_utils

    async def refuse(*_: object, **__: object) -> Any:
        raise ConfigError("give the picture itself; this server fetches nothing from addresses")

    processing_utils.async_ssrf_protected_download = refuse
    processing_utils.async_ssrf_protected_get = refuse


def _require_packages() -> None:
    # Without importing them: gradio reads its settings when it is imported.
    if any(find_spec(name) is None for name in ("gradio", "uvicorn")):
        raise ConfigError("the app needs gradio; pip install 'musigma[app]'")
    if os.name != "posix":  # the lock of the workspace
        raise ConfigError("the app runs on Linux and macOS only, so far")


def free_port(host: str) -> int:
    """Return a port that nobody listens on.

    It lies below those that systems hand out to connections, so that no other program is given it
    before the server listens.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket(family) as listener, suppress(OSError):
            listener.bind((host, port))
            return port
    raise ConfigError(f"no free port was found on {host}; choose one by --port")


def check_port(host: str, port: int) -> None:
    """Refuse an address on which no server can listen, such as that of a server that runs."""
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as error:
        reason = "another program uses it" if error.errno == EADDRINUSE else error.strerror
        raise ConfigError(
            f"cannot listen on port {port} of {host} ({reason}); choose another by --port, or 0 "
            "for a free one"
        ) from error


def run(app: AsgiApp, *, host: str, port: int) -> None:
    """Serve until Ctrl-C."""
    import uvicorn

    uvicorn.run(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=5)
