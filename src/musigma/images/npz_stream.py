"""Write NumPy's NPZ files row by row, without the whole arrays in memory."""

import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from torch import Tensor

from musigma.images.listing import atomic_write

INFO = "info"
"""Name of the array that holds the description: one string, which is JSON."""


class ArrayFile:
    """A float32 array ``(1, C, H, W)`` in a temporary file, filled from top to bottom."""

    def __init__(self, file: IO[bytes], shape: tuple[int, ...]) -> None:
        self.file, self.shape, self.num_rows = file, shape, 0

    def write(self, rows: Tensor) -> None:
        """Append rows, ``(1, C, rows, W)``."""
        _, channels, height, width = self.shape
        for channel in range(channels):
            self.file.seek(4 * width * (channel * height + self.num_rows))
            self.file.write(rows[0, channel].contiguous().numpy().tobytes())
        self.num_rows += rows.shape[2]


@contextmanager
def npz_writer(
    path: Path,
    names: Sequence[str],
    shape: tuple[int, ...],
    *,
    info: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, ArrayFile]]:
    """Open an NPZ file of float32 arrays of one shape; it appears when it is complete.

    The file stores channel after channel, but rows arrive with all channels. So the values go
    through temporary files in the same folder, which are removed on success and on failure.

    Args:
        path: The file.
        names: Names of the arrays.
        shape: Shape of every array, ``(1, C, H, W)``.
        info: A description, stored as JSON in the array `INFO`.
    """
    with atomic_write(path) as file, ExitStack() as stack:
        arrays = {
            name: ArrayFile(stack.enter_context(tempfile.TemporaryFile(dir=path.parent)), shape)
            for name in names
        }
        yield arrays
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            for name, array in arrays.items():
                with _member(archive, name) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    array.file.seek(0)
                    shutil.copyfileobj(array.file, member, 2**20)
            if info is not None:
                with _member(archive, INFO) as member:
                    np.lib.format.write_array(member, np.array(json.dumps(info)))


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    # Without the time of day the same arrays give the same bytes.
    return archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)
