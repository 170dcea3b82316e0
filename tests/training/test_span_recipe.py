"""The recipe of the fast network: its step runs, compiles as one graph, trains every weight."""

import pytest
import torch

from helpers.runs import CPU, small_bank, small_step, weights_of
from musigma.datasets.drawn_pictures import draw_images
from musigma.datasets.patch_bank import build_bank
from musigma.kernels.half_precision import half_copy
from musigma.networks import card, num_params
from musigma.networks.bounded_build import build_without_values
from musigma.training.recipe import load_recipe
from musigma.training.setup import build_network

SMALL = ["data=drawn-shapes", "shrink=[]", "validation=", "steps=3", "batch=2", "patch=12"]


def recipe(*changes):
    return load_recipe("span", [*SMALL, *changes])


def test_three_steps_move_every_weight():
    step = small_step(recipe())
    before = weights_of(step)
    for _ in range(3):
        step(5e-4)
    assert step.read_loss(3) < 2  # of a first result near zero it is about 1
    same = {name for name, value in weights_of(step).items() if torch.equal(value, before[name])}
    assert {name.rpartition(".")[2] for name in same} == {"build_spec"}


def test_a_compiled_step_is_the_eager_one():
    chosen = recipe(
        "settings={num_blocks=2, width=16, value_range=16.0}",
        *("sigma_width=8", "patch=8", "drawn_every=2", "candidates=3"),
    )
    images = draw_images(3, size=40, channels=3)
    eager, compiled = (
        small_step(
            chosen,
            bank=build_bank(
                images,
                degradation=chosen.degradation,
                patch=chosen.patch,
                device=CPU,
                drawn=images[:1],
                drawn_every=chosen.drawn_every,
                candidates=chosen.candidates,
            ),
        )
        for _ in range(2)
    )
    torch.compiler.reset()
    compiled._loss = torch.compile(
        compiled._loss_of_patches, fullgraph=True, dynamic=False, backend="aot_eager"
    )
    for _ in range(2):
        eager(5e-4)
        compiled(5e-4)
    assert compiled.read_loss(2) == pytest.approx(eager.read_loss(2), rel=1e-5)


def test_half_precision_gives_nearly_the_same():
    network = build_network(recipe()).eval()
    degraded = small_bank(recipe()).sample(torch.tensor(0), batch=2, seed=0).degraded
    with torch.inference_mode():
        expected = network(degraded)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = half_copy(network, torch.bfloat16)(degraded)
    for ours, theirs in zip(rounded, expected, strict=True):
        assert ours.float().sub(theirs).abs().max() < 0.05 * theirs.abs().max()


@pytest.mark.parametrize("value_range", [1.0, 16.0, 255.0])
def test_the_first_result_is_as_large_as_an_image(value_range):
    network = build_network(recipe(f"settings={{value_range={value_range}}}"))
    degraded = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        mean, sigma = network(degraded)
    assert mean.abs().max() < 2
    assert 0.001 < sigma.mean() < 0.1


@pytest.mark.parametrize(("scale", "params"), [(2, 5_363_987), (4, 5_975_095)])
def test_the_large_network_has_at_most_six_million_weights(scale, params):
    network = build_without_values(load_recipe("large", [f"scale={scale}"])._network)
    assert num_params(network) == params < 6_000_000
    assert network.receptive_radius is not None  # so that tiles are exact


def test_the_network_is_a_third_of_edsr_baseline():
    fast, standard = card("span-s", scale=2), card("edsr-baseline", scale=2)
    # The card's branch has 160 channels; the recipe's has 32.
    per_pixel = 9 * (48 * 32 + 3 * 32**2 + 32 * 12)
    with_branch = fast.macs_g + per_pixel * 640 * 360 / 1e9
    assert with_branch < 0.34 * standard.macs_g
