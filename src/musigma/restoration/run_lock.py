"""Runs that write into one folder know of each other."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from musigma.file_lock import open_here, try_lock

NAME = ".musigma.lock"


@contextmanager
def claim_folder(folder: Path) -> Iterator[int | None]:
    """Claim a folder for the run inside the block; yield the process of a run that has it already.

    The claim is a lock on a file in the folder, which holds the number of the process. The system
    releases it when the process ends. So the file of a killed run is no claim. A folder that can
    not be written is not claimed; writing the results says why.

    Args:
        folder: The folder for the results. It is made if it is missing, and removed at the end if
            it is new and empty.

    Yields:
        `None`, or the number of the other process.
    """
    is_new = not folder.exists()
    descriptor = _open(folder)
    if descriptor is None:
        yield None
        return
    is_ours = try_lock(descriptor) is True
    try:
        if is_ours:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield None if is_ours else _owner(descriptor)
    finally:
        with suppress(OSError):
            if is_ours:
                (folder / NAME).unlink()
        os.close(descriptor)
        with suppress(OSError):  # where it holds results
            if is_new:
                folder.rmdir()


def _open(folder: Path) -> int | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return open_here(folder / NAME, os.O_RDWR | os.O_CREAT)
    except OSError:  # also where it is a link, which may lead to any file, or a pipe
        return None


def _owner(descriptor: int) -> int | None:
    digits = os.read(descriptor, 20)
    return int(digits) if digits.isdigit() else None
