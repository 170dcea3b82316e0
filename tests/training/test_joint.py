"""The joint head: training of it beside frozen weights, storing it, and what it predicts."""

from dataclasses import replace

import pytest
import torch

from musigma.datasets.demo_photo import portrait
from musigma.functional.scores import normal_factor
from musigma.images.image_io import read_image, write_image
from musigma.model import Model, load
from musigma.networks import create, with_sigma
from musigma.networks.joint_head import JointNetwork, joint_head
from musigma.networks.weights_file import digest_of, weights_of, write_weights_file
from musigma.prediction.predict import predict
from musigma.training import joint
from musigma.training.joint import (
    HeadData,
    HeadTraining,
    collect,
    mean_gain,
    patch_gain,
    quantile_loss,
    random_sums,
    student_loss,
    sum_loss,
    train_joint_head,
    with_flaws,
)
from musigma.types import ConfigError, DataError, WeightsError
from musigma.uncertainty.calibration import Calibration
from musigma.uncertainty.quantities import JointCalibration

BICUBIC = Calibration(
    method="pooled-quantile",
    knots=(1.0,),
    values=(1.2,),
    factor=2.0,
    coverage=0.9,
    confidence=None,
    num_images=9,
    protocol={"degradation": "bicubic"},
)


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    network = with_sigma(create("edsr-baseline", scale=2, num_blocks=1, width=8), width=8, depth=1)
    joint = JointCalibration(correlation=None, factors=((0.9, 1.7),), num_images=9)
    calibration = replace(BICUBIC, joint=joint.to_dict())
    head = joint_head(network, fields=6, width=8, reach=3)
    return Model(network=network.eval(), name="tiny", calibration=calibration, joint_head=head)


@pytest.fixture(scope="module")
def data(model):
    picture = portrait()
    return collect(model, (picture[..., 40 * n : 40 * n + 80, 100:180] for n in range(4)))


def test_training_raises_the_likelihood_and_leaves_the_network_alone(model, data):
    before, digest = (
        {k: v.clone() for k, v in weights_of(model.network).items()},
        digest_of(model.network),
    )
    settings = HeadTraining(steps=40, crop=80, patch=6, batch=8, window=48, windows=1, sums=2)
    start = joint_head(model.network, fields=6, width=8, reach=3)
    untrained = mean_gain(start, data, scale=2, patch=6, count=64)
    reports = []
    head = train_joint_head(
        model, data, settings, head=start, report=lambda *row: reports.append(row)
    )
    trained = mean_gain(head, data, scale=2, patch=6, count=64)
    assert len(reports) == 40
    assert trained > untrained + 0.02
    assert digest_of(model.network) == digest
    assert all(torch.equal(before[key], value) for key, value in weights_of(model.network).items())


def test_mean_and_sigma_of_the_joint_pass_are_those_of_the_network_and_tiles_are_exact(model):
    image = torch.rand(1, 3, 24, 20, generator=torch.Generator().manual_seed(0))
    network = JointNetwork(model.network, model.joint_head).eval()
    whole, tiled = (predict(network, image, tile=tile).mean for tile in (None, 8))
    torch.testing.assert_close(whole, tiled, rtol=1e-5, atol=1e-6)
    prediction, weights = network.split(whole)
    plain = model.predict(image)
    torch.testing.assert_close(prediction.mean, plain.mean)
    torch.testing.assert_close(prediction.sigma, plain.sigma)
    torch.testing.assert_close(weights.square().sum(1), torch.ones(1, 48, 40))


def test_a_head_is_stored_with_the_weights_and_does_not_change_their_digest(model, tmp_path):
    path = tmp_path / "tiny.safetensors"
    model.save(path)
    loaded = load(path)
    assert loaded.digest == digest_of(model.network)
    assert digest_of(loaded.joint_head) == digest_of(model.joint_head)
    image = torch.rand(1, 3, 16, 16)
    first, second = (each.predict_joint(image).mean_over((4, 4, 8, 8)) for each in (model, loaded))
    assert first == pytest.approx(second)
    assert first.low < first.value < first.high


@pytest.mark.parametrize(
    "settings",
    [3, {"fields": 6}, {"fields": 10**9}, {"width": 8, "more": 1}, {"reach": -1}, {"fields": "6"}],
)
def test_hostile_settings_of_a_head_are_refused(model, tmp_path, settings, monkeypatch):
    path = tmp_path / "odd.safetensors"
    monkeypatch.setattr(type(model.joint_head), "settings", settings)
    write_weights_file(path, model.network, head=model.joint_head)
    with pytest.raises(WeightsError):
        load(path)


def test_joint_errors_without_their_head_are_refused(model, tmp_path):
    path = tmp_path / "odd.safetensors"
    calibration = model.calibration.to_dict()
    write_weights_file(path, model.network, calibration=calibration)
    with pytest.raises(WeightsError, match="need a joint head"):
        load(path)


def test_a_head_needs_sigma(model):
    with pytest.raises(ConfigError, match="sigma"):
        joint_head(create("edsr-baseline", scale=2, num_blocks=1, width=8))


def test_random_sums_are_means_inside_the_window():
    sums = random_sums(40, 3, 48, torch.Generator().manual_seed(0))
    assert torch.allclose(sums.sum((1, 2, 3)), torch.ones(40))
    assert float(sums[:, :, :8].abs().sum()) == float(sums[..., -8:].abs().sum()) == 0


def test_some_crops_get_flaws_and_the_others_stay():
    crops = [portrait()[..., 40:72, 100:132]] * 40
    flawed = list(with_flaws(iter(crops), 0.5, seed=0))
    changes = [(a - b) * 255 for a, b in zip(flawed, crops, strict=True)]
    changed = [change for change in changes if float(change.abs().max()) > 0]
    assert 10 < len(changed) < 30
    assert max(float(change.std()) for change in changed) < 12
    alike = [float((change - change.mean(1, keepdim=True)).abs().max()) < 0.6 for change in changed]
    assert 0 < sum(alike) < len(alike)  # some noise is gray, other noise is colored
    unchanged = with_flaws(iter(crops), 0.0, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(unchanged, crops, strict=True))


def test_the_loss_of_sums_is_least_at_the_true_variance():
    errors = 0.3 * torch.distributions.StudentT(5.0).sample((20000,))
    losses = [float(student_loss(errors, torch.tensor(v)).mean()) for v in (0.05, 0.09, 0.16)]
    assert losses[1] < min(losses[0], losses[2])


def test_an_onnx_file_carries_the_weights_of_the_fields(model, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    import onnxruntime

    from musigma.prediction.engines import read_metadata

    path = tmp_path / "tiny.onnx"
    model.export(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    assert names == ["mean", "sigma", "half_width", "joint_weights"]
    image = torch.rand(1, 3, 9, 12, generator=torch.Generator().manual_seed(0))
    mean, _, _, weights = session.run(names, {"input": image.numpy()})
    network = JointNetwork(model.network, model.joint_head).eval()
    prediction, expected = network.split(predict(network, image).mean)
    torch.testing.assert_close(torch.from_numpy(mean), prediction.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.from_numpy(weights), expected, rtol=1e-3, atol=1e-4)
    fields = read_metadata(path)["joint_fields"]
    filters = torch.tensor(fields["filters"])
    torch.testing.assert_close(filters, model.joint_head.bank().filters, rtol=0, atol=1e-5)
    loaded = load(path)
    assert loaded.joint_head is None
    with pytest.raises(ConfigError, match="joint head"):
        loaded.predict_joint(image)


def test_the_loss_of_intervals_is_least_where_they_hold_their_share():
    errors = 0.3 * torch.randn(20000, generator=torch.Generator().manual_seed(0)).exp()
    half_width = float(errors.quantile(0.9))
    variances = [(factor * half_width / normal_factor(0.9)) ** 2 for factor in (0.8, 1.0, 1.25)]
    losses = [float(quantile_loss(errors, torch.tensor(v)).mean()) for v in variances]
    assert losses[1] < min(losses[0], losses[2])


def test_a_training_step_makes_no_tensor_on_another_device(model):
    """On the device meta, as on a GPU, an operation with a tensor of the CPU is an error."""

    def empty(*shape):
        return torch.empty(*shape, device="meta")

    head = joint_head(model.network, fields=6, width=8, reach=3).to("meta")
    data = HeadData(empty(2, 16, 40, 40), *(empty(2, 3, 80, 80) for _ in range(3)))
    settings = HeadTraining(crop=80, patch=6, batch=4, window=48, windows=2, sums=2)
    generator = torch.Generator().manual_seed(0)
    gain = patch_gain(head, data, settings, 2, generator)
    loss_of_sums = sum_loss(head, data, settings, 2, generator)
    (loss_of_sums - gain).backward()
    assert {tensor.device.type for tensor in (gain, loss_of_sums)} == {"meta"}
    assert {weight.grad.device.type for weight in head.parameters()} == {"meta"}
    with pytest.raises(RuntimeError):  # the proof that the device tells
        empty(2) + torch.zeros(2)


def test_a_picture_is_read_once_for_all_its_crops(tmp_path, monkeypatch):
    paths = [tmp_path / f"{n}.png" for n in range(2)]
    for number, path in enumerate(paths):
        write_image(path, torch.full((1, 3, 20, 24), number / 2))
    read: list[object] = []
    monkeypatch.setattr(joint, "read_image", lambda path: read.append(path) or read_image(path))
    crops = list(joint.random_crops(paths, 12, 6, seed=0))
    assert [tuple(crop.shape) for crop in crops] == [(1, 3, 12, 12)] * 6
    assert sorted(read) == paths
    assert sorted(round(float(crop.mean()), 2) for crop in crops) == [0.0] * 3 + [0.5] * 3
    with pytest.raises(DataError, match="no picture"):
        next(joint.random_crops(paths, 64, 1, seed=0))
