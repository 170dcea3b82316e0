import pytest
import torch

from helpers.networks import recognised_names, released
from musigma.model import load_file
from musigma.networks import create, num_params
from musigma.networks.super_resolution.nlsn import attend_in_buckets, recognise
from musigma.networks.weights_file import weights_of

SMALL = {"num_blocks": 9, "width": 16}


# The paper's table of computing-intensive models.
@pytest.mark.parametrize(("scale", "params_m"), [(2, 41.80), (3, 44.75), (4, 44.15)])
def test_parameters_are_the_printed_ones(scale, params_m):
    with torch.device("meta"):
        params = num_params(create("nlsn", scale=scale))
    assert params / 1e6 == pytest.approx(params_m, rel=0.0005)


def test_names_are_the_official_ones():
    # HarukiYqM/Non-Local-Sparse-Attention, model/nlsn.py and model/attention.py: an attention
    # first and after every eighth of 32 blocks, then a convolution.
    with torch.device("meta"):
        state = weights_of(create("nlsn", scale=4))
    for key, shape in {
        "head.0.weight": (256, 3, 3, 3),
        "body.0.conv_match.0.weight": (64, 256, 3, 3),
        "body.0.conv_assembly.0.weight": (256, 256, 1, 1),
        "body.1.body.0.weight": (256, 256, 3, 3),
        "body.8.body.2.bias": (256,),
        "body.9.conv_match.0.bias": (64,),
        "body.36.conv_assembly.0.bias": (256,),
        "body.37.weight": (256, 256, 3, 3),
        "tail.0.2.weight": (1024, 256, 3, 3),
        "tail.1.weight": (3, 256, 3, 3),
    }.items():
        assert state[key].shape == shape
    assert not any("rotations" in key for key in state)


def embeddings(length):
    generator = torch.Generator().manual_seed(0)
    shapes = ((1, length, 4), (1, length, 6), (4, 3))
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def test_one_chunk_is_dense_attention():
    match, value, rotation = embeddings(10)
    mix, log_weight = attend_in_buckets(match, value, rotation, chunk_size=144)
    score = match @ torch.nn.functional.normalize(match, dim=-1).mT
    torch.testing.assert_close(mix, score.softmax(-1) @ value)
    # The chunk is its own neighbor on both sides, so that each weight counts three times.
    torch.testing.assert_close(log_weight, (3 * score.exp().sum(-1, keepdim=True)).log())


def test_chunks_one_position_at_a_time():
    length, size = 14, 4
    match, value, rotation = embeddings(length)
    mix, log_weight = attend_in_buckets(match, value, rotation, chunk_size=size)

    axes = torch.cat([rotation, -rotation], dim=1).T
    buckets = [max(range(6), key=lambda axis: float(axes[axis] @ m)) for m in match[0]]
    order = sorted(range(length), key=lambda position: buckets[position])
    order += order[-2:]  # 14 positions fill three and a half chunks
    chunks = [order[start : start + size] for start in range(0, 16, size)]
    for index, chunk in enumerate(chunks):
        keys = chunk + chunks[index - 1] + chunks[(index + 1) % len(chunks)]
        for slot, position in enumerate(chunk):
            if index * size + slot >= length:
                continue
            query = match[0, position]
            weight = torch.stack([(query @ match[0, k] / match[0, k].norm()).exp() for k in keys])
            expected = (weight[:, None] * value[0, keys]).sum(0) / weight.sum()
            torch.testing.assert_close(mix[0, position], expected)
            torch.testing.assert_close(log_weight[0, position, 0], weight.sum().log())


def test_results_repeat_and_leave_the_global_generator_alone():
    degraded = torch.rand(1, 3, 13, 17)
    before = torch.get_rng_state()
    torch.manual_seed(0)
    first = create("nlsn", scale=2, **SMALL)
    torch.manual_seed(0)
    second = create("nlsn", scale=2, **SMALL)
    torch.set_rng_state(before)
    assert torch.equal(first(degraded).mean, first(degraded).mean)
    assert torch.equal(first(degraded).mean, second(degraded).mean)
    assert torch.equal(torch.get_rng_state(), before)
    rotations = [buffer for name, buffer in first.named_buffers() if "rotations" in name]
    assert len(rotations) == 2
    assert not torch.equal(*rotations)


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_released_files_load(tmp_path, scale):
    network = create("nlsn", scale=scale, **SMALL).eval()
    state = released(network)
    torch.save({f"module.{k}": v for k, v in state.items()}, tmp_path / "nlsn.pt")
    model = load_file(tmp_path / "nlsn.pt")
    degraded = torch.rand(1, 3, 5, 7)
    assert (model.name, model.network.build_spec.settings) == ("nlsn", SMALL)
    assert torch.equal(model.network(degraded).mean, network(degraded).mean)


def test_recognised_by_one_family():
    state = weights_of(create("nlsn", scale=3, **SMALL))
    assert recognise(state) == ("nlsn", 3, SMALL)
    names = recognised_names(state)
    assert names == ["nlsn"]
