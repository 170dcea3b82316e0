"""Writing files so that neither a crash nor a full disk leaves half of one behind."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name only when it is whole.

    The bytes go to a temporary file in the same folder, which is made if need be; at the end of the
    block it replaces `path`, and on any failure it is removed and what was there before stays.
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
        with suppress(OSError):  # it may never have been made
            part.unlink()
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Write a whole file, or leave what was there."""
    with atomic_writer(path) as file:
        file.write(data)
