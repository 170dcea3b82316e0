"""Files in folders that may come from a stranger, and locks by which processes know of each other.

The system releases a lock when the process that has it ends, however it ends. Windows and some
network file systems have no such locks.
"""

import errno
import os
import stat
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

_NOT_ELSEWHERE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

_fcntl: Any = None
with suppress(ImportError):
    _fcntl = import_module("fcntl")


def open_here(path: str | Path, flags: int) -> int:
    """Open a regular file, as `os.open` does; follow no link, and wait for no pipe.

    Raises:
        OSError: If it is anything else, or cannot be opened.
    """
    descriptor = os.open(path, flags | _NOT_ELSEWHERE, 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def try_lock(descriptor: int) -> bool | None:
    """Lock an open file without waiting.

    Returns:
        `True` if this process has the lock now, `False` if another one has it, and `None` where
        there are no locks.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as first, open(first.name, "rb") as second:
        ...     try_lock(first.fileno()), try_lock(second.fileno())
        (True, False)
    """
    if _fcntl is None:
        return None
    try:
        _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def wait_for_lock(descriptor: int) -> None:
    """Lock an open file as soon as no other process has the lock; without locks do nothing."""
    if _fcntl is not None:
        with suppress(OSError):
            _fcntl.flock(descriptor, _fcntl.LOCK_EX)
