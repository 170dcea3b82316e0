"""Half precision, graphs and batches on a GPU against plain float32 there."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from helpers.networks import build, image_for
from musigma.kernels import cuda_graph
from musigma.prediction.engines import TorchEngine, make_engine
from musigma.prediction.engines.fastest import MAX_RMS, difference, sample_tile
from musigma.prediction.predict import predict

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def network_on_gpu():
    return build("edsr-baseline", 2, sigma=True).cuda()


def test_float32_does_not_use_tf32_and_leaves_the_settings_alone(monkeypatch):
    network = network_on_gpu()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    tiles = sample_tile(network, 96, 128)
    exact = network.double()(tiles.double().cuda())
    network.float()
    plain, coarse = (TorchEngine(network, precision=p)(tiles) for p in ("fp32", "tf32"))
    errors = [(found.mean - exact.mean.cpu()).abs().max() for found in (plain, coarse)]
    assert errors[0] < 1e-5
    assert errors[1] > 4 * errors[0]
    assert torch.backends.cudnn.allow_tf32
    assert not torch.backends.cudnn.benchmark


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile's own code
@pytest.mark.parametrize("name", ["torch-bf16", "torch-fp16", "torch-fp16-compiled"])
def test_captured_tiles_are_near_float32(name):
    """Two shapes in turns, with new values each time; from the second turn on as graphs."""
    network = network_on_gpu()
    engine, plain = make_engine(network, name), TorchEngine(network)
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        for height, width in ((64, 80), (37, 31)):
            tiles = sample_tile(network, height, width)
            tiles = tiles * torch.rand(2, 1, 1, 1, generator=generator)
            found, expected = engine(tiles), plain(tiles)
            assert found.mean.device.type == "cpu"
            assert difference(found, expected)[0] < MAX_RMS
    assert len(engine._graphs.captured) == 2


def test_a_graph_is_the_eager_computation(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    network = network_on_gpu()
    eager = TorchEngine(network, precision="fp16")
    captured = TorchEngine(network, precision="fp16", graph=True)
    tiles = sample_tile(network, 64, 80)
    for _ in range(2):
        captured(tiles)
    for ours, theirs in zip(captured(tiles.flip(-1)), eager(tiles.flip(-1)), strict=True):
        # cuDNN may take another algorithm for a graph.
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-3)


def test_shapes_beyond_the_limit_stay_eager(monkeypatch):
    monkeypatch.setattr(cuda_graph, "MAX_GRAPHS", 1)
    network = network_on_gpu()
    engine = TorchEngine(network, precision="fp16", graph=True)
    for width in (16, 24, 32):
        tiles = image_for(network, 16, width)
        for _ in range(3):
            assert engine(tiles).mean.shape == (1, 3, 32, 2 * width)
    assert len(engine._graphs.captured) == 1


@pytest.mark.parametrize("name", ["torch", "torch-tf32", "torch-bf16", "torch-fp16"])
def test_threads_get_their_own_images(name):
    """A CUDA graph has one input and one output, and settings of cuDNN belong to the process."""
    network = network_on_gpu()
    engine = make_engine(network, name)
    tiles = [image_for(network, 16, 16 + 8 * (k % 2)) * (k + 1) / 16 for k in range(16)]
    for _ in range(3):
        expected = [engine(tile) for tile in tiles]
    before = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    with ThreadPoolExecutor(4) as pool:
        for found, theirs in zip(pool.map(engine, tiles), expected, strict=True):
            torch.testing.assert_close(found.mean, theirs.mean, rtol=0, atol=2e-3)
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark) == before


def test_batches_of_tiles_give_the_whole():
    network = network_on_gpu()
    image = image_for(network, 300, 500)
    plain = TorchEngine(network)
    shapes = []

    class Watched(TorchEngine):
        def __call__(self, tiles):
            shapes.append(tuple(tiles.shape))
            return super().__call__(tiles)

    found = predict(network, image, engine=Watched(network), tile=50)
    assert max(shape[0] for shape in shapes) > 1
    for ours, theirs in zip(found, plain(image), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_tiles_shrink_until_they_fit():
    """Half of the memory that a tile needs is left to the process."""
    network = network_on_gpu()
    image = image_for(network, 1500, 1600)
    expected = predict(network, image, tile=400)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    try:
        torch.cuda.set_per_process_memory_fraction(1.5 * 2**30 / total)
        found = predict(network, image, memory=64 * 2**30)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
