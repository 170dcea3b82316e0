"""What a server accepts, and the errors that say why it refuses."""

from dataclasses import dataclass
from typing import Any

from musigma.types import MusigmaError


class RefusedError(MusigmaError):
    """A request that is not served; `status` is the HTTP status that says so."""

    status = 400


class TooLargeError(RefusedError):
    """A picture with more bytes or pixels than the limits admit."""

    status = 413


class BusyError(RefusedError):
    """The server has too much to do, or the request took too long.

    Attributes:
        position: Number of requests before this one.
        retry_after: Seconds after which another try makes sense.
    """

    status = 503

    def __init__(self, text: str, *, position: int, retry_after: int) -> None:
        super().__init__(text)
        self.position, self.retry_after = position, retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        """Let the error travel between the machines of a cluster."""
        return _busy, (str(self), self.position, self.retry_after)


def _busy(text: str, position: int, retry_after: int) -> BusyError:
    return BusyError(text, position=position, retry_after=retry_after)


class CancelledError(RefusedError):
    """The client has gone or asked to stop; nobody reads this status, which is nginx's own."""

    status = 499


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of a server.

    Attributes:
        max_bytes: Size of a request.
        max_pixels: Pixels of a result; the input may have that number over the scale squared.
        memory: Bytes for the tile that is computed and its rows of the result.
        max_waiting: Requests that wait. A further one is refused.
        seconds: Time that a request may take, waiting included.
        keep_seconds: How long results can be downloaded.

    Example:
        >>> Limits(max_pixels=1000).check_size(10, 20, scale=2)
        >>> Limits(max_pixels=1000).check_size(10, 30, scale=2)
        Traceback (most recent call last):
        musigma.app.limits.TooLargeError: 30 x 10 pixels at scale 2 give 1,200 pixels, and the ...
    """

    max_bytes: int = 64 * 2**20
    max_pixels: int = 50_000_000
    memory: int = 2 * 2**30
    max_waiting: int = 16
    seconds: float = 900.0
    keep_seconds: float = 3600.0

    def check_size(self, height: int, width: int, *, scale: int) -> None:
        """Refuse a picture whose result would have too many pixels."""
        num_pixels = height * width * scale**2
        if num_pixels > self.max_pixels:
            raise TooLargeError(
                f"{width} x {height} pixels at scale {scale} give {num_pixels:,} pixels, and the "
                f"limit here is {self.max_pixels:,}; choose a smaller scale or a smaller picture"
            )

    def check_bytes(self, num_bytes: int) -> None:
        """Refuse a request that is too long."""
        if num_bytes > self.max_bytes:
            raise TooLargeError(
                f"the request has more than {self.max_bytes:,} bytes, which is the limit here"
            )
