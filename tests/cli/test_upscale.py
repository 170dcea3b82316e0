"""``musigma upscale``: pictures come back in kind, and nothing but the pictures is touched."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms

from musigma.cli import restore
from musigma.cli.common import screen
from musigma.functional.geometry import dihedral, dihedral_inverse
from musigma.images.image_io import ImageMeta, read_image, write_image
from musigma.model import load, save
from musigma.networks import create, with_sigma
from musigma.prediction.predict import predict
from musigma.restoration import resume_log as journal
from musigma.restoration.sigma_files import read_sigma
from musigma.uncertainty.calibration import Calibration

PIXELS = np.random.default_rng(0).integers(0, 256, (13, 11, 3), np.uint8)


def names(folder):
    paths = (path for path in folder.rglob("*.*") if path.name != journal.NAME)
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
    colour = torch.from_numpy(PIXELS.copy()).permute(2, 0, 1)[None] / 255
    grey = colour[:, :1]
    write_image(folder / "deep.png", colour, ImageMeta(bits=16, icc_profile=srgb()))
    write_image(folder / "deep-grey.tif", grey, ImageMeta(bits=16))
    write_image(folder / "alpha.png", colour, ImageMeta(alpha=grey))
    write_image(folder / "grey.png", grey)
    write_image(folder / "grey.jpg", grey)
    write_image(folder / "photo.jpeg", colour, ImageMeta(icc_profile=srgb()))
    write_image(folder / "web.webp", colour, ImageMeta(alpha=grey))
    write_image(folder / "old.bmp", colour)
    Image.fromarray(PIXELS).convert("CMYK").save(folder / "press.jpg")
    assert musigma("upscale", folder, "-o", out, "--model", weights).code == 0
    assert names(out) == names(folder)
    for name in names(folder):
        source, before = read_image(folder / name)
        result, after = read_image(out / name)
        assert result.shape == (1, source.shape[1], 26, 22), name
        facts = ("format", "channels", "bits", "icc_profile")
        assert [getattr(after, f) for f in facts] == [getattr(before, f) for f in facts], name
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
    assert torch.allclose(read_sigma(out / "a.b.sigma.png"), sigma, atol=1 / 65535, rtol=0)
    with Image.open(out / "a.b.error-map.png") as picture:
        assert picture.width > 10  # enlarged for the eye
    assert musigma(*words, "--npz").code == 0
    assert torch.equal(read_sigma(out / "a.b.npz"), sigma)
    with np.load(out / "a.b.npz") as arrays:
        assert np.array_equal(arrays["mean"], mean.numpy())


def test_a_calibration_widens_the_error_map(musigma, tmp_path):
    network = with_sigma(create("edsr-baseline", scale=2, num_blocks=1, width=8), width=8, depth=1)
    calibration = Calibration(
        method="pooled-quantile",
        knots=(1.0,),
        values=(1.5,),
        factor=2.0,
        coverage=0.9,
        confidence=None,
        num_images=9,
    )
    save(tmp_path / "w.safetensors", network, calibration=calibration.to_dict())
    write_image(tmp_path / "a.png", torch.rand(1, 3, 7, 5))
    words = ("-o", tmp_path / "out", "--model", tmp_path / "w.safetensors", "--sigma")
    assert musigma("upscale", tmp_path / "a.png", *words).code == 0
    raw = predict(network.eval(), read_image(tmp_path / "a.png")[0]).sigma
    for name, factor in (("a.sigma.png", 1.5), ("a.interval.png", 3.0)):
        stored = read_sigma(tmp_path / "out" / name)
        assert torch.allclose(stored, factor * raw, atol=1 / 65535, rtol=1e-6)


def test_json_is_one_object_and_progress_is_on_stderr(musigma, weights, tmp_path, monkeypatch):
    write_image(tmp_path / "a.png", torch.zeros(1, 3, 7, 5))
    words = ("upscale", tmp_path / "a.png", tmp_path / "b.png", "-o", tmp_path / "out")
    result = musigma(*words, "--model", weights, "--json", "--sigma")
    assert result.code == 1
    content = json.loads(result.out)
    (done,), (failed,) = content["done"], content["failed"]
    assert done["seconds"] > 0
    assert (done["width"], done["height"]) == (10, 14)
    paths = {"source": "a.png", "output": "out/a.png", "sigma": "out/a.sigma.png"}
    assert {key: done[key] for key in paths} == {k: str(tmp_path / v) for k, v in paths.items()}
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
        with np.load(whole) as expected, np.load(tiled) as found:
            assert np.array_equal(found["mean"], expected["mean"]), (number, tile)
            assert np.array_equal(found["sigma"], expected["sigma"]), (number, tile)


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
        (["--memory", "10kB"], "0 MiB are too few for one tile with its border of 7 pixels"),
        (["--scale", "3"], "tiny.safetensors enlarges by 2, not by 3"),
        (["--engine", "steam"], "there is no engine 'steam'"),
        (["--device", "abacus"], "the device 'abacus' cannot be used"),
        (["--device", "cuda:99"], "the device 'cuda:99' cannot be used"),
        (["--model", "edsr-basline"], "did you mean 'edsr-baseline'?"),
        (["--model", "nowhere/w.pth"], "there is no weights file nowhere/w.pth"),
        (["--model", "bicubic"], "bicubic exists for scale (2, 3, 4); say which with --scale"),
        (["--model", "bicubic", "--scale", "5"], "bicubic exists for scale (2, 3, 4), not 5"),
        (["--model", "bicubic", "--scale", "2", "--sigma"], "bicubic has no sigma branch"),
        (["--model", "rcan", "--scale", "2"], "no trained weights ship for rcan x2"),
        (["-o", "a.png"], "a.png is a file; --output names the folder for the results"),
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
    assert pages == sorted(f"{path.stem}.html" for path in photos.iterdir())
    assert "<html" in (out / pages[0]).read_text()


def test_a_coverage_that_nobody_fitted(musigma, weights, photos, tmp_path):
    words = ("upscale", photos, "-o", tmp_path / "out", "--model", weights, "--coverage", "0.9")
    result = musigma(*words)
    assert result.code == 2
    assert "is not calibrated; 'musigma calibrate ... --coverage 0.9'" in result.err
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
    found = json.loads(musigma(*words, "--resume").out)
    assert found["skipped"] == [str(photos / "a.png")]
    assert [one["source"] for one in found["done"]] == [str(photos / "b.png")]
    found = json.loads(musigma(*words, "--resume", "--ensemble").out)
    assert found["skipped"] == []
    plain = musigma(*words[:-1], "--resume", "--ensemble")
    assert "0 written to" in plain.err
    assert "2 were there already, 0 failed" in plain.err


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


@pytest.mark.parametrize("words", [("--engine", "ray"), ("--ray",), ("--ray", "--engine", "torch")])
def test_ray_runs_an_engine_on_every_worker(musigma, weights, photos, tmp_path, monkeypatch, words):
    here, used = restore._here, []

    def on_ray(model, sources, options, **others):
        used.append(options.engine)
        return here(model, sources, options, **others)

    monkeypatch.setattr(restore, "_on_ray", on_ray)
    done = musigma("upscale", photos, "-o", tmp_path / "out", "--model", weights, *words)
    assert (done.code, used) == (0, ["torch"])
    assert len(list((tmp_path / "out").glob("*.png"))) == 2
