"""A model as an ONNX file: whoever loads it gets the numbers of the network, and its facts."""

import numpy as np
import pytest
import torch

from helpers.calibrations import calibration_of
from helpers.networks import assert_close, build, image_for, one_of_each_class
from musigma.model import Model
from musigma.networks import mean_only
from musigma.prediction.engines import (
    OnnxEngine,
    OpenVinoEngine,
    export_onnx,
    make_engine,
    onnx_file,
    read_metadata,
)
from musigma.prediction.engines.onnx_file import require, to_onnx
from musigma.types import ConfigError, WeightsError
from musigma.uncertainty.calibration import Calibration

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

CALIBRATION = calibration_of(
    method="pooled-quantile", num_images=7, other_factors=((0.5, 0.6), (0.95, 2.5))
)
NETWORK = build("edsr-baseline", 2, sigma=True)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    model = Model(
        network=NETWORK,
        name="edsr-baseline",
        metadata={"licence": "Apache-2.0"},
        digest="0" * 64,
        calibration=CALIBRATION,
    )
    path = tmp_path_factory.mktemp("export") / "network.onnx"
    model.export(path)
    return path


@pytest.mark.parametrize(("num_images", "height", "width"), [(1, 37, 31), (3, 8, 17)])
def test_onnx_runtime_alone_gives_the_numbers(path, num_images, height, width):
    session = onnxruntime.InferenceSession(path)
    low = image_for(NETWORK, height, width, num_images=num_images)
    with torch.inference_mode():
        expected = NETWORK(low)
    found = session.run(["mean", "sigma"], {"input": np.asarray(low)})
    assert_close(tuple(map(torch.from_numpy, found)), expected)


def test_the_file_says_what_it_holds(path):
    found = read_metadata(path)
    assert Calibration.from_dict(found["calibration"]) == CALIBRATION
    assert found["calibration"]["other_factors"] == [[0.5, 0.6], [0.95, 2.5]]
    assert (found["architecture"], found["scale"]) == ("edsr-baseline", 2)
    assert (found["licence"], found["digest"]) == ("Apache-2.0", "0" * 64)
    assert found["card"]["receptive_radius"] == NETWORK.receptive_radius
    assert found["card"]["params"] == sum(p.numel() for p in NETWORK.parameters())


def test_the_graph_has_names_and_no_double(path):
    """Some runtimes do not compute in double, and names of axes are what people read."""
    graph = onnx.load(path).graph
    (given,) = graph.input
    assert given.name == "input"
    assert [axis.dim_param for axis in given.type.tensor_type.shape.dim] == [
        *("batch", "", "height", "width")
    ]
    results = {value.name: value.type.tensor_type.shape.dim for value in graph.output}
    assert list(results) == ["mean", "sigma", "half_width"]
    assert results["mean"][0].dim_param == "batch"
    types = {value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output)}
    casts = {a.i for node in graph.node if node.op_type == "Cast" for a in node.attribute}
    stored = {tensor.data_type for tensor in graph.initializer}
    assert onnx.TensorProto.DOUBLE not in types | casts | stored


def test_openvino_reads_it(path):
    pytest.importorskip("openvino")
    engine = OpenVinoEngine(path.read_bytes())
    low = image_for(NETWORK, 37, 31, num_images=2)
    with torch.inference_mode():
        assert_close(engine(low), NETWORK(low))


@pytest.mark.slow
def test_a_network_without_sigma():
    engine = make_engine(mean_only(NETWORK), "onnx")
    low = image_for(NETWORK, 9, 8)
    found = engine(low)
    assert found.sigma is None
    with torch.inference_mode():
        assert_close((found.mean,), (NETWORK(low).mean,))


LEFT_OUT = {
    # To export these takes half a minute and more each; they were seen to agree.
    *("gcdn", "n3net", "rpcnn", "mwcnn", "focnet", "nlrn", "rnan", "lp-kpn", "san", "nlsn"),
    # The same layers as their namesakes, on one channel.
    *("vdsr-y", "espcn-y", "fsrcnn-y"),
    # A bank picks its member by a number that is known at run time alone.
    "ircnn-bank",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scale"), [one for one in one_of_each_class() if one[0] not in LEFT_OUT]
)
def test_onnx_runtime_equals_pytorch_for_every_network(name, scale):
    network = build(name, scale, sigma=True)
    engine = OnnxEngine(to_onnx(network))
    for num_images, height, width in ((1, 37, 31), (2, 8, 17)):
        low = image_for(network, height, width, num_images=num_images)
        with torch.inference_mode():
            assert_close(engine(low), network(low))


def test_files_of_others_and_broken_ones_are_refused(path, tmp_path):
    with pytest.raises(WeightsError, match=r"none.onnx could not be read \(No such file"):
        read_metadata(tmp_path / "none.onnx")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(WeightsError, match=r"broken.onnx is no whole ONNX file"):
        read_metadata(broken)
    foreign = onnx.load(path)
    del foreign.metadata_props[:]
    onnx.save(foreign, tmp_path / "foreign.onnx")
    with pytest.raises(WeightsError, match="was not written by 'musigma export'"):
        read_metadata(tmp_path / "foreign.onnx")


def test_export_refuses_another_suffix(tmp_path):
    with pytest.raises(ConfigError, match=r"must end in .onnx"):
        export_onnx(NETWORK, str(tmp_path / "network.pt"), metadata={})


def test_a_missing_package_says_how_to_install_it():
    with pytest.raises(ConfigError, match=r"needs nosuch; .* pip install 'musigma\[export\]'"):
        require("json", "nosuch", extra="export")


@pytest.mark.parametrize(("name", "extra"), [("onnx", "export"), ("openvino", "openvino")])
def test_an_engine_names_its_own_extra(monkeypatch, name, extra):
    """Also where what is missing is needed for the export, which comes first."""
    monkeypatch.setattr(onnx_file, "find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=rf"pip install 'musigma\[{extra}\]'"):
        make_engine(NETWORK, name)
