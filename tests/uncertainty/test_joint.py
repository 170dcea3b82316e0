"""The joint error model: against brute force, in simulations with a known field, from odd files."""

import math

import numpy as np
import pytest
import torch

from musigma.types import ConfigError, ImageError
from musigma.uncertainty.consistency import made_consistent, shrink, without_visible_part
from musigma.uncertainty.joint import (
    Correlation,
    StationaryErrors,
    draw_field,
    filtered_power,
    pair_classes,
)
from musigma.uncertainty.joint_fit import HeldOutErrors
from musigma.uncertainty.quantities import (
    HeldOutQuantities,
    JointCalibration,
    fit_power,
    probe_all,
    region_weights,
    size_of,
    to_power,
)

COUNT = pair_classes(2, 2).num_classes


def known_correlation(scale: int = 2, radius: int = 2, channels: int = 3) -> Correlation:
    """Return the correlation of a smooth field, whose channels are alike, with a common part."""
    side = 2 * radius + 1
    middle, phase = torch.arange(side) - radius, torch.arange(scale)
    ahead = scale * middle[:, None, None] + phase - phase[:, None]  # (offset, first, second)
    decay = (1 - ahead.abs() / (scale * radius + 1)).clamp_min(0)
    full = torch.einsum("aik,bjl->abijkl", decay, decay).flatten(4, 5).flatten(2, 3).double()
    row = pair_classes(scale, radius).average(full.numpy())
    powers = (2.5, 0.3, 0.2) if channels == 3 else (1.0,)
    return Correlation(
        scale=scale,
        radius=radius,
        values=tuple(tuple((power * row).tolist()) for power in powers),
        common=tuple(0.02 * power for power in powers),
    )


def dense_covariance(correlation: Correlation, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the covariance of a field by asking for the variance of every sum of two values."""
    count = math.prod(shape)
    units = torch.eye(count).reshape(count, *shape)
    single = filtered_power(units, correlation)
    first, second = torch.triu_indices(count, count, 1)
    both = filtered_power(units[first] + units[second], correlation)
    covariance = torch.diag(single)
    covariance[first, second] = (both - single[first] - single[second]) / 2
    return covariance + covariance.T - torch.diag(single)


def test_pairs_share_a_number_where_a_flip_or_an_exchange_makes_them_alike():
    classes = pair_classes(2, 1)
    middle = classes.class_of[1, 1]
    assert len({int(middle[i, i]) for i in range(4)}) == 1
    assert middle[0, 1] == middle[0, 2] == middle[3, 1]
    assert middle[0, 3] != middle[0, 1]
    assert classes.class_of[1, 2, 1, 0] == classes.class_of[1, 0, 0, 1]


def test_the_variance_of_each_value_is_that_of_its_bar():
    std = torch.rand(3, 8, 8) + 0.1
    errors = StationaryErrors(std, known_correlation())
    for c, y, x in ((0, 0, 0), (1, 3, 4), (2, 7, 7)):
        weights = torch.zeros_like(std)
        weights[c, y, x] = 1
        assert errors.variance_of(weights) == pytest.approx(float(std[c, y, x]) ** 2, rel=1e-4)


@pytest.mark.parametrize("scale", [1, 2])
def test_box_sums_equal_those_of_the_dense_covariance(scale):
    correlation = known_correlation(scale, radius=1)
    torch.manual_seed(0)
    std = torch.rand(3, 6, 4) + 0.1
    scaled_covariance = dense_covariance(correlation, (3, 6, 4))
    covariance = scaled_covariance * std.flatten()[:, None] * std.flatten()
    errors = StationaryErrors(std, correlation)
    for box in ((0, 0, 4, 6), (1, 2, 3, 3), (2, 1, 1, 1)):
        weights = region_weights((3, 6, 4), box).contiguous()
        expected = float(
            weights.flatten().double() @ covariance.double() @ weights.flatten().double()
        )
        assert errors.variance_of(weights) == pytest.approx(expected, rel=1e-3)


def test_neighbours_are_positively_correlated_and_a_mean_is_less_certain_than_if_not():
    std = torch.ones(3, 16, 16)
    weights = region_weights((3, 16, 16), (4, 4, 8, 8))
    joint = StationaryErrors(std, known_correlation()).variance_of(weights)
    none = StationaryErrors(
        std, Correlation.independent(scale=2, radius=1, channels=3)
    ).variance_of(weights)
    assert none == pytest.approx(1 / 192, rel=1e-3)
    assert 3 * none < joint < 1


def test_log_likelihood_equals_that_of_the_dense_covariance():
    correlation = known_correlation(2, radius=1)
    torch.manual_seed(0)
    std, residual = torch.rand(3, 4, 6) + 0.1, 0.2 * torch.randn(3, 4, 6)
    scales = std.flatten().double()
    covariance = dense_covariance(correlation, (3, 4, 6)) * scales[:, None] * scales
    normal = torch.distributions.MultivariateNormal(torch.zeros(72).double(), covariance)
    expected = float(normal.log_prob(residual.flatten().double())) / 72
    assert StationaryErrors(std, correlation).log_likelihood(residual) == pytest.approx(
        expected, abs=0.01
    )


def test_likelihood_of_a_large_picture_is_highest_for_the_model_that_made_it():
    correlation = known_correlation()
    std = torch.full((3, 70, 90), 0.1)
    residual = StationaryErrors(std, correlation).sample(1, torch.Generator().manual_seed(0))[0]
    own = StationaryErrors(std, correlation).log_likelihood(residual)
    none = Correlation.independent(scale=2, radius=1, channels=3)
    assert own > StationaryErrors(std, none).log_likelihood(residual) + 0.3
    assert own > StationaryErrors(1.3 * std, correlation).log_likelihood(residual)
    assert own > StationaryErrors(std / 1.3, correlation).log_likelihood(residual)


def test_samples_have_the_bars_and_the_covariance_of_the_model():
    correlation = known_correlation()
    std = torch.rand(3, 40, 40, generator=torch.Generator().manual_seed(1)) + 0.1
    errors = StationaryErrors(std, correlation)
    samples = errors.sample(200, torch.Generator().manual_seed(2))
    ratio = samples.square().mean((0, 2, 3)).sqrt() / std.square().mean((1, 2)).sqrt()
    assert torch.allclose(ratio, torch.ones(3), atol=0.05)
    weights = region_weights((3, 40, 40), (8, 8, 16, 16))
    spread = float((samples * weights).sum((1, 2, 3)).square().mean())
    assert spread == pytest.approx(errors.variance_of(weights), rel=0.4)


def test_a_fit_finds_the_known_field_and_its_intervals_hold_what_they_state(monkeypatch):
    monkeypatch.setattr("musigma.uncertainty.quantities.PROBES_PER_IMAGE", 6)
    known, generator = known_correlation(), torch.Generator().manual_seed(0)
    held_out = HeldOutErrors(scale=2, channels=3, radius=2)
    for _ in range(12):
        held_out.update(draw_field((3, 96, 96), known, generator))
    fitted = held_out.fit()
    std = 0.05 * (1 + torch.rand(3, 96, 96, generator=generator))
    weights = region_weights((3, 96, 96), (30, 30, 8, 8))
    truth = StationaryErrors(std, known).variance_of(weights)
    assert StationaryErrors(std, fitted).variance_of(weights) == pytest.approx(truth, rel=0.3)
    quantities = HeldOutQuantities()
    for number in range(30):
        field = draw_field((3, 96, 96), known, generator)
        quantities.update(field * std, StationaryErrors(std, fitted), image=str(number))
    joint = quantities.fit(fitted)
    assert joint.coverages == (0.5, 0.8, 0.9, 0.95)  # 0.99 needs 99 images
    inside, total = 0, 0
    for number in range(40):
        field = draw_field((3, 96, 96), known, generator)
        for name, probes in probe_all(field * std, StationaryErrors(std, fitted), seed=number):
            if name in ("box 4", "box 8", "profile 16"):
                inside += int((probes.errors.abs() <= joint.factor(0.9) * probes.joint_std).sum())
                total += len(probes.errors)
    # Probes of a picture overlap, so that the bound is that of a tenth of their number.
    margin = 3 * math.sqrt(0.09 / (total / 10))
    assert 0.9 - margin < inside / total < 0.9 + margin


def test_independent_errors_are_found_to_be_independent():
    generator = torch.Generator().manual_seed(0)
    held_out = HeldOutErrors(scale=2, channels=1, radius=1)
    for _ in range(6):
        held_out.update(torch.randn(1, 64, 64, generator=generator))
    weights = region_weights((1, 64, 64), (10, 10, 16, 16))
    variance = StationaryErrors(torch.ones(1, 64, 64), held_out.fit()).variance_of(weights)
    assert variance == pytest.approx(1 / 256, rel=0.25)


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_what_is_hidden_is_not_seen_in_the_shrunk_picture(scale):
    errors = torch.randn(2, 3, 12 * scale, 10 * scale, generator=torch.Generator().manual_seed(0))
    hidden = without_visible_part(errors, scale)
    assert float(shrink(hidden, scale).abs().max()) < 1e-4
    assert torch.allclose(without_visible_part(hidden, scale), hidden, atol=1e-4)
    assert 0.5 < float(hidden.square().sum() / errors.square().sum()) < 1


def test_a_picture_made_consistent_gives_the_input_back():
    generator = torch.Generator().manual_seed(0)
    degraded = 0.2 + 0.6 * torch.rand(1, 3, 12, 14, generator=generator)
    image = torch.rand(2, 3, 48, 56, generator=generator)
    image = 0.5 + 0.2 * (image - 0.5)
    error = shrink(made_consistent(image, degraded, 4), 4) - degraded
    assert -10 * math.log10(float(error.square().mean())) > 45


def stored() -> dict:
    joint = JointCalibration(
        correlation=known_correlation(), factors=((0.5, 0.7), (0.9, 1.7)), num_images=66
    )
    return joint.to_dict()


def test_what_is_stored_is_read_back():
    joint = JointCalibration.from_dict(stored())
    assert joint.to_dict() == stored()
    assert joint.factor(0.9) == 1.7
    with pytest.raises(ConfigError, match=r"coverages of 0\.5, 0\.9, not of 0\.99"):
        joint.factor(0.99)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("factors",), []),
        (("factors",), [[0.9, -1.0]]),
        (("factors",), [[0.9, 2.0], [0.5, 1.0]]),
        (("factors",), [[2.0, 2.0]]),
        (("factors",), [[0.9]]),
        (("factors",), "many"),
        (("factors",), [[0.9, math.nan]]),
        (("num_images",), 0),
        (("num_images",), "9"),
        (("power",), 0.0),
        (("power",), -1.0),
        (("power",), 1e6),
        (("power",), math.nan),
        (("power",), math.inf),
        (("power",), True),
        (("power",), "0.9"),
        (("power",), None),
        (("power",), [0.9]),
        (("correlation",), []),
        (("correlation", "scale"), 0),
        (("correlation", "scale"), 10**9),
        (("correlation", "scale"), 2.0),
        (("correlation", "radius"), 10**9),
        (("correlation", "radius"), -1),
        (("correlation", "radius"), True),
        (("correlation", "values"), [[1.0]]),
        (("correlation", "values"), []),
        (("correlation", "values"), 3),
        (("correlation", "values"), [["1"] * COUNT] * 3),
        (("correlation", "values"), [[math.nan] * COUNT] * 3),
        (("correlation", "values"), [[1e300] * COUNT] * 3),
        (("correlation", "values"), [[-1.0] * COUNT] * 3),
        (("correlation", "common"), [-1.0, 0.0, 0.0]),
        (("correlation", "common"), [0.0]),
        (("correlation", "common"), [math.nan] * 3),
        (("correlation", "common"), None),
    ],
)
def test_hostile_tables_are_refused_at_once(path, value):
    table = stored()
    target = table
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(ConfigError):
        JointCalibration.from_dict(table)


def test_a_power_is_stored_and_files_from_before_have_none():
    former = stored()
    assert "power" not in former
    joint = JointCalibration.from_dict(former)
    assert (joint.power, joint.half_width(0.02, 0.9)) == (1.0, 1.7 * 0.02)
    later = JointCalibration.from_dict(former | {"power": 0.9})
    assert later.to_dict() == former | {"power": 0.9}
    assert JointCalibration.from_dict(later.to_dict()) == later
    # One level stays as it is; a smaller standard deviation grows, and a larger one shrinks.
    widths = [later.half_width(std / 255, 0.9) / (1.7 * std / 255) for std in (0.1, 1, 10)]
    assert widths == pytest.approx([10**0.1, 1, 10**-0.1])


def test_the_interval_of_a_sum_is_that_of_the_mean_times_the_number_of_values():
    joint = JointCalibration(correlation=None, factors=((0.9, 1.7),), num_images=66, power=0.8)
    errors = StationaryErrors(torch.full((3, 16, 16), 0.1), known_correlation())
    mean = region_weights((3, 16, 16), (2, 2, 4, 4)) - region_weights((3, 16, 16), (9, 2, 4, 4))
    widths = [
        joint.half_width(errors.variance_of(weights) ** 0.5, 0.9, size=size_of(weights))
        for weights in (mean, 48 * mean, -mean, 0 * mean)
    ]
    assert widths[1:] == pytest.approx([48 * widths[0], widths[0], 0], rel=1e-5)


@pytest.mark.parametrize("power", [0.7, 0.95, 1.2])
def test_a_power_that_errors_follow_is_found(power):
    random = np.random.default_rng(0)
    stds = np.exp(random.uniform(np.log(1e-3), np.log(0.1), 20_000))
    # Tails as long as those of Student's distribution with 3 degrees of freedom.
    errors = stds**power * random.standard_t(3, 20_000)
    assert fit_power(stds, errors, np.ones(20_000)) == pytest.approx(power, abs=0.03)


def test_with_the_power_small_and_large_standard_deviations_are_covered_alike(monkeypatch):
    monkeypatch.setattr("musigma.uncertainty.quantities.PROBES_PER_IMAGE", 6)
    none, generator = Correlation.independent(scale=2, radius=1, channels=3), torch.Generator()
    generator.manual_seed(0)

    def picture(number: int) -> tuple[torch.Tensor, StationaryErrors]:
        std = torch.full((3, 40, 40), 0.002 * 4 ** (number % 4))
        field = draw_field((3, 40, 40), none, generator)
        return to_power(std, 0.8) * field, StationaryErrors(std, none)

    quantities = HeldOutQuantities()
    for number in range(60):
        quantities.update(*picture(number), image=str(number))
    joint = quantities.fit(none)
    assert joint.power == pytest.approx(0.8, abs=0.03)
    held: dict[int, list[float]] = {}
    for number in range(80):
        for _, probes in probe_all(*picture(number), seed=1000 + number):
            half_widths = joint.factor(0.9) * to_power(probes.joint_std, joint.power)
            inside = (probes.joint_errors.abs() <= half_widths).double()
            held.setdefault(number % 4, []).append(float(inside.mean()))
    shares = [float(np.mean(rows)) for rows in held.values()]
    assert np.mean(shares) == pytest.approx(0.91, abs=0.03)
    assert max(shares) - min(shares) < 0.1


def test_a_few_images_fit_no_power(monkeypatch):
    monkeypatch.setattr("musigma.uncertainty.quantities.PROBES_PER_IMAGE", 2)
    none, generator = Correlation.independent(scale=2, radius=1, channels=3), torch.Generator()
    quantities = HeldOutQuantities()
    for number in range(12):
        std = torch.full((3, 40, 40), 0.01 * (1 + number))
        field = std.sqrt() * draw_field((3, 40, 40), none, generator)
        quantities.update(field, StationaryErrors(std, none), image=str(number))
    assert quantities.fit(none).power == 1


@pytest.mark.parametrize("change", ["missing", "unknown"])
def test_tables_with_other_keys_are_refused(change):
    table = stored()
    if change == "missing":
        del table["correlation"]["common"]
    else:
        table["more"] = 1
    with pytest.raises(ConfigError, match="keys"):
        JointCalibration.from_dict(table)


def test_a_covariance_that_is_none_still_gives_positive_variances():
    """Numbers from a file need not belong to any field; what is impossible is cut off."""
    count = pair_classes(2, 1).num_classes
    odd = tuple(1.0 if n == 0 else 5.0 * (-1) ** n for n in range(count))
    correlation = Correlation(scale=2, radius=1, values=(odd,), common=(0.0,))
    errors = StationaryErrors(torch.ones(1, 8, 8), correlation)
    assert 0 < errors.variance_of(torch.ones(1, 8, 8)) < math.inf
    assert math.isfinite(errors.log_likelihood(torch.ones(1, 8, 8)))


@pytest.mark.parametrize("shape", [(3, 7, 8), (1, 8, 8), (3, 8)])
def test_pictures_that_do_not_fit_are_refused(shape):
    with pytest.raises(ImageError, match="multiples of 2"):
        StationaryErrors(torch.ones(shape), known_correlation())


@pytest.mark.parametrize("box", [(0, 0, 9, 1), (-1, 0, 2, 2), (0, 0, 0, 3), (1, 2, 3)])
def test_boxes_outside_of_the_picture_are_refused(box):
    with pytest.raises(ConfigError, match="box"):
        region_weights((3, 8, 8), box)
    with pytest.raises(ConfigError, match="mask"):
        region_weights((3, 8, 8), torch.zeros(8, 8, dtype=torch.bool))
    with pytest.raises(ConfigError, match="channels 0 to 2"):
        region_weights((3, 8, 8), (0, 0, 2, 2), channel=3)


def test_a_mask_may_be_an_array_or_a_tensor_and_equals_the_box_that_it_draws():
    mask = np.zeros((6, 8), bool)
    mask[1:4, 2:7] = True
    expected = region_weights((3, 6, 8), (2, 1, 5, 3))
    assert torch.equal(region_weights((3, 6, 8), mask), expected)
    assert torch.equal(region_weights((3, 6, 8), torch.from_numpy(mask)), expected)
