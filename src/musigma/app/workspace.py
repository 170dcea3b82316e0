"""The folder of a running server: its uploads and results, and nothing of servers that died."""

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from musigma.file_lock import try_lock, wait_for_lock
from musigma.types import ConfigError

_LOCK = "lock"


class Workspace:
    """A temporary folder that belongs to this process.

    The process holds a lock on a file in it. The system gives the lock back when the process ends,
    also by ``kill -9``, so that the next server sees that the folder is abandoned and removes it.

    Args:
        base: Folder of all servers of this user; by default inside the system's temporary folder.

    Attributes:
        folder: The folder.
        uploads: For files that come in, and whatever libraries put into a temporary folder.
        results: For results that can be fetched, one folder each.

    Example:
        >>> with tempfile.TemporaryDirectory() as base:
        ...     workspace = Workspace(Path(base))
        ...     with workspace.scratch() as folder:
        ...         existed = folder.is_dir()
        ...     workspace.close()
        ...     existed, workspace.folder.exists()
        (True, False)
    """

    def __init__(self, base: Path | None = None) -> None:
        self._base = _private_folder(base or _default_base())
        with _locked(self._base / _LOCK):  # nobody may clean between the folder and its lock
            _remove_abandoned(self._base)
            self.folder = Path(tempfile.mkdtemp(prefix="server-", dir=self._base))
            self._lock = _lock(self.folder / _LOCK)
        self.uploads = self._made("uploads")
        self.results = self._made("results")

    def _made(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(mode=0o700)
        return path

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give a new folder for the duration of a block."""
        folder = Path(tempfile.mkdtemp(dir=self.uploads))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def new_result(self) -> Path:
        """Make a folder for the results of one request; its name cannot be guessed."""
        folder = self.results / secrets.token_urlsafe(16)
        folder.mkdir(mode=0o700)
        return folder

    def result_file(self, key: str, name: str) -> Path | None:
        """Return a file of a result, or `None` where there is no such file.

        Both names are looked up in folders, and never joined to a path before that.
        """
        for folder in (entry for entry in self.results.iterdir() if entry.name == key):
            return next((entry for entry in folder.iterdir() if entry.name == name), None)
        return None

    def remove_old(self, seconds: float) -> None:
        """Remove uploads and results that were last changed longer ago than this."""
        oldest = time.time() - seconds
        for entry in (*self.uploads.iterdir(), *self.results.iterdir()):
            if _changed_at(entry) < oldest:
                _remove(entry)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


def _default_base() -> Path:
    return Path(tempfile.gettempdir()) / f"musigma-{os.getuid()}"


def _private_folder(path: Path) -> Path:
    """Make a folder that no other user can write into, or refuse the one that is there."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if path.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise ConfigError(f"{path} can be changed by other users; remove it, or set TMPDIR")
    return path


def _remove_abandoned(base: Path) -> None:
    for folder in base.glob("server-*"):
        lock = _lock(folder / _LOCK)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            lock.close()


def _lock(path: Path) -> BinaryIO | None:
    """Return a file that is open and locked, or `None` where another process holds the lock."""
    file = path.open("ab")
    if not try_lock(file.fileno()):
        file.close()
        return None
    return file


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        wait_for_lock(file.fileno())
        yield


def _changed_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return time.time()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
