import pytest
import torch
from torch.nn.functional import interpolate

from helpers.runs import CPU, pictures
from musigma.datasets.patch_bank import build_bank
from musigma.degradations import parse
from musigma.losses import Distillation
from musigma.training.recipe import Recipe
from musigma.training.teaching import taught
from musigma.types import ConfigError, Prediction


class Bilinear(torch.nn.Module):
    """A teacher that turns with its input, so that it can be asked about turned patches."""

    def __init__(self, scale: int) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, degraded):
        mode = {"mode": "bilinear", "align_corners": False}
        return Prediction(interpolate(degraded, scale_factor=self.scale, **mode))


class OnePixelAside(Bilinear):
    """The same, with each prediction a pixel of the target too far to the right."""

    def forward(self, degraded):
        return Prediction(super().forward(degraded).mean.roll(1, 3))


BORDER = 8
"""Pixels at the border of a patch whose prediction depends on what lies beyond it."""


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_predictions_are_those_of_the_patch_wherever_and_however_it_lies(scale):
    # The images have sides that are no multiples of the scale, and two sizes.
    images = [*pictures(3, 71, 94), *pictures(2, 66, 83)]
    degradation, teacher = parse("", scale=scale), Bilinear(scale)
    plain = build_bank(images, degradation=degradation, patch=12, device=CPU, swap_channels=True)
    bank = taught(plain, teacher)
    patches = bank.sample(torch.tensor(3), batch=256, seed=1)
    assert patches.taught is not None
    assert patches.taught.shape == patches.target.shape
    expected = teacher(patches.degraded).mean
    inside = (..., slice(BORDER, -BORDER), slice(BORDER, -BORDER))
    difference = (patches.taught - expected).abs()[inside]
    # Inputs are rounded after each pass of imresize, so that a turned one may be a level off.
    assert difference.max() <= 2 / 255
    assert difference.mean() <= 0.4 / 255
    wrong = taught(plain, OnePixelAside(scale)).sample(torch.tensor(3), batch=256, seed=1).taught
    assert (wrong - expected).abs()[inside].mean() > 3 * difference.mean()
    places = torch.cat([patches.degraded[:, :, 4, 4], patches.target[:, :, 9, 9]], 1)
    assert len(places.unique(dim=0)) > 200  # many different patches


def test_patches_begin_on_the_grid_of_their_image_and_in_a_bank_on_all_of_them():
    scale = 2
    ramp = torch.arange(40).view(1, 1, -1).expand(1, 40, -1)
    images = [torch.cat([ramp, ramp.mT, ramp * 0 + n]).byte() for n in range(4)]
    degradation = parse("", scale=scale)
    bank = taught(build_bank(images, degradation=degradation, patch=8, device=CPU), Bilinear(scale))
    first = bank.cut(torch.tensor(0), batch=400, seed=0).pixels
    corner = first[
        :, degradation.margin : -degradation.margin, degradation.margin : -degradation.margin
    ]
    left, top, number = (corner.flatten(1, 2)[..., c].amin(1).long() for c in range(3))
    starts = {
        (n, t % 2, c % 2)
        for n, t, c in zip(*(v.tolist() for v in (number, top, left)), strict=True)
    }
    assert starts == {(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)}
    assert len({*top.tolist()}) > 20  # of 25 places in each direction


def test_a_patch_that_is_larger_than_what_is_left_of_its_image_is_mirrored():
    degradation = parse("", scale=2)
    plain = build_bank(pictures(4, 16, 16), degradation=degradation, patch=8, device=CPU)
    patches = taught(plain, Bilinear(2)).sample(torch.tensor(0), batch=64, seed=0)
    assert patches.taught.shape == (64, 3, 16, 16)


def test_a_bank_without_a_teacher_has_no_predictions():
    bank = build_bank(pictures(2, 32, 32), degradation=parse("", scale=2), patch=8, device=CPU)
    assert bank.sample(torch.tensor(0), batch=2, seed=0).taught is None


def test_a_loss_takes_predictions_that_are_known_and_does_not_ask():
    class NotAsked(torch.nn.Module):
        def forward(self, degraded):
            raise AssertionError("the teacher was asked")

    loss = Distillation(teacher=NotAsked())
    mean, known = torch.full((1, 3, 4, 4), 0.5), torch.full((1, 3, 4, 4), 0.25)
    assert loss(mean, torch.zeros_like(mean), taught=known).item() == 0.25
    assert loss(mean, torch.zeros_like(mean), taught=Prediction(known)).item() == 0.25


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"teacher": ""}, "needs a teacher"), ({"degrade": "blur(1) | bicubic"}, "leave degrade out")],
)
def test_recipes_that_cannot_be_taught_once_are_refused(changes, message):
    settings = {
        "network": "edsr-baseline",
        "scale": 2,
        "data": ("drawn-shapes",),
        "batch": 2,
        "patch": 8,
        "learning_rate": 1e-4,
        "steps": 2,
        "objective": "l1 + 1.0 * distillation" if "teacher" not in changes else "l1",
        "teacher": "edsr-baseline",
        "teach_once": True,
    }
    with pytest.raises(ConfigError, match=message):
        Recipe(**(settings | changes))
