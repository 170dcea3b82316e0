"""Commands are run in this process, through `main`: what they print and how they end."""

from pathlib import Path

import pytest

from helpers.commands import command_runner, write_photos, write_tiny_weights
from musigma.cli.main import main


@pytest.fixture
def musigma(capsys, monkeypatch):
    """Run a command line without its first word."""
    return command_runner(main, capsys, monkeypatch)


@pytest.fixture(scope="session")
def weights(tmp_path_factory) -> Path:
    """A file of random weights: a small EDSR x2 with a sigma branch."""
    return write_tiny_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


@pytest.fixture
def photos(tmp_path) -> Path:
    """A folder of two small pictures, smooth enough to be enlarged well."""
    return write_photos(tmp_path / "photos")
