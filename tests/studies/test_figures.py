"""The figures show what they say, from records or from runs that can be repeated."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from helpers.records import run, save_all
from musigma.datasets.demo_photo import portrait
from musigma.datasets.patch_bank import build_bank
from musigma.degradations import Bicubic
from musigma.functional.color import to_uint8
from musigma.restoration.figures import write_picture
from musigma.types import ConfigError
from studies.paper.figures import FIGURES, cost, draw
from studies.paper.figures.objective import naive_objective, train_tiny
from studies.paper.measurements import RESULTS, load_records


@pytest.fixture(scope="module")
def bank():
    image = to_uint8(portrait())[0, :, :128, :128]
    return build_bank([image], degradation=Bicubic(2), patch=8, device=torch.device("cpu"))


def test_sigma_collapses_in_the_loss_and_survives_beside_it(bank):
    inside = train_tiny("learned_sigma", bank, num_steps=100)
    beside = train_tiny("expected_l1 + 0.01 * sigma_l1", bank, num_steps=100)
    assert inside.sigma.shape == inside.error.shape == (100, 3)
    assert (inside.sigma[-1] < 0.25 * inside.sigma[0]).all()
    assert (beside.sigma[-1] > 4 * inside.sigma[-1]).all()


def test_tiny_run_repeats_itself(bank):
    first, second = (train_tiny("learned_sigma", bank, num_steps=3) for _ in range(2))
    assert torch.equal(first.sigma, second.sigma)


def test_naive_objective_is_least_where_sigma_is_the_error():
    sigma = torch.tensor([3.2, 3.3, 3.4], dtype=torch.float64, requires_grad=True)
    values = naive_objective(sigma, 3.3)
    (slope,) = torch.autograd.grad(values.sum(), sigma)
    assert values[1].item() == pytest.approx(math.log(3.3) + 1)
    assert slope[0] < 0 < slope[2]
    assert slope[1].item() == pytest.approx(0, abs=1e-12)


def test_convergence_prefers_runs_of_equal_budget(tmp_path):
    folder = save_all(
        tmp_path,
        a=run("l1", 0, {}),
        b=run("expected_l1", 0, {}),
        shorter=run("l1", 0, {}, steps=50),
        shorter_still=run("l1 + 0.01 * sigma_l1", 0, {}, steps=50),
        long=run("l1", 0, {}, steps=None, seconds=99.0),
        nll=run("laplace_nll", 0, {}),
    )
    drawing = draw("convergence", load_records(folder))
    assert set(drawing.sources) == {"a.json", "b.json"}
    line = drawing.figure.axes[0].lines[0]
    np.testing.assert_allclose(line.get_xdata(), [50, 100])
    np.testing.assert_allclose(line.get_ydata(), [255 * 0.02, 255 * 0.01])


@pytest.mark.skipif(not RESULTS.is_dir(), reason="the records are in the repository only")
def test_trade_off_holds_printed_and_measured_numbers(monkeypatch):
    # Counting the MACs of all networks takes seconds, and is tested in tests/models.
    monkeypatch.setattr(cost, "card", lambda name, scale: SimpleNamespace(macs_g=9.0, params=1e6))
    drawing = draw("trade-off", load_records())
    assert "forward-cpu.json" in drawing.sources
    heights = {
        round(float(y), 2)
        for points in drawing.figure.axes[0].collections
        for _, y in points.get_offsets()
    }
    assert {37.53, 38.34} <= heights  # VDSR and NLSA, as printed
    assert 38.00 in heights  # IMDN's released weights
    recipes = [
        load_records().records[source].model.get("training", {}) for source in drawing.sources
    ]
    assert not any(one.get("recipe", {}).get("steps") for one in recipes)  # none of the study


@pytest.mark.parametrize("name", ["comparison", "sigma-error", "landscape"])
@pytest.mark.skipif(not RESULTS.is_dir(), reason="the records are in the repository only")
def test_drawing_can_be_written(tmp_path, monkeypatch, name):
    monkeypatch.delenv("MUSIGMA_DATA", raising=False)
    drawing = draw(name, load_records())
    assert len(drawing.caption) > 50
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        path = Path(tmp_path / f"picture{suffix}")
        write_picture(path, drawing.figure)
        assert path.read_bytes().startswith(start)


def test_unknown_figure_is_named():
    with pytest.raises(ConfigError, match="did you mean 'landscape'"):
        draw("landscap", None)
    assert "study" in FIGURES
