"""Every Python block and every command of README, docs and CONTRIBUTING runs as it is printed.

The blocks of one document run in order, in an empty folder that holds only the pictures the text
names. A block that needs what a test cannot have (data sets, a GPU, other software) has a line
``<!-- not run: REASON -->`` before it.
"""

import contextlib
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.commands import command_runner
from helpers.documents import DOCUMENTS, name_of
from musigma.cli.main import main
from studies.documents.code_blocks import BLOCK, Block, blocks

REASONS = (
    "needs the data sets",
    "needs the data sets and a GPU",
    "needs the data sets, a GPU and released weights",
    "needs BasicSR",
    "needs Lightning",
    "needs a Ray cluster",
    "needs a server",
    "needs a screen",
    "needs a released file",
    "needs the released file imdn_x2.pth and the training data",
    "needs a checkout",
    "needs a repository of the hub",
    "takes ten minutes",
)
PICTURES = (
    "photo.png",
    "photo.jpg",
    "night.png",
    "night.jpg",
    "noisy.png",
    "small.png",
    "scans/a.png",
    "archive/b.png",
)


def commands(block: Block) -> list[list[str]]:
    """Return the words of every ``musigma`` command of a block, without comments."""
    lines = [line.strip() for line in block.code.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("musigma ")]


def draw(path: Path, height: int, width: int, seed: int) -> None:
    """Write a small picture with smooth waves, an edge and some noise."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / period + y / (period + 2) + seed) for period in (3, 5, 7)]
    levels = 60 * np.stack(waves, axis=2) + 128 + 40 * (x + y > width)[..., None]
    levels += random.normal(0, 8, levels.shape)
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(levels.clip(0, 255).round().astype(np.uint8)).save(path)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder with the pictures that the documents name."""
    for seed, name in enumerate(PICTURES):
        draw(tmp_path / name, 56, 60, seed)
    for seed in range(2):
        draw(tmp_path / "photos" / f"{seed}.png", 56, 60, seed)
    for seed in range(20):
        draw(tmp_path / "own" / f"{seed}.png", 96, 96, seed)
    for seed in range(9):
        draw(tmp_path / "held_out" / f"{seed}.png", 24, 28, seed)
        draw(tmp_path / "truth" / f"{seed}.png", 24, 28, seed)
        draw(tmp_path / "inputs" / f"{seed}.png", 12, 14, seed)
        draw(tmp_path / "averages" / f"{seed}.png", 24, 28, seed)
        draw(tmp_path / "exposures" / f"{seed}.png", 24, 28, seed)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MUSIGMA_DATA", raising=False)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("default")  # what other packages warn of while they export a network
@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_blocks_run_as_printed(path, capsys, monkeypatch):
    run = command_runner(main, capsys, monkeypatch)
    names: dict[str, object] = {}
    with torch.random.fork_rng(devices=[]):
        for block in blocks(path.read_text()):
            if block.reason is not None:
                continue
            if block.language == "python":
                code = "\n" * block.line + block.code  # so that an error shows the line of the page
                with contextlib.chdir(Path.cwd()):
                    exec(compile(code, str(path), "exec"), names)
            for words in commands(block):
                done = run(*words[1:])
                assert done.code == 0, f"{path.name}:{block.line}: {shlex.join(words)}\n{done.err}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_what_does_not_run_says_why(path):
    for block in blocks(path.read_text()):
        assert block.reason is None or block.reason in REASONS, f"{path.name}:{block.line}"
    # Neither indented commands nor forgotten languages escape the test above.
    assert not re.findall(r"^(?: {4}|\t)musigma ", BLOCK.sub("", path.read_text()), re.MULTILINE)
    assert {block.language for block in blocks(path.read_text())} <= {
        "", "bibtex", "python", "text", "toml", "yaml"
    }  # fmt: skip


def test_a_command_that_fails_is_noticed():
    text = "<!-- not run: needs BasicSR -->\n```python\n1\n```\n\n```\nmusigma nope # x\n```"
    first, second = blocks(text)
    assert (first.reason, first.language, first.code) == ("needs BasicSR", "python", "1\n")
    assert second.reason is None
    assert commands(second) == [["musigma", "nope"]]
