"""What is done with each hostile input, and what must hold afterwards."""

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fuzz import pictures, science, texts, weights
from helpers.forked import CRASHED, MIB, Ended, Limits, run_command

MEMORY = 256 * MIB
"""What ``--memory`` allows the command."""

ALLOWANCE = 600 * MIB
"""What a process may take beyond it: Python, torch and the decoders."""

MAX_PIXELS = 1_000_000
"""Pictures beyond it are refused, so that no case computes for long for a good reason."""

UPSCALE = ("--sigma", "--memory", str(MEMORY), "--max-pixels", str(MAX_PIXELS))
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")
BAD_CODES = (CRASHED, 1)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One hostile input.

    Attributes:
        kind: Which generator made it, and what is done with it.
        label: The seed, or the name of the file in the corpus.
        data: The input.
        suffix: The ending of the file's name.
    """

    kind: str
    label: str
    data: bytes = field(repr=False)
    suffix: str = "bin"


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is done with inputs of one kind.

    Attributes:
        make: Makes an input: the ending of its name, and its bytes.
        use: Uses it in a folder, in a child process.
        check: Says what is wrong afterwards, in words.
    """

    make: Callable[[Random], tuple[str, bytes]]
    use: Callable[[Case, Path], None]
    check: Callable[[Case, Path, Ended], list[str]] = lambda *_: []


def make_case(kind: str, seed: int) -> Case:
    """Return the input that a seed gives."""
    suffix, data = TARGETS[kind].make(Random(f"{kind} {seed}"))
    return Case(kind=kind, label=str(seed), data=data, suffix=suffix)


def faults_of(case: Case, folder: Path, ended: Ended) -> list[str]:
    """Return what is wrong after a case, in words: nothing for a case that is well."""
    faults = []
    if "Traceback (most recent call last)" in ended.err or ended.code == CRASHED:
        faults.append("traceback: " + _last_line(ended.err))
    elif ended.is_hung:
        faults.append("hang: over 10 s of computing, or no end")
    elif ended.code < 0:
        faults.append(f"ended by signal {-ended.code}")
    if ended.peak > MEMORY + ALLOWANCE:
        faults.append(f"memory: {ended.peak // MIB} MiB")
    left = [path.name for path in folder.rglob(".musigma-*.part")]
    if left:
        faults.append(f"left behind: {left}")
    if not faults:
        faults += TARGETS[case.kind].check(case, folder, ended)
    return faults


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no text"


def _bytes(
    make: Callable[[Random], bytes | str], suffix: str
) -> Callable[[Random], tuple[str, bytes]]:
    def made(random: Random) -> tuple[str, bytes]:
        value = make(random)
        return suffix, value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value

    return made


def _use_picture(case: Case, folder: Path) -> None:
    source = folder / f"picture.{case.suffix}"
    source.write_bytes(case.data)
    run_command(["upscale", str(source), "-o", str(folder / "out"), *_model(folder), *UPSCALE])


def _model(folder: Path) -> tuple[str, str]:
    path = folder / "tiny.safetensors"
    tensors, description = weights.tiny()
    path.write_bytes(weights.safetensors_of(tensors, json.dumps(description)))
    return "--model", str(path)


def _check_picture(_: Case, folder: Path, ended: Ended) -> list[str]:
    results = sorted(path.name for path in folder.glob("out/[!.]*"))
    errors = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    if ended.code == 0:
        return [] if len(results) > 1 and not errors else [f"code 0 with {results}, {errors}"]
    faults = [] if errors else [f"code {ended.code} without a line that says why: {ended.err!r}"]
    if "memory" in ended.err and "not enough" in ended.err:
        faults.append("memory: an allocation failed: " + _last_line(ended.err))
    return faults + ([f"results of a refused picture: {results}"] if results else [])


def _check_science(case: Case, folder: Path, ended: Ended) -> list[str]:
    if ended.code != 0:
        return _check_picture(case, folder, ended)
    results = sorted(path.name for path in folder.glob("out/[!.]*"))
    strange = [line for line in ended.err.splitlines() if not line.startswith(_OWN_LINES)]
    return [] if results and not strange else [f"code 0 with {results}, {strange}"]


_OWN_LINES = ("warning: ", "1 written to ")


def _check_short(_: Case, __: Path, ended: Ended) -> list[str]:
    if ended.code == 0 and "warning: " not in ended.err:
        return ["a picture whose data end early is taken for whole"]
    return []


def _use_weights(case: Case, folder: Path) -> None:
    import torch

    import musigma
    from musigma.types import MusigmaError

    path = folder / f"weights.{case.suffix}"
    path.write_bytes(case.data)
    try:
        model = musigma.load(path)
        prediction = model.predict(torch.full((1, 3, 8, 8), 0.5))
        if model.calibration is not None and prediction.sigma is not None:
            model.interval(prediction)
    except MusigmaError as error:
        _tell(error)


def _tell(error: Exception) -> None:
    """Print an error that is meant for users; it must be one short line."""
    text = str(error)
    assert len(text) < 2000, f"the message has {len(text)} characters"
    print("refused:", text.encode("ascii", "backslashreplace").decode())  # noqa: T201


def _use_objective(case: Case, _: Path) -> None:
    import torch

    from musigma import losses
    from musigma.types import MusigmaError, Prediction

    torch.manual_seed(0)
    try:
        loss = losses.parse(case.data.decode("utf-8", "surrogatepass"))
    except MusigmaError as error:
        _tell(error)
        return
    mean, sigma = torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 8)
    loss(Prediction(mean, sigma), torch.rand(1, 3, 8, 8))


def _use_degradation(case: Case, _: Path) -> None:
    from musigma.degradations import parse
    from musigma.types import MusigmaError

    try:
        parse(case.data.decode("utf-8", "surrogatepass"), scale=2)
    except MusigmaError as error:
        _tell(error)


def _use_recipe(case: Case, folder: Path) -> None:
    path = folder / "recipe.toml"
    path.write_bytes(case.data)
    os.environ["MUSIGMA_DATA"] = str(folder)
    run_command(["train", str(path), "-o", str(folder / "run"), "--device", "cpu"])


def _check_recipe(_: Case, __: Path, ended: Ended) -> list[str]:
    # No recipe here can be trained, since its data are nowhere.
    if ended.code == 2 and ended.err.count("\n") == 1:
        return [] if len(ended.err) < 2000 else [f"a message of {len(ended.err)} characters"]
    return [f"code {ended.code}, expected 2 with one line: {ended.err[-300:]!r}"]


def _use_journal(case: Case, folder: Path) -> None:
    out = folder / "out"
    out.mkdir()
    (out / ".musigma.jsonl").write_bytes(case.data)
    source = folder / "a.png"
    source.write_bytes(pictures.png_of(2, 2, _zlib(bytes(14))))
    run_command(["upscale", str(source), "-o", str(out), *_model(folder), "--resume"])


def _zlib(data: bytes) -> bytes:
    import zlib

    return zlib.compress(data)


def _check_journal(_: Case, folder: Path, ended: Ended) -> list[str]:
    if ended.code == 0 and (folder / "out" / "a.png").is_file():
        return []
    return [f"code {ended.code}, the picture is not done: {_last_line(ended.err)}"]


def _use_name(case: Case, folder: Path) -> None:
    photos = folder / "photos"
    photos.mkdir()
    data = pictures.png_of(2, 2, _zlib(bytes(14)))
    (photos / "plain.png").write_bytes(data)
    Path(os.fsdecode(os.fsencode(photos) + b"/" + case.data)).write_bytes(data)
    words = [str(photos), "-o", str(folder / "out"), *_model(folder), "--sigma", "--page", "--json"]
    run_command(["upscale", *words])


def _check_name(_: Case, folder: Path, ended: Ended) -> list[str]:
    faults = []
    if not (folder / "out" / "plain.png").is_file():
        faults.append(f"the other picture is not done: {_last_line(ended.err)}")
    if CONTROL.search(ended.err):
        faults.append("control characters on stderr")
    try:
        json.loads(ended.out)
    except ValueError:
        faults.append(f"no JSON on stdout: {ended.out[:200]!r}")
    return faults


TARGETS: dict[str, Target] = {
    "pictures": Target(make=pictures.make_picture, use=_use_picture, check=_check_picture),
    "short-pictures": Target(make=pictures.short_picture, use=_use_picture, check=_check_short),
    "weights": Target(make=weights.make_weights, use=_use_weights),
    "recipes": Target(make=_bytes(texts.make_recipe, "toml"), use=_use_recipe, check=_check_recipe),
    "journals": Target(
        make=_bytes(texts.make_journal, "jsonl"), use=_use_journal, check=_check_journal
    ),
    "names": Target(make=_bytes(texts.make_name, "name"), use=_use_name, check=_check_name),
    "objectives": Target(make=_bytes(texts.make_objective, "txt"), use=_use_objective),
    "degradations": Target(make=_bytes(texts.make_degradation, "txt"), use=_use_degradation),
}
if science.is_available():
    TARGETS["science"] = Target(make=science.make_science, use=_use_picture, check=_check_science)

LIMITS = Limits(cpu_seconds=10.0, wall_seconds=120.0)
