"""``musigma upscale``: pictures come back in kind, and nothing but the pictures is touched."""

import itertools
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms

from musigma.cli.common import screen
from musigma.cli.restore import _without_done
from musigma.cli.restore_options import RestoreOptions
from musigma.functional.geometry import dihedral, dihedral_inverse
from musigma.images.image_io import ImageMeta, read_image, write_image
from musigma.images.listing import ImageSource
from musigma.model import load, save
from musigma.networks import create
from musigma.prediction.predict import predict
from musigma.restoration import resume_log
from musigma.restoration.error_maps import read_error_map

PIXELS = np.random.default_rng(0).integers(0, 256, (13, 11, 3), np.uint8)


def names(folder):
    paths = (path for path in folder.rglob("*.*") if path.name != resume_log.NAME)
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def test_files_folders_and_patterns(musigma, weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one.png", "folder/two.png", "folder/below/three.bmp", "more/four.tif"):
        write_image(tmp_path / name, torch.zeros(1, 3, 3, 2))
    words = ("one.png", "folder", "more/*.tif", "./one.png", "-o", "out", "--model", weights)
    result = musigma("upscale", *words)
    assert result.code == 0
    assert result.errors == []
    assert names(tmp_path / "out") == ["four.tif", "one.png", "two.png"]
    assert read_image("out/two.png")[0].shape == (1, 3, 6, 4)
    assert musigma("upscale", "folder", "-o", "all", "--recursive", "--model", weights).code == 0
    assert names(tmp_path / "all") == ["below/three.bmp", "two.png"]


def srgb():
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def test_formats_are_kept(musigma, weights, tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    color = torch.from_numpy(PIXELS.copy()).permute(2, 0, 1)[None] / 255
    gray = color[:, :1]
    write_image(folder / "deep.png", color, ImageMeta(bits=16, icc_profile=srgb()))
    write_image(folder / "deep-grey.tif", gray, ImageMeta(bits=16))
    write_image(folder / "alpha.png", color, ImageMeta(alpha=gray))
    write_image(folder / "grey.png", gray)
    write_image(folder / "grey.jpg", gray)
    write_image(folder / "photo.jpeg", color, ImageMeta(icc_profile=srgb()))
    write_image(folder / "web.webp", color, ImageMeta(alpha=gray))
    write_image(folder / "old.bmp", color)
    Image.fromarray(PIXELS).convert("CMYK").save(folder / "press.jpg")
    assert musigma("upscale", folder, "-o", out, "--model", weights).code == 0
    assert names(out) == names(folder)
    for name in names(folder):
        source, before = read_image(folder / name)
        result, after = read_image(out / name)
        assert result.shape == (1, source.shape[1], 26, 22), name
        names_kept = ("format", "channels", "bits", "icc_profile")
        for field in names_kept:
            assert getattr(after, field) == getattr(before, field), (name, field)
        if before.alpha is not None:
            assert after.alpha.shape == (1, 1, 26, 22)
    assert (out / "photo.jpeg").read_bytes().startswith(b"\xff\xd8\xff")


def test_sixteen_bits_and_alpha_are_the_prediction_to_the_last_bit(musigma, weights, tmp_path):
    image = torch.rand(1, 3, 5, 4, generator=torch.Generator().manual_seed(0))
    opaque = ImageMeta(bits=16, alpha=torch.ones(1, 1, 5, 4))
    write_image(tmp_path / "a.png", image, opaque)
    words = (tmp_path / "a.png", "-o", tmp_path / "out", "--model", weights)
    assert musigma("upscale", *words).code == 0
    written, meta = read_image(tmp_path / "out" / "a.png")
    expected = predict(load(weights).network, read_image(tmp_path / "a.png")[0]).mean
    assert torch.equal((written * 65535).round(), (expected.clamp(0, 1) * 65535).round())
    assert torch.equal(meta.alpha, torch.ones(1, 1, 10, 8))  # what is opaque stays so


def test_error_maps_and_arrays(musigma, weights, tmp_path):
    write_image(tmp_path / "a.b.png", torch.rand(1, 3, 7, 5))
    out = tmp_path / "out"
    words = ("upscale", tmp_path / "a.b.png", "-o", out, "--model", weights)
    assert musigma(*words, "--sigma").code == 0
    assert names(out) == ["a.b.error-map.png", "a.b.png", "a.b.sigma.png"]
    mean, sigma = predict(load(weights).network, read_image(tmp_path / "a.b.png")[0])
    stored = read_error_map(out / "a.b.sigma.png", "sigma").values
    assert torch.allclose(stored, sigma, atol=1 / 65535, rtol=0)
    with Image.open(out / "a.b.error-map.png") as picture:
        assert picture.width > 10  # enlarged for the eye
    assert musigma(*words, "--npz").code == 0
    assert torch.equal(read_error_map(out / "a.b.npz", "sigma").values, sigma)
    with np.load(out / "a.b.npz") as arrays:
        assert np.array_equal(arrays["mean"], mean.numpy())


def test_json_is_one_object_and_progress_is_on_stderr(musigma, weights, tmp_path, monkeypatch):
    write_image(tmp_path / "a.png", torch.zeros(1, 3, 7, 5))
    words = ("upscale", tmp_path / "a.png", tmp_path / "b.png", "-o", tmp_path / "out")
    result = musigma(*words, "--model", weights, "--json", "--sigma")
    assert result.code == 1
    content = json.loads(result.out)
    (done,), (failed,) = content["done"], content["failed"]
    assert done["seconds"] > 0
    assert (done["width"], done["height"]) == (10, 14)
    paths = {"source": "a.png", "output": "out/a.png"}
    assert {key: done[key] for key in paths} == {k: str(tmp_path / v) for k, v in paths.items()}
    assert done["files"] == {
        "sigma": str(tmp_path / "out" / "a.sigma.png"),
        "picture": str(tmp_path / "out" / "a.error-map.png"),
    }
    assert failed["source"] == str(tmp_path / "b.png")
    assert result.err == f"error: {failed['error']}\n"
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if stderr were a terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(screen, "is_interactive", True)
    plain = musigma(*words, "--model", weights)
    assert plain.out == ""
    assert "pictures" in plain.err
    assert "1 written to" in plain.err
    assert "pictures" not in musigma(*words, "--model", weights, "--json").err


def test_tiles_change_no_bit(musigma, weights, tmp_path):
    for number, (height, width) in enumerate([(151, 157), (37, 613), (223, 101)]):
        image = torch.rand(1, 3, height, width, generator=torch.Generator().manual_seed(number))
        write_image(tmp_path / "in" / f"{number}.png", image)
    words = ("upscale", tmp_path / "in", "--model", weights, "--npz")
    tiles = ("70", "90", "111")
    for tile in ("auto", *tiles):
        assert musigma(*words, "-o", tmp_path / tile, "--tile", tile).code == 0
    for number, tile in itertools.product(range(3), tiles):
        whole, tiled = (tmp_path / folder / f"{number}.npz" for folder in ("auto", tile))
        with np.load(whole) as expected, np.load(tiled) as from_tiles:
            assert np.array_equal(from_tiles["mean"], expected["mean"]), (number, tile)
            assert np.array_equal(from_tiles["sigma"], expected["sigma"]), (number, tile)


def test_a_source_is_never_replaced(musigma, weights, tmp_path):
    write_image(tmp_path / "in" / "a.png", torch.zeros(1, 3, 3, 2))
    write_image(tmp_path / "other" / "a.png", torch.ones(1, 3, 3, 2))
    (tmp_path / "link").symlink_to("in")
    before = (tmp_path / "in" / "a.png").read_bytes()
    for folder in ("in", "link", "other/../in"):
        result = musigma("upscale", tmp_path / "in", "-o", tmp_path / folder, "--model", weights)
        assert result.code == 1
        assert "would replace its own source; choose another output folder" in result.errors[0]
    words = (tmp_path / "other" / "a.png", tmp_path / "in" / "a.png", "-o", tmp_path / "in")
    result = musigma("upscale", *words, "--model", weights)
    assert result.code == 1
    assert len(result.errors) == 2
    assert "other/a.png: its results would replace" in result.errors[0]
    assert (tmp_path / "in" / "a.png").read_bytes() == before
    assert names(tmp_path / "in") == ["a.png"]


@pytest.mark.parametrize(("second", "options"), [("two/a.png", ()), ("one/a.bmp", ("--sigma",))])
def test_two_pictures_never_share_a_result(musigma, weights, tmp_path, second, options):
    write_image(tmp_path / "one" / "a.png", torch.zeros(1, 3, 3, 2))
    write_image(tmp_path / second, torch.ones(1, 3, 3, 2))
    words = (tmp_path / "one" / "a.png", tmp_path / second, "-o", tmp_path / "out")
    result = musigma("upscale", *words, "--model", weights, *options)
    assert result.code == 1
    (line,) = result.errors
    assert f"{tmp_path / second}: its results would replace {tmp_path / 'one/a.png'}" in line
    assert read_image(tmp_path / "out" / "a.png")[0].shape == (1, 3, 6, 4)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--tile", "0"], "expected --tile auto or a number of pixels, got '0'"),
        (["--tile", "²"], "expected --tile auto or a number of pixels, got '²'"),
        (["--memory", "much"], "expected a size such as 2GiB or 500MB, got 'much'"),
        (["--memory", "9" * 400], "expected a size such as 2GiB or 500MB"),
        (
            ["--memory", "10kB"],
            "0 MiB are too few for one tile of edsr-baseline; set --memory to",
        ),
        (["--scale", "3"], "tiny.safetensors enlarges by 2, not by 3"),
        (["--engine", "steam"], "there is no engine 'steam'"),
        (["--device", "abacus"], "the device 'abacus' cannot be used"),
        (["--device", "cuda:99"], "the device 'cuda:99' cannot be used"),
        (["--model", "edsr-basline"], "did you mean 'edsr-baseline'?"),
        (["--model", "nowhere/w.pth"], "there is no weights file nowhere/w.pth"),
        (["--model", "bicubic"], "bicubic exists for scale 2, 3 or 4; "),
        (["--model", "bicubic", "--scale", "5"], "bicubic exists for scale 2, 3 or 4, not 5"),
        (["--model", "bicubic", "--scale", "2", "--sigma"], "bicubic has no sigma branch"),
        (["--model", "rcan", "--scale", "2"], "no trained weights ship for rcan x2"),
        (["-o", "a.png", "--suffix", "-x2"], "--output names the file a.png; leave --format and"),
    ],
)
def test_wrong_words_give_one_line(musigma, weights, tmp_path, monkeypatch, words, line):
    monkeypatch.chdir(tmp_path)
    write_image(Path("a.png"), torch.zeros(1, 3, 3, 2))
    result = musigma("upscale", "a.png", "-o", "out", "--model", weights, *words)
    assert result.code == 2
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert line in result.err
    assert not Path("out").exists()


def test_another_zoom_factor_is_had_by_the_size(musigma, tmp_path):
    write_image(tmp_path / "a.png", torch.zeros(1, 3, 3, 2))
    result = musigma("upscale", tmp_path / "a.png", "-o", tmp_path / "out", "--scale", 5)
    assert result.code == 2
    text = "the shipped weights enlarge by 2, 3 or 4, not by 5; set --width or --height for another"
    assert text in result.err


def test_names_are_shown_as_they_are(musigma, weights, tmp_path):
    """Brackets and colons are no markup, whatever the library that prints thinks of them."""
    folder = tmp_path / "[" / "red] :boom: "
    write_image(tmp_path / "[bold]a.png", torch.zeros(1, 3, 3, 2))
    missing = tmp_path / "[/bold]:boom:  b.png"
    result = musigma("upscale", tmp_path / "[bold]a.png", missing, "-o", folder, "--model", weights)
    assert result.code == 1
    assert names(folder) == ["[bold]a.png"]
    assert result.errors == [f"error: {missing}: matches no picture"]
    assert f"1 written to {folder}, 1 failed" in result.err


def test_a_page_for_each_picture(musigma, weights, photos, tmp_path):
    out = tmp_path / "out"
    assert musigma("upscale", photos, "-o", out, "--model", weights, "--page").code == 0
    pages = sorted(path.name for path in out.glob("*.html"))
    expected = sorted(f"{path.stem}.html" for path in photos.iterdir())
    assert pages == sorted([*expected, "index.html"])
    gallery = (out / "index.html").read_text()
    assert re.findall(r'href="\./(.*?)"', gallery) == expected


def test_the_gallery_lists_what_failed(musigma, weights, tmp_path):
    write_image(tmp_path / "in" / "a.png", torch.zeros(1, 3, 3, 2))
    (tmp_path / "in" / "b.png").write_bytes(b"no picture")
    result = musigma(
        "upscale", tmp_path / "in", "-o", tmp_path / "out", "--model", weights, "--page"
    )
    assert result.code == 1
    assert "1 not restored" in (tmp_path / "out" / "index.html").read_text()


def test_a_coverage_that_nobody_fitted(musigma, weights, photos, tmp_path):
    words = ("upscale", photos, "-o", tmp_path / "out", "--model", weights, "--coverage", "0.9")
    result = musigma(*words)
    assert result.code == 2
    assert "is not calibrated; 'musigma calibrate'" in result.err
    assert not (tmp_path / "out").exists()


def test_results_are_not_enlarged_again(musigma, weights, photos):
    words = ("upscale", photos, "-o", photos / "out", "--recursive", "--model", weights)
    for _ in range(2):
        assert musigma(*words).code == 0
    assert names(photos) == ["a.png", "b.png", "out/a.png", "out/b.png"]


def test_resume_leaves_out_what_is_done(musigma, weights, photos, tmp_path):
    words = ("upscale", photos, "-o", tmp_path / "out", "--model", weights, "--json")
    assert len(json.loads(musigma(*words).out)["done"]) == 2
    (tmp_path / "out" / "b.png").unlink()
    report = json.loads(musigma(*words, "--resume").out)
    assert report["skipped"] == [str(photos / "a.png")]
    assert [done["source"] for done in report["done"]] == [str(photos / "b.png")]
    report = json.loads(musigma(*words, "--resume", "--ensemble").out)
    assert report["skipped"] == []
    plain = musigma(*words[:-1], "--resume", "--ensemble")
    assert "restored again" not in plain.err
    assert "0 written to" in plain.err
    assert "2 were there already, 0 failed" in plain.err
    changed = musigma(*words[:-1], "--resume")
    assert "2 pictures of an earlier run will be restored again: the options, the w" in changed.err
    assert "2 written to" in changed.err


def test_an_ensemble_is_the_mean_of_eight_views(musigma, weights, photos, tmp_path):
    words = ("upscale", photos / "a.png", "-o", tmp_path / "out", "--model", weights)
    assert musigma(*words, "--ensemble", "--npz").code == 0
    network, image = load(weights).network, read_image(photos / "a.png")[0]
    views = [dihedral_inverse(predict(network, dihedral(image, k)).mean, k) for k in range(8)]
    with np.load(tmp_path / "out" / "a.npz") as arrays:
        expected = torch.stack(views).mean(0).numpy()
        np.testing.assert_allclose(arrays["mean"], expected, rtol=0, atol=1e-6)


def test_approximate_tiles_are_told(musigma, tmp_path):
    save(tmp_path / "w.safetensors", create("imdn", scale=2, num_blocks=1))
    write_image(tmp_path / "a.png", torch.rand(1, 3, 50, 600))
    words = ("upscale", tmp_path / "a.png", "-o", tmp_path / "out")
    words += ("--model", tmp_path / "w.safetensors")
    result = musigma(*words, "--tile", "300")
    assert "1 approximate: imdn looks at the whole picture" in result.err
    assert "1 approximate:" not in musigma(*words).err
    (done,) = json.loads(musigma(*words, "--tile", "300", "--json").out)["done"]
    assert done["exact"] is False


@pytest.mark.parametrize(
    ("words", "engine"),
    [({"engine": "ray"}, None), ({"ray": True}, None), ({"ray": True, "engine": "x"}, "x")],
)
def test_ray_as_an_engine_means_the_default_engine_on_every_worker(tmp_path, words, engine):
    shared = RestoreOptions(inputs=["a.png"], output=tmp_path, **words)
    assert shared.uses_ray
    assert shared.to_options().engine == engine
    assert not RestoreOptions(inputs=["a.png"], output=tmp_path).uses_ray


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_a_ray_cluster_gives_the_same_files(weights, photos, tmp_path):
    """The command in a process of its own, since Ray changes the process that starts it."""
    (photos / "bad.png").write_bytes(b"no picture")
    command = [sys.executable, "-m", "musigma", "upscale", photos, "--model", weights, "--sigma"]
    environment = os.environ | {"RAY_worker_niceness": "0"}
    for words in (("-o", tmp_path / "here"), ("-o", tmp_path / "ray", "--engine", "ray")):
        done = subprocess.run(
            [*command, *words, "--json", "--device", "cpu", "--memory", "64MiB"],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        outcome = json.loads(done.stdout)
        assert len(outcome["done"]) == 2
        assert "bad.png: is not a PNG" in outcome["failed"][0]["error"]
    assert names(tmp_path / "ray") == names(tmp_path / "here")
    for name in names(tmp_path / "here"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_a_page_of_a_tiff_can_be_chosen(musigma, weights, tmp_path):
    pages = [Image.new("L", (9, 8), level) for level in (0, 100, 255)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    words = ("upscale", tmp_path / "a.tif", "-o", tmp_path / "out", "--scale", 2)
    result = musigma(*words, "--model", "bicubic")
    assert "choose it with --frame, 0 to 2" in result.errors[0]
    assert musigma(*words, "--model", "bicubic", "--frame", 2).code == 0
    assert float(read_image(tmp_path / "out" / "a.tif")[0].min()) == 1


def test_the_pixel_limit_can_be_changed(musigma, tmp_path):
    write_image(tmp_path / "a.png", torch.rand(1, 3, 9, 8))
    words = ("upscale", tmp_path / "a.png", "-o", tmp_path / "out", "--scale", 2)
    result = musigma(*words, "--model", "bicubic", "--max-pixels", 71)
    assert "the limit of 71; if you trust the file, raise --max-pixels" in result.errors[0]
    assert musigma(*words, "--model", "bicubic", "--max-pixels", 72).code == 0


def test_control_characters_in_names_are_not_printed(musigma, tmp_path, monkeypatch):
    name = "\033]0;owned\a.png"
    write_image(tmp_path / name, torch.rand(1, 3, 9, 8))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(screen, "is_interactive", True)
    words = ("-o", tmp_path / "out\a", "--scale", 2, "--model", "bicubic")
    result = musigma("upscale", tmp_path / name, *words)
    assert result.code == 0
    assert "\\x1b]0;owned\\x07.png" in result.err
    assert "\a" not in result.err
    assert "\033]0;" not in result.err
    missing = musigma("upscale", tmp_path / name, *words[:-1], tmp_path / "\a.pth")
    assert "\a" not in missing.err


def test_resume_looks_at_each_of_many_files_once(tmp_path):
    """A list of 20,000 files took minutes when a set was built again for each of them."""

    num_hashes = 0

    class CountedPath(type(Path())):
        def __hash__(self):
            nonlocal num_hashes
            num_hashes += 1
            return super().__hash__()

    class Log:
        def is_done(self, path, name):
            return path.name.endswith("0.png")

    sources = [ImageSource(CountedPath(f"{n}.png"), Path(f"{n}.png")) for n in range(20_000)]
    remaining, skipped = _without_done(
        Log(), sources, RestoreOptions(inputs=[], output=Path("out"))
    )
    assert skipped == [source.path for source in sources[::10]]
    assert len(remaining) == 18_000
    assert num_hashes <= len(sources)


def test_ctrl_c_says_how_to_go_on(musigma, weights, photos, tmp_path, monkeypatch):
    add = resume_log.ResumeLog.add

    def add_and_interrupt(self, restored):
        add(self, restored)
        raise KeyboardInterrupt

    monkeypatch.setattr(resume_log.ResumeLog, "add", add_and_interrupt)
    words = ("upscale", photos, "-o", tmp_path / "out", "--model", weights)
    result = musigma(*words)
    assert result.code == 130
    assert "Stopped: 1 of 2 written; --resume does the others" in result.err
    monkeypatch.undo()
    assert "1 written to" in musigma(*words, "--resume").err


def test_a_denoiser_is_refused(musigma, photos, tmp_path):
    result = musigma("upscale", photos, "-o", tmp_path / "out", "--model", "drunet-small")
    assert result.code == 2
    assert "drunet-small is a denoiser; 'musigma denoise' uses it" in result.errors[0]


def test_without_a_model_the_weights_for_photographs_enlarge_by_two(musigma, tmp_path):
    levels = np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    Image.fromarray(levels).save(tmp_path / "photo.jpg")
    result = musigma(
        "upscale", tmp_path / "photo.jpg", "-o", tmp_path / "large", "--sigma", "--json"
    )
    assert result.code == 0, result.err
    (done,) = json.loads(result.out)["done"]
    assert (done["width"], done["height"]) == (20, 24)
    assert "JPEG-compressed" in done["promise"]
