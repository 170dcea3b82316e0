"""Pairs of real cameras: cuts, records of inputs, intervals across cameras, and their tables."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.records import evaluation, run, save_all
from musigma.evaluation.record import load_record
from musigma.model import save
from musigma.networks import create, with_sigma
from studies.data_sets.city100 import CALIBRATION, CAMERAS, MIDDLE, TESTS, cut_middles
from studies.measurements.real_cameras import main
from studies.paper.measurements import load_records
from studies.paper.real import COVERAGE_RECORD, real_coverage_table, real_plans, real_table
from studies.paper.study import objective_studies
from studies.paper.tables import paper_table
from studies.paper.zoo import NOT_RUN
from studies.training_runs.campaign import Plan
from studies.training_runs.study_recipes import load_study_recipe
from studies.training_runs.zoo import FULL

SIDE = 330
NOISE = {"NikonD5500": 2.0, "iPhoneX": 12.0, "cam1": 6.0}


def write_pair(folder, name, std, seed):
    rng = np.random.default_rng(seed)
    sharp = rng.integers(30, 220, (SIDE, SIDE, 3))
    noisy = (sharp + rng.normal(0, std, sharp.shape)).round().clip(0, 255)
    for side, pixels in (("HR", sharp), ("LR", noisy)):
        (folder / side).mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(pixels.astype(np.uint8))
        image.save(folder / side / f"{name}.webp", lossless=True)


@pytest.fixture
def real(tmp_path, monkeypatch):
    """The sets of the study with two pairs each; the cameras differ in their noise."""
    folder = tmp_path / "data" / "real"
    for camera in CAMERAS:
        for number in (96, 97):
            write_pair(folder / TESTS[0], f"{camera}_{number:03}", NOISE[camera], number)
        for number in (86, 87):
            write_pair(folder / CALIBRATION[camera], f"{number:03}", NOISE[camera], number)
    for number in (1, 2):
        write_pair(folder / TESTS[1], f"cam1_{number:02}", NOISE["cam1"], number)
    cut_middles(folder)
    monkeypatch.setenv("MUSIGMA_DATA", str(tmp_path / "data"))
    return folder


def test_the_middle_of_both_images_of_a_pair_is_cut(real):
    whole, cut = (
        np.asarray(Image.open(real / name / "LR" / "iPhoneX_096.webp"))
        for name in (TESTS[0], TESTS[0] + MIDDLE)
    )
    assert np.array_equal(cut, whole[5:325, 5:325])
    assert len(list((real / (TESTS[1] + MIDDLE) / "HR").iterdir())) == 2


def test_inputs_are_measured_as_they_are(real, tmp_path):
    main(["--inputs", str(tmp_path / "out")])
    record = load_record(tmp_path / "out" / "input-City100_test.json")
    assert record.data["num_images"] == 4
    # White noise of 2 levels on RGB is 2 * 219/255 * |(0.299, 0.587, 0.114)| on Y.
    expected = 20 * np.log10(255 / (2 * 219 / 255 * np.linalg.norm([0.299, 0.587, 0.114])))
    assert record.images["NikonD5500_096"]["psnr_y"] == pytest.approx(expected, abs=0.3)
    assert (tmp_path / "out" / "input-RealSR_ntire2019_middle.json").is_file()


def test_intervals_of_one_camera_do_not_hold_for_a_noisier_one(real, tmp_path):
    network = with_sigma(
        create("dps", scale=1, num_blocks=0, width=16, residual=True), width=8, depth=1
    )
    with torch.no_grad():  # the same sigma everywhere
        network.branch.upsampler[0].weight.zero_()
    weights = tmp_path / "tiny.safetensors"
    save(weights, network)
    main([str(tmp_path / COVERAGE_RECORD), str(weights)])
    result = load_record(tmp_path / COVERAGE_RECORD).result["tiny"]["fitted_on"]
    shares = {a: {b: v["coverage"] for b, v in row.items()} for a, row in result.items()}
    assert shares["NikonD5500"]["NikonD5500"] == pytest.approx(0.9, abs=0.04)  # whole levels
    assert shares["iPhoneX"]["iPhoneX"] == pytest.approx(0.9, abs=0.02)
    assert shares["NikonD5500"]["iPhoneX"] < 0.4
    assert shares["iPhoneX"]["NikonD5500"] > 0.99
    assert 0.9 < shares["iPhoneX"]["RealSR_ntire2019_middle"] < 1
    table = real_coverage_table(load_records(tmp_path))
    assert [row.names for row in table.rows] == [
        ("tiny", "City100 Nikon D5500"),
        ("tiny", "City100 iPhone X"),
    ]
    assert table.rows[0].cells[0].text.startswith(f"{shares['NikonD5500']['NikonD5500']:.1%}, ")


def test_a_column_can_be_one_camera(tmp_path):
    images = {"NikonD5500_096": {"psnr_y": 30.0}, "iPhoneX_096": {"psnr_y": 20.0}}
    record = evaluation(
        model={"name": "input", "scale": 1, "params": 0, "digest": ""},
        data="City100_test",
        result={"psnr_y": 25.0},
        images=images,
    )
    table = paper_table("realsr", load_records(save_all(tmp_path, record=record)))
    row = next(row for row in table.rows if row.names[0] == "Input" and not row.printed)
    texts = dict(zip(table.headings[2:], (cell.text for cell in row.cells), strict=True))
    assert texts["City100 Nikon D5500"] == "30.00"
    assert texts["City100 iPhone X"] == "20.00"
    assert texts["parameters"] == texts["NTIRE 2019"] == ""


def real_records(folder, gains):
    recipe = load_study_recipe("realsr-short", ["network=dps"]).published()
    base = {k: v for k, v in recipe.items() if k not in ("objective", "seed", "sigma")}
    records = {}
    for seed, gain in enumerate(gains):
        for objective, shift in (("l1", 0.0), (FULL, gain)):
            sets = {
                "City100_test_middle": {f"a{n}": 24.0 + n + shift for n in range(4)},
                "RealSR_ntire2019_middle": {f"b{n}": 29.0 + n + shift for n in range(4)},
            }
            name = f"realsr-short-dps-{len(records)}"
            records[name] = run(objective, seed, sets, **json.loads(json.dumps(base)))
    return load_records(save_all(folder, **records))


def test_gains_on_real_pairs_are_corrected_for_all_networks(tmp_path):
    plans = [
        Plan(
            name=f"realsr-short-{n}",
            why="",
            minutes=1,
            recipe="realsr-short",
            changes=(f"network={n}",),
        )
        for n in ("dps", "kpn")
    ]
    record_set = real_records(tmp_path, [0.10, 0.11, 0.12])
    table = real_table(record_set, plans)
    assert [row.names for row in table.rows] == [("dps",), ("kpn",)]
    updates, l1, gain, joint, p, corrected = (cell.text for cell in table.rows[0].cells)
    assert updates == "600"  # of the recipe
    assert l1 == "28.000"
    # t with 2 degrees of freedom: 4.303 * 0.01 / sqrt(3), and 6.205 for 1 - 0.05 / 2.
    assert gain == "+0.110 (+0.085 to +0.135)"
    assert joint == "+0.074 to +0.146"
    assert float(corrected) == pytest.approx(2 * float(p), abs=0.001)
    assert table.rows[1].cells[0].text == NOT_RUN
    assert objective_studies(record_set) == []  # they do not count among the other objectives


def test_the_campaign_compares_the_four_networks_with_three_seeds():
    plans = real_plans()
    assert [plan.name.removeprefix("realsr-short-") for plan in plans] == [
        *("dps", "lp-kpn", "kpn", "edsr-baseline")
    ]
    for plan in plans:
        assert plan.objectives == ("l1", FULL)
        assert len(plan.seeds) == 3
