"""The nodes for ComfyUI, loaded as ComfyUI loads them, with tiny weights."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import musigma
from helpers.networks import build
from helpers.science import CALIBRATION
from musigma.model import Model

FOLDER = Path(__file__).parents[2] / "integrations" / "comfyui"
WIDGETS = ("FLOAT", "STRING")


@pytest.fixture(scope="module")
def package():
    """The folder as a package of any name, as ComfyUI loads it from ``custom_nodes``."""
    spec = importlib.util.spec_from_file_location(
        "custom_nodes_musigma", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    for name in [name for name in sys.modules if name.startswith(spec.name)]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def nodes(package) -> dict:
    return package.NODE_CLASS_MAPPINGS


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> Path:
    """Tiny weights with a sigma branch and a calibration, in a file."""
    monkeypatch.setattr(
        "musigma.restoration.interactive.default_engine", lambda: "torch"
    )  # starts quickly
    network = build("edsr-baseline", 2, sigma=True)
    path = tmp_path / "tiny.safetensors"
    musigma.save(path, Model(network=network, name="tiny", calibration=CALIBRATION))
    return path


def pictures(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def restored(nodes: dict, path: Path, image: torch.Tensor, **changes: float) -> tuple:
    (model,) = nodes["MusigmaLoadModel"]().load("photo x2", "cpu", file=str(path))
    values = {"coverage": "0.9", "unsure_above": 8.0, "sigma_gain": 1.0}
    return nodes["MusigmaRestore"]().restore(model, image, **(values | changes))


def test_every_node_keeps_to_the_conventions(package, nodes):
    assert package.NODE_DISPLAY_NAME_MAPPINGS.keys() == nodes.keys()
    for node in nodes.values():
        inputs = node.INPUT_TYPES()
        assert set(inputs) <= {"required", "optional"}
        arguments = {name: part for group in inputs.values() for name, part in group.items()}
        code = getattr(node, node.FUNCTION).__code__
        assert set(arguments) == set(code.co_varnames[1 : code.co_argcount])
        for socket, *options in arguments.values():
            assert isinstance(socket, str | list)
            if isinstance(socket, list) and options:
                assert options[0].get("default", socket[0]) in socket
            if socket in WIDGETS:
                assert "default" in options[0]
        assert isinstance(node.RETURN_TYPES, tuple)
        assert len(node.RETURN_NAMES) == len(node.RETURN_TYPES)
        assert node.CATEGORY == "musigma"


def test_shipped_weights_are_offered_with_their_scales_and_load(nodes):
    choices = nodes["MusigmaLoadModel"].INPUT_TYPES()["required"]["weights"][0]
    assert {"photo x1", "photo x2", "edsr-baseline x3"} <= set(choices)
    (model,) = nodes["MusigmaLoadModel"]().load("edsr-baseline x3", "cpu")
    assert (model.name, model.scale) == ("edsr-baseline", 3)


def test_a_batch_comes_back_in_the_form_of_comfyui(nodes, tiny):
    image = pictures(2, 14, 18, 3)
    mean, sigma, unsure, report = restored(nodes, tiny, image)
    assert mean.shape == sigma.shape == (2, 28, 36, 3)
    assert unsure.shape == (2, 28, 36)
    assert set(unsure.unique().tolist()) <= {0.0, 1.0}
    assert [t.dtype for t in (mean, sigma, unsure)] == [torch.float32] * 3
    for tensor in (mean, sigma):
        assert 0 <= float(tensor.min()) <= float(tensor.max()) <= 1
    first, second = report.splitlines()
    assert first.startswith("picture 1: Enlarged by 2 with edsr-baseline")
    assert "promise" in second or "probability" in second


def test_values_are_those_of_the_model(nodes, tiny):
    image = pictures(1, 14, 18, 3)
    mean, sigma, unsure, _ = restored(nodes, tiny, image, unsure_above=30.0)
    model = musigma.load(tiny)
    prediction = model.predict(image.permute(0, 3, 1, 2))
    std = model.std(prediction).permute(0, 2, 3, 1)
    torch.testing.assert_close(mean, prediction.mean.clamp(0, 1).permute(0, 2, 3, 1))
    torch.testing.assert_close(sigma, std.clamp(0, 1))
    half_width = 1.5 * std.amax(-1)
    certain = (half_width - 30 / 255).abs() > 1e-4
    assert torch.equal((half_width > 30 / 255)[certain], unsure.bool()[certain])


def test_sigma_is_multiplied_and_the_limit_decides_what_is_unsure(nodes, tiny):
    image = pictures(1, 9, 9, 3)
    plain, larger = (
        restored(nodes, tiny, image, sigma_gain=gain, unsure_above=limit)
        for gain, limit in ((1.0, 0.0), (2.0, 255.0))
    )
    torch.testing.assert_close(larger[1], (2 * plain[1]).clamp(0, 1))
    assert plain[2].all()
    assert not larger[2].any()


@pytest.mark.parametrize("channels", [1, 4])
def test_gray_pictures_and_opacity_give_colors(nodes, tiny, channels):
    mean, sigma, unsure, _ = restored(nodes, tiny, pictures(1, 9, 10, channels))
    assert mean.shape == sigma.shape == (1, 18, 20, 3)
    assert unsure.shape == (1, 18, 20)


def test_a_model_without_sigma_is_sure_of_nothing(nodes):
    model = musigma.load("bicubic", scale=2)
    _, sigma, unsure, report = nodes["MusigmaRestore"]().restore(
        model, pictures(1, 8, 8, 3), "0.9", 8.0, 10.0
    )
    assert sigma.min() == 1
    assert unsure.min() == 1
    assert "predicts no errors" in report


def test_progress_is_shown_and_an_interruption_ends_the_work(nodes, tiny, monkeypatch):
    shown = []

    class ProgressBar:
        def __init__(self, total: int) -> None:
            assert total == 1

        def update_absolute(self, done: int, total: int) -> None:
            shown.append((done, total))

    def interrupt() -> None:
        if len(shown) == 2:
            raise InterruptedError

    comfy, utils, management = (
        ModuleType(name) for name in ("comfy", "comfy.utils", "comfy.model_management")
    )
    utils.ProgressBar = ProgressBar
    management.throw_exception_if_processing_interrupted = interrupt
    for module in (comfy, utils, management):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(InterruptedError):
        restored(nodes, tiny, pictures(3, 8, 8, 3))
    assert shown == [(1, 3), (2, 3)]
