"""``musigma app``: the page in the browser and its HTTP API."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from musigma.cli.common import parse_size, print_line, print_warning
from musigma.cli.shared_options import DeviceOption, with_options

if TYPE_CHECKING:
    from musigma.app.limits import Limits


def add_to(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("app", epilog="Example: `musigma app --port 7860`")(start_app)


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The options that ``app`` and ``serve`` share, as they are typed."""

    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets others in.")] = (
        "127.0.0.1"
    )
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")
    ] = 7860
    token: Annotated[
        str | None,
        typer.Option(
            help="Secret that clients must send. By default none is needed on this machine alone, "
            "and a random one is made where --host lets others in; 'off' for none at all."
        ),
    ] = None
    max_bytes: Annotated[str, typer.Option(help="Most bytes of a request.")] = "64MiB"
    max_pixels: Annotated[int, typer.Option(min=1, help="Most pixels of a result.")] = 50_000_000
    memory: Annotated[
        str, typer.Option(help="Memory for a picture, a tile and its output rows.")
    ] = "2GiB"
    max_waiting: Annotated[
        int, typer.Option(min=0, help="Requests that may wait in the queue.")
    ] = 16
    timeout: Annotated[
        float, typer.Option(help="Seconds that a request may take, waiting included.")
    ] = 900.0
    keep: Annotated[float, typer.Option(help="Seconds for which results are kept.")] = 3600.0
    engine: Annotated[
        str | None,
        typer.Option(help="What runs the network; by default openvino where it is installed."),
    ] = None
    device: DeviceOption = "auto"

    def limits(self) -> "Limits":
        """Read the limits as they were typed."""
        from musigma.app.limits import Limits

        return Limits(
            max_bytes=parse_size(self.max_bytes),
            max_pixels=self.max_pixels,
            memory=parse_size(self.memory),
            max_waiting=self.max_waiting,
            seconds=self.timeout,
            keep_seconds=self.keep,
        )

    def choose_token(self) -> str | None:
        """Return the token of the server, and warn where everybody gets in."""
        from musigma.app.gate import LOOPBACK
        from musigma.app.server import default_token

        token = default_token(self.host, self.token)
        if token is None and self.host not in LOOPBACK:
            print_warning("everybody who reaches this machine can use the app; --token prevents it")
        return token

    def choose_port(self) -> int:
        """Return the port to listen on."""
        from musigma.app.server import check_port, free_port

        if not self.port:
            return free_port(self.host)
        check_port(self.host, self.port)
        return self.port


@with_options(ServerOptions)
def start_app(shared: ServerOptions) -> None:
    """Start the app: a page in the browser and an HTTP API on this machine."""
    serve_here(shared, page=True)


def serve_here(shared: ServerOptions, *, page: bool) -> None:
    """Serve the API, and the page if wanted, from this process until Ctrl-C."""
    from musigma.app.gate import LOOPBACK
    from musigma.app.server import make_app, make_service, run

    token, port = shared.choose_token(), shared.choose_port()
    service = make_service(shared.limits(), engine=shared.engine, device=shared.device)
    hosts = LOOPBACK if shared.host in LOOPBACK else ()
    app = make_app(service, page=page, token=token, hosts=hosts)
    print_address(shared.host, port, token)
    run(app, host=shared.host, port=port)


def print_address(host: str, port: int, token: str | None) -> None:
    """Say where the server is."""
    name = f"[{host}]" if ":" in host else host
    print_line(f"Open http://{name}:{port}/" + (f"?token={token}" if token else ""))
    print_line("Ctrl-C stops it.")
