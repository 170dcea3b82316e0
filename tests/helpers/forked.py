"""Run a function in a child of this process, with limits; tell how it ended and what it left.

A child is a copy of this process, which has imported what it needs, so a run costs milliseconds
instead of the seconds of an import. Use this in a process of its own that runs no other thread.
"""

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CRASHED = 70
"""Exit code of a function that raised an error."""

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a child may use.

    Attributes:
        cpu_seconds: Seconds of computing. A busy machine does not count.
        wall_seconds: Seconds without computing: a child that waits for ever ends here.
        address_space: Bytes; an allocation beyond them fails. Protects this machine.
        file_size: Bytes of one file; writing beyond them fails, as on a full disk.
    """

    cpu_seconds: float = 10.0
    wall_seconds: float = 120.0
    address_space: int | None = 8 * 1024 * MIB
    file_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a child ended.

    Attributes:
        code: Exit code, or minus the number of the signal that ended it.
        is_hung: Whether it ran into a limit of time.
        cpu_seconds: Seconds of computing.
        peak: Largest memory in bytes, with what it shares with its parent.
        out: What it wrote on stdout.
        err: What it wrote on stderr.
    """

    code: int
    is_hung: bool
    cpu_seconds: float
    peak: int
    out: str
    err: str


def run_forked(
    function: Callable[[], object],
    folder: Path,
    limits: Limits | None = None,
    *,
    meanwhile: Callable[[int], None] | None = None,
) -> Ended:
    """Run a function in a child and wait for its end.

    Args:
        function: What the child does. `SystemExit` gives its exit code.
        folder: Where the output is kept in ``stdout`` and ``stderr``.
        limits: What the child may use.
        meanwhile: Called in this process with the number of the child while it runs.
    """
    limits = limits or Limits()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = CRASHED
        try:
            code = _in_child(function, folder, limits)
        finally:  # the child must never go on in the code of its parent
            os._exit(code)
    if meanwhile is not None:
        meanwhile(child)
    status, usage, is_late = _wait(child, limits.wall_seconds)
    code = os.waitstatus_to_exitcode(status)
    return Ended(
        code=code,
        is_hung=is_late or code == -signal.SIGPROF,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak=usage.ru_maxrss * 1024,
        out=(folder / "stdout").read_text(errors="replace"),
        err=(folder / "stderr").read_text(errors="replace"),
    )


def _wait(child: int, seconds: float) -> tuple[int, resource.struct_rusage, bool]:
    """Wait for a child; end it after seconds in which it has not computed at all."""
    end, pause, is_late, computed = time.monotonic() + seconds, 0.001, False, 0
    while True:
        number, status, usage = os.wait4(child, os.WNOHANG)
        if number:
            return status, usage, is_late
        if time.monotonic() > end and (ticks := _ticks(child)) > computed:
            end, computed = time.monotonic() + seconds, ticks  # it is slow on a busy machine
        if time.monotonic() > end and not is_late:
            os.kill(child, signal.SIGKILL)
            is_late = True
        time.sleep(pause)
        pause = min(0.02, pause * 1.5)


def _ticks(child: int) -> int:
    """Return how much a child has computed, in ticks of the system; 0 where nothing tells it."""
    try:
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])  # in user mode and in the system


def _in_child(function: Callable[[], object], folder: Path, limits: Limits) -> int:
    try:
        _redirect(folder)
        _renew_threads()
        _apply(limits)
        function()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 -- whatever it is, the parent is told
        traceback.print_exc()
        code = CRASHED
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _redirect(folder: Path) -> None:
    for number, name in ((1, "stdout"), (2, "stderr")):
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, number)
        os.close(descriptor)


def _renew_threads() -> None:
    # PyTorch makes its pool of threads anew in a child when it is first asked for. Two threads that
    # ask at once may find none ("Invalid thread pool!"), so this one asks before there are others.
    import torch

    torch.set_num_threads(torch.get_num_threads())


def _apply(limits: Limits) -> None:
    # The default action of this signal ends the process, inside C code, too.
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds)
    for kind, value in (
        (resource.RLIMIT_AS, limits.address_space),
        (resource.RLIMIT_FSIZE, limits.file_size),
        (resource.RLIMIT_CORE, 0),
    ):
        if value is not None:
            resource.setrlimit(kind, (value, value))


def run_command(words: list[str]) -> None:
    """Run ``musigma`` with the given words; it ends by `SystemExit`."""
    from musigma.cli.main import main

    sys.argv = ["musigma", *words]
    main()


def warm_up() -> None:
    """Enlarge a picture in this process, so that children start with everything imported."""
    import shutil
    import tempfile

    import torch
    from PIL import Image

    from helpers.commands import write_tiny_weights

    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="musigma-warm-"))
    before = sys.stdout
    try:
        Image.new("RGB", (8, 8)).save(folder / "a.png")
        weights = write_tiny_weights(folder / "tiny.safetensors")
        words = [str(folder / "a.png"), "-o", str(folder / "out"), "--model", str(weights)]
        sys.stdout = (folder / "stdout").open("w")  # the JSON is of no interest
        run_command(["upscale", *words, "--sigma", "--page", "--npz", "--json"])
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.stdout.close()
        sys.stdout = before
        shutil.rmtree(folder)
