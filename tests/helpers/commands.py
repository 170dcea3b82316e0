"""Commands run in this process: what they print and how they end; and what they need."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from musigma.model import save
from musigma.networks import create, with_sigma


class Result(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The lines of what went wrong."""
        return [line for line in self.err.splitlines() if line.startswith("error: ")]


def command_runner(
    main: Callable[[], None], capsys: pytest.CaptureFixture, patch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Return a function that runs a command line, given without its first word."""

    def run(*words: object) -> Result:
        patch.setattr(sys, "argv", ["musigma", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return Result(end.value.code or 0, *capsys.readouterr())

    return run


def write_tiny_weights(path: Path) -> Path:
    """Write random weights of a small EDSR x2 with a sigma branch."""
    torch.manual_seed(0)
    base = create("edsr-baseline", scale=2, num_blocks=1, width=8)
    save(path, with_sigma(base, width=8, depth=2))
    return path


def write_photos(folder: Path, height: int = 40, width: int = 48) -> Path:
    """Write two small pictures, smooth enough to be enlarged well."""
    folder.mkdir()
    for name, phase in (("a.png", 0.0), ("b.png", 1.0)):
        y, x = np.mgrid[0:height, 0:width]
        waves = [np.sin(x / period + y / (period + 2) + phase) for period in (3, 5, 7)]
        levels = np.stack(waves, axis=2) * 100 + 128
        Image.fromarray(levels.round().astype(np.uint8)).save(folder / name)
    return folder
