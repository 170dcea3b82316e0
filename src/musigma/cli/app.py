"""``musigma app``: the page in the browser and its HTTP API."""

from typing import Annotated

import typer

from musigma.cli.common import parse_size, print_line, print_warning


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


def start_app(
    host: Host = "127.0.0.1",
    port: Port = 7860,
    token: Token = None,
    max_bytes: MaxBytes = "64MiB",
    max_pixels: MaxPixels = 50_000_000,
    memory: Memory = "2GiB",
    max_waiting: MaxWaiting = 16,
    timeout: Seconds = 900.0,
    keep: Annotated[float, typer.Option(help="Seconds for which results are kept.")] = 3600.0,
    engine: Engine = None,
    device: Device = "auto",
    page: Annotated[bool, typer.Option(help="Serve the page, or the API alone.")] = True,
) -> None:
    """Start the app: a page in the browser and an HTTP API on this machine."""
    from musigma.app.gate import LOOPBACK
    from musigma.app.limits import Limits
    from musigma.app.server import default_token, free_port, make_app, make_service, run

    limits = Limits(
        max_bytes=parse_size(max_bytes),
        max_pixels=max_pixels,
        memory=parse_size(memory),
        max_waiting=max_waiting,
        seconds=timeout,
        keep_seconds=keep,
    )
    token = default_token(host, token)
    if token is None and host not in LOOPBACK:
        print_warning("everybody who reaches this machine can use the app; --token prevents it")
    port = port or free_port(host)
    service = make_service(limits, engine=engine, device=device)
    hosts = LOOPBACK if host in LOOPBACK else ()
    app = make_app(service, page=page, token=token, hosts=hosts)
    name = f"[{host}]" if ":" in host else host
    print_line(f"Open http://{name}:{port}/" + (f"?token={token}" if token else ""))
    print_line("Ctrl-C stops it.")
    run(app, host=host, port=port)
