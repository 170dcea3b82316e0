"""Recognising files: no state dict of any shape makes it fail in any way but a `WeightsError`."""

import pytest
import torch

from helpers.networks import NAMES, REDUCED, build, recognised_names, released
from musigma.model import load_file
from musigma.networks import create
from musigma.networks.state_dict import (
    NotThisNetwork,
    fold_batch_norm,
    pixel_shuffle_factor,
    quotient,
    shape,
    stored_range,
    upsampler_scale,
)
from musigma.networks.weights_file import weights_of
from musigma.types import WeightsError


def damaged(state):
    """Yield the state with a tensor missing, of another rank, empty, or of another size."""
    keys = list(state)
    # Recognisers look at the first and the last keys most.
    for key in dict.fromkeys([*keys[:5], *keys[-5:], *keys[::11]]):
        rest = {name: value for name, value in state.items() if name != key}
        yield rest
        for tensor in (torch.zeros(()), torch.zeros(0), torch.zeros(0, 3, 3, 3), torch.zeros(5, 7)):
            yield {**rest, key: tensor}
        yield {**rest, key: torch.cat([state[key].flatten(), torch.zeros(1)])}


@pytest.mark.filterwarnings("ignore:.*in which range")
@pytest.mark.parametrize(("name", "scale"), NAMES)
def test_a_damaged_state_dict_gives_a_weights_error_or_nothing(name, scale, tmp_path):
    network = build(name, scale)
    for number, state in enumerate(damaged(weights_of(network))):
        recognised_names(state)
        if number % 17 == 0:
            torch.save(state, tmp_path / "w.pth")
            with pytest.raises(WeightsError):
                load_file(tmp_path / "w.pth", scale=scale)


@pytest.mark.parametrize("num_layers", [3, 19])
def test_a_foreign_stack_of_convolutions_is_not_taken_for_vdsr(tmp_path, num_layers):
    stack = weights_of(create("vdsr", scale=2, num_layers=num_layers, width=8))
    torch.save(stack, tmp_path / "w.pth")
    with pytest.raises(WeightsError, match="no file of a network known here"):
        load_file(tmp_path / "w.pth", scale=2)


@pytest.mark.parametrize("value_range", [1.0, 255.0])
def test_the_mean_shift_tells_the_range(value_range):
    network = create("edsr-baseline", scale=2, value_range=value_range, **REDUCED["edsr-baseline"])
    assert stored_range(released(network)) == value_range
    assert stored_range(weights_of(network)) is None
    assert stored_range({"sub_mean.bias": torch.full((3,), -17.0)}) is None


def test_questions_about_what_is_not_there():
    state = {"a.weight": torch.zeros(4, 3, 3, 3)}
    for ask in (
        lambda: shape(state, "b.weight", 4),
        lambda: shape(state, "a.weight", 2),
        lambda: quotient(3, 0),
        lambda: quotient(3, 4),
        lambda: pixel_shuffle_factor(13, 3),
        lambda: fold_batch_norm({**state, "n.running_var": torch.ones(4)}, "a", "n", epsilon=0.1),
        lambda: fold_batch_norm({**state, "a.bias": torch.ones(5)}, "a", None, epsilon=0.1),
    ):
        with pytest.raises(NotThisNetwork):
            ask()
    assert upsampler_scale({}, "tail.0", 8) == 1


def test_a_folded_batch_norm_gives_the_same_values():
    torch.manual_seed(0)
    conv, norm = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4, eps=0.1)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    image = torch.rand(5, 3, 8, 8)
    norm(conv(image))  # gives it statistics
    layers = torch.nn.Sequential(conv, norm).eval()
    weight, bias = fold_batch_norm(layers.state_dict(), "0", "1", epsilon=0.1)
    folded = torch.nn.functional.conv2d(image, weight, bias)
    torch.testing.assert_close(folded, layers(image))
