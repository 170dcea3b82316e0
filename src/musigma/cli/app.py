"""``musigma app``: the page in the browser and its HTTP API."""

from typing import TYPE_CHECKING, Annotated

import typer

from musigma.cli.common import parse_size, print_line, print_warning

if TYPE_CHECKING:
    from musigma.app.limits import Limits


def add_to(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("app", epilog="Example: `musigma app --port 7860`")(start_app)


Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets others in.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")]
Token = Annotated[
    str | None,
    typer.Option(
        help="What clients must know. Without it, a random one is made where --host lets others "
        "in; 'off' for none."
    ),
]
MaxBytes = Annotated[str, typer.Option(help="Largest request.")]
MaxPixels = Annotated[int, typer.Option(min=1, help="Largest number of pixels of a result.")]
Memory = Annotated[str, typer.Option(help="Memory budget for one tile and its output rows.")]
MaxWaiting = Annotated[int, typer.Option(min=0, help="Requests that may wait in the queue.")]
Seconds = Annotated[float, typer.Option(help="Time that a request may take, waiting included.")]
Engine = Annotated[
    str | None,
    typer.Option(help="What runs the network; by default openvino where it is installed."),
]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:N.")]
Keep = Annotated[float, typer.Option(help="Seconds for which results are kept.")]


def start_app(
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
) -> None:
    """Start the app: a page in the browser and an HTTP API on this machine."""
    limits = read_limits(max_bytes, max_pixels, memory, max_waiting, timeout, keep)
    serve_here(limits, host=host, port=port, token=token, engine=engine, device=device, page=True)


def read_limits(
    max_bytes: str, max_pixels: int, memory: str, max_waiting: int, timeout: float, keep: float
) -> "Limits":
    """Read the limits as they are typed."""
    from musigma.app.limits import Limits

    return Limits(
        max_bytes=parse_size(max_bytes),
        max_pixels=max_pixels,
        memory=parse_size(memory),
        max_waiting=max_waiting,
        seconds=timeout,
        keep_seconds=keep,
    )


def serve_here(
    limits: "Limits",
    *,
    host: str,
    port: int,
    token: str | None,
    engine: str | None,
    device: str,
    page: bool,
) -> None:
    """Serve the API, and the page if wanted, from this process until Ctrl-C."""
    from musigma.app.gate import LOOPBACK
    from musigma.app.server import free_port, make_app, make_service, run

    token = choose_token(host, token)
    port = port or free_port(host)
    service = make_service(limits, engine=engine, device=device)
    hosts = LOOPBACK if host in LOOPBACK else ()
    app = make_app(service, page=page, token=token, hosts=hosts)
    print_address(host, port, token)
    run(app, host=host, port=port)


def choose_token(host: str, token: str | None) -> str | None:
    """Return the token of a server, and warn where everybody gets in."""
    from musigma.app.gate import LOOPBACK
    from musigma.app.server import default_token

    token = default_token(host, token)
    if token is None and host not in LOOPBACK:
        print_warning("everybody who reaches this machine can use the app; --token prevents it")
    return token


def print_address(host: str, port: int, token: str | None) -> None:
    """Say where the server is."""
    name = f"[{host}]" if ":" in host else host
    print_line(f"Open http://{name}:{port}/" + (f"?token={token}" if token else ""))
    print_line("Ctrl-C stops it.")
