"""``musigma serve``: the HTTP API without the page, on this machine or on a Ray cluster."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from musigma.cli.app import (
    Device,
    Engine,
    Host,
    Keep,
    MaxBytes,
    MaxPixels,
    MaxWaiting,
    Memory,
    Port,
    Seconds,
    Token,
    choose_token,
    print_address,
    read_limits,
    serve_here,
)

if TYPE_CHECKING:
    from musigma.app.limits import Limits


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(epilog="Example: `musigma serve --ray --replicas 4`")(serve)


def serve(
    host: Host = "127.0.0.1",
    port: Port = 7860,
    token: Token = None,
    max_bytes: MaxBytes = "64MiB",
    max_pixels: MaxPixels = 50_000_000,
    memory: Memory = "2GiB",
    max_waiting: MaxWaiting = 16,
    timeout: Seconds = 900.0,
    keep: Keep = 3600.0,
    engine: Engine = None,
    device: Device = "auto",
    ray: Annotated[
        bool, typer.Option("--ray", help="Run on the Ray cluster of RAY_ADDRESS, or a local one.")
    ] = False,
    replicas: Annotated[int, typer.Option(min=1, help="Predictors on the Ray cluster.")] = 1,
) -> None:
    """Start the HTTP API without the page; with --ray, on several machines."""
    limits = read_limits(max_bytes, max_pixels, memory, max_waiting, timeout, keep)
    if ray:
        serve_on_ray(limits, host, port, token, replicas, engine, device)
    else:
        serve_here(
            limits, host=host, port=port, token=token, engine=engine, device=device, page=False
        )


def serve_on_ray(
    limits: "Limits",
    host: str,
    port: int,
    token: str | None,
    replicas: int,
    engine: str | None,
    device: str,
) -> None:
    """Serve the API from a Ray cluster until Ctrl-C."""
    from musigma.app.ray_serve import start_on_ray, stop_on_ray
    from musigma.app.server import free_port

    token, port = choose_token(host, token), port or free_port(host)
    start_on_ray(
        limits,
        host=host,
        port=port,
        token=token,
        replicas=replicas,
        engine=engine,
        device=device,
    )
    print_address(host, port, token)
    try:
        while True:
            time.sleep(3600)
    finally:
        stop_on_ray()
