"""A convolution with what comes after it, against the same written out; on a GPU, both ways."""

from functools import partial

import pytest
import torch
from torch.nn.functional import conv2d, prelu

from musigma.kernels import conv3x3 as convolution
from musigma.kernels.conv3x3 import convolve

GENERATOR = torch.Generator().manual_seed(0)


def draw(*shape: int) -> torch.Tensor:
    values = torch.randn(shape, generator=GENERATOR)
    return values.to(memory_format=torch.channels_last) if len(shape) == 4 else values


IMAGE, WEIGHT, BIAS = draw(2, 64, 9, 19), draw(32, 64, 3, 3) / 10, draw(32)
OUTPUT, OTHER, SLOPE = draw(2, 32, 9, 19), draw(2, 64, 9, 19), torch.full((1,), 0.3)
PLAIN = conv2d(IMAGE, WEIGHT, BIAS, padding=1)
BACK = torch.nn.grad.conv2d_input(IMAGE.shape, WEIGHT, OUTPUT, padding=1)
CASES = {
    "plain": ((IMAGE, WEIGHT, BIAS), {}, PLAIN),
    "without bias": ((IMAGE, WEIGHT), {}, PLAIN - BIAS.view(-1, 1, 1)),
    "rectified": ((IMAGE, WEIGHT, BIAS), {"rectify": True}, PLAIN.relu()),
    "leaky": ((IMAGE, WEIGHT, BIAS), {"slope": SLOPE}, prelu(PLAIN, SLOPE)),
    "added": ((IMAGE, WEIGHT, BIAS), {"add": OUTPUT}, PLAIN + OUTPUT),
    "back": ((OUTPUT, WEIGHT), {"backwards": True}, BACK),
    "back, added": ((OUTPUT, WEIGHT), {"backwards": True, "add": OTHER}, BACK + OTHER),
    "back, masked": ((OUTPUT, WEIGHT), {"backwards": True, "mask": OTHER}, BACK * (OTHER > 0)),
}


@pytest.mark.parametrize("case", CASES)
def test_convolve_equals_the_separate_operations(case):
    given, options, expected = CASES[case]
    result = convolve(*given, **options)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    assert result.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("case", CASES)
def test_convolve_of_meta_tensors_has_the_right_shape(case):
    given, options, expected = CASES[case]
    meta = [part.to("meta") for part in given]
    options = {k: v.to("meta") if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    assert convolve(*meta, **options).shape == expected.shape


def tried(monkeypatch, error: float, seconds: dict) -> convolution.ConvTiming:
    """A trial in which our kernel is off by so much, and all take the time they are said to."""

    def with_kernel(config, **case):
        return convolution._convolve_with_torch(**case) * (1 + error)

    def milliseconds(function, case):
        assert function(**case).shape == PLAIN.shape
        return seconds[function.args[0] if isinstance(function, partial) else function.__name__]

    monkeypatch.setattr(convolution, "_convolve_with_kernel", with_kernel)
    monkeypatch.setattr(convolution, "_milliseconds", milliseconds)
    case = {"image": IMAGE, "weight": WEIGHT, "bias": BIAS, "add": OUTPUT}
    return convolution._time_case(case)


SECONDS = {"_convolve_with_torch": 3.0, "_like_compiled": 2.5}
FIRST, SECOND, THIRD = convolution.TILE_CONFIGS


def test_the_fastest_way_is_taken(monkeypatch):
    ours = {FIRST: 2.2, SECOND: 2.0, THIRD: 4.0}
    assert tried(monkeypatch, 0.001, SECONDS | ours) == (SECOND, 2.0, 2.5)
    assert tried(monkeypatch, 0.001, SECONDS | dict.fromkeys(ours, 9.0)) == (None, 3.0, 2.5)


def test_a_wrong_kernel_is_never_taken(monkeypatch):
    fast = dict.fromkeys(convolution.TILE_CONFIGS, 0.1)
    assert tried(monkeypatch, 0.1, SECONDS | fast) == (None, 3.0, 2.5)


def test_all_cases_together_decide_what_is_faster(monkeypatch):
    trials = [convolution.ConvTiming(FIRST, 1.0, 3.0), convolution.ConvTiming(None, 4.0, 3.0)]
    monkeypatch.setattr(convolution, "_timing_of", lambda case: case["trial"])
    assert convolution.is_faster_than_compiled([{"trial": trial} for trial in trials])
    assert not convolution.is_faster_than_compiled([{"trial": trials[1]}])
    assert not convolution.is_faster_than_compiled([{"trial": trials[0]}, {"trial": None}])


def test_without_a_gpu_our_kernel_is_never_faster():
    assert not convolution.is_faster_than_compiled([{"image": IMAGE, "weight": WEIGHT}])


def test_add_and_mask_together_are_refused():
    """The kernel reads one further tensor, and would take the one for the other."""
    with pytest.raises(ValueError, match="add or mask, not both"):
        convolution.convolve(IMAGE, WEIGHT, BIAS, add=OUTPUT, mask=OUTPUT)
    meta = [part.to("meta") for part in (IMAGE, WEIGHT, BIAS, OUTPUT)]
    with pytest.raises(ValueError, match="add or mask, not both"):
        convolution.convolve(*meta, mask=meta[3])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("case", CASES)
def test_our_kernel_agrees_with_cudnn(case):
    given, options, expected = CASES[case]
    case = dict(zip(("image", "weight", "bias"), given, strict=False)) | options
    on_gpu = {
        name: part.cuda().bfloat16() if isinstance(part, torch.Tensor) else part
        for name, part in case.items()
    }
    expected = expected.cuda()
    ways = [partial(convolution._convolve_with_kernel, form) for form in convolution.TILE_CONFIGS]
    for way in (*ways, convolution._convolve_with_torch):
        found = way(**on_gpu).float()
        assert (found - expected).abs().max() < convolution.TOLERANCE * expected.abs().max()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("form", convolution.TILE_CONFIGS)
def test_our_kernel_never_wavers(backwards, form):
    """On a full card, again and again: a kernel that overtakes its own loads fails here."""
    image = torch.randn(256, 64, 48, 48, device="cuda", dtype=torch.bfloat16)
    image = image.contiguous(memory_format=torch.channels_last)
    weight = torch.randn(64, 64, 3, 3, device="cuda", dtype=torch.bfloat16) / 24
    weight = weight.contiguous(memory_format=torch.channels_last)
    case = {"image": image, "weight": weight, "add": image, "backwards": backwards}
    first = convolution._convolve_with_kernel(form, **case)
    exact = {name: p.float() if isinstance(p, torch.Tensor) else p for name, p in case.items()}
    expected = convolution._convolve_with_torch(**exact)
    assert (first.float() - expected).abs().max() < convolution.TOLERANCE * expected.abs().max()
    for _ in range(50):
        again = convolution._convolve_with_kernel(form, **case)
        assert torch.equal(again, first)
