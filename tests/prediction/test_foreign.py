"""Networks of other people: how they are opened, what is found out, and what is refused."""

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.foreign import double, write_function, write_onnx, write_torchscript
from musigma.model import load
from musigma.prediction.foreign import open_network
from musigma.types import ConfigError, WeightsError

IMAGE = torch.rand(1, 3, 9, 7, generator=torch.Generator().manual_seed(1))


def refusal(network, **options) -> str:
    with pytest.raises((ConfigError, WeightsError)) as error:
        open_network(network, **options)
    return str(error.value)


@pytest.mark.parametrize(
    "function",
    [
        double,
        lambda image: double(image)[0].permute(1, 2, 0).numpy(),
        lambda image: Image.fromarray(
            (double(image)[0].permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
        ),
    ],
    ids=["tensor", "array", "PIL"],
)
def test_a_function_may_return_any_form_of_a_picture(function):
    opened = open_network(function)
    assert opened.scale == 2
    assert opened.origin["type"] == "function"
    torch.testing.assert_close(opened.function(IMAGE), double(IMAGE), atol=0.5 / 255, rtol=0)


def test_a_function_cannot_change_its_input():
    opened = open_network(lambda image: double(image.clamp_(0, 0.5)) * 1.0)
    image = IMAGE.clone()
    opened.function(image)
    assert torch.equal(image, IMAGE)


def test_a_function_is_found_in_a_file_and_in_a_module(tmp_path):
    opened = open_network(write_function(tmp_path / "mine.py"))
    assert torch.equal(opened.function(IMAGE), double(IMAGE))
    assert "digest" not in opened.origin
    assert open_network("helpers.foreign:double").scale == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("nowhere.onnx", "there is no file 'nowhere.onnx'"),
        ("no.such.module:double", "the module 'no.such.module' could not be imported"),
        ("helpers.foreign:triple", "helpers.foreign has no function 'triple'"),
        ("nowhere.py:double", "there is no file 'nowhere.py'"),
    ],
)
def test_names_that_lead_nowhere(text, line):
    assert line in refusal(text)


def test_files_that_are_no_networks(tmp_path):
    (tmp_path / "mine.py").write_text("1 / 0")
    assert "could not be run: ZeroDivisionError" in refusal(f"{tmp_path}/mine.py:double")
    assert "name its function: mine.py:FUNCTION" in refusal(tmp_path / "mine.py")
    (tmp_path / "net.onnx").write_bytes(b"\x08nothing")
    assert "net.onnx is no whole ONNX file" in refusal(tmp_path / "net.onnx")
    (tmp_path / "net.pth").write_bytes(b"\x08\x07:\x05\x12\x03net")
    assert "net.pth is an ONNX file; rename it to end in .onnx" in refusal(tmp_path / "net.pth")
    (tmp_path / "net.txt").write_text("text")
    assert "net.txt is no network that can be wrapped" in refusal(tmp_path / "net.txt")


def test_functions_that_do_not_enlarge():
    assert "by the shape (1, 3, 64, 24)" in refusal(lambda image: image[..., ::2])
    assert "does not look like that picture" in refusal(lambda image: 1 - double(image))
    assert "enlarges by 2, not by 4" in refusal(double, scale=4)

    def broken(_):
        raise KeyError("weights")

    assert "broken failed on a picture of 48 x 64 pixels: KeyError" in refusal(broken)


@pytest.mark.parametrize(
    "settings", [{}, {"channels_last": True}, {"dtype": "FLOAT16"}], ids=["plain", "NHWC", "half"]
)
def test_an_onnx_file_is_run_as_it_is(tmp_path, settings):
    pytest.importorskip("onnxruntime")
    opened = open_network(write_onnx(tmp_path / "net.onnx", **settings))
    assert (opened.scale, opened.origin["value_range"]) == (2, 1.0)
    assert len(opened.origin["digest"]) == 64
    expected = double(IMAGE.half().float() if "dtype" in settings else IMAGE)
    assert torch.equal(opened.function(IMAGE), expected)


def test_bytes_are_levels(tmp_path):
    pytest.importorskip("onnxruntime")
    opened = open_network(write_onnx(tmp_path / "net.onnx", dtype="UINT8", channels_last=True))
    levels = (IMAGE * 255).round()
    assert torch.equal(opened.function(IMAGE), double(levels) / 255)


def test_a_network_of_the_range_255_is_known_by_the_test_picture(tmp_path):
    pytest.importorskip("onnxruntime")
    path = write_onnx(tmp_path / "net.onnx", offset=2.0)  # two levels; far too much in 0..1
    opened = open_network(path)
    assert opened.origin["value_range"] == 255.0
    torch.testing.assert_close(opened.function(IMAGE), double(IMAGE) + 2 / 255)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"side": 224}, "takes pictures of w x 224 pixels only"),
        ({"channels": 1}, "takes one channel"),
        ({"channels": 4}, "takes 4 channels, and a wrapped network takes RGB"),
        ({"num_inputs": 2}, "has 2 inputs (x, more0)"),
        ({"dtype": "INT32"}, "takes tensor(int32) of shape"),
    ],
)
def test_onnx_files_that_cannot_be_wrapped(tmp_path, settings, line):
    pytest.importorskip("onnxruntime")
    assert line in refusal(write_onnx(tmp_path / "net.onnx", **settings))


def test_torchscript_is_a_program_and_runs_only_if_trusted(tmp_path):
    path = write_torchscript(tmp_path / "net.pt")
    assert "net.pt is a TorchScript file, which is a program" in refusal(path)
    opened = open_network(path, trust=True)
    assert opened.origin["type"] == "torchscript"
    assert torch.equal(opened.function(IMAGE), double(IMAGE))


def test_pickled_weights_are_read_without_running_them(tmp_path, capsys):
    """With spandrel or without it, a pickle of anything but tensors is refused."""

    class Harm:
        def __reduce__(self):
            return (print, ("harm was done",))

    torch.save({"state_dict": Harm()}, tmp_path / "net.pth")
    assert "net.pth" in refusal(tmp_path / "net.pth", trust=True)
    assert "harm" not in capsys.readouterr().out


def test_a_changed_network_is_refused(tmp_path):
    pytest.importorskip("onnxruntime")
    first = open_network(write_onnx(tmp_path / "first.onnx"))
    other = open_network(write_onnx(tmp_path / "other.onnx", offset=1e-3))
    first.check_is(first.origin, first.answer, "sigma.safetensors")
    with pytest.raises(
        WeightsError, match=r"holds the error bars of 'first.onnx', a file of other"
    ):
        other.check_is(first.origin, first.answer, "sigma.safetensors")
    function = open_network(double)
    with pytest.raises(WeightsError, match="answered a test picture otherwise"):
        open_network(lambda image: 0.97 * double(image)).check_is(
            function.origin, function.answer, "sigma.safetensors"
        )
    with pytest.raises(WeightsError, match="a file of other content"):
        function.check_is(first.origin, first.answer, "sigma.safetensors")


def test_spandrel_builds_the_network_of_a_weights_file(tmp_path):
    pytest.importorskip("spandrel", reason="spandrel is not installed")
    from spandrel.architectures.Compact import Compact

    torch.manual_seed(0)
    network = Compact(num_feat=16, num_conv=2, upscale=4).eval()
    with torch.no_grad():
        network.body[-1].weight.mul_(0.05)  # so that the result looks like the picture
    torch.save({"params": network.state_dict()}, tmp_path / "compact.pth")
    opened = open_network(tmp_path / "compact.pth")
    assert (opened.scale, opened.origin["type"]) == (4, "spandrel")
    with torch.no_grad():
        expected = network(IMAGE).clamp(0, 1)  # as spandrel does
    assert torch.equal(opened.function(IMAGE), expected)


@pytest.mark.parametrize("place", ["{folder}/weights.bin", "weights.bin", "../x/weights.bin"])
@pytest.mark.parametrize("is_constant", [False, True])
def test_weights_in_another_file_are_not_opened(tmp_path, monkeypatch, capfd, place, is_constant):
    """ONNX Runtime would look for them from the current folder on, and outside of it."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    folder = tmp_path / "x"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "weights.bin").write_bytes(np.eye(3, dtype=np.float32).tobytes())
    weight = onnx.TensorProto(name="w", dims=[3, 3, 1, 1], data_type=onnx.TensorProto.FLOAT)
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", place.format(folder=folder)), ("length", "36")):
        weight.external_data.add(key=key, value=value)
    nodes = [onnx.helper.make_node("Conv", ["input", "w"], ["mean"])]
    if is_constant:
        nodes.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=weight))
    graph = onnx.helper.make_graph(
        nodes,
        "graph",
        *(
            [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 3, "h", "w"])]
            for name in ("input", "mean")
        ),
        [] if is_constant else [weight],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    model.ir_version = 9
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    assert "weights of net.onnx lie in another file, which is not opened" in refusal("net.onnx")
    with pytest.raises(WeightsError, match="lie in another file"):
        load("./net.onnx")
    assert capfd.readouterr() == ("", "")


def test_an_onnx_file_with_another_graph_than_it_says(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    path = tmp_path / "net.onnx"
    load("bicubic", scale=2).export(path)
    content = onnx.load(path)
    content.graph.output[0].name = content.graph.node[-1].output[0] = "other"
    onnx.save(content, path)
    with pytest.raises(WeightsError, match="has one input and the output mean, got"):
        load(path).predict(torch.rand(1, 3, 8, 8))
    content.graph.node[0].op_type = "Nonsense"
    onnx.save(content, path)
    with pytest.raises(WeightsError, match="ONNX Runtime cannot open the file of the model"):
        load(path).predict(torch.rand(1, 3, 8, 8))
