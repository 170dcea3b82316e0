"""Many files: what each becomes is what it becomes alone, and nothing is lost on the way."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.calibrations import calibration_of
from helpers.commands import write_tiny_weights
from helpers.networks import build
from musigma.images.image_io import ImageMeta, write_image
from musigma.images.listing import ImageSource
from musigma.model import Model, save
from musigma.networks import create, with_sigma
from musigma.restoration import batch, output_files
from musigma.restoration.batch import Failed, StripQueue, restore_files
from musigma.restoration.options import Options
from musigma.restoration.restore_file import restore_file
from musigma.restoration.resume_log import NAME, ResumeLog
from musigma.types import ConfigError, ImageError

CALIBRATION = calibration_of(method="pooled-quantile")


def model_of(name="edsr-baseline", scale=2):
    return Model(network=build(name, scale, sigma=True), name=name)


def write_sources(folder, num_files=5):
    for number in range(num_files):
        generator = torch.Generator().manual_seed(number)
        image = torch.rand(1, 3, 13 + number, 11, generator=generator)
        write_image(folder / f"{number}.png", image, ImageMeta(bits=16 if number % 2 else 8))
    return [ImageSource(path, Path(path.name)) for path in sorted(folder.glob("*.png"))]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("[!.]*")}


def test_a_batch_gives_the_files_that_each_gives_alone(tmp_path):
    model, sources = model_of(), write_sources(tmp_path / "in")
    alone = Options(folder=tmp_path / "alone", sigma=True, npz=True, page=True)
    together = replace(alone, folder=tmp_path / "together")
    for source in sources:
        restore_file(model, source, alone)
    outcomes = list(restore_files(model, sources, together))
    assert {outcome.source for outcome in outcomes} == {source.path for source in sources}
    assert contents(together.folder) == contents(alone.folder)
    assert len(contents(together.folder)) == 5 * len(sources)


def test_bad_files_are_told_and_the_others_done(tmp_path):
    model, sources = model_of(), write_sources(tmp_path / "in")
    sources[1].path.write_bytes(b"no picture")
    sources[3].path.unlink()
    outcomes = list(restore_files(model, sources, Options(folder=tmp_path / "out")))
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    assert {outcome.source for outcome in failed} == {sources[1].path, sources[3].path}
    assert all(outcome.error.startswith(f"{outcome.source}: ") for outcome in failed)
    assert sorted(contents(tmp_path / "out")) == ["0.png", "2.png", "4.png"]


def test_what_is_written_when_a_run_is_stopped_is_told(tmp_path):
    """The picture before the one that is computed was there, but neither counted nor logged."""
    model, sources = model_of(), write_sources(tmp_path / "in")

    def stop(source, done, total):
        if source == sources[2]:
            raise KeyboardInterrupt

    written, options = [], Options(folder=tmp_path / "out")
    outcomes = restore_files(model, sources, options, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        written.extend(outcome.source.name for outcome in outcomes)
    assert set(written) == set(contents(tmp_path / "out")) == {"0.png", "1.png"}


def test_what_is_wrong_with_all_files_ends_the_batch(tmp_path):
    model, sources = model_of(), write_sources(tmp_path / "in")
    with pytest.raises(ConfigError, match="too few for one tile"):
        list(restore_files(model, sources, Options(folder=tmp_path / "out", memory=1000)))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("musigma-")]


def test_a_result_that_cannot_be_written_fails_alone(tmp_path):
    model, sources = model_of(), write_sources(tmp_path / "in")
    (tmp_path / "out" / "2.png").mkdir(parents=True)
    outcomes = list(restore_files(model, sources, Options(folder=tmp_path / "out")))
    (failed,) = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    assert failed.source == sources[2].path
    assert "2.png: is a folder" in failed.error
    assert len(contents_of_files(tmp_path / "out")) == 4


def contents_of_files(folder):
    return [path for path in folder.iterdir() if path.is_file()]


def test_no_more_pictures_in_memory_than_fit(tmp_path, monkeypatch):
    """Five pictures of about 2 KB each, counted as they are decoded, and room for two of them."""
    model, sources = model_of(), write_sources(tmp_path / "in")
    options = Options(folder=tmp_path / "out", tile=100)
    sizes = [batch._bytes_in_memory(model, source, options) for source in sources]
    assert sizes[:2] == [13 * 11 * 12, 14 * 11 * 22]  # 8 and 16 bits
    seen, held = [], batch._Batch.start_reading

    def watched(self):
        held(self)
        seen.append(len(self.num_bytes))

    monkeypatch.setattr(batch._Batch, "start_reading", watched)
    monkeypatch.setattr(batch, "NUM_THREADS", 3)
    two = replace(options, memory=8 * (max(sizes) + min(sizes)))
    assert len(list(restore_files(model, sources, two))) == 5
    assert max(seen) == 2
    seen.clear()
    one_by_one = replace(options, memory=8 * max(sizes))
    assert len(list(restore_files(model, sources, one_by_one))) == 5
    assert max(seen) == 1


def test_a_strip_queue_hands_over_one_strip_at_a_time():
    strips, taken, offered = StripQueue(), [], []

    def take():
        for strip in strips:
            # At most the strip that was just taken and the next one have been offered.
            assert len(offered) <= len(taken) + 2
            taken.append(strip)

    taker = threading.Thread(target=take)
    taker.start()
    for number in range(3):
        offered.append(number)
        assert strips.put(number)
    strips.end()
    taker.join(60)
    assert taken == [0, 1, 2]


def test_a_strip_queue_tells_both_ends_of_errors():
    strips = StripQueue()
    strips.end(ImageError("wrong"))
    with pytest.raises(ImageError, match="wrong"):
        list(strips)
    strips.stop()
    assert strips.put(1) is False


def test_the_log_knows_what_is_done(tmp_path):
    model, (source, other, *_) = model_of(), write_sources(tmp_path / "in")
    options = Options(folder=tmp_path / "out", sigma=True)
    for done in restore_files(model, [source], options):
        ResumeLog(model, options).add(done)
    with (tmp_path / "out" / NAME).open("a") as file:
        file.write('\n{"source": "half a li')  # what a run that is killed may leave

    def is_done(path=source.path, model=model, **changes):
        return ResumeLog(model, replace(options, **changes)).is_done(path)

    assert is_done()
    assert not is_done(other.path)
    assert is_done(tile=50, memory=10**9)  # which change no bit
    assert not is_done(sigma=False)
    assert not is_done(ensemble=True)
    assert not is_done(model=replace(model, digest="other weights"))
    assert not is_done(model=replace(model, calibration=CALIBRATION))
    assert is_done(max_pixels=10**6)
    assert sorted(contents(tmp_path / "out")) == ["0.error-map.png", "0.png", "0.sigma.png"]
    for done in restore_files(model, [other], options):
        ResumeLog(model, options).add(done)
    assert is_done()
    assert is_done(other.path)
    (tmp_path / "out" / "0.sigma.png").unlink()
    assert not is_done()
    os.utime(other.path, (1, 1))
    assert not is_done(other.path)


KILLED = """
import os, signal
from musigma.cli.main import main
from musigma.restoration.resume_log import ResumeLog

add, num_added = ResumeLog.add, 0

def add_and_die(self, restored):
    global num_added
    add(self, restored)
    num_added += 1
    if num_added == 2:
        os.kill(os.getpid(), signal.SIGKILL)

ResumeLog.add = add_and_die
main()
"""


def test_a_killed_batch_goes_on_where_it_was(tmp_path):
    """SIGKILL after the second entry of the log; then only the other files are restored."""
    torch.manual_seed(0)
    network = with_sigma(create("edsr-baseline", scale=2, num_blocks=1, width=8), width=8, depth=1)
    save(tmp_path / "w.safetensors", network)
    write_sources(tmp_path / "in", num_files=7)
    words = ["upscale", tmp_path / "in", "--model", tmp_path / "w.safetensors", "--sigma"]
    words = [str(word) for word in words]
    program = [sys.executable, "-m", "musigma", *words, "-o"]
    subprocess.run([*program, tmp_path / "whole"], check=True, capture_output=True)
    out = tmp_path / "killed"
    killed = subprocess.run([sys.executable, "-c", KILLED, *words, "-o", out], check=False)
    assert killed.returncode == -signal.SIGKILL
    before = {path: path.stat().st_mtime_ns for path in out.glob("[!.]*")}
    with (out / NAME).open("a") as file:
        file.write('\n{"source": "half a line')
    command = [*program, out, "--resume", "--json"]
    again = subprocess.run(command, check=True, capture_output=True, text=True)
    outcome = json.loads(again.stdout)
    assert (len(outcome["skipped"]), len(outcome["done"])) == (2, 5)
    assert contents(out) == contents(tmp_path / "whole")
    assert not list(out.glob(".*.part"))
    names = [Path(path).stem for path in outcome["skipped"]]
    kept = [out / f"{name}{end}" for name in names for end in (".png", ".sigma.png")]
    assert all(path.stat().st_mtime_ns == before[path] for path in kept)


STOPPED = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background process
from musigma.cli.main import main
from musigma.restoration import output_files

add, num_strips = output_files.OutputFiles.add, 0

def add_and_stop(self, strip):
    global num_strips
    add(self, strip)
    num_strips += 1
    if num_strips == 3:
        os.kill(os.getpid(), signal.{name})

output_files.OutputFiles.add = add_and_stop
main()
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_leaves_nothing_behind(tmp_path, name, code):
    """The signal comes while files are open; also parts of an earlier, killed run are removed."""
    weights = write_tiny_weights(tmp_path / "w.safetensors")
    write_sources(tmp_path / "in", num_files=6)
    out = tmp_path / "out"
    out.mkdir()
    (out / ".musigma-0123.part").write_bytes(b"half a file")
    words = ["upscale", tmp_path / "in", "--model", weights, "--npz", "--page", "-o", out]
    command = [sys.executable, "-c", STOPPED.format(name=name), *map(str, words), "--json"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == code
    assert "Stopped: " in ended.stderr
    assert "Traceback" not in ended.stderr
    num_done = len(json.loads(ended.stdout)["done"])
    assert num_done < 6
    hidden = [path.name for path in out.glob(".*") if path.name != NAME]
    assert hidden == []
    assert len(contents(out)) % 5 == 0  # all files of a picture, or none


DAMAGED = ["5", "[]", "null", '"text"', '{"a": 2}', "\udcff", "[" * 100_000]


@pytest.mark.parametrize("line", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_log_only_means_that_more_is_to_do(tmp_path, line):
    model, (source, *_) = model_of(), write_sources(tmp_path / "in", num_files=1)
    options = Options(folder=tmp_path / "out")
    (done,) = restore_files(model, [source], options)
    ResumeLog(model, options).add(done)
    with (tmp_path / "out" / NAME).open("ab") as file:
        file.write(b"\n" + line.encode(errors="surrogateescape"))
    assert ResumeLog(model, options).is_done(source.path)
    entry = {
        "source": str(source.path.absolute()),
        "stamp": None,
        "settings": "",
        "results": {"\0": 1},
    }
    entry["settings"] = ResumeLog(model, options).settings
    (tmp_path / "out" / NAME).write_text(json.dumps(entry))
    assert not ResumeLog(model, options).is_done(source.path)
    assert ResumeLog(model, options).num_damaged == 0


def test_a_damaged_log_is_set_aside(tmp_path):
    model, (source, *_) = model_of(), write_sources(tmp_path / "in", num_files=1)
    options = Options(folder=tmp_path / "out")
    (done,) = restore_files(model, [source], options)
    ResumeLog(model, options).add(done)
    assert ResumeLog(model, options).set_damaged_aside() is None
    path = tmp_path / "out" / NAME
    path.write_bytes(path.read_bytes() + b'\n5\n{"source": "half a li\n\xff\xfe')
    damaged, log = path.read_bytes(), ResumeLog(model, options)
    assert log.num_damaged == 2
    aside = log.set_damaged_aside()
    assert aside.read_bytes() == damaged
    mended = ResumeLog(model, options)
    assert mended.num_damaged == 0
    assert mended.is_done(source.path)


def test_a_source_that_changes_while_it_is_restored_is_not_done(tmp_path):
    model, (source, *_) = model_of(), write_sources(tmp_path / "in", num_files=1)
    options = Options(folder=tmp_path / "out")

    def replace_source(source, done, total):
        write_image(source.path, torch.zeros(1, 3, 30, 20))

    (done,) = restore_files(model, [source], options, progress=replace_source)
    log = ResumeLog(model, options)
    log.add(done)
    assert not ResumeLog(model, options).is_done(source.path)


ERRORS = [
    RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
    UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"),
    OSError(5, "Input/output error"),
    ConfigError("of this file"),
    RecursionError("too deep"),
]
STEPS = ["read_picture", "compute_strips", "write_results"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_any_error_of_one_file_is_its_outcome(tmp_path, monkeypatch, step, error):
    model, sources = model_of(), write_sources(tmp_path / "in", num_files=3)
    run = getattr(batch, step)

    def fail_at_the_second(*args, **kwargs):
        source = args[1] if step == "read_picture" else args[0].source
        if source.path == sources[1].path:
            raise error
        return run(*args, **kwargs)

    monkeypatch.setattr(batch, step, fail_at_the_second)
    outcomes = list(restore_files(model, sources, Options(folder=tmp_path / "out", sigma=True)))
    (failed,) = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    assert failed.source == sources[1].path
    assert failed.error.startswith(f"{sources[1].path}: ")
    assert len(failed.error.splitlines()) == 1
    assert "memory" in failed.error or step != "read_picture" or error not in ERRORS[:2]
    kept = {name.partition(".")[0] for name in contents(tmp_path / "out")}
    assert kept == {"0", "2"}
    assert not list((tmp_path / "out").glob(".*"))


@pytest.mark.parametrize("last", ["draw_error_map", "write_viewer_page"])
def test_all_files_of_a_picture_appear_or_none(tmp_path, monkeypatch, last):
    """What is written last fails; neither the picture nor any other of its files appears."""
    model, sources = model_of(), write_sources(tmp_path / "in", num_files=1)

    def fail(*args, **kwargs):
        raise ValueError("wrong")

    monkeypatch.setattr(output_files, last, fail)
    options = Options(folder=tmp_path / "out", npz=True, page=True)
    (failed,) = restore_files(model, sources, options)
    assert "ValueError: wrong" in failed.error
    assert list((tmp_path / "out").iterdir()) == []


def test_names_in_any_bytes(tmp_path):
    model, (source, *_) = model_of(), write_sources(tmp_path / "in", num_files=1)
    path = source.path.with_name(os.fsdecode(b"bad\xff\xfe.png"))
    try:
        source.path.rename(path)
    except OSError:
        pytest.skip("the file system has no such names")
    options = Options(folder=tmp_path / "out", sigma=True, page=True)
    (done,) = restore_files(model, [ImageSource(path, Path(path.name))], options)
    assert done.output.exists()
    assert done.files["page"].exists()
    ResumeLog(model, options).add(done)
    assert ResumeLog(model, options).is_done(path)


def test_a_result_that_vanished_before_it_was_logged_is_not_done(tmp_path):
    model, (source, *_) = model_of(), write_sources(tmp_path / "in")
    options = Options(folder=tmp_path / "out", sigma=True)
    for done in restore_files(model, [source], options):
        done.output.unlink()
        ResumeLog(model, options).add(done)
    assert not ResumeLog(model, options).is_done(source.path)
