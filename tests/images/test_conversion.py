"""Every form of an image becomes the same float batch, or is refused with a sentence."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from musigma.images.conversion import as_batch
from musigma.types import ImageError

BYTES = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
FLOATS = torch.from_numpy(BYTES.transpose(2, 0, 1).copy())[None].float() / 255


def gray_of(image):
    return torch.from_numpy(np.asarray(image).astype(np.float32))[None, None] / 255


@pytest.mark.parametrize(
    "image",
    [
        BYTES,
        BYTES[None],
        np.asfortranarray(BYTES),
        BYTES[::-1][::-1],
        BYTES.astype(np.uint16) * 257,
        (BYTES.astype(np.uint16) * 257).astype(">u2"),
        BYTES / 255,
        (BYTES / 255).astype(">f4"),
        (BYTES / 255).astype(np.longdouble),
        Image.fromarray(BYTES),
        FLOATS,
        FLOATS[0],
        FLOATS.double(),
        FLOATS.clone().requires_grad_(),
        FLOATS.to(memory_format=torch.channels_last),
        (FLOATS * 255).to(torch.uint8),
        (FLOATS * 65535).round().to(torch.uint16),
    ],
)
def test_every_form_gives_one_batch(image):
    batch = as_batch(image)
    assert (batch.dtype, batch.requires_grad) == (torch.float32, False)
    torch.testing.assert_close(batch, FLOATS, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_its_values(dtype):
    assert torch.equal(as_batch(FLOATS.to(dtype)), FLOATS.to(dtype).float())


@pytest.mark.parametrize("view", [np.s_[::-1], np.s_[:, ::-1], np.s_[::2], np.s_[:, :, ::-1]])
def test_views_with_any_strides(view):
    expected = as_batch(np.ascontiguousarray(BYTES[view]))
    assert torch.equal(as_batch(BYTES[view]), expected)


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3), (1, 1, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_read_only_arrays_give_no_warning_and_are_not_changed(shape, dtype):
    array = np.ones(shape, dtype=dtype)
    array.setflags(write=False)
    batch = as_batch(array)
    batch += 1
    assert (array == 1).all()


def test_booleans_are_black_and_white():
    array = BYTES[..., 0] > 127
    expected = torch.from_numpy(array.astype(np.float32))[None, None]
    assert torch.equal(as_batch(array), expected)
    assert torch.equal(as_batch(torch.from_numpy(array)[None]), expected)


def test_modes_of_pil():
    image = Image.fromarray(BYTES)
    for mode in ("P", "CMYK", "YCbCr", "HSV", "RGBX"):
        converted = image.convert(mode)
        expected = as_batch(np.asarray(converted.convert("RGB")))
        assert torch.equal(as_batch(converted), expected), mode
    assert torch.equal(as_batch(image.convert("L")), gray_of(image.convert("L")))
    assert torch.equal(as_batch(image.convert("1")), gray_of(image.convert("1").convert("L")))
    deep = Image.fromarray(BYTES[..., 0].astype(np.uint16) * 257)
    assert deep.mode.startswith("I;16")
    torch.testing.assert_close(as_batch(deep), gray_of(BYTES[..., 0]), rtol=0, atol=1e-6)
    floats = Image.fromarray(BYTES[..., 0].astype(np.float32) / 255)
    torch.testing.assert_close(as_batch(floats), gray_of(BYTES[..., 0]))


TRANSPARENT = Image.fromarray(BYTES).convert("P")
TRANSPARENT.info["transparency"] = 0


@pytest.mark.parametrize(
    ("image", "line"),
    [
        (Image.fromarray(BYTES).convert("RGBA"), r"mode RGBA has transparency; .*convert\('RGB'\)"),
        (Image.fromarray(BYTES).convert("LA"), "mode LA has transparency"),
        (TRANSPARENT, "mode P has transparency"),
        (Image.fromarray(BYTES).convert("L").convert("I"), "mode I has no known range"),
        (Image.fromarray(BYTES).convert("L").convert("F"), "its values reach 2"),
        ("photo.jpg", "got str; musigma.read_image reads a file"),
        (Path("photo.jpg"), "got PosixPath; musigma.read_image reads a file"),
        ([BYTES, BYTES], "got list; numpy.stack or torch.stack makes a batch"),
        (None, "got NoneType"),
        (b"bytes", "got bytes"),
        (np.zeros((3, 5, 7)), r"channels last, .*\(3, 5, 7\) .*array.transpose\(1, 2, 0\)"),
        (np.zeros((2, 3, 5, 7)), r"array.transpose\(0, 2, 3, 1\)"),
        (np.zeros((5, 7, 4)), r"expected 1 or 3 channels, .*array\[..., :3\]"),
        (np.zeros((5, 7, 2)), "expected 1 or 3 channels"),
        (np.zeros(7), r"got an array of shape \(7,\)"),
        (np.zeros((1, 1, 5, 7, 3)), r"got an array of shape \(1, 1, 5, 7, 3\)"),
        (np.zeros((0, 7, 3)), r"the image is empty: its shape is \(0, 7, 3\)"),
        (np.zeros((5, 7, 3), dtype=np.int64), "torch.int64 has no known range"),
        (np.zeros((5, 7, 3), dtype=np.uint32), "torch.uint32 has no known range"),
        (np.zeros((5, 7, 3), dtype=complex), "type complex128 is no image"),
        (np.zeros((5, 7, 3), dtype=object), "type object is no image"),
        (BYTES.astype(np.float32), r"its values reach 2\d\d; divide it by 255"),
        (torch.zeros(5, 7), r"got a tensor of shape \(5, 7\)"),
        (torch.zeros(5, 7, 3), r"channels first, .*tensor.permute\(2, 0, 1\)"),
        (torch.zeros(2, 5, 7, 3), r"tensor.permute\(0, 3, 1, 2\)"),
        (torch.zeros(0, 3, 5, 7), "the image is empty"),
        (torch.zeros(1, 3, 5, 7, dtype=torch.int32), "torch.int32 has no known range"),
        (torch.zeros(1, 3, 5, 7, dtype=torch.complex64), "torch.complex64 has no known range"),
        (-FLOATS * 255, "its values reach 2"),
        (torch.full((1, 3, 5, 7), torch.nan), "not finite"),
        (torch.full((1, 3, 5, 7), torch.inf).half(), "not finite"),
    ],
)
def test_what_is_no_image_is_refused_with_a_sentence(image, line):
    with pytest.raises(ImageError, match=line):
        as_batch(image)


def test_noise_beyond_the_range_is_kept():
    image = torch.tensor([-1.5, 0.5, 2.5]).view(1, 3, 1, 1)
    assert torch.equal(as_batch(image), image)


def test_five_channels_are_left_to_the_network():
    assert as_batch(np.zeros((9, 7, 5))).shape == (1, 5, 9, 7)
    assert as_batch(torch.zeros(5, 9, 7)).shape == (1, 5, 9, 7)
