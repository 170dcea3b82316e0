"""The files of a restored picture: their names, and writing them row by row."""

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock

from torch import Tensor

from musigma.functional.resize import resize
from musigma.images.box_downsample import BoxDownsampler
from musigma.images.image_io import BAND, OpenedImage, Raster, image_writer
from musigma.images.listing import ImageSource, image_error, printable
from musigma.images.npz_stream import ArrayFile, npz_writer
from musigma.restoration.error_maps import (
    QUANTITIES,
    Quantity,
    describe,
    draw_error_map,
    error_map_writer,
    error_maps_of,
)
from musigma.restoration.error_picture import LONGEST_SIDE
from musigma.restoration.options import Options, quality_for
from musigma.restoration.promise import Promise
from musigma.restoration.saving_error import Bands, with_saving_error
from musigma.restoration.viewer.data import ViewerData
from musigma.restoration.viewer.page import write_viewer_page
from musigma.types import ImageError, Prediction
from musigma.uncertainty.calibration import Calibration

ENDINGS = {
    "sigma": ".sigma.png",
    "std": ".std.png",
    "half_width": ".interval.png",
    "picture": ".error-map.png",
    "npz": ".npz",
    "page": ".html",
}
"""The ending of each further file; it replaces the suffix of the restored picture."""

INCLUDED = "the error of saving: rounding, and the loss of the format of the picture"
"""What the error maps of a picture include besides the error of the network."""


_MARKS = {
    ".png": (b"musigma:quantity", b"A picture of the error map"),
    ".npz": (b"mean.npy",),
    ".html": (b'content="musigma"',),
}

ErrorMaps = dict[Quantity, Tensor]

_DRAWING = Lock()  # matplotlib is not safe under threads


def output_paths(output: Path, options: Options, *, calibrated: bool = True) -> dict[str, Path]:
    """Return the files that are written beside a restored picture, by what they hold.

    Args:
        output: The restored picture.
        options: What to write.
        calibrated: Whether the model has a calibration. Without it there is no std and no interval.

    Example:
        >>> paths = output_paths(Path("out/a.jpg"), Options(folder=Path("out"), sigma=True))
        >>> [path.name for path in paths.values()]
        ['a.sigma.png', 'a.std.png', 'a.interval.png', 'a.error-map.png']
    """
    quantities = QUANTITIES if calibrated else ("sigma",)
    names = [*quantities, "picture"] if options.writes_error_maps else []
    names += ["npz"] if options.npz else []
    names += ["page"] if options.page else []
    return {name: output.with_name(output.stem + ENDINGS[name]) for name in names}


def remove_old_files(output: Path, written: Collection[Path]) -> None:
    """Remove files that an earlier run has left beside a result, which do not belong to it.

    Files of other programs, which only have the name of one of ours, stay.

    Args:
        output: The restored picture.
        written: The files that belong to it.
    """
    for ending in ENDINGS.values():
        path = output.with_name(output.stem + ending)
        if path not in written and _is_ours(path):
            with suppress(OSError):
                path.unlink()


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError:
        return False
    return any(mark in start for mark in _MARKS[path.suffix])


def find_clashes(sources: Sequence[ImageSource], options: Options) -> dict[Path, ImageError]:
    """Return an error for each source whose results would replace the files of another source.

    Two folders may hold pictures of one name, and ``a.png`` and ``a.jpg`` would share one error
    map. A source that would replace itself is not in the result.
    """
    owners = {os.path.realpath(source.path): source.path for source in sources}
    clashes: dict[Path, ImageError] = {}
    for source in sources:
        output = options.folder / source.name
        paths = [output, *output_paths(output, options).values()]
        results = [os.path.realpath(path) for path in paths]  # Path.resolve fails on circular links
        owner = next((owners[path] for path in results if path in owners), None)
        if owner is None:
            owners |= dict.fromkeys(results, source.path)
        elif owner != source.path:
            text = f"its results would replace {owner} or a file that is made from it"
            clashes[source.path] = image_error(source.path, f"{text}; use another output folder")
    return clashes


class OutputFiles:
    """All files of one restored picture, written from top to bottom.

    Args:
        stack: Keeps the files open. They appear when it closes without an error, the picture last.
        picture: The picture as it was read.
        output: The file for the restored picture.
        first: The first rows of the result, which tell its shape.
        options: What to write.
        calibration: How to read sigma.
        promise: What the intervals promise for this picture.
        info: What the page says about the result, such as the model.
        size: Height and width of the result; by default those of the picture times the factor
            between the widths.
    """

    def __init__(
        self,
        stack: ExitStack,
        picture: OpenedImage,
        output: Path,
        first: Prediction,
        *,
        options: Options,
        calibration: Calibration | None,
        promise: Promise | None,
        info: Mapping[str, str],
        size: tuple[int, int] | None = None,
    ) -> None:
        self.picture, self.output, self.info = picture, output, info
        self.calibration, self.promise = calibration, promise
        channels, width = first.mean.shape[1], first.mean.shape[3]
        height = picture.colors.shape[2] * (width // picture.colors.shape[3])
        self.shape = (1, channels, *(size or (height, width)))
        self.num_rows = 0
        self.bands = Bands()
        self.paths = output_paths(output, options, calibrated=calibration is not None)
        has_alpha = picture.alpha is not None
        quality = quality_for(output, picture.meta, options)
        self.mean = stack.enter_context(
            image_writer(output, self.shape, picture.meta, alpha=has_alpha, quality=quality)
        )
        self.quantities = [name for name in QUANTITIES if name in self.paths]
        self.maps = {
            name: stack.enter_context(
                error_map_writer(self.paths[name], self.shape, name, info=self._describe_map(name))
            )
            for name in self.quantities
        }
        self.arrays = self._open_arrays(stack)
        # A smaller copy for the picture of the error map.
        self.picture_view = BoxDownsampler(max(1, max(self.shape[2:]) // LONGEST_SIDE))
        self.viewer = self._open_viewer() if "page" in self.paths else None

    def add(self, strip: Prediction) -> None:
        """Write further rows of mean and sigma."""
        for band in self.bands.add(strip):
            self._write(band)

    def finish(self) -> None:
        """Write the last rows, and the files that need the whole picture: drawing and page."""
        for band in self.bands.last():
            self._write(band)
        with _DRAWING:
            if "picture" in self.paths:
                quantity = self._drawn_quantity()
                values, info = self.picture_view.result(), self._describe_map(quantity)
                draw_error_map(self.paths["picture"], values, quantity, info=info)
            if self.viewer is not None:
                write_viewer_page(
                    self.paths["page"],
                    self.viewer,
                    title=printable(self.output.name),
                    info=self.info,
                    promise=self.promise,
                )

    def _write(self, band: Prediction) -> None:
        of_mean: ErrorMaps = {}
        if band.sigma is not None and (self.maps or self.viewer is not None):
            of_mean = error_maps_of(band.sigma, self.calibration)
        of_file = of_mean
        if "std" in of_mean:
            of_file = with_saving_error(of_mean, band.mean, self.mean.stored(band.mean))
        self._write_mean(band, of_file.get("half_width"))
        self._write_error_maps(of_mean, of_file)

    def _describe_map(self, quantity: Quantity) -> dict[str, str]:
        """Return what the file of an error map says: it is about the picture as it is saved."""
        info = self._describe(quantity)
        return info if quantity == "sigma" else info | {"includes": INCLUDED}

    def _describe(self, quantity: Quantity) -> dict[str, str]:
        return describe(quantity, self.calibration, self.promise)

    def _drawn_quantity(self) -> Quantity:
        return "sigma" if self.calibration is None else "std"

    def _open_arrays(self, stack: ExitStack) -> dict[str, ArrayFile]:
        if "npz" not in self.paths:
            return {}
        unit = "1 is the full range of the image"
        info: dict[str, dict[str, str]] = {"mean": {"meaning": "the restored image", "unit": unit}}
        info |= {name: {**self._describe(name), "unit": unit} for name in self.quantities}
        return stack.enter_context(npz_writer(self.paths["npz"], [*info], self.shape, info=info))

    def _write_mean(self, band: Prediction, half_width: Tensor | None) -> None:
        mean, sigma = band
        top, bottom = self.num_rows, self.num_rows + mean.shape[2]
        alpha = None
        if self.picture.alpha is not None:
            alpha = resized_rows(self.picture.alpha, top, bottom, self.shape[2:])
        self.mean.write(mean, alpha)
        self.num_rows = bottom
        if self.arrays:
            self.arrays["mean"].write(mean)
        if self.viewer is not None:
            self.viewer.add(mean, sigma=sigma, half_width=half_width, alpha=alpha)

    def _write_error_maps(self, of_mean: ErrorMaps, of_file: ErrorMaps) -> None:
        for quantity, rows in self.maps.items():
            # An error is at most 1, so that the files need no larger scale.
            rows.write(of_file[quantity])
            if self.arrays:  # which stand beside the float mean
                self.arrays[quantity].write(of_mean[quantity])
        if "picture" in self.paths:
            self.picture_view.add(of_file[self._drawn_quantity()].mean(1, keepdim=True))

    def _open_viewer(self) -> ViewerData:
        before = self.picture.colors
        viewer = ViewerData(
            (self.shape[2], self.shape[3]),
            before=(before.shape[2], before.shape[3]),
            num_channels=self.shape[1],
            coverage=None if self.calibration is None else self.calibration.coverage,
        )
        for top in range(0, before.shape[2], BAND):
            viewer.add_before(before[:, :, top : top + BAND])
        return viewer


def resized_rows(image: Raster, top: int, bottom: int, size: tuple[int, int]) -> Tensor:
    """Return the rows from `top` to `bottom` of an image resized bicubically, in ``[0, 1]``.

    Args:
        image: The image.
        top: The first row, in the resized image.
        bottom: The row after the last one.
        size: Height and width of the resized image.
    """
    height, width = image.shape[2:]
    if (height, width) == size:
        return image[:, :, top:bottom]
    scale = size[0] // height
    if (height * scale, width * scale) != size:
        return resize(image[:], size=size)[:, :, top:bottom].clamp(0, 1)
    kernel_radius = 2  # in rows of the image
    first = max(0, top // scale - kernel_radius)
    last = min(height, -(-bottom // scale) + kernel_radius)
    rows = resize(image[:, :, first:last], scale=scale)
    return rows[:, :, top - first * scale : bottom - first * scale].clamp(0, 1)
