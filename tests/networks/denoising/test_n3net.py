"""N3Net by its release and by its formulas."""

import numpy as np
import pytest
import torch

from musigma.model import load_file
from musigma.networks import BuildSpec, create, num_params
from musigma.networks.denoising.n3net import FAR, N3Block, from_patches, nearest_mixes, to_patches
from musigma.networks.neighbor_search import Candidates

TINY = {"num_blocks": 2, "num_layers": 4, "width": 6, "between": 3, "num_neighbours": 2}


def test_parameters_by_hand():
    # visinf/n3net, counted with its batch norms as it prints them: 705,895 (the paper's 706K, from
    # memory). Here each norm is one bias a channel, one norm of each DnCNN that is never used has
    # gone, and the norm of the distances is one factor.
    def conv(inner, outer):
        return 9 * inner * outer

    norm = 2 * 64
    inner = norm + 4 * (conv(64, 64) + norm)
    first = conv(1, 64) + 64 + inner + conv(64, 8) + 8
    second = conv(64, 64) + 64 + inner + conv(64, 8) + 8
    third = conv(64, 64) + 64 + inner + conv(64, 1) + 1
    embed = conv(8, 64) + norm + conv(64, 64) + norm + conv(64, 8) + 8
    temperature = conv(8, 64) + norm + conv(64, 64) + norm + conv(64, 1) + 1
    released = first + second + third + 2 * (embed + temperature + 2)
    assert released == 705_895
    gone = 3 * norm + 3 * 4 * 64 + 2 * (4 * 64 + 1)
    assert num_params(create("n3net", scale=1)) == released - gone


def test_patches_are_those_of_torch_and_go_back():
    image = torch.rand(2, 3, 20, 15, dtype=torch.float64)
    patches = to_patches(image)
    expected = torch.nn.functional.unfold(image, 10, stride=5)
    assert patches.shape == (2, 300, 3, 2)
    # The same values of each patch, in another order.
    assert torch.equal(
        patches.flatten(2).sort(1).values, expected.unflatten(-1, (3, 2)).flatten(2).sort(1).values
    )
    torch.testing.assert_close(from_patches(patches), image)


def test_soft_neighbors_by_the_formula():
    # Equations 8 to 10 of the paper, in plain probabilities.
    generator = np.random.default_rng(0)
    similarity, values = generator.normal(size=(2, 3, 5)), generator.normal(size=(2, 5, 4))
    alpha, expected = similarity.copy(), []
    for _ in range(3):
        weight = np.exp(alpha) / np.exp(alpha).sum(-1, keepdims=True)
        expected.append(weight @ values)
        alpha = alpha + np.log(1 - weight)
    actual = nearest_mixes(*map(torch.from_numpy, (similarity, values)), num_neighbours=3)
    np.testing.assert_allclose(actual, np.stack(expected, axis=2), rtol=1e-10)


def test_cold_neighbors_are_the_nearest_ones_in_order():
    similarity = torch.tensor([[[-900.0, -100.0, -500.0, FAR]]])
    values = torch.eye(4).unsqueeze(0)
    actual = nearest_mixes(similarity, values, num_neighbours=3)
    torch.testing.assert_close(actual[0, 0], values[0][[1, 2, 0]])


def test_candidates_are_a_window_moved_inwards_at_the_border():
    height, width, window = 7, 6, 5
    mask = Candidates(height, width, window=window, near=0, device=torch.device("cpu")).mask(
        slice(None), slice(None)
    )
    expected = np.zeros((height, width, height, width), bool)
    for y, x in np.ndindex(height, width):
        top, left = np.clip(y - 2, 0, height - window), np.clip(x - 2, 0, width - window)
        expected[y, x, top : top + window, left : left + window] = True
        expected[y, x, y, x] = False
    np.testing.assert_array_equal(mask, expected.reshape(mask.shape))


def test_band_by_band_gives_what_all_at_once_gives(monkeypatch):
    block = N3Block(3, width=6, embedding=3, num_neighbours=2, window=3).double()
    features = torch.rand(2, 3, 42, 23, dtype=torch.float64)
    banded = block(features)
    monkeypatch.setattr(Candidates, "bands", lambda _: [(slice(None), slice(None))])
    # Similarities are computed in float32 on all devices.
    torch.testing.assert_close(banded, block(features), rtol=0, atol=1e-5)


def test_a_lone_patch_is_its_own_neighbor():
    block = N3Block(3, width=6, embedding=3, num_neighbours=2, window=15)
    features = torch.rand(1, 3, 7, 9)
    actual = block(features)
    torch.testing.assert_close(actual[:, :3], features)
    torch.testing.assert_close(actual[:, 3:], torch.zeros(1, 6, 7, 9), rtol=0, atol=1e-6)


def released_state(channels):
    """Random weights of the release's layers: names and shapes of visinf/n3net, models/n3net.py."""
    generator = torch.Generator().manual_seed(0)
    state = {}

    def conv(name, inner, outer, *, bias):
        state[f"{name}.weight"] = torch.randn(outer, inner, 3, 3, generator=generator) / 6
        if bias:
            state[f"{name}.bias"] = torch.randn(outer, generator=generator) / 6

    def norm(name, size):
        for part in ("weight", "bias", "running_mean", "running_var"):
            state[f"{name}.{part}"] = torch.rand(size, generator=generator) + 0.5
        state[f"{name}.num_batches_tracked"] = torch.tensor(1)

    for block, (inner, outer) in enumerate(((channels, 3), (9, channels))):
        conv(f"blocks.{block}.conv1", inner, 6, bias=True)
        norm(f"blocks.{block}.bn1", 6)
        for layer in (0, 3):
            conv(f"blocks.{block}.layer1.{layer}", 6, 6, bias=False)
            norm(f"blocks.{block}.layer1.{layer + 1}", 6)
        conv(f"blocks.{block}.conv2", 6, outer, bias=True)
    for stack, outer in (("embedcnn", 3), ("tempcnn", 1)):
        for layer, inner in ((0, 3), (3, 6)):
            conv(f"nls.0.{stack}.{layer}", inner, 6, bias=False)
            norm(f"nls.0.{stack}.{layer + 1}", 6)
        conv(f"nls.0.{stack}.6", 6, outer, bias=True)
    norm("nls.0.n3aggregation.aggregation.nnn.bn", 1)
    return state


def released_stack(state, name, layers, image):
    """Run convolutions of the release with what follows each, by torch's own batch norm."""
    for number, layer in enumerate(layers):
        stem = f"{name}.{layer}"
        bias = state.get(f"{stem}.bias")
        image = torch.nn.functional.conv2d(image, state[f"{stem}.weight"], bias, padding=1)
        norm = f"{name}.{layer[:-1]}{int(layer[-1]) + 1}" if bias is None else ""
        if norm:
            parts = (state[f"{norm}.{p}"] for p in ("running_mean", "running_var"))
            scale = {p: state[f"{norm}.{p}"] for p in ("weight", "bias")}
            image = torch.nn.functional.batch_norm(image, *parts, **scale, eps=1e-5)
        if number < len(layers) - 1:
            image = image.relu()
    return image


@pytest.mark.parametrize(("name", "channels"), [("n3net", 1), ("n3net-colour", 3)])
def test_released_files_load(name, channels, tmp_path):
    state = released_state(channels)
    torch.save({"net": state, "epoch": 51}, tmp_path / "051_ckpt.t7")
    network = load_file(tmp_path / "051_ckpt.t7").network
    assert network.build_spec == BuildSpec(name, 1, TINY)
    image = torch.rand(1, channels, 12, 11)
    with torch.inference_mode():
        for number, block in enumerate(network.blocks):
            seen = torch.rand(1, channels if number == 0 else 9, 12, 11)
            layers = ("conv1", "layer1.0", "layer1.3", "conv2")
            expected = released_stack(state, f"blocks.{number}", layers, seen)
            torch.testing.assert_close(block(seen), expected)
        seen = torch.rand(1, 3, 12, 11)
        for ours, theirs in (("embed", "embedcnn"), ("temperature", "tempcnn")):
            expected = released_stack(state, f"nls.0.{theirs}", ("0", "3", "6"), seen)
            torch.testing.assert_close(getattr(network.nls[0], ours)(seen), expected)
        assert network(image).mean.isfinite().all()
    norm = {k.rpartition(".")[2]: v for k, v in state.items() if ".nnn.bn." in k}
    factor = norm["weight"] / (norm["running_var"] + 1e-5).sqrt()
    assert network.nls[0].distance_scale.item() == pytest.approx(factor.item())
