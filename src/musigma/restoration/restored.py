"""What is known about a file after it was restored."""

from dataclasses import dataclass
from pathlib import Path

from musigma.restoration.restore_science import ScienceRecord


@dataclass(frozen=True, kw_only=True)
class Restored:
    """The results of one file.

    Attributes:
        source: The file that was read.
        source_stamp: Its size in bytes and its time in nanoseconds, before it was read.
        output: The restored picture.
        files: The other files, by what they hold: ``sigma``, ``std``, ``half_width``, ``picture``,
            ``npz``, ``page``.
        noise_std: The noise level that the denoiser was given, in 8-bit levels.
        noise_estimated: Whether the noise level was estimated from the picture.
        estimated_noise_std: The noise that was measured in the picture, in 8-bit levels.
        noise_is_white: Whether that noise is white, as `drunet-small` expects it.
        noise_growth: How its variance grows with the signal of a gray picture, in 8-bit levels;
            empty where it does not, or where nobody has looked.
        promise: What the intervals promise for this picture; `None` where they promise nothing.
        promise_reason: Why they promise nothing; `None` where they promise something, or where the
            model has no calibration.
        warnings: What the user should know about the result.
        width: Width of the result.
        height: Height of the result.
        resized_from: Width and height of what the network gave, where it was resized to the size
            that was asked for. The error maps are resized with it.
        exact: Whether it is the network's result for the whole picture. It is not if the picture
            was cut into tiles for a network that looks at all of it at once.
        seconds: Time from the start of reading to the end of writing.
        science: How a scientific file was restored; `None` for an ordinary picture.
    """

    source: Path
    source_stamp: list[int] | None
    output: Path
    files: dict[str, Path]
    noise_std: float | None
    noise_estimated: bool
    estimated_noise_std: float
    noise_is_white: bool
    noise_growth: str
    promise: str | None
    promise_reason: str | None
    warnings: list[str]
    width: int
    height: int
    resized_from: tuple[int, int] | None
    exact: bool
    seconds: float
    science: ScienceRecord | None = None


def file_stamp(path: Path) -> list[int] | None:
    """Return size in bytes and time in nanoseconds of a file, or `None` where there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # a damaged log may hold names that no system allows
        return None
    return [status.st_size, status.st_mtime_ns]
