"""The files that a restored picture becomes, filled from top to bottom as its rows are made."""

from contextlib import ExitStack
from pathlib import Path
from threading import Lock

from torch import Tensor

from musigma.functional.resize import resize
from musigma.images.box_downsample import BoxDownsampler
from musigma.images.image_io import BAND, OpenedImage, Raster, image_writer
from musigma.images.npz_stream import ArrayFile, npz_writer
from musigma.restoration.sigma_files import sigma_writer, write_sigma
from musigma.restoration.viewer.page import MAX_SIDE, write_page
from musigma.types import Prediction
from musigma.uncertainty.calibration import Calibration

SIGMA, PICTURE, INTERVAL, NPZ = ".sigma.png", ".error-map.png", ".interval.png", ".npz"
PAGE = ".html"
_DRAWING = Lock()  # matplotlib is made for one thread


def beside(output: Path, ending: str) -> Path:
    """Return the name of a further result beside the picture."""
    return output.with_name(output.stem + ending)


class Results:
    """Everything that is written for one picture; whole files, or none.

    Args:
        stack: Keeps the files open; they appear when it closes without an error, the picture last.
        source: The picture as it was read.
        output: The restored one.
        first: The first rows of the result, which tell what there is of it.
        calibration: How to read sigma.
        sigma: Whether to write the error map, as 16-bit PNG and as a picture.
        npz: Whether to write it, with the mean, as NPZ too.
        page: Whether to write a page to look at.
        facts: What the page says besides.
    """

    def __init__(
        self,
        stack: ExitStack,
        source: OpenedImage,
        output: Path,
        first: Prediction,
        *,
        calibration: Calibration | None,
        sigma: bool,
        npz: bool,
        page: bool,
        facts: dict[str, str],
    ) -> None:
        self.source, self.output = source, output
        self.calibration, self.facts = calibration, facts
        self.scale = first.mean.shape[3] // source.colours.shape[3]
        height = source.colours.shape[2] * self.scale
        self.shape = (1, first.mean.shape[1], height, first.mean.shape[3])
        self.top = 0
        has_alpha = source.alpha is not None
        self.mean = stack.enter_context(
            image_writer(output, self.shape, source.meta, alpha=has_alpha)
        )
        endings = (SIGMA, INTERVAL) if calibration else (SIGMA,)
        self.sigmas = {
            ending: stack.enter_context(sigma_writer(beside(output, ending), self.shape))
            for ending in (endings if sigma or npz else ())
        }
        self.arrays: dict[str, ArrayFile] = {}
        if npz:
            names = ("mean", "sigma")
            self.arrays = stack.enter_context(npz_writer(beside(output, NPZ), names, self.shape))
        views = {"mean": page, "sigma": page and first.sigma is not None, "map": sigma or npz}
        factor = max(1, max(self.shape[2:]) // MAX_SIDE)
        self.views = {name: BoxDownsampler(factor) for name, wanted in views.items() if wanted}

    def add(self, strip: Prediction) -> None:
        """Write further rows of mean and sigma."""
        height = strip.mean.shape[2]
        for top in range(0, height, BAND):
            some = slice(top, min(top + BAND, height))
            self._write_mean(strip.mean[:, :, some])
            if strip.sigma is not None:
                self._write_sigma(strip.sigma[:, :, some])

    def finish(self) -> None:
        """Draw what needs the whole picture."""
        with _DRAWING:
            if "map" in self.views:
                sigma = self.views["map"].result()
                write_sigma(beside(self.output, PICTURE), sigma, kind="picture")
            if "mean" in self.views:
                self._write_page()

    def _write_mean(self, mean: Tensor) -> None:
        bottom = self.top + mean.shape[2]
        alpha = None
        if self.source.alpha is not None:
            alpha = enlarged_rows(self.source.alpha, self.top, bottom, self.scale)
        self.mean.write(mean, alpha)
        self.top = bottom
        if "mean" in self.arrays:
            self.arrays["mean"].write(mean)
        if "mean" in self.views:
            self.views["mean"].add(mean)

    def _write_sigma(self, sigma: Tensor) -> None:
        if "sigma" in self.views:
            self.views["sigma"].add(sigma)
        if not self.sigmas:
            return
        # An error is at most 1, so that the files need no larger unit.
        if self.calibration is not None:
            self.sigmas[INTERVAL].write(self.calibration.half_width(sigma))
            sigma = self.calibration.std(sigma)
        self.sigmas[SIGMA].write(sigma)
        self.views["map"].add(sigma.mean(1, keepdim=True))
        if "sigma" in self.arrays:
            self.arrays["sigma"].write(sigma)

    def _write_page(self) -> None:
        before, facts = self.source.colours, dict(self.facts)
        sigma = self.views["sigma"].result() if "sigma" in self.views else None
        interval = coverage = None
        if self.calibration is not None and sigma is not None:
            facts["Intervals"] = self.calibration.promise
            interval, coverage = self.calibration.half_width(sigma), self.calibration.coverage
        write_page(
            beside(self.output, PAGE),
            before=_view(before),
            prediction=Prediction(self.views["mean"].result(), sigma),
            interval=interval,
            coverage=coverage,
            title=self.output.name,
            facts=facts,
            sizes=((before.shape[2], before.shape[3]), (self.shape[2], self.shape[3])),
        )


def enlarged_rows(image: Raster, top: int, bottom: int, scale: int) -> Tensor:
    """Return the rows from `top` to `bottom` of an image enlarged bicubically, in ``[0, 1]``."""
    if scale == 1:
        return image[:, :, top:bottom]
    reach = 2  # of the kernel, in rows of the image
    first = max(0, top // scale - reach)
    last = min(image.shape[2], -(-bottom // scale) + reach)
    rows = resize(image[:, :, first:last], scale=scale)
    return rows[:, :, top - first * scale : bottom - first * scale].clamp(0, 1)


def _view(image: Raster) -> Tensor:
    view = BoxDownsampler(max(1, max(image.shape[2:]) // MAX_SIDE))
    for top in range(0, image.shape[2], BAND):
        view.add(image[:, :, top : top + BAND])
    return view.result()
