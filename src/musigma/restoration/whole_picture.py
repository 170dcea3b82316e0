"""Pictures that are restored as a whole: what that needs is compared with what is allowed."""

import math
from pathlib import Path

from musigma.images.decoding import declared_size
from musigma.images.listing import image_error

RESULT_BYTES = 800
"""For each pixel of a result with its joint errors; measured as the growth of a process."""

SAMPLE_BYTES = 100
"""For each pixel of a sample, likewise."""

INPUT_BYTES = 36
"""For each pixel of an input that is decoded and turned into floating point."""


def check_memory(path: Path, memory: int, *, bytes_per_pixel: int) -> None:
    """Refuse a picture that needs more memory than is allowed, before it is decoded.

    Args:
        path: The file.
        memory: Bytes that are allowed.
        bytes_per_pixel: What is needed for each pixel of the file.
    """
    declared = declared_size(path)
    num_bytes = declared.height * declared.width * bytes_per_pixel
    num_bytes = max(num_bytes, declared.decoding_bytes)
    if num_bytes > memory:
        needed, allowed = (math.ceil(size / 2**20) for size in (num_bytes, memory))
        text = f"says it is {declared.width} x {declared.height} pixels, for which {needed} MiB"
        hint = f"set `memory` to {needed}MiB or more, or cut out a part"
        raise image_error(path, f"{text} of memory are needed, and {allowed} are allowed; {hint}")
