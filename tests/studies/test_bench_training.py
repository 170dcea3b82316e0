import pytest

from helpers.runs import CPU, pictures, small_bank, small_recipe
from musigma.networks import create, macs
from studies.bench.training import bench_training

SMALL = {"num_blocks": 1, "width": 8}


def test_timings_and_ratios():
    """With fewer images than a batch holds, and hardly any steps."""
    recipe = small_recipe(objective="expected_l1 + 0.01 * sigma_l1")
    told = []
    found = bench_training(
        recipe,
        small_bank(recipe),
        pictures(),
        device=CPU,
        num_steps=3,
        large_batch=6,
        num_workers=0,
        report=told.append,
    )
    timings = found["timings"]
    assert list(timings) == [
        "plain loop",
        "plain loop, DataLoader",
        "l1",
        "expected_l1",
        "expected_l1 + sigma",
        "expected_l1 + narrow sigma",
        "l1, batch 6",
    ]
    assert [line.partition(":")[0] for line in told] == list(timings)
    for one in timings.values():
        assert 0 < one["fastest_ms"] <= one["median_ms"] <= one["slowest_ms"]
    ours, plain = timings["l1"]["median_ms"], timings["plain loop"]["median_ms"]
    assert found["times_faster_than_plain"] == pytest.approx(plain / ours)
    assert timings["l1"]["patches_per_second"] == pytest.approx(4 / ours * 1e3, rel=1e-2)


def test_operations_are_counted(monkeypatch):
    """Three times the forward pass, two operations to a multiply-add, over the time of a step."""
    monkeypatch.setattr("studies.bench.training._time", lambda *_: [2e-6, 1e-6, 4e-6])
    recipe = small_recipe()
    found = bench_training(recipe, small_bank(recipe), pictures(), device=CPU, num_workers=0)
    network = create("edsr-baseline", scale=2, **SMALL)
    operations = 6 * macs(network, height=8, width=8) * 4
    one = found["timings"]["l1"]
    assert (one["fastest_ms"], one["median_ms"], one["slowest_ms"]) == (0.001, 0.002, 0.004)
    assert one["tflops"] == pytest.approx(operations / 2e-6 / 1e12, abs=0.06)
