"""Read and write the bands of a raster many at a time.

rasterio looks at all bands of a file whenever one is read or written, so one at a time takes
seconds for hundreds of bands and minutes for thousands.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

RUN_BYTES = 512 * 2**10
"""Samples that are read or written at once, as long as these are of one window."""

KEPT_BYTES = 32 * 2**20
"""Samples that are kept: a few windows of one band lead to the same windows of the next bands."""

Key = tuple[int, int, int, int, int]


class BandReader:
    """Reads windows of bands. With a window of one band it reads that of the bands that follow.

    Args:
        dataset: Open for reading.
        bands: The numbers of the bands that will be read, from 1.
    """

    def __init__(self, dataset: Any, bands: Sequence[int]) -> None:
        self.dataset, self.bands = dataset, bands
        self.itemsize = np.dtype(dataset.dtypes[0]).itemsize
        self._runs: OrderedDict[Key, NDArray[Any]] = OrderedDict()
        self._kept = 0

    def read(self, index: int, rows: slice, columns: slice) -> NDArray[Any]:
        """Return samples of one band, which the reader may not change.

        Args:
            index: Which of the bands, from 0.
            rows: The rows of the window.
            columns: Its columns.
        """
        height, width = rows.stop - rows.start, columns.stop - columns.start
        length = max(1, RUN_BYTES // max(1, height * width * self.itemsize))
        first = index // length * length
        key = (first, rows.start, rows.stop, columns.start, columns.stop)
        run = self._runs.get(key)
        if run is None:
            run = self._read_run(first, length, rows, columns)
            if length > 1:
                self._keep(key, run)
        else:
            self._runs.move_to_end(key)
        samples: NDArray[Any] = run[index - first]
        return samples

    def _read_run(self, first: int, length: int, rows: slice, columns: slice) -> NDArray[Any]:
        from rasterio.windows import Window

        bands = list(self.bands[first : first + length])
        run: NDArray[Any] = self.dataset.read(bands, window=Window.from_slices(rows, columns))
        return run

    def _keep(self, key: Key, run: NDArray[Any]) -> None:
        self._runs[key] = run
        self._kept += run.nbytes
        while self._kept > KEPT_BYTES:
            _, oldest = self._runs.popitem(last=False)
            self._kept -= oldest.nbytes


class BandWriter:
    """Writes windows of bands. Bands that have the same window wait for each other.

    Args:
        dataset: Open for writing.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._waiting: dict[tuple[int, int, int], dict[int, NDArray[Any]]] = {}
        self._num_bytes = 0

    def write(self, band: int, top: int, samples: NDArray[Any]) -> None:
        """Take rows of a band over the whole width, from row `top`."""
        self._waiting.setdefault((top, *samples.shape), {})[band] = samples
        self._num_bytes += samples.nbytes
        if self._num_bytes >= RUN_BYTES:
            self.finish()

    def finish(self) -> None:
        """Write what waits."""
        from rasterio.windows import Window

        for (top, height, width), samples in self._waiting.items():
            window = Window(0, top, width, height)
            self.dataset.write(np.stack(list(samples.values())), list(samples), window=window)
        self._waiting.clear()
        self._num_bytes = 0
