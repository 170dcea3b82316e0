"""``musigma serve``: the HTTP API without the page, on this machine or on a Ray cluster."""

import time
from typing import Annotated

import typer

from musigma.cli.app import ServerOptions, print_address, serve_here
from musigma.cli.shared_options import with_options


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(epilog="Example: `musigma serve --ray --replicas 4`")(serve)


@with_options(ServerOptions)
def serve(
    shared: ServerOptions,
    ray: Annotated[
        bool, typer.Option("--ray", help="Run on the Ray cluster of RAY_ADDRESS, or a local one.")
    ] = False,
    replicas: Annotated[int, typer.Option(min=1, help="Predictors on the Ray cluster.")] = 1,
) -> None:
    """Start the HTTP API without the page; with --ray, on several machines."""
    if ray:
        serve_on_ray(shared, replicas)
    else:
        serve_here(shared, page=False)


def serve_on_ray(shared: ServerOptions, replicas: int) -> None:
    """Serve the API from a Ray cluster until Ctrl-C."""
    from musigma.app.ray_serve import start_on_ray, stop_on_ray

    token, port = shared.choose_token(), shared.choose_port()
    start_on_ray(
        shared.limits(),
        host=shared.host,
        port=port,
        token=token,
        replicas=replicas,
        engine=shared.engine,
        device=shared.device,
    )
    print_address(shared.host, port, token)
    try:
        while True:
            time.sleep(3600)
    finally:
        stop_on_ray()
