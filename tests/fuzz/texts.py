"""Hostile texts: objectives, degradations, recipes, journals of a batch, and names of files."""

import json
from random import Random
from typing import Any

NUMBERS = (
    *("0", "1", "-1", "0.5", "2", "1e309", "-1e309", "nan", "inf", "1e-400", "0x10", "1_000"),
    *("9" * 400, "9" * 5000, "0." + "0" * 3000 + "1", "true", "None", "''", "[]"),
)
LOSSES = (
    *("l1", "l2", "charbonnier", "expected_l1", "expected_l1_closed_form", "sigma_l1", "sigma_l2"),
    *("sigma_quantile", "laplace_nll", "gaussian_nll", "beta_nll", "edge", "udl_step1", "unknown"),
)
SETTINGS = ("epsilon", "level", "samples", "mask", "detach", "floor", "beta", "distribution", "x")
STAGES = ("bicubic", "blur", "noise", "jpeg", "area", "bilinear", "lanczos", "nearest", "unknown")
PIECES = (
    "(",
    ")",
    ",",
    "=",
    "+",
    "*",
    "|",
    " ",
    "\n",
    "..",
    "-",
    "\x00",
    "é",
    "\U0001d48d",
    "'",
    '"',
    "#",
)
KEYS = (
    *("network", "scale", "objective", "optimizer", "batch", "patch", "steps", "seconds", "seed"),
    *("learning_rate", "sigma", "sigma_width", "settings", "data", "shrink", "ema", "clip"),
    *("degrade", "betas", "start_from", "keep_mean", "validate", "unknown", "__class__"),
)


def make_objective(random: Random) -> str:
    """Return the text of an objective or of something like it."""
    terms = []
    for _ in range(random.choice((1, 1, 2, 3, 40))):
        settings = ", ".join(
            f"{random.choice(SETTINGS)}={random.choice(NUMBERS)}"
            for _ in range(random.choice((0, 0, 1, 2)))
        )
        weight = f"{random.choice(NUMBERS)} * " if random.random() < 0.3 else ""
        terms.append(f"{weight}{random.choice(LOSSES)}" + (f"({settings})" if settings else ""))
    return _garbled(" + ".join(terms), random)


def make_degradation(random: Random) -> str:
    """Return the text of a chain of degradations or of something like it."""
    stages = []
    for _ in range(random.choice((1, 2, 3, 30))):
        values = ", ".join(random.choice(NUMBERS) for _ in range(random.choice((0, 1, 1, 2))))
        stages.append(random.choice(STAGES) + (f"({values})" if values else ""))
    return _garbled(" | ".join(stages), random)


def make_recipe(random: Random) -> bytes:
    """Return a recipe file with hostile values, or bytes that are no TOML."""
    lines = ['network = "edsr-baseline"', "scale = 2", 'data = ["nowhere"]', 'objective = "l1"']
    for _ in range(random.choice((1, 1, 2, 4))):
        key = random.choice(KEYS)
        lines = [line for line in lines if not line.startswith(f"{key} ")]
        lines.append(f"{key} = {_toml_value(random)}")
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    if random.random() < 0.15:
        at = random.randrange(len(text))
        text = text[:at] + random.randbytes(random.choice((1, 3, 50))) + text[at:]
    return text


def _toml_value(random: Random) -> str:
    nested = random.choice((3, 50, 5000))
    return random.choice(
        (
            *("-1", "0", "1e308", "nan", "inf", "true", '""', '"x"', "[]", "{ }", "1979-05-27"),
            *("9" * 30, "9" * 5000, "9223372036854775807", "10000000", "60000", "[[1], [2]]"),
            *("{ width = -4 }", "{ width = 6.5 }", "{ width = 60000 }", "{ num_blocks = 3000000 }"),
            *("{ scale = 3 }", "{ width = true }", '{ width = "x" }', "{ unknown = 1 }"),
            "[" * nested + "]" * nested,
            '"' + random.choice(("../../x", "/dev/zero", "a" * 5000, "\\u0000")) + '"',
            f'"{make_objective(random)}"'.replace("\n", " ").replace("\x00", ""),
        )
    )


def make_journal(random: Random) -> bytes:
    """Return a journal of a batch with lines that no run has written."""
    lines = [_journal_line(random) for _ in range(random.choice((1, 1, 2, 5)))]
    return random.choice((b"\n", b"\n", b"\r\n", b"")).join(lines)


def _journal_line(random: Random) -> bytes:
    values: tuple[Any, ...] = (5, [], None, {}, "x", True, -1, 1e400, {"a": 2}, [[1]], "\ud800")
    if random.random() < 0.6:
        entry: dict[str, Any] = {
            "source": "/nowhere/a.png",
            "stamp": [1, 2],
            "settings": "0" * 16,
            "results": {"a.png": [1, 2]},
        }
        key = random.choice(list(entry))
        if random.random() < 0.3:
            del entry[key]
        else:
            entry[key] = random.choice((*values, {"../../x": 1}, {"a\0b": [1, 2]}))
        text = json.dumps(entry).encode()
        return text if random.random() < 0.7 else text[: random.randrange(len(text))]
    return random.choice(
        (
            json.dumps(random.choice(values)).encode(),
            b"\xff\xfe",
            b"\0" * 10,
            b"[" * 100_000,
            b"{" * 1000,
            b"1" * 5000,
            random.randbytes(40),
        )
    )


def make_name(random: Random) -> bytes:
    """Return the name of a picture in any bytes that a Linux file system takes."""
    parts = (
        *(b"a", b" ", b"-", b"--help", b".", b"..", b"\xff", b"\xc3", b"\xe2\x80\xae", b"\n"),
        *(b"\t", b"\x1b]0;owned\x07", b"\x1b[31m", b"'", b'"', b"<script>", b"&amp;", b"*", b"?"),
        *(b"[a]", b"{x}", b"%s", b"$HOME", b"~", b"\\", b"[bold]", b"\x7f", b"\xf0\x9f\x98\x80"),
        *(b"CON", b"x" * 100, b".sigma", b".musigma-", b"\xed\xa0\x80", b"\x01", b":", b"|"),
    )
    name = b"".join(random.choice(parts) for _ in range(random.choice((1, 1, 2, 3, 6))))
    return name[:240] + random.choice((b".png", b".PNG", b".png"))


def _garbled(text: str, random: Random) -> str:
    for _ in range(random.choice((0, 0, 1, 1, 5))):
        at = random.randrange(len(text) + 1)
        piece = random.choice((*PIECES, *NUMBERS[:12]))
        if random.random() < 0.05:
            piece *= random.choice((100, 20_000))
        text = text[:at] + piece + text[at + random.choice((0, 0, 1, 5)) :]
    return text
