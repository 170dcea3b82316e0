"""The model object: everything that README promises of it, and errors that speak Python."""

import copy
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import musigma
from helpers.networks import assert_close, build, image_for
from musigma.model import Model, load, save
from musigma.networks import mean_only
from musigma.networks.weights_file import write_weights_file
from musigma.prediction.engines import EngineCache, TorchEngine
from musigma.types import ConfigError, ImageError, Prediction, WeightsError
from musigma.uncertainty.calibration import Calibration
from musigma.uncertainty.joint import Correlation
from musigma.uncertainty.quantities import JointCalibration

CALIBRATION = Calibration(
    method="isotonic",
    knots=(0.01, 0.02, 0.05),
    values=(0.012, 0.03, 0.04),
    factor=2.0,
    coverage=0.9,
    confidence=None,
    num_images=7,
)


def small_model(**changes):
    network = build("edsr-baseline", 2, sigma=True)
    values = {"network": network, "name": "edsr-baseline", "calibration": CALIBRATION} | changes
    return Model(**values)


IMAGE = torch.rand(1, 3, 9, 7, generator=torch.Generator().manual_seed(0))


def test_a_model_is_called_with_an_image_of_any_form():
    model = small_model()
    bytes_ = (IMAGE[0].permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
    expected = model.predict(bytes_)
    assert expected.mean.shape == expected.sigma.shape == (1, 3, 18, 14)
    for image in (bytes_, Image.fromarray(bytes_), torch.from_numpy(bytes_ / np.float32(255))):
        tensor = image.permute(2, 0, 1) if isinstance(image, torch.Tensor) else image
        for found in (model(tensor), model.predict(tensor)):
            assert_close(found, expected)


def test_a_batch_gives_the_results_of_its_images():
    model = small_model()
    batch = image_for(model.network, 9, 7, num_images=3)
    found = model.predict(batch)
    assert found.mean.shape == found.sigma.shape == (3, 3, 18, 14)
    assert_close(model.predict(batch.permute(0, 2, 3, 1).numpy()), found)
    low, high = model.interval(found)
    assert low.shape == high.shape == found.mean.shape


def test_a_denoiser_is_told_the_noise_level():
    model = Model(network=build("drunet-small", 1, sigma=True), name="drunet-small")
    assert model.takes_noise_level
    weak, strong = (model.predict(IMAGE, noise_std=level).mean for level in (5, 50))
    assert weak.shape == (1, 3, 9, 7)
    assert not torch.allclose(weak, strong)
    with pytest.raises(ConfigError, match="give `noise_std` in 8-bit levels"):
        model.predict(IMAGE)


def test_interval_and_standard_deviation():
    model = small_model()
    sigma = torch.tensor([0.005, 0.015, 0.1]).view(1, 3, 1, 1)
    prediction = Prediction(torch.full((1, 3, 1, 1), 0.5), sigma)
    # By hand: 1.2 times sigma below the first knot, a straight line, 0.8 times beyond the last.
    std = torch.tensor([0.006, 0.021, 0.08]).view(1, 3, 1, 1)
    torch.testing.assert_close(model.std(prediction), std)
    low, high = model.interval(prediction, coverage=0.9)
    torch.testing.assert_close(low, 0.5 - 2 * std)
    torch.testing.assert_close(high, 0.5 + 2 * std)


def test_no_interval_without_sigma_or_calibration():
    model = small_model()
    prediction = model.predict(IMAGE)
    with pytest.raises(ConfigError, match=r"calibrated for coverages of 0.9, not of 0.95"):
        model.interval(prediction, coverage=0.95)
    with pytest.raises(ConfigError, match="edsr-baseline is not calibrated; 'musigma calibrate'"):
        replace(model, calibration=None).interval(prediction)
    with pytest.raises(ConfigError, match="has no sigma; use a model with a sigma branch"):
        model.std(Prediction(prediction.mean))


def test_its_text_tells_what_it_is():
    assert repr(small_model()) == (
        "Model('edsr-baseline', scale=2, has_sigma=True, calibrated_for=0.9 (isotonic), "
        "device='cpu')"
    )
    assert "calibrated_for=None" in repr(load("bicubic", scale=2))


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "0"])
def test_a_device_that_is_not_there_is_one_line(device):
    with pytest.raises(ConfigError, match=f"the device '{device}' cannot be used") as caught:
        small_model().to(device)
    assert "\n" not in str(caught.value)


def test_to_returns_the_model():
    model = small_model()
    assert model.to("cpu") is model.to(torch.device("cpu")) is model
    assert model.device.type == "cpu"


@pytest.mark.parametrize("as_text", [False, True])
def test_saved_and_loaded(tmp_path, as_text):
    model, path = small_model(metadata={"licence": "MIT"}), tmp_path / "w.safetensors"
    model.save(str(path) if as_text else path, data="pictures")
    loaded = load(str(path) if as_text else path)
    assert loaded.metadata["licence"] == "MIT"
    assert loaded.metadata["data"] == "pictures"
    assert loaded.calibration == CALIBRATION
    assert_close(loaded.predict(IMAGE), model.predict(IMAGE))
    save(str(tmp_path / "bare.safetensors"), model.network)
    assert load(tmp_path / "bare.safetensors").calibration is None


def test_engines_are_made_once(monkeypatch):
    model, made = small_model(), []
    original = TorchEngine.__init__

    def count(self, *args, **options):
        made.append(1)
        original(self, *args, **options)

    monkeypatch.setattr(TorchEngine, "__init__", count)
    with ThreadPoolExecutor(4) as pool:
        engines = list(pool.map(lambda _: model.engine("torch-bf16"), range(8)))
    for _ in range(3):
        model.predict(IMAGE, engine="torch-bf16")
    assert len(set(map(id, engines))) == 1
    assert len(made) == 1


def test_an_engine_follows_weights_that_change():
    """The half-precision engine has a copy of the weights; an old copy would be wrong."""
    model = small_model()
    before = model.predict(IMAGE, engine="torch-bf16").mean
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.mul_(0.5)
    after = model.predict(IMAGE, engine="torch-bf16").mean
    exact = model.predict(IMAGE).mean
    assert (after - exact).abs().max() < (before - exact).abs().max() / 10


def test_models_are_copied_and_sent_to_other_processes():
    model = small_model()
    expected = model.predict(IMAGE)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), replace(model)):
        assert_close(other.predict(IMAGE), expected)
        assert other._engines is not model._engines
    assert isinstance(copy.copy(EngineCache()), EngineCache)


@pytest.mark.parametrize("engine", ["torch", "torch-bf16", "onnx", "openvino"])
def test_threads_get_their_own_images(engine):
    if engine in ("onnx", "openvino"):
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime" if engine == "onnx" else "openvino")
    model = small_model()
    images = [image_for(model.network, 9 + 4 * (k % 3), 8) * (k + 1) / 24 for k in range(24)]
    expected = [model.predict(image, engine=engine) for image in images]
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda image: model.predict(image, engine=engine), images)
        for ours, theirs in zip(results, expected, strict=True):
            assert_close(ours, theirs)


def test_a_prediction_becomes_a_picture():
    mean = torch.tensor([-0.5, 0.25, 2.0]).view(1, 3, 1, 1).expand(1, 3, 4, 5)
    prediction = Prediction(mean)
    expected = np.broadcast_to(np.array([0, 64, 255], dtype=np.uint8), (4, 5, 3))
    assert np.array_equal(prediction.to_uint8(), expected)
    assert np.array_equal(np.asarray(prediction.to_pil()), expected)
    assert Prediction(mean[:, :1]).to_pil().mode == "L"
    batch = Prediction(mean.repeat(2, 1, 1, 1))
    assert batch.to_uint8().shape == (2, 4, 5, 3)
    with pytest.raises(ImageError, match="holds one image, and this is a batch of 2"):
        batch.to_pil()


# Models from ONNX files


@pytest.fixture(scope="module")
def onnx_path(tmp_path_factory):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    path = tmp_path_factory.mktemp("export") / "x2.onnx"
    small_model(metadata={"licence": "MIT"}, digest="0" * 64).export(str(path))
    return path


def test_an_onnx_file_is_a_model(onnx_path):
    model, original = musigma.load(str(onnx_path)), small_model()
    assert (model.name, model.scale, model.has_sigma) == ("edsr-baseline", 2, True)
    assert (model.calibration, model.digest) == (CALIBRATION, "0" * 64)
    assert model.metadata["licence"] == "MIT"
    assert model.device.type == "cpu"
    image = image_for(original.network, 40, 150)
    found = model.predict(image, memory=2**21)  # five tiles
    assert_close(found, original.predict(image))
    assert_close(model.interval(found), original.interval(found))
    assert model.engine().name == model.engine("auto").name == "onnx"


def test_openvino_runs_an_onnx_file(onnx_path):
    pytest.importorskip("openvino")
    assert_close(load(onnx_path).predict(IMAGE, engine="openvino"), small_model().predict(IMAGE))


def test_the_file_gives_the_half_width(onnx_path):
    import onnxruntime

    session = onnxruntime.InferenceSession(onnx_path)
    assert [output.name for output in session.get_outputs()] == ["mean", "sigma", "half_width"]
    mean, sigma, half_width = session.run(None, {"input": IMAGE.numpy()})
    assert_close((torch.from_numpy(mean), torch.from_numpy(sigma)), small_model().predict(IMAGE))
    expected = CALIBRATION.half_width(torch.from_numpy(sigma))
    assert_close((torch.from_numpy(half_width),), (expected,))


def test_a_model_from_an_onnx_file_says_what_it_cannot_do(onnx_path, tmp_path):
    model = load(onnx_path)
    assert model.to("auto") is model.to("cpu") is model
    with pytest.raises(ConfigError, match="from an ONNX file runs on the CPU, not on cuda"):
        model.to("cuda")
    with pytest.raises(ConfigError, match="runs by the engines onnx and openvino, not by torch-bf"):
        model.predict(IMAGE, engine="torch-bf16")
    with pytest.raises(ConfigError, match="the network has no weights in memory"):
        musigma.predict(model.network, IMAGE)
    with pytest.raises(ConfigError, match="has no weights to save"):
        model.save(tmp_path / "w.safetensors")
    with pytest.raises(ConfigError, match=re.escape("x2.onnx enlarges by 2, not by 3")):
        load(onnx_path, scale=3)
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(onnx_path.read_bytes()[:100])
    with pytest.raises(WeightsError, match=r"broken.onnx"):
        load(broken)


def test_a_model_without_sigma_is_exported_without_it(tmp_path):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    network = mean_only(small_model().network)
    Model(network=network, name="edsr-baseline").export(tmp_path / "mean.onnx")
    model = load(tmp_path / "mean.onnx")
    found = model.predict(IMAGE)
    assert found.sigma is None
    assert_close((found.mean,), (small_model().predict(IMAGE).mean,))


def test_a_file_in_the_folder_does_not_take_the_place_of_shipped_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edsr-baseline").write_bytes(b"no weights")
    assert load("edsr-baseline", scale=2).has_sigma
    with pytest.raises(WeightsError, match="edsr-baseline cannot be loaded safely"):
        load("./edsr-baseline")


@pytest.mark.parametrize("scale", [1, 2, 4])
def test_weights_for_photographs_ship_with_intervals(scale):
    model = load("photo", scale=scale)
    assert (model.name, model.scale, model.takes_noise_level) == ("photo", scale, False)
    image = torch.rand(1, 3, 9, 7, generator=torch.Generator().manual_seed(0))
    low, high = model.interval(model.predict(image), coverage=0.9)
    assert low.shape == (1, 3, 9 * scale, 7 * scale)
    assert (low < high).all()
    assert "JPEG-compressed" in model.calibration.conditions


def _small_input() -> torch.Tensor:
    from musigma.datasets.demo_photo import portrait
    from musigma.functional.resize import bicubic_down

    return bicubic_down(portrait()[..., 60:156, 200:296], 4)


def test_samples_agree_with_the_input_and_differ_as_much_as_the_bars_say():
    from musigma.uncertainty.consistency import shrink

    model, degraded = load("edsr-baseline", scale=4), _small_input()
    samples, prediction = model.sample(degraded, 8), model.predict(degraded)
    assert samples.shape == (8, 3, 96, 96)
    assert 0 <= float(samples.min()) <= float(samples.max()) <= 1
    for sample in samples:
        error = shrink(sample[None], 4) - degraded
        assert float(error.square().mean()) < 10**-4.5  # 45 dB
    spread = (samples - prediction.mean).square().mean().sqrt()
    assert 0.8 < float(spread / model.std(prediction).square().mean().sqrt()) < 1.1
    shift = samples.mean(0) - prediction.mean[0].clamp(0, 1)  # some values are cut off
    assert float(shift.square().mean().sqrt()) < 0.2 * float(spread)
    assert torch.equal(samples, model.sample(degraded, 8))
    assert not torch.equal(samples, model.sample(degraded, 8, seed=1))
    assert len(model.sample(degraded, 3)) == 3


def test_the_mean_over_a_region_has_an_interval_that_grows_with_the_coverage():
    model, degraded = load("edsr-baseline", scale=4), _small_input()
    prediction = model.predict_joint(degraded)
    assert torch.equal(prediction.mean, model.predict(degraded).mean)
    box = prediction.mean_over((8, 16, 20, 12))
    mask = torch.zeros(96, 96, dtype=torch.bool)
    mask[16:28, 8:28] = True
    assert prediction.mean_over(mask) == box
    # What the input says about the mean moves it by a little.
    assert box.value == pytest.approx(float(prediction.mean[..., 16:28, 8:28].mean()), abs=0.01)
    half_width = box.high - box.value
    added = model.std(prediction)[..., 16:28, 8:28].mean()
    assert 0 < box.std < float(added)
    assert half_width == pytest.approx(model.require_joint().half_width(box.std, 0.9), rel=1e-5)
    wider = prediction.mean_over((8, 16, 20, 12), coverage=0.95)
    assert wider.high - wider.value > half_width
    difference = prediction.mean_over((8, 16, 8, 8), minus=(40, 16, 8, 8))
    parts = [prediction.mean_over(region).value for region in ((8, 16, 8, 8), (40, 16, 8, 8))]
    assert difference.value == pytest.approx(parts[0] - parts[1], abs=1e-5)
    with pytest.raises(ConfigError, match="a batch of 2"):
        model.predict_joint(torch.rand(2, 3, 8, 8))


def test_a_gray_picture_is_measured_like_a_color_picture_with_equal_channels():
    model, gray = load("edsr-baseline", scale=4), _small_input().mean(1, keepdim=True)
    first, second = (
        model.predict_joint(image).mean_over((8, 16, 20, 12))
        for image in (gray, gray.expand(1, 3, -1, -1))
    )
    assert first == second


@pytest.mark.parametrize("joint", [3, {}, {"correlation": {}, "factors": [], "num_images": 1}])
def test_hostile_joint_errors_in_a_file_are_refused(tmp_path, joint):
    model = load("edsr-baseline", scale=2)
    calibration = model.calibration.to_dict() | {"joint": joint}
    write_weights_file(tmp_path / "odd.safetensors", model.network, calibration=calibration)
    with pytest.raises(WeightsError, match=r"calibration in odd.* cannot be used"):
        load(tmp_path / "odd.safetensors")


def test_joint_errors_of_another_scale_are_refused(tmp_path):
    model = load("edsr-baseline", scale=2)
    other = Correlation.independent(scale=4, radius=1, channels=3)
    joint = JointCalibration(correlation=other, factors=((0.9, 1.7),), num_images=9)
    calibration = model.calibration.to_dict() | {"joint": joint.to_dict()}
    write_weights_file(tmp_path / "odd.safetensors", model.network, calibration=calibration)
    with pytest.raises(WeightsError, match="joint errors are for scale 4"):
        load(tmp_path / "odd.safetensors")


def test_joint_errors_are_saved_and_files_without_them_load(tmp_path):
    model = load("edsr-baseline", scale=2)
    model.save(tmp_path / "with.safetensors")
    assert load(tmp_path / "with.safetensors").require_joint() == model.require_joint()
    former = {key: value for key, value in model.calibration.to_dict().items() if key != "joint"}
    assert model.joint_head is not None
    write_weights_file(tmp_path / "former.safetensors", model.network, calibration=former)
    loaded = load(tmp_path / "former.safetensors")
    assert "joint" not in loaded.calibration.to_dict()
    with pytest.raises(ConfigError, match="calibrate --joint"):
        loaded.require_joint()


def test_an_interval_needs_a_whole_prediction():
    model = load("edsr-baseline", scale=2)
    with pytest.raises(ConfigError, match="expected the Prediction that `predict` returns, got T"):
        model.interval(model.predict(IMAGE).mean)
