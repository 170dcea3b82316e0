"""The command as a whole: which errors are one line, and which show their traceback."""

import errno
import logging
import os
import subprocess
import sys
import warnings

import pytest

from musigma.cli import main as main_module
from musigma.cli.main import PACKAGE, is_correctable
from musigma.types import ConfigError


def fail_with(monkeypatch, error):
    """Let every command that loads a model fail."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr("musigma.model.load", fail)


WORDS = ("upscale", "a.png", "-o", "out", "--model", "bicubic")


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("not so"),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        PermissionError(errno.EACCES, os.strerror(errno.EACCES), "weights.pth"),
    ],
)
def test_errors_that_the_user_can_correct_are_one_line(musigma, monkeypatch, error):
    fail_with(monkeypatch, error)
    result = musigma(*WORDS)
    assert result.code == 2
    assert result.err == f"error: {error}\n"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("a bug"),
        OSError("could not get source code"),
        ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD)),
        FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(PACKAGE / "page.html")),
    ],
)
def test_bugs_show_their_traceback(musigma, monkeypatch, error):
    fail_with(monkeypatch, error)
    with pytest.raises(type(error)):
        musigma(*WORDS)


def test_debug_shows_the_traceback_of_every_error(musigma, monkeypatch):
    fail_with(monkeypatch, ConfigError("not so"))
    with pytest.raises(ConfigError, match="not so"):
        musigma("--debug", *WORDS)
    assert musigma(*WORDS).code == 2  # the next run does not inherit it
    assert main_module.Settings.debug is False


@pytest.mark.filterwarnings("default")
def test_warnings_of_any_module_are_lines_without_control_characters(musigma, monkeypatch):
    """They name files, and a terminal would obey what a name may hold."""

    def warn(*_, **__):
        warnings.warn("\033]0;owned\a.pth has no range", stacklevel=2)
        logging.getLogger("musigma.training").warning("%s is damaged", "\033[2J.checkpoint")
        logging.getLogger("musigma.training").debug("not shown")
        raise ConfigError("not so")

    monkeypatch.setattr("musigma.model.load", warn)
    lines = [
        r"warning: \x1b]0;owned\x07.pth has no range",
        r"warning: \x1b[2J.checkpoint is damaged",
        "error: not so",
    ]
    for _ in range(2):  # nothing is left behind that would print them twice
        assert musigma(*WORDS).err.splitlines() == lines


def test_debug_shows_names_without_control_characters(musigma, monkeypatch, capsys):
    def fail(*_, **__):
        error = ValueError("\033]0;owned\a")
        logging.getLogger("musigma.restoration").debug("%s failed", "\033[2J", exc_info=error)
        raise error

    monkeypatch.setattr("musigma.model.load", fail)
    with pytest.raises(ValueError, match="owned"):
        musigma("--debug", *WORDS)
    printed = capsys.readouterr().err
    assert r"\x1b[2J failed" in printed
    assert r"ValueError: \x1b]0;owned\x07" in printed
    assert "\033" not in printed
    assert logging.getLogger("musigma").level == logging.NOTSET


STOPPED = """
import os, signal
from pathlib import Path
import musigma.model
from musigma.atomic import atomic_writer
from musigma.cli.main import main

def stop(*words, **options):
    with atomic_writer(Path("out", "x.onnx")) as file:
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGTERM)

musigma.model.load = stop
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGTERM")
def test_sigterm_leaves_nothing_behind_whatever_the_command(tmp_path):
    command = [sys.executable, "-c", STOPPED, "export", "bicubic", "-o", "out/x.onnx"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 143, ended.stderr
    assert list((tmp_path / "out").iterdir()) == []
    assert "Traceback" not in ended.stderr


def test_files_are_ours_or_the_users():
    assert is_correctable(FileNotFoundError(errno.ENOENT, "", "photo.png"))
    assert not is_correctable(FileNotFoundError(errno.ENOENT, "", str(PACKAGE / "x" / "y")))


@pytest.mark.parametrize("words", [(), ("upscale",), ("denoise",), ("demo",)])
def test_h_is_help(musigma, words):
    short, long = musigma(*words, "-h"), musigma(*words, "--help")
    assert short.code == 0
    assert short.out == long.out
    assert "--help" in short.out


@pytest.mark.parametrize("command", ["upscale", "denoise", "evaluate", "adapt"])
def test_help_is_whole_on_80_columns(musigma, monkeypatch, command):
    """Names of files and of engines were cut off, since every flag was listed twice."""
    monkeypatch.setenv("COLUMNS", "80")
    text = musigma(command, "--help").out
    assert max(map(len, text.splitlines())) <= 80
    assert "\u2026" not in text


@pytest.mark.parametrize("command", ["upscale", "denoise"])
def test_both_commands_have_the_shared_options(musigma, command):
    text = musigma(command, "--help").out
    for option in ("--output", "--sigma", "--max-pixels", "--frame", "--memory", "--resume"):
        assert option in text
    assert "Memory for a picture, a tile and its output rows" in " ".join(
        text.replace("\u2502", " ").split()
    )
