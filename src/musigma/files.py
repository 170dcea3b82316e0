"""Writing files so that neither a crash nor a full disk leaves half of one behind."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name only when it is whole.

    The bytes go to a temporary neighbour, which replaces `path` at the end of the block and is
    removed if the block fails. Folders on the way are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=f".{path.name[-40:]}")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes private files
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Write a whole file, or leave what was there."""
    with atomic_writer(path) as file:
        file.write(data)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
