"""Commands are run in this process, through `main`: what they print and how they end."""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from musigma.cli.main import main
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


@pytest.fixture
def musigma(capsys, monkeypatch):
    """Run a command line without its first word."""

    def run(*words) -> Result:
        monkeypatch.setattr(sys, "argv", ["musigma", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return Result(end.value.code or 0, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def weights(tmp_path_factory) -> Path:
    """A file of random weights: a small EDSR x2 with a sigma branch."""
    torch.manual_seed(0)
    base = create("edsr-baseline", scale=2, num_blocks=1, width=8)
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save(path, with_sigma(base, width=8, depth=2))
    return path


@pytest.fixture
def photos(tmp_path) -> Path:
    """A folder of two small pictures, smooth enough to be enlarged well."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, phase in (("a.png", 0.0), ("b.png", 1.0)):
        y, x = np.mgrid[0:40, 0:48]
        waves = [np.sin(x / period + y / (period + 2) + phase) for period in (3, 5, 7)]
        levels = np.stack(waves, axis=2) * 100 + 128
        Image.fromarray(levels.round().astype(np.uint8)).save(folder / name)
    return folder
