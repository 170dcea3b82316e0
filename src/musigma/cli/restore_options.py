"""The options that ``upscale`` and ``denoise`` share, and what they mean for names and files."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musigma.cli.common import parse_size, require_stdout
from musigma.cli.shared_options import DeviceOption, NetworkOption, TrustOption

if TYPE_CHECKING:
    from musigma.model import Model
    from musigma.restoration.options import Options

ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Name of shipped weights ('musigma models --shipped' lists them), or a weights file.",
    ),
]
FORMATS = {
    "png": ("PNG", ".png"),
    "jpg": ("JPEG", ".jpg"),
    "jpeg": ("JPEG", ".jpg"),
    "webp": ("WEBP", ".webp"),
    "tif": ("TIFF", ".tif"),
    "tiff": ("TIFF", ".tif"),
    "bmp": ("BMP", ".bmp"),
}
"""Formats by the word that is typed, with the suffix of their files."""


@dataclass(frozen=True, kw_only=True)
class RestoreOptions:
    """The options that ``upscale`` and ``denoise`` share, as they are typed."""

    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT", help="Picture files, folders, or patterns."),
    ]
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Folder for the results; or the file, where there is one input."
        ),
    ]
    format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Format of the results: png, jpg, webp, tif or bmp; by default that of the input.",
        ),
    ] = None
    quality: Annotated[
        int | None,
        typer.Option(
            min=1, max=100, help="Quality of JPEG and WebP, by default 95; 100 is a lossless WebP."
        ),
    ] = None
    suffix: Annotated[
        str, typer.Option(help="Added to the names of the results, such as -x2: photo-x2.jpg.")
    ] = ""
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", help="Skip pictures whose result is there already.")
    ] = False
    sigma: Annotated[
        bool,
        typer.Option(
            "--sigma",
            help="Write error maps: NAME.sigma.png (predicted error), NAME.error-map.png (a "
            "picture to look at) and, for a calibrated model, NAME.std.png and NAME.interval.png.",
        ),
    ] = False
    npz: Annotated[
        bool,
        typer.Option("--npz", help="Write mean and error maps to NAME.npz, too; includes --sigma."),
    ] = False
    page: Annotated[
        bool,
        typer.Option(
            "--page", help="Write NAME.html, a page that compares input, result and error maps."
        ),
    ] = False
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Coverage of the intervals, such as 0.95; one that the model is calibrated for."
        ),
    ] = None
    engine: Annotated[
        str | None,
        typer.Option(
            help="What runs the network: torch (float32, the default), torch-bf16, torch-fp16, "
            "torch-tf32, torch-fp16-compiled, onnx (float32, the default for ONNX files), "
            "openvino, or auto for the fastest that is accurate enough. ray means --ray."
        ),
    ] = None
    ensemble: Annotated[
        bool,
        typer.Option(
            "--ensemble", help="Average over flips and quarter turns, at eight times the cost."
        ),
    ] = False
    tile: Annotated[
        str,
        typer.Option(
            metavar="PIXELS|auto", help="Largest side of a tile; auto uses what --memory allows."
        ),
    ] = "auto"
    memory: Annotated[
        str, typer.Option(help="Memory for a picture, a tile and its output rows, such as 500MB.")
    ] = "2GiB"
    max_pixels: Annotated[
        int | None,
        typer.Option(min=1, help="Refuse pictures with more pixels than this (default 500000000)."),
    ] = None
    frame: Annotated[
        int | None,
        typer.Option(
            min=0, help="Which page or frame to read of a file with several, counted from 0."
        ),
    ] = None
    value_range: Annotated[
        str | None,
        typer.Option(
            "--range",
            metavar="LOW,HIGH",
            help="Values of a scientific file (GeoTIFF, OME-TIFF, FITS) that are black and white; "
            "by default what the weights or the file say.",
        ),
    ] = None
    recursive: Annotated[
        bool, typer.Option("--recursive", help="Also read the folders inside each folder.")
    ] = False
    resume: Annotated[
        bool, typer.Option("--resume", help="Skip pictures that an earlier run has finished.")
    ] = False
    ray: Annotated[
        bool, typer.Option("--ray", help="Spread the files over the Ray cluster of RAY_ADDRESS.")
    ] = False
    device: DeviceOption = "auto"
    network: NetworkOption = None
    trust_network: TrustOption = False
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False

    @property
    def names_file(self) -> bool:
        """Whether the output is the file of one result, and not a folder."""
        from musigma.images.listing import (
            FORMAT_OF_SUFFIX,
            OTHER_PICTURES,
            READ_ONLY,
            SCIENCE_SUFFIXES,
        )

        suffixes = (*FORMAT_OF_SUFFIX, *SCIENCE_SUFFIXES, *OTHER_PICTURES, *READ_ONLY)
        return self.output.suffix.lower() in suffixes and not self.output.is_dir()

    @property
    def folder(self) -> Path:
        """The folder for the results."""
        return self.output.parent if self.names_file else self.output

    def result_name(self, name: Path) -> Path:
        """Return the name of a result that these options ask for.

        Args:
            name: Its name without these options.
        """
        from musigma.images.listing import format_of

        if self.names_file:
            return Path(self.output.name)
        ending = name.suffix
        if self.format and FORMATS[self.format.lower()][0] != format_of(name):
            ending = FORMATS[self.format.lower()][1]
        return name.with_name(f"{name.stem}{self.suffix}{ending}")

    @property
    def uses_ray(self) -> bool:
        """Whether the files go to a Ray cluster."""
        return self.ray or self.engine == "ray"

    def check_network(self, model: str | None) -> None:
        """Refuse a network without the file of its error bars."""
        from musigma.types import ConfigError

        if self.network is not None and model is None:
            raise ConfigError(
                "--network is the network of a file of 'musigma wrap'; give that file by --model"
            )

    def load_model(self, model: str, *, scale: int | None) -> "Model":
        """Load a model, together with the network that it wraps if there is one."""
        from musigma.model import load
        from musigma.types import ConfigError

        if self.network is not None and self.uses_ray:
            raise ConfigError("a wrapped network stays in this process; leave --ray out")
        return load(model, scale=scale, network=self.network, trust_network=self.trust_network)

    def to_options(self, **others: Any) -> "Options":
        """Read the values that were typed; `others` go to `Options` unchanged."""
        from musigma.images.science.value_range import parse_range
        from musigma.restoration.options import Options

        if self.json:
            require_stdout()  # before hours of work
        self._check_names()
        return Options(
            folder=self.folder,
            sigma=self.sigma,
            npz=self.npz,
            page=self.page,
            coverage=self.coverage,
            engine=None if self.engine == "ray" else self.engine,
            ensemble=self.ensemble,
            tile=parse_tile(self.tile),
            memory=parse_size(self.memory),
            max_pixels=self.max_pixels,
            frame=self.frame,
            quality=self.quality,
            value_range=parse_range(self.value_range),
            **others,
        )

    def _check_names(self) -> None:
        from musigma.images.listing import format_of
        from musigma.types import ConfigError, nearest

        if self.output.exists() and not self.output.is_dir() and not self.names_file:
            raise ConfigError(f"{self.output} is a file; --output names the folder for the results")
        if self.format is not None and self.format.lower() not in FORMATS:
            hint = nearest(self.format.lower(), tuple(FORMATS))
            raise ConfigError(f"no results can be written as {self.format!r}; {hint}")
        if {"/", "\\", "\0"} & set(self.suffix):
            raise ConfigError(f"--suffix is part of a file name, got {self.suffix!r}")
        if self.names_file:
            format_name = format_of(self.output)
            if self.suffix or (self.format and FORMATS[self.format.lower()][0] != format_name):
                text = f"--output names the file {self.output}; leave --format and --suffix out"
                raise ConfigError(text)


def parse_tile(text: str) -> int | None:
    """Read ``auto`` or a number of pixels.

    Example:
        >>> parse_tile("auto"), parse_tile("256")
        (None, 256)
    """
    from musigma.types import ConfigError

    if text == "auto":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise ConfigError(f"expected --tile auto or a number of pixels, got {text!r}")
    return int(text)
