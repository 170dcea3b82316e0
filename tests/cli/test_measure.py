"""``musigma measure``, ``sample`` and ``audit``: numbers, words and exit codes."""

import json
import struct

import pytest

from musigma.datasets.demo_photo import portrait
from musigma.functional.resize import bicubic_down
from musigma.images.image_io import read_image, write_image
from musigma.model import load


@pytest.fixture
def pictures(tmp_path):
    """A small picture and the true one."""
    target = portrait()[..., 60:156, 200:296]
    write_image(tmp_path / "small.png", bicubic_down(target, 2))
    write_image(tmp_path / "large.png", target)
    return tmp_path


def test_measure_prints_value_interval_and_promise(musigma, pictures):
    words = ("measure", pictures / "small.png", "--scale", 2, "--box", "10,20,40,30")
    result = musigma(*words)
    assert result.code == 0
    assert "Mean of the box 10,20,40,30 (pixels of the result): " in result.err
    assert " of 255, 90 % interval from " in result.err
    content = json.loads(musigma(*words, "--json").out)
    target = read_image(pictures / "large.png")[0]
    truth = float(target[..., 20:50, 10:50].mean())
    assert content["low"] < content["value"] < content["high"]
    assert content["low"] < truth < content["high"]
    assert (content["promise"] is None) != (content["reason"] is None)
    prediction = load("edsr-baseline", scale=2).predict(read_image(pictures / "small.png")[0])
    assert content["value"] == pytest.approx(
        float(prediction.mean[..., 20:50, 10:50].mean()), abs=2e-3
    )


def test_what_needs_more_memory_is_refused_before_it_is_decoded(musigma, pictures):
    # A WebP of 36 bytes that says it has 16 million pixels.
    bits = 3999 | (3999 << 14)
    content = b"VP8L" + struct.pack("<I", 14) + b"\x2f" + struct.pack("<I", bits) + bytes(9)
    bomb, small = pictures / "a.webp", pictures / "small.png"
    bomb.write_bytes(b"RIFF" + struct.pack("<I", 4 + len(content)) + b"WEBP" + content)
    out = ("-o", pictures / "out")
    for words in (
        ("sample", bomb, "--scale", 2, *out),
        ("audit", small, bomb),
        ("audit", bomb, pictures / "large.png", "--memory", "256MiB"),
        ("measure", bomb, "--scale", 2, "--box", "0,0,9,9", "--memory", "256MiB"),
        ("measure", small, "--scale", 2, "--box", "0,0,96,96", "--memory", "1MiB"),
        ("sample", small, "--scale", 2, "--memory", "9MiB", *out),
    ):
        result = musigma(*words)
        assert result.code == 2, words
        (line,) = result.errors
        assert "MiB" in line
        assert "--memory" in line
    assert not (pictures / "out").exists()


def test_input_pixels_channels_and_differences(musigma, pictures):
    words = ("measure", pictures / "small.png", "--scale", 2, "--json")
    in_result = json.loads(musigma(*words, "--box", "10,20,40,30", "--channel", 0).out)
    in_input = json.loads(
        musigma(*words, "--box", "5,10,20,15", "--input-pixels", "--channel", 0).out
    )
    assert in_input == in_result
    difference = json.loads(musigma(*words, "--box", "0,0,8,8", "--minus", "40,40,8,8").out)
    first = json.loads(musigma(*words, "--box", "0,0,8,8").out)
    second = json.loads(musigma(*words, "--box", "40,40,8,8").out)
    assert difference["value"] == pytest.approx(first["value"] - second["value"], abs=1e-5)
    wider = json.loads(musigma(*words, "--box", "0,0,8,8", "--coverage", 0.95).out)
    assert wider["high"] - wider["low"] > first["high"] - first["low"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--box", "1,2,3"), "a box is x,y,width,height"),
        (("--box", "90,90,20,20"), "does not lie inside the result of 96 x 96"),
        (("--box", "0,0,8,8", "--coverage", 0.7), "coverages of"),
        (("--box", "0,0,8,8", "--channel", 3), "channels 0 to 2"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_line(musigma, pictures, options, text):
    result = musigma("measure", pictures / "small.png", "--scale", 2, *options)
    assert result.code == 2
    assert text in " ".join(result.errors)


def test_weights_without_joint_errors_say_how_to_get_them(musigma, pictures):
    result = musigma(
        "measure", pictures / "small.png", "--model", "drunet-small", "--box", "0,0,8,8"
    )
    assert result.code == 2
    assert "calibrate --joint" in " ".join(result.errors)


def test_audit_of_the_true_picture_passes_and_of_another_does_not(musigma, pictures):
    small, large, overlay = (pictures / name for name in ("small.png", "large.png", "over.png"))
    page = pictures / "audit.html"
    result = musigma("audit", small, large, "-o", overlay, "--page", page)
    assert result.code == 0
    assert page.read_text().count("<figure>") == 5
    assert "no more detail" in result.err
    assert read_image(overlay)[0].shape == (1, 3, 96, 96)
    write_image(large, read_image(large)[0].flip(-1))
    flagged = musigma("audit", small, large, "--json")
    assert flagged.code == 3
    assert json.loads(flagged.out)["flagged"] is True


def test_audit_refuses_an_enlargement_of_another_size(musigma, pictures):
    write_image(pictures / "odd.png", read_image(pictures / "large.png")[0][..., :-1])
    result = musigma("audit", pictures / "small.png", pictures / "odd.png")
    assert result.code == 2
    assert "whole multiple" in " ".join(result.errors)


def test_sample_writes_pictures_and_a_contact_sheet(musigma, pictures):
    out = pictures / "maybe"
    result = musigma("sample", pictures / "small.png", "--scale", 2, "--samples", 5, "-o", out)
    assert result.code == 0
    names = sorted(path.name for path in out.iterdir())
    assert names == [
        *(f"small.sample-{n}.png" for n in range(1, 6)),
        "small.samples.html",
        "small.samples.png",
    ]
    page = (out / "small.samples.html").read_text()
    assert [f">Sample {n}<" in page for n in range(1, 7)] == [True] * 5 + [False]
    small = read_image(pictures / "small.png")[0]
    drawn = read_image(out / "small.sample-3.png")[0]
    assert float((bicubic_down(drawn, 2) - small).square().mean()) < 10**-4.5  # 45 dB
    assert read_image(out / "small.samples.png")[0].shape == (1, 3, 2 * 98 - 2, 4 * 98 - 2)
