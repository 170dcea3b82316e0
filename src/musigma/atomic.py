"""Write files completely or not at all, also on a crash or a full disk."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing; it appears under its name only when it is complete.

    The bytes go to a temporary file in the same folder, which is created if it is missing. At the
    end of the block it replaces `path`. On any failure it is removed, and `path` is unchanged.
    """
    part = path.with_name(f".musigma-{secrets.token_hex(8)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):  # it may not exist
            part.unlink()
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file completely, or leave it unchanged."""
    with atomic_writer(path) as file:
        file.write(data)
