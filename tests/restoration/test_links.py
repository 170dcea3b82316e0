"""An output folder that a stranger has prepared: links and pipes in place of our own files."""

import os

import pytest

from helpers.calibrations import calibration_of
from helpers.networks import build
from musigma.atomic import remove_abandoned_parts
from musigma.model import Model
from musigma.restoration.options import Options
from musigma.restoration.resume_log import DAMAGED_NAME, NAME, ResumeLog
from musigma.restoration.run_lock import NAME as LOCK
from musigma.restoration.run_lock import claim_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs links and pipes")


def log_in(folder):
    calibration = calibration_of(method="pooled-quantile")
    model = Model(network=build("edsr-baseline", 2, sigma=True), name="a", calibration=calibration)
    return ResumeLog(model, Options(folder=folder))


def test_a_lock_that_is_a_link_does_not_empty_another_file(tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / LOCK).symlink_to(precious)
    with claim_folder(folder):
        assert precious.read_text() == "mine"
    assert precious.read_text() == "mine"


def test_a_lock_that_is_a_pipe_or_a_folder_does_not_end_the_run(tmp_path):
    for make in (os.mkfifo, os.mkdir):
        folder = tmp_path / make.__name__
        folder.mkdir()
        make(folder / LOCK)
        with claim_folder(folder) as other:
            assert other is None
        assert (folder / LOCK).exists()


@pytest.mark.parametrize("kind", ["link", "broken link", "pipe"])
def test_a_log_that_is_no_file_is_set_aside(tmp_path, kind):
    precious = tmp_path / "precious.txt"
    if kind == "link":
        precious.write_text("mine")
    if kind == "pipe":
        os.mkfifo(tmp_path / NAME)
    else:
        (tmp_path / NAME).symlink_to(precious)
    log = log_in(tmp_path)
    assert log.num_damaged == 1
    assert log.set_damaged_aside() == tmp_path / DAMAGED_NAME
    assert (tmp_path / NAME).read_bytes() == b""
    assert not (tmp_path / NAME).is_symlink()
    assert not precious.exists() or precious.read_text() == "mine"


def test_a_link_that_appears_later_is_not_written_through(tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    log = log_in(tmp_path)
    (tmp_path / NAME).symlink_to(precious)
    with pytest.raises(OSError, match="symbolic"):
        log.append({"source": "a"})
    assert precious.read_text() == "mine"


def test_a_pipe_that_looks_like_a_part_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / ".musigma-1-0.part")
    assert remove_abandoned_parts(tmp_path) == 0
