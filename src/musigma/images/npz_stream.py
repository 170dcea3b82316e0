"""NumPy's NPZ from rows that come little by little."""

import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from torch import Tensor

from musigma.images.listing import atomic_write


class ArrayRows:
    """A float32 array ``(1, C, H, W)`` in a nameless file, filled from top to bottom."""

    def __init__(self, file: IO[bytes], shape: tuple[int, ...]) -> None:
        self.file, self.shape, self.top = file, shape, 0

    def write(self, rows: Tensor) -> None:
        """Add rows below those that are there, ``(1, C, rows, W)``."""
        _, channels, height, width = self.shape
        for channel in range(channels):
            self.file.seek(4 * width * (channel * height + self.top))
            self.file.write(rows[0, channel].contiguous().numpy().tobytes())
        self.top += rows.shape[2]


@contextmanager
def npz_writer(
    path: Path, names: Sequence[str], shape: tuple[int, ...]
) -> Iterator[dict[str, ArrayRows]]:
    """Open an NPZ file of float32 arrays of one shape, by name, that appears when it is whole.

    The order of values in the file is not that in which they come, so that they go by way of
    temporary files in the same folder, which vanish however this ends.
    """
    with atomic_write(path) as file, ExitStack() as stack:
        arrays = {
            name: ArrayRows(stack.enter_context(tempfile.TemporaryFile(dir=path.parent)), shape)
            for name in names
        }
        yield arrays
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            for name, array in arrays.items():
                # No time of day: the same arrays give the same bytes.
                entry = zipfile.ZipInfo(f"{name}.npy")
                with archive.open(entry, "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    array.file.seek(0)
                    shutil.copyfileobj(array.file, member, 2**20)
