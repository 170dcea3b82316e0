"""Code blocks of the pages: where they are, and what they print and draw when they run."""

import contextlib
import io
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch

BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>.*?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A block of code in a page.

    Attributes:
        line: Number of its first line.
        end: Where it ends in the text.
        language: What stands behind the three marks; empty for commands.
        code: Its lines.
        reason: Why it is not run; `None` where it is.
    """

    line: int
    end: int
    language: str
    code: str
    reason: str | None


class Run(NamedTuple):
    """What the Python blocks of a page gave.

    Attributes:
        printed: What each block printed, by the position where the block ends in the text.
        pictures: Content of every PNG file that they wrote, by name.
    """

    printed: dict[int, str]
    pictures: dict[str, bytes]


def blocks(text: str) -> list[Block]:
    """Return the code blocks of a page, in order."""
    return [
        Block(text.count("\n", 0, m.start()) + 1, m.end(), m["language"], m["code"], m["reason"])
        for m in BLOCK.finditer(text)
    ]


def run_page(text: str, name: str) -> Run:
    """Run the Python blocks of a page in one empty folder, one after another.

    Args:
        text: The page.
        name: Of its file, for error messages.
    """
    names: dict[str, object] = {}
    printed: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block in blocks(text):
            if block.language == "python" and block.reason is None:
                printed[block.end] = _run(block, name, names)
        paths = sorted(Path().glob("*.png"))
        return Run(printed, {path.name: path.read_bytes() for path in paths})


def _run(block: Block, name: str, names: dict[str, object]) -> str:
    code = "\n" * block.line + block.code  # so that an error shows the line of the page
    output = io.StringIO()
    with contextlib.redirect_stdout(output), torch.random.fork_rng(devices=[]):
        exec(compile(code, name, "exec"), names)  # noqa: S102  # our own pages
    return output.getvalue()
