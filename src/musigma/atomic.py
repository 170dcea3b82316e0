"""Write files completely or not at all, also on a crash or a full disk."""

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, NamedTuple

from musigma.file_lock import open_here, try_lock, wait_for_lock

PARTS = ".musigma-*.part"
"""Names of files that are being written."""


class _Written(NamedTuple):
    part: Path
    path: Path
    lock: int  # a descriptor that keeps the part locked


_WAITING: ContextVar[list[_Written] | None] = ContextVar("waiting", default=None)


@contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing; it appears under its name only when it is complete.

    The bytes go to a temporary file in the same folder, which is created if it is missing. At the
    end of the block it replaces `path`. On any failure it is removed, and `path` is unchanged.
    Inside a block of `written_together` it waits for the other files of that block.
    """
    if not path.name:  # such as "."
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part, file = _open_part(path)
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            waiting = _WAITING.get()
            if waiting is not None:
                waiting.append(_Written(part, path, os.dup(file.fileno())))
        if waiting is None:
            part.replace(path)
    except BaseException:
        if part is not None:
            with suppress(OSError):
                part.unlink()
        raise


@contextmanager
def written_together() -> Iterator[None]:
    """Let the files that `atomic_writer` makes in this block appear together at its end.

    They appear in the order in which they were completed. On any failure none of them appears.
    """
    waiting: list[_Written] = []
    token = _WAITING.set(waiting)
    try:
        yield
        with _folders_locked(written.path.parent for written in waiting):
            _place(waiting)
    finally:
        _WAITING.reset(token)
        for written in waiting:
            os.close(written.lock)
            with suppress(OSError):  # it has its own name by now, unless something failed
                written.part.unlink()


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file completely, or leave it unchanged."""
    with atomic_writer(path) as file:
        file.write(data)


def remove_abandoned_parts(folder: Path) -> int:
    """Remove what killed processes left in a folder; return the number of files.

    A file that a living process is writing stays.
    """
    num_removed = 0
    for part in folder.glob(PARTS):
        if _is_abandoned(part):
            with suppress(OSError):
                part.unlink()
                num_removed += 1
    return num_removed


def _open_part(path: Path) -> tuple[Path, BinaryIO]:
    while True:
        part = path.with_name(f".musigma-{os.getpid()}-{secrets.token_hex(8)}.part")
        file = part.open("xb")
        # Another process may have removed it between these two steps.
        if not try_lock(file.fileno()) or part.exists():
            return part, file
        file.close()


def _place(waiting: list[_Written]) -> None:
    placed: list[Path] = []
    try:
        for written in waiting:
            written.part.replace(written.path)
            placed.append(written.path)
    except BaseException:
        for path in placed:
            with suppress(OSError):
                path.unlink()
        raise


@contextmanager
def _folders_locked(folders: Iterable[Path]) -> Iterator[None]:
    """Keep other processes from placing files, so that those of two runs are not mixed."""
    descriptors = []
    try:
        for folder in sorted(set(folders)) if os.name == "posix" else []:
            descriptors.append(os.open(folder, os.O_RDONLY))
            wait_for_lock(descriptors[-1])
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _is_abandoned(part: Path) -> bool:
    try:
        descriptor = open_here(part, os.O_RDONLY)
    except OSError:
        return False
    try:
        # Without locks no file is taken for abandoned.
        return try_lock(descriptor) is True
    finally:
        os.close(descriptor)
