"""Where results go, in which format and size, and what is skipped: options that people expect."""

import json
import os

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image, features

from musigma.cli.upscale import scale_for
from musigma.images import decoding
from musigma.images.image_io import ImageMeta, read_image, write_image
from musigma.images.metadata import Metadata
from musigma.restoration import resume_log
from musigma.restoration.error_maps import read_error_map
from musigma.restoration.run_lock import claim_folder

PIXELS = np.random.default_rng(0).integers(0, 256, (13, 11, 3), np.uint8)


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != resume_log.NAME)


@pytest.fixture
def upscale(musigma, weights):
    """Run ``musigma upscale`` with small weights."""
    return lambda *words: musigma("upscale", *words, "--model", weights)


def test_a_single_result_and_its_page_are_named(upscale, photos, tmp_path):
    """A reader must not guess what a result is called: a HEIC file, say, becomes a PNG."""
    out = tmp_path / "large"
    result = upscale(photos / "a.png", "-o", out, "--suffix", "-x2", "--page")
    assert f"1 written to {out / 'a-x2.png'}, 0 failed" in result.err
    assert f"Its page: {out / 'a-x2.html'}" in result.err
    assert f"2 written to {out}, 0 failed" in upscale(photos, "-o", out).err


def test_output_may_be_a_file(upscale, photos, tmp_path):
    out = tmp_path / "new" / "large.jpg"
    assert upscale(photos / "a.png", "-o", out, "--sigma").code == 0
    assert names(out.parent) == ["large.error-map.png", "large.jpg", "large.sigma.png"]
    assert not (out.parent / resume_log.NAME).exists()  # the folder is not ours
    assert read_image(out)[1].format == "JPEG"
    again = upscale(photos / "a.png", "-o", out)  # it may be replaced
    assert again.code == 0
    assert f"1 written to {out}, 0 failed" in again.err
    for words in (("--suffix", "-x2"), ("--format", "png")):
        refused = upscale(photos / "a.png", "-o", out, *words)
        assert refused.code == 2
        assert "leave --format and --suffix out" in refused.errors[0]
    several = upscale(photos, "-o", out)
    assert several.code == 2
    assert "names the file" in several.errors[0]
    assert "there are 2 pictures; give a folder" in several.errors[0]
    source = upscale(photos / "a.png", "-o", photos / "a.png")
    assert source.code == 1
    assert "would replace its own source" in source.errors[0]
    assert "GIF pictures can be read, but not written" in upscale(photos, "-o", "a.gif").errors[0]


def test_format_quality_and_suffix(upscale, photos, tmp_path):
    out = tmp_path / "out"
    assert upscale(photos, "-o", out, "--format", "JPG", "--suffix", "-x2").code == 0
    assert names(out) == ["a-x2.jpg", "b-x2.jpg"]
    size = (out / "a-x2.jpg").stat().st_size
    words = ("-o", out, "--format", "jpeg", "--suffix", "-x2", "--quality", 30)
    assert upscale(photos, *words).code == 0
    assert (out / "a-x2.jpg").stat().st_size < size
    unknown = upscale(photos, "-o", out, "--format", "gif").errors[0]
    assert "png, jpg, jpeg, webp, tif, tiff, bmp, not as 'gif'" in unknown
    assert upscale(photos, "-o", out, "--suffix", "/../x").code == 2
    write_image(tmp_path / "photo.jpeg", torch.rand(1, 3, 4, 4))
    assert upscale(tmp_path / "photo.jpeg", "-o", out, "--format", "jpg").code == 0
    assert "photo.jpeg" in names(out)


def test_existing_results_can_be_skipped(upscale, photos, tmp_path):
    out = tmp_path / "out"
    assert upscale(photos / "a.png", "-o", out).code == 0
    before = (out / "a.png").stat().st_mtime_ns
    result = upscale(photos, "-o", out, "--skip-existing", "--json")
    assert [path.split("/")[-1] for path in json.loads(result.out)["skipped"]] == ["a.png"]
    assert (out / "a.png").stat().st_mtime_ns == before
    assert names(out) == ["a.png", "b.png"]


def test_resume_knows_the_names_of_results(upscale, photos, tmp_path):
    out = tmp_path / "out"
    assert upscale(photos, "-o", out).code == 0
    other = upscale(photos, "-o", out, "--format", "webp", "--resume", "--json")
    assert json.loads(other.out)["skipped"] == []
    again = upscale(photos, "-o", out, "--format", "webp", "--resume", "--json")
    assert len(json.loads(again.out)["skipped"]) == 2


def test_a_size_can_be_asked_for(upscale, photos, tmp_path):
    """48 x 40 pixels become 96 x 80, and then what is asked for; the error maps go with them."""
    out = tmp_path / "out"
    alpha = ImageMeta(alpha=torch.ones(1, 1, 40, 48))
    write_image(photos / "a.png", read_image(photos / "a.png")[0], alpha)
    result = upscale(photos / "a.png", "-o", out, "--width", 120, "--npz", "--page", "--json")
    assert result.code == 0
    (done,) = json.loads(result.out)["done"]
    assert (done["width"], done["height"], done["resized_from"]) == (120, 100, [96, 80])
    picture, meta = read_image(out / "a.png")
    assert picture.shape == (1, 3, 100, 120)
    assert torch.equal(meta.alpha, torch.ones(1, 1, 100, 120))
    sigma = read_error_map(out / "a.sigma.png").values
    assert sigma.shape == (1, 3, 100, 120)
    plain = tmp_path / "plain"
    assert upscale(photos / "a.png", "-o", plain, "--sigma", "--height", 80).code == 0
    whole = read_error_map(plain / "a.sigma.png").values  # 80 rows: nothing was resized
    assert sigma.mean() == pytest.approx(float(whole.mean()), rel=0.02)
    box = upscale(photos / "a.png", "-o", out, "--width", 50, "--height", 20, "--json")
    (done,) = json.loads(box.out)["done"]
    assert (done["width"], done["height"]) == (24, 20)


def test_the_scale_follows_from_the_size(photos):
    paths = sorted(photos.iterdir())  # of 48 x 40 pixels
    assert [scale_for((width, None), paths) for width in (10, 96, 97, 145, 999)] == [2, 2, 3, 4, 4]
    assert scale_for((None, 80), paths) == 2


def test_shipped_weights_of_several_scales_enlarge_by_two_or_by_what_a_size_needs(
    upscale, photos, tmp_path
):
    for words, size in (((), (96, 80)), (("--width", 150), (150, 125))):
        done = upscale(photos / "a.png", "-o", tmp_path, "--model", "fast", "--json", *words)
        assert done.code == 0, done.err
        (result,) = json.loads(done.out)["done"]
        assert (result["width"], result["height"]) == size


def test_old_side_files_do_not_stay_beside_new_results(upscale, photos, tmp_path):
    out = tmp_path / "out"
    assert upscale(photos / "a.png", "-o", out, "--npz", "--page").code == 0
    assert len(names(out)) >= 5
    (out / "b.html").write_text("a page of another program")
    (out / "b.npz").write_bytes(b"arrays of another program")
    assert upscale(photos, "-o", out).code == 0
    left = [name for name in names(out) if name.startswith(("a.", "b."))]
    assert left == ["a.png", "b.html", "b.npz", "b.png"]


def test_files_of_other_kinds_are_counted(upscale, photos, tmp_path):
    for name in ("notes.txt", "raw.dng", "phone.jxl", "movie.mp4", ".hidden"):
        (photos / name).write_bytes(b"anything")
    result = upscale(photos, "-o", tmp_path / "out")
    assert result.code == 0
    assert "4 files left out, not pictures that can be read: movie.mp4, notes.txt, phone.jxl" in (
        result.err
    )
    listed = upscale(photos, "-o", tmp_path / "out", "--json")
    assert len(json.loads(listed.out)["left_out"]) == 4


def test_a_gif_gives_its_first_frame_as_png(upscale, tmp_path):
    first, second = (Image.fromarray(pixels) for pixels in (PIXELS // 64 * 64, 255 - PIXELS))
    first.save(tmp_path / "cat.gif", save_all=True, append_images=[second], comment=b"mine")
    result = upscale(tmp_path / "cat.gif", "-o", tmp_path / "out")
    assert result.code == 0
    assert "holds 2 frames, and the first one was used; --frame chooses" in result.err
    assert names(tmp_path / "out") == ["cat.png"]
    zeroth = (tmp_path / "out" / "cat.png").read_bytes()
    assert upscale(tmp_path / "cat.gif", "-o", tmp_path / "out", "--frame", 1).code == 0
    assert (tmp_path / "out" / "cat.png").read_bytes() != zeroth


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
def test_avif_is_read(upscale, tmp_path):
    Image.fromarray(PIXELS).save(tmp_path / "a.avif", quality=100, subsampling="4:4:4")
    image, meta = read_image(tmp_path / "a.avif")
    assert (meta.format, meta.lossy) == ("AVIF", True)
    assert float((image[0].permute(1, 2, 0) - torch.from_numpy(PIXELS) / 255).abs().mean()) < 0.02
    assert upscale(tmp_path / "a.avif", "-o", tmp_path / "out").code == 0
    assert names(tmp_path / "out") == ["a.png"]


def test_a_heic_of_a_phone_is_read_upright_with_its_exif(upscale, tmp_path):
    heif = pytest.importorskip("pillow_heif", reason="needs pillow-heif (musigma[heic])")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation], exif[ExifTags.Base.Make] = 6, "Phone"
    picture = heif.from_pillow(Image.fromarray(PIXELS))
    picture.save(tmp_path / "a.heic", quality=100, chroma=444, exif=exif.tobytes())
    image, meta = read_image(tmp_path / "a.heic")
    assert (meta.format, meta.lossy) == ("HEIF", True)
    upright = torch.from_numpy(np.rot90(PIXELS, -1).copy()) / 255
    assert float((image[0].permute(1, 2, 0) - upright).abs().mean()) < 0.02
    assert upscale(tmp_path / "a.heic", "-o", tmp_path / "out").code == 0
    with Image.open(tmp_path / "out" / "a.png") as result:
        assert result.size == (2 * PIXELS.shape[0], 2 * PIXELS.shape[1])
        assert result.getexif()[ExifTags.Base.Make] == "Phone"
        assert ExifTags.Base.Orientation not in result.getexif()


def test_a_heic_without_its_package_says_what_to_install(upscale, tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "find_spec", lambda name: None)
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    result = upscale(tmp_path / "a.heic", "-o", tmp_path / "out")
    assert result.code == 1
    assert "pillow-heif is not installed to read it; pip install pillow-heif" in result.err


XMP = b'<?xpacket begin=""?><x:xmpmeta xmlns:x="adobe:ns:meta/"/><?xpacket end="w"?>'
IPTC = b"Photoshop 3.0\x008BIM\x04\x04\0\0\0\0\0\x08\x1c\x02\x78\0\x03abc"


def save_described(path, **options):
    Image.fromarray(PIXELS).save(path, **options)


def test_metadata_of_photographs_is_kept(upscale, tmp_path):
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    segment = b"\xff\xed" + (len(IPTC) + 2).to_bytes(2, "big") + IPTC
    save_described(source / "a.jpg", xmp=XMP, dpi=(300, 300), comment=b"mine", extra=segment)
    save_described(source / "b.webp", xmp=XMP, lossless=True)
    save_described(source / "c.tif", compression="tiff_lzw", dpi=(300, 300), tiffinfo={700: XMP})
    save_described(source / "d.tif", dpi=(72.5, 72.5))
    write_image(source / "e.png", torch.rand(1, 3, 4, 4), read_image(source / "a.jpg")[1])
    assert upscale(source, "-o", out).code == 0
    for path in sorted(source.iterdir()):
        before, after = (read_image(folder / path.name)[1] for folder in (source, out))
        assert after.metadata.xmp == before.metadata.xmp, path.name
        assert after.metadata.iptc == before.metadata.iptc, path.name
        assert after.metadata.comment == before.metadata.comment, path.name
        assert after.metadata.compression == before.metadata.compression, path.name
        assert after.metadata.text == before.metadata.text, path.name
        if before.metadata.dpi is not None:
            assert after.metadata.dpi == pytest.approx(before.metadata.dpi, abs=0.02)
        assert after.lossy == before.lossy, path.name
    kept = {name: read_image(out / name)[1].metadata for name in names(out)}
    assert kept["a.jpg"].iptc == IPTC
    assert kept["a.jpg"].dpi == (300, 300)
    assert [kept[name].compression for name in ("c.tif", "d.tif")] == ["lzw", "none"]
    assert kept["e.png"].xmp == XMP
    assert kept["e.png"].text["Comment"] == "mine"
    assert upscale(source / "a.jpg", "-o", out, "--format", "tif").code == 0
    assert read_image(out / "a.tif")[1].metadata.iptc == IPTC
    assert upscale(source / "b.webp", "-o", out, "--quality", 80).code == 0
    assert read_image(out / "b.webp")[1].lossy


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("compression", ["none", "lzw", "deflate"])
def test_every_compression_of_tiff_holds_the_pixels(tmp_path, bits, compression):
    image = torch.rand(1, 3, 150, 31, generator=torch.Generator().manual_seed(0))
    levels = (image * (2**bits - 1)).round() / (2**bits - 1)
    meta = ImageMeta(bits=bits, metadata=Metadata(compression=compression))
    write_image(tmp_path / "a.tif", levels, meta)
    read, other = read_image(tmp_path / "a.tif")
    torch.testing.assert_close(read, levels, rtol=0, atol=1e-6)
    assert other.metadata.compression == compression
    assert other.bits == bits


def test_short_options(upscale, photos, tmp_path):
    assert upscale(photos, "-o", tmp_path / "out", "-s", 2).code == 0
    assert "Usage" in upscale("-h").out


def test_a_second_run_in_a_folder_is_told(upscale, photos, tmp_path):
    out = tmp_path / "out"
    with claim_folder(out):
        result = upscale(photos, "-o", out)
    assert result.code == 0
    assert f"warning: process {os.getpid()} writes to {out}, too; of a picture" in result.err
    assert names(out) == ["a.png", "b.png"]
    assert "warning" not in upscale(photos, "-o", out).err


def test_a_damaged_log_is_set_aside_with_a_sentence(upscale, photos, tmp_path):
    out = tmp_path / "out"
    assert upscale(photos, "-o", out).code == 0
    with (out / resume_log.NAME).open("ab") as log:
        log.write(b"\nnull\n\xff\xfe\n")
    again = upscale(photos, "-o", out, "--resume")
    assert again.code == 0
    assert "warning: 2 lines of the log" in again.err
    assert f"it is kept as {resume_log.DAMAGED_NAME}" in again.err
    assert "2 were there already" in again.err
    assert "warning" not in upscale(photos, "-o", out, "--resume").err


def test_a_log_that_cannot_be_written_ends_no_batch(upscale, photos, tmp_path, monkeypatch):
    def fail(self, restored):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(resume_log.ResumeLog, "add", fail)
    result = upscale(photos, "-o", tmp_path / "out")
    assert result.code == 0
    assert result.err.count("could not be written (No space left on device)") == 2
    assert names(tmp_path / "out") == ["a.png", "b.png"]
