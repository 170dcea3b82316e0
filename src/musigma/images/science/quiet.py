"""Libraries of others that write their own lines to stderr, where only ours should be."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_LOCK = Lock()
_STDERR = 2


@contextmanager
def silent_stderr() -> Iterator[None]:
    """Drop what native code writes to stderr while the block runs; errors that are raised stay.

    Such lines name the file as it is, with control characters, too. What other threads write
    meanwhile is lost with them, so the block should be short.
    """
    with _LOCK:
        if sys.stderr is not None:
            sys.stderr.flush()
        try:
            kept = os.dup(_STDERR)
        except OSError:  # it is closed, and nothing is written
            yield
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, _STDERR)
            yield
        finally:
            os.dup2(kept, _STDERR)
            os.close(kept)
            os.close(nowhere)
