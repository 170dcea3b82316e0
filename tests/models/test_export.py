"""Every registered network as an ONNX file with free height and width."""

import numpy as np
import pytest
import torch
from torch.export import Dim

from helpers.networks import assert_close, build, image_for, one_of_each_class


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.export about torch itself
@pytest.mark.parametrize(("name", "scale"), one_of_each_class())
def test_onnx_runtime_agrees_at_other_sizes(name, scale, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    network = build(name, scale, sigma=True)
    path = tmp_path / "network.onnx"
    program = torch.onnx.export(
        network,
        (image_for(network, 13, 11),),
        dynamo=True,
        dynamic_shapes=({2: Dim.DYNAMIC, 3: Dim.DYNAMIC},),
        verbose=False,
    )
    program.save(path)
    session = onnxruntime.InferenceSession(path)
    (feed,) = (argument.name for argument in session.get_inputs())
    for height, width in ((37, 31), (8, 17)):
        low = image_for(network, height, width)
        with torch.inference_mode():
            expected = network(low)
        actual = session.run(None, {feed: np.asarray(low)})
        assert_close(tuple(torch.from_numpy(value) for value in actual), expected)
