"""Whatever lies among the pictures: one line for each bad one, the good ones done, no remains."""

import errno
import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.pictures import png
from images.test_bad_images import BROKEN
from musigma.images.image_io import ImageMeta, read_image, write_image
from musigma.model import save
from musigma.networks import create, with_sigma
from musigma.restoration import resume_log


def everything(folder):
    """Every path below a folder, hidden ones but for the log too, with its content."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != resume_log.NAME)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def draw_good(folder):
    image = torch.rand(1, 3, 7, 5, generator=torch.Generator().manual_seed(0))
    write_image(folder / "good.png", image)
    write_image(folder / "good.jpg", image)
    write_image(folder / "deep.png", image, ImageMeta(bits=16))
    write_image(folder / "pixel.png", image[..., :1, :1])
    Image.fromarray(np.zeros((4, 3, 4), np.uint8), "CMYK").save(folder / "press.tif")
    (folder / "line.png").write_bytes(png(np.zeros((1, 9, 1), np.uint8)))
    return ["deep.png", "good.jpg", "good.png", "line.png", "pixel.png", "press.tif"]


def draw_bad(folder):
    """Files that no command can enlarge, by the name under which the user gives them."""
    bad = {}
    for case, (data, line) in BROKEN.items():
        bad[folder / f"{case}.png"] = line
        (folder / f"{case}.png").write_bytes(data)
    (folder / "secret.png").write_bytes(b"")
    (folder / "link.png").symlink_to("nowhere.png")
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "folder.png").mkdir()
    os.mkfifo(folder / "pipe.png")
    for name in ("notes.txt", "movie.jxl", "no-suffix"):
        (folder / name).write_bytes(b"anything")
    return bad | {
        folder / "secret.png": "could not be opened (Permission denied)",
        folder / "link.png": "is a link to nowhere.png, which does not exist",
        folder / "loop.png": "link",
        folder / "folder.png": "holds no picture",
        folder / "pipe.png": "is not a regular file",
        folder / "notes.txt": "no picture format has the suffix '.txt'",
        folder / "movie.jxl": "JXL pictures cannot be read; convert it to PNG",
        folder / "no-suffix": "no picture format has the suffix ''",
        folder / "missing.png": "does not exist",
        folder / "good.png" / "below.png": "does not exist",
        folder / "none*.png": "matches no picture",
    }


def lock(monkeypatch, path):
    """Make a file unreadable, also for root."""
    real_open = Path.open

    def open_other(self, *words, **options):
        if self == path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real_open(self, *words, **options)

    monkeypatch.setattr(Path, "open", open_other)


@pytest.mark.parametrize("by_folder", [False, True], ids=["files", "folder"])
def test_bad_files_among_good_ones(musigma, weights, tmp_path, monkeypatch, by_folder):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    good, bad = draw_good(folder), draw_bad(folder)
    lock(monkeypatch, folder / "secret.png")
    monkeypatch.chdir(tmp_path)
    inputs = [folder] if by_folder else [*bad, *(folder / name for name in good)]
    if by_folder:  # a folder gives its pictures, and passes over what is none by its name
        bad = {path: line for path, line in bad.items() if path.suffix == ".png"}
        for passed in ("folder.png", "missing.png", "good.png/below.png", "none*.png"):
            del bad[folder / passed]
    assert len(bad) >= 20
    result = musigma("upscale", *inputs, "-o", out, "--model", weights)
    assert result.code == 1
    assert len(result.errors) == len(bad)
    for path, line in bad.items():
        (error,) = [each for each in result.errors if each.startswith(f"error: {path}: ")]
        assert line in error
    assert result.err.splitlines()[-1] == f"{len(good)} written to {out}, {len(bad)} failed"
    assert sorted(everything(out)) == good
    assert read_image(out / "pixel.png")[0].shape == (1, 3, 2, 2)
    assert read_image(out / "line.png")[0].shape == (1, 1, 2, 18)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


class FullDisk(io.FileIO):
    """A file on a disk without room."""

    def write(self, _):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_room_for(monkeypatch, name, code):
    """Let writing fail for every file, or the last step of writing for those with a name."""
    real_open, real_replace = Path.open, Path.replace

    def open_full(self, mode="r", *words, **options):
        return FullDisk(self, mode) if "x" in mode else real_open(self, mode, *words, **options)

    def replace(self, target):
        if name in target.name:
            raise OSError(code, os.strerror(code))
        return real_replace(self, target)

    if name:
        monkeypatch.setattr(Path, "replace", replace)
    else:
        monkeypatch.setattr(Path, "open", open_full)


@pytest.mark.parametrize("name", ["", "good.", ".sigma.", ".error-map.", ".npz"])
def test_a_full_disk_fails_one_picture_and_keeps_the_old_result(
    musigma, weights, tmp_path, monkeypatch, name
):
    folder, out = tmp_path / "in", tmp_path / "out"
    draw_good(folder)
    write_image(out / "good.png", torch.zeros(1, 1, 1, 1))
    before = (out / "good.png").read_bytes()
    words = ("upscale", folder / "good.png", folder / "deep.png", "-o", out, "--model", weights)
    no_room_for(monkeypatch, name, errno.ENOSPC)
    result = musigma(*words, "--npz")
    assert result.code == 1
    assert len(result.errors) == (1 if name == "good." else 2)
    for line in result.errors:
        assert "could not be written (No space left on device); no partial file is left" in line
    monkeypatch.undo()
    after = everything(out)
    assert not [path for path in after if Path(path).name.startswith(".")]
    if name in ("", "good."):
        assert after["good.png"] == before
    for path in after:  # whole, each of them
        if path.endswith(".png"):
            read_image(out / path)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_output_folder_that_may_not_be_written(musigma, weights, tmp_path, monkeypatch, code):
    draw_good(tmp_path / "in")
    real_mkdir = Path.mkdir

    def mkdir(self, *words, **options):
        if self == tmp_path / "out":
            raise OSError(code, os.strerror(code))
        real_mkdir(self, *words, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    words = ("upscale", tmp_path / "in", "-o", tmp_path / "out", "--model", weights)
    result = musigma(*words)
    assert result.code == 1
    assert len(result.errors) == 6
    assert all(f"could not be written ({os.strerror(code)})" in line for line in result.errors)
    assert not (tmp_path / "out").exists()


def test_weights_that_give_no_numbers(musigma, tmp_path):
    """Nothing is written, and the line names the picture, for a broken mean or a broken sigma."""
    write_image(tmp_path / "a.png", torch.rand(1, 3, 7, 5))
    for part in ("base.tail.1.bias", "branch.upsampler.0.bias"):
        network = with_sigma(create("edsr-baseline", scale=2, num_blocks=1, width=8), width=8)
        save(tmp_path / "w.safetensors", network)
        broken = (tmp_path / "w.safetensors").read_bytes()
        value = network.state_dict()[part].numpy().tobytes()
        assert broken.count(value) == 1
        nan = np.full(len(value) // 4, np.nan, np.float32).tobytes()
        (tmp_path / "w.safetensors").write_bytes(broken.replace(value, nan))
        words = ("-o", tmp_path / "out", "--model", tmp_path / "w.safetensors", "--sigma")
        result = musigma("upscale", tmp_path / "a.png", *words)
        assert result.code == 1
        (line,) = result.errors
        assert f"{tmp_path / 'a.png'}: the network returned values that are not finite" in line
        assert not (tmp_path / "out").exists()
