"""Faults of the world around a batch, each with what must hold afterwards.

A scenario gets a folder, makes one thing go wrong while ``musigma upscale`` runs in a child, and
returns what does not hold, in words. What must hold always: no traceback, no hang, no half file
under the name of a result, and no part file after an orderly end.
"""

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image

from fuzz.weights import safetensors_of, tiny
from helpers.forked import CRASHED, MIB, Ended, Limits, run_command, run_forked

LIMITS = Limits(cpu_seconds=60.0, wall_seconds=300.0)
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
CODES = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
NOBODY = 65534


class Batch:
    """Sources, weights and the folder for results of one scenario.

    Args:
        folder: An empty folder.
        num_pictures: Number of sources.
        seed: What the pictures show.
    """

    def __init__(self, folder: Path, num_pictures: int = 6, seed: int = 0) -> None:
        self.folder, self.out = folder, folder / "out"
        self.sources = folder / "sources"
        self.sources.mkdir()
        self.write_sources(num_pictures, seed)
        self.weights = folder / "tiny.safetensors"
        tensors, description = tiny()
        self.weights.write_bytes(safetensors_of(tensors, json.dumps(description)))

    def write_sources(self, num_pictures: int, seed: int) -> None:
        """Write pictures; each replaces one of the same name as a whole."""
        random = np.random.default_rng(seed)
        for number in range(num_pictures):
            levels = random.integers(0, 256, (10 + number % 7, 12, 3), dtype=np.uint8)
            part = self.folder / "source.png"
            Image.fromarray(levels).save(part)
            part.replace(self.sources / f"{number:03}.png")

    def run(
        self,
        *words: str,
        out: Path | None = None,
        limits: Limits = LIMITS,
        meanwhile: Callable[[int], None] | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> Ended:
        """Enlarge the sources in a child."""
        log = self.folder / f"log-{time.monotonic_ns()}"
        log.mkdir()
        command = ["upscale", str(self.sources), "-o", str(out or self.out)]
        command += ["--model", str(self.weights), "--sigma", "--memory", "256MiB", *words]

        def child() -> None:
            before()
            run_command(command)

        return run_forked(child, log, limits, meanwhile=meanwhile)

    def expected(self) -> dict[str, bytes]:
        """Return what an undisturbed run gives."""
        calm = self.folder / f"calm-{time.monotonic_ns()}"
        ended = self.run(out=calm)
        assert ended.code == 0, ended.err
        return results(calm)

    def num_done(self) -> int:
        """Return how many pictures have their results."""
        return sum(1 for path in self.out.glob("[0-9]*.png") if path.stem.isdigit())

    def is_claimed_by(self, process: int) -> bool:
        """Whether a process works in the folder; before and after that it writes nothing."""
        with suppress(OSError):
            return (self.out / ".musigma.lock").read_text() == str(process)
        return False

    def wait_for(self, num_done: int, child: int) -> None:
        """Wait until so many pictures are done, or the child has ended."""
        while self.num_done() < num_done and _is_running(child):
            time.sleep(0.001)


def results(folder: Path) -> dict[str, bytes]:
    """Return the results in a folder, without logs and locks."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("[!.]*"))}


def parts(folder: Path) -> list[str]:
    """Return files that are being written."""
    return [path.name for path in folder.rglob(".musigma-*.part")]


def _is_running(child: int) -> bool:
    # A child that has ended waits for its parent as a zombie.
    state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def crashes(ended: Ended) -> list[str]:
    """Return what must not happen in any scenario."""
    if "Traceback (most recent call last)" in ended.err or ended.code == CRASHED:
        return [f"traceback: {ended.err[-500:]}"]
    if ended.is_hung:
        return ["hang"]
    is_crash = ended.code < 0 and -ended.code not in SIGNALS
    return [f"ended by signal {-ended.code}: {ended.err[-500:]}"] if is_crash else []


def differing(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """Return results that are not as in an undisturbed run."""
    return [f"{name} is wrong" for name, data in found.items() if expected.get(name) != data]


def _came_late(ended: Ended, number: int, batch: Batch, expected: dict[str, bytes]) -> bool:
    """Whether a signal came after the last line of a complete run, when Python handles it again."""
    is_default = ended.code == -number or ended.err.rstrip().endswith("KeyboardInterrupt")
    is_whole = results(batch.out) == expected and not parts(batch.out)
    return number != signal.SIGKILL and is_default and is_whole and " written to " in ended.err


def kills(
    folder: Path, *, num_kills: int = 6, num_pictures: int = 6, seed: int = 0
) -> tuple[list[str], dict[str, int]]:
    """Kill ``upscale --resume`` at random moments; return what is wrong, and counts."""
    random = Random(seed)
    batch = Batch(folder, num_pictures)
    calm = batch.run()
    expected, faults, counts = results(batch.out), crashes(calm), Counter[str]()
    shutil.rmtree(batch.out)
    for _ in range(20 * num_kills):
        if counts["kills"] == num_kills:
            break
        number = SIGNALS[counts["kills"] % len(SIGNALS)]
        earlier = parts(batch.out)
        ending = _ends_itself(batch, number, random.uniform(0, calm.cpu_seconds))
        ended = batch.run("--resume", before=ending)
        if _came_late(ended, number, batch, expected):
            shutil.rmtree(batch.out)
            continue
        faults += [*crashes(ended), *differing(results(batch.out), expected)]
        if ended.code == 0:  # done before the signal came
            faults += [] if results(batch.out) == expected else ["a whole run differs"]
            shutil.rmtree(batch.out)
            continue
        counts["kills"] += 1
        counts[signal.Signals(number).name] += 1
        left = [name for name in parts(batch.out) if name not in earlier]
        counts[f"parts after {signal.Signals(number).name}"] += len(left)
        if ended.code != CODES[number]:
            faults.append(f"code {ended.code} after {number!r}: {ended.err[-300:]}")
        if left and number != signal.SIGKILL:
            faults.append(f"left after {number!r}: {left}")
    if counts["kills"] < num_kills:
        faults.append(f"only {counts['kills']} signals came in time")
    ended = batch.run("--resume")
    faults += crashes(ended)
    if ended.code or results(batch.out) != expected or parts(batch.out):
        faults.append(f"the last run ends with {ended.code}, {parts(batch.out)}: {ended.err}")
    counts["differing results"] = sum(
        data != expected[name] for name, data in results(batch.out).items()
    )
    return faults, dict(counts)


def _ends_itself(batch: Batch, number: int, seconds: float) -> Callable[[], None]:
    """Let a child receive a signal after so much computing, at work in the folder.

    Another process that sends it may come too late again and again on a busy machine.
    """

    def start() -> None:
        # A background process, such as a test run may be, hands on that Ctrl-C is ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread(target=watch, daemon=True).start()

    def watch() -> None:
        while time.process_time() < seconds or not batch.is_claimed_by(os.getpid()):
            time.sleep(0.0005)
        os.kill(os.getpid(), number)

    return start


def file_size_limit(folder: Path) -> list[str]:
    """No file may grow beyond 32 KiB, as on a full disk: a line each, nothing half."""
    batch = Batch(folder, num_pictures=2)
    large = np.random.default_rng(2).integers(0, 256, (120, 150, 3), dtype=np.uint8)
    Image.fromarray(large).save(batch.sources / "large.png")
    expected = batch.expected()
    limits = Limits(cpu_seconds=60.0, wall_seconds=300.0, file_size=32 * 1024)
    ended = batch.run(limits=limits)
    faults = [*crashes(ended), *differing(results(batch.out), expected)]
    if ended.code not in (1, 2) or "error: " not in ended.err:
        faults.append(f"code {ended.code} without a line that says why: {ended.err}")
    if parts(batch.out):
        faults.append(f"left: {parts(batch.out)}")
    if set(results(batch.out)) != {name for name in expected if not name.startswith("large")}:
        faults.append(f"results: {list(results(batch.out))}")
    again = batch.run("--resume")
    return faults + ([] if results(batch.out) == expected else [f"with room again: {again.err}"])


def full_disk(folder: Path) -> list[str] | None:
    """The disk of the results is full after some pictures; `None` where mounting is forbidden."""
    batch = Batch(folder, num_pictures=12)
    expected = batch.expected()
    batch.out.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(batch.out)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        return None
    try:
        ended = batch.run()
        faults = [*crashes(ended), *differing(results(batch.out), expected)]
        if ended.code not in (1, 2) or "error: " not in ended.err:
            faults.append(f"code {ended.code} without a line that says why: {ended.err}")
        return faults + ([f"left: {parts(batch.out)}"] if parts(batch.out) else [])
    finally:
        subprocess.run(["umount", str(batch.out)], check=True)


def read_only_folder(folder: Path) -> list[str]:
    """The folder for the results may not be written."""
    batch = Batch(folder, num_pictures=2)
    batch.out.mkdir(mode=0o555)
    for path in (folder, *folder.parents):
        if path.owner() == Path.home().owner() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    ended = batch.run(before=_without_rights)
    faults = crashes(ended)
    if ended.code not in (1, 2) or "error: " not in ended.err:
        faults.append(f"code {ended.code} without a line that says why: {ended.err}")
    return faults + [f"written: {name}" for name in results(batch.out)]


def _without_rights() -> None:
    """Let root become a user for whom read-only is read-only."""
    if os.geteuid() == 0:
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def little_memory(folder: Path) -> list[str]:
    """A large picture between small ones, and too little address space for it.

    It is done or told. Where an allocation fails inside the convolutions of PyTorch, PyTorch may
    crash. Then no result may be wrong or half, and ``--resume`` with enough memory does the rest.
    """
    batch = Batch(folder, num_pictures=2)
    Image.new("RGB", (1600, 1200), (9, 99, 199)).save(batch.sources / "large.png")
    expected = batch.expected()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    space = pages * os.sysconf("SC_PAGE_SIZE") + 250 * MIB
    limits = Limits(cpu_seconds=200.0, wall_seconds=600.0, address_space=space)
    ended = batch.run("--memory", "2GiB", limits=limits)
    found = results(batch.out)
    faults = differing(found, expected)
    if ended.code not in (-signal.SIGSEGV, -signal.SIGABRT):
        faults += crashes(ended)
        faults += [f"{name} is missing" for name in ("000.png", "001.png") if name not in found]
        if "large.png" not in found and "error: " not in ended.err:
            faults.append(f"the large picture is neither done nor told: {ended}")
        faults += [f"left: {name}" for name in parts(batch.out)]
    again = batch.run("--resume")
    is_well = results(batch.out) == expected and not parts(batch.out)
    return faults + ([] if is_well else [f"not resumed: {again.err}"])


def two_writers(folder: Path) -> list[str]:
    """A second run in the same folder, with ``--resume``, while the first one is at work."""
    batch = Batch(folder, num_pictures=12)
    expected, others = batch.expected(), []

    def second(child: int) -> None:
        batch.wait_for(1, child)
        others.append(batch.run("--resume"))

    ended = batch.run(meanwhile=second)
    faults = [*crashes(ended), *crashes(others[0])]
    if ended.code:
        faults.append(f"the first run was disturbed: {ended.err}")
    if results(batch.out) != expected or parts(batch.out):
        faults.append(f"results differ, or parts are left: {parts(batch.out)}")
    return faults


def fifo_as_source(folder: Path) -> list[str]:
    """A named pipe that nobody writes is refused; nothing waits for it."""
    batch = Batch(folder, num_pictures=2)
    expected = batch.expected()
    os.mkfifo(batch.sources / "pipe.png")
    ended = batch.run(limits=Limits(cpu_seconds=30.0, wall_seconds=60.0))
    faults = [*crashes(ended), *differing(results(batch.out), expected)]
    return faults + ([] if set(expected) <= set(results(batch.out)) else ["others are not done"])


def vanishing_sources(folder: Path) -> list[str]:
    """Sources that are removed during the run are told; the others are done."""
    batch = Batch(folder, num_pictures=12)
    expected = batch.expected()

    def remove(child: int) -> None:
        batch.wait_for(1, child)
        for path in sorted(batch.sources.glob("*.png"))[::2]:
            path.unlink()

    ended = batch.run(meanwhile=remove)
    found = results(batch.out)
    kept = {path.name for path in batch.sources.glob("*.png")}
    faults = [*crashes(ended), *differing(found, expected)]
    faults += [f"{name} is not done" for name in kept if name not in found]
    missing = {f"{number:03}.png" for number in range(12)} - set(found)
    faults += [f"{name} is not told" for name in missing if name not in ended.err]
    return faults + ([f"left: {parts(batch.out)}"] if parts(batch.out) else [])


def changing_sources(folder: Path) -> list[str]:
    """Sources that are replaced during the run are done again by ``--resume``."""
    batch = Batch(folder, num_pictures=12)

    def replace(child: int) -> None:
        batch.wait_for(1, child)
        batch.write_sources(12, seed=1)

    faults = crashes(batch.run(meanwhile=replace))
    faults += crashes(batch.run("--resume"))
    return faults + differing(results(batch.out), batch.expected())


def vanishing_folder(folder: Path) -> list[str]:
    """The folder of the results is removed during the run: no traceback, and no half file."""
    batch = Batch(folder, num_pictures=12)
    expected = batch.expected()

    def remove(child: int) -> None:
        batch.wait_for(1, child)
        shutil.rmtree(batch.out, ignore_errors=True)

    ended = batch.run(meanwhile=remove)
    faults = [*crashes(ended), *differing(results(batch.out), expected)]
    again = batch.run("--resume")
    return faults + ([] if results(batch.out) == expected else [f"not resumed: {again.err}"])


@cache
def scenarios() -> dict[str, Callable[[Path], list[str] | None]]:
    """Return the scenarios without settings, by name."""
    every = (
        *(file_size_limit, full_disk, read_only_folder, little_memory, two_writers),
        *(fifo_as_source, vanishing_sources, changing_sources, vanishing_folder),
    )
    return {function.__name__: function for function in every}
