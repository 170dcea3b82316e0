"""Large buffers of a network are used again instead of being given back after each layer.

The C library gets a buffer of more than 32 MiB from the system and gives it back when it is freed.
The layers of a network on a CPU do that all the time, and the system clears every page of every new
buffer, which can take as long as to compute with them.
"""

import ctypes
from contextlib import suppress

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Numbers of the options of glibc's `mallopt`."""

LARGEST_BUFFER = 2**30
"""Bytes from which a buffer is still given back when it is freed."""

MOST_FREE = 2**29
"""Bytes that may lie free at the end of the heap before they are given back."""

LEAST_MEMORY = 2**30
"""With less memory to use than this, freed memory is better given back."""


def reuse_large_buffers(memory: int) -> bool:
    """Let the C library keep large buffers for the next layer; return whether it will.

    This holds for the whole process, so commands call it, and no function that other programs call.
    Other C libraries than glibc do not have the options and stay as they are.

    Args:
        memory: Bytes that the process may use for tiles and pictures.
    """
    if memory < LEAST_MEMORY:
        return False
    with suppress(OSError, AttributeError, TypeError):  # TypeError: the answer of Windows
        mallopt = ctypes.CDLL(None).mallopt
        is_set = mallopt(MMAP_THRESHOLD, LARGEST_BUFFER)
        return bool(is_set and mallopt(TRIM_THRESHOLD, MOST_FREE))
    return False
