import errno
import os
from pathlib import Path

import pytest

from musigma.images.listing import ImageSource, atomic_write, format_of, list_images
from musigma.types import ImageError


def make(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"pixels")


def listed(*inputs, **options):
    return [
        (source.path.as_posix(), source.name.as_posix())
        for source in list_images(inputs, **options)
    ]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path, "b.PNG", "a.jpg", "notes.txt", ".hidden.png", "deep/c.tif", "deep/er/d.webp")
    return tmp_path


def test_files_folders_and_patterns(folder):
    assert listed("b.PNG", "a.jpg") == [("b.PNG", "b.PNG"), ("a.jpg", "a.jpg")]
    assert listed(Path("deep/c.tif")) == [("deep/c.tif", "c.tif")]
    assert listed(".") == [("a.jpg", "a.jpg"), ("b.PNG", "b.PNG")]
    assert listed("deep") == [("deep/c.tif", "c.tif")]
    assert listed("deep", recursive=True) == [
        ("deep/c.tif", "c.tif"),
        ("deep/er/d.webp", "er/d.webp"),
    ]
    assert listed("*.PNG") == [("b.PNG", "b.PNG")]
    assert listed("deep/**/*.webp") == [("deep/er/d.webp", "er/d.webp")]
    assert listed(folder / "deep" / "*") == [((folder / "deep/c.tif").as_posix(), "c.tif")]
    assert list_images(["a.jpg"]) == [ImageSource(Path("a.jpg"), Path("a.jpg"))]
    assert list_images([]) == []


def test_a_file_named_twice_is_read_once(folder):
    assert listed("a.jpg", folder / "a.jpg", "*.jpg") == [("a.jpg", "a.jpg")]


def test_a_name_that_looks_like_a_pattern_is_a_name_first(folder):
    make(folder, "scan[1].png")
    assert listed("scan[1].png") == [("scan[1].png", "scan[1].png")]


def test_a_link_to_nothing_is_not_passed_over(folder):
    (folder / "deep" / "lost.png").symlink_to("nowhere.png")
    assert ("deep/lost.png", "lost.png") in listed("deep")  # reading it will say why


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (["missing.png"], "missing.png: does not exist"),
        (["notes.txt"], "notes.txt: no picture format has the suffix '.txt'; known: .bmp"),
        (
            ["empty"],
            "empty: holds no picture (.png .jpg .jpeg .webp .tif .tiff .bmp .fits .fit .fts .fz "
            ".exr .avif .gif .heic .heif .hif); folders",
        ),
        (["*.bmp"], "*.bmp: matches no picture"),
        ([""], "the name of an input is empty"),
        (["raw.dng"], "raw.dng: DNG pictures cannot be read; convert it to PNG"),
        (["sky.fits.gz"], "sky.fits.gz: is compressed by gzip; unpack it"),
        (["lost.png"], "lost.png: is a link to nowhere.png, which does not exist"),
        (["n" * 300 + ".png"], "could not be looked up (File name too long)"),
    ],
)
def test_inputs_without_pictures_are_refused(folder, inputs, text):
    (folder / "empty").mkdir()
    (folder / "lost.png").symlink_to("nowhere.png")
    make(folder, "raw.dng")
    make(folder, "sky.fits.gz")
    with pytest.raises(ImageError) as caught:
        list_images(inputs)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_suffix_gives_the_format():
    assert [format_of(Path(name)) for name in ("a.jpeg", "a.JPG", "a.tiff")] == [
        "JPEG",
        "JPEG",
        "TIFF",
    ]
    with pytest.raises(ImageError, match=r"a\.pgn: .*suffix '\.pgn'; did you mean '\.png'"):
        format_of(Path("a.pgn"))


def test_a_complete_file_appears_with_its_folders_and_usual_rights(tmp_path):
    path = tmp_path / "new" / "folder" / "a.png"
    with atomic_write(path) as file:
        file.write(b"pixels")
        assert not path.exists()
    assert path.read_bytes() == b"pixels"
    assert [item.name for item in path.parent.iterdir()] == ["a.png"]
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_failing_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    monkeypatch.setattr(Path if call == "replace" else os, call, fail)
    reason = r"a\.png: could not be written \(No space left on device\)"
    with pytest.raises(ImageError, match=reason), atomic_write(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_any_other_interruption_also_leaves_nothing(tmp_path, error):
    def write_half():
        with atomic_write(tmp_path / "a.png") as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_results_below_an_input_are_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path, "in/a.png", "in/out/a.png", "in/outer/b.png", "in/deep/out/c.png")
    (tmp_path / "link").symlink_to("in")

    def paths_of(*inputs, results):
        listed = list_images(inputs, recursive=True, results=Path(results))
        return [source.path.as_posix() for source in listed]

    others = ["in/a.png", "in/deep/out/c.png", "in/outer/b.png"]
    assert paths_of("in", results="in/out") == others
    assert paths_of("in", results="link/out") == others
    assert paths_of("in/**/*.png", results="in/out") == others
    assert paths_of("in", results="elsewhere") == sorted([*others, "in/out/a.png"])
    assert paths_of("in", results="in") == sorted([*others, "in/out/a.png"])  # refused one by one
    assert paths_of("in/out/a.png", results="in/out") == ["in/out/a.png"]
