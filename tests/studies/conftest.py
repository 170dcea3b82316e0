"""Commands of the laboratory, and of the package, run in this process."""

from pathlib import Path

import pytest

from helpers.commands import command_runner, write_photos, write_tiny_weights
from musigma.cli.main import main
from studies.__main__ import main as studies_main


@pytest.fixture
def studies(capsys, monkeypatch):
    """Run ``python -m studies`` with words."""
    return command_runner(studies_main, capsys, monkeypatch)


@pytest.fixture
def musigma(capsys, monkeypatch):
    """Run ``musigma`` with words."""
    return command_runner(main, capsys, monkeypatch)


@pytest.fixture(scope="session")
def weights(tmp_path_factory) -> Path:
    return write_tiny_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


@pytest.fixture
def photos(tmp_path) -> Path:
    return write_photos(tmp_path / "photos")
