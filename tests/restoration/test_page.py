import base64
import io
import json
import re

import numpy as np
import pytest
import torch

from musigma.functional.color import to_uint8
from musigma.functional.resize import resize
from musigma.restoration.viewer.page import MAX_SIDE, write_page
from musigma.types import ConfigError, ImageError, Prediction


def random(*shape, top=1.0, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * top


def full_case():
    """Everything a page can show, in an odd size."""
    mean = random(1, 3, 37, 31)
    return {
        "before": random(1, 3, 19, 16, seed=1),
        "prediction": Prediction(mean, random(1, 3, 37, 31, top=0.1, seed=2)),
        "half_width": random(1, 3, 37, 31, top=0.3, seed=3),
        "coverage": 0.9,
        "truth": (mean + random(1, 3, 37, 31, top=0.2, seed=4)).clamp(0, 1),
    }


def written(tmp_path, *, title="Title", info=None, **case):
    path = tmp_path / "page.html"
    write_page(path, **case, title=title, info=info or {})
    return path.read_text(encoding="utf-8")


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page)[1])


def image_of(page, element):
    return samples_of(re.search(rf'id="{element}" alt="\w*" src="([^"]+)"', page)[1])


def samples_of(uri):
    from PIL import Image

    prefix, code = uri.split(",")
    assert prefix == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(code))) as image:
        samples = np.asarray(image)
    return torch.from_numpy(samples.reshape(*samples.shape[:2], -1).transpose(2, 0, 1).copy())[None]


def levels_of(stored):
    return stored["largest"] * (samples_of(stored["image"]).double() / 255) ** 2


def info_of(page):
    table = re.search(r'<table class="info">.*?</table>', page)[0]
    return dict(re.findall(r'<tr><th scope="row">(.*?)</th><td>(.*?)</td></tr>', table))


def test_pictures_are_those_of_the_files(tmp_path):
    case = full_case()
    page = written(tmp_path, **case)
    assert torch.equal(image_of(page, "result"), to_uint8(case["prediction"].mean))
    assert torch.equal(image_of(page, "input"), to_uint8(resize(case["before"], size=(37, 31))))
    assert torch.equal(samples_of(data_of(page)["pixels"]), to_uint8(case["before"]))


def test_errors_come_back_as_near_as_the_page_says(tmp_path):
    case = full_case()
    page = written(tmp_path, **case)
    mean, sigma = case["prediction"]
    expected = {
        "sigma": sigma,
        "half_width": case["half_width"],
        "error": (mean - case["truth"]).abs(),
    }
    maps = {stored["quantity"]: stored for stored in data_of(page)["maps"]}
    assert list(maps) == list(expected)
    for quantity, values in expected.items():
        levels, largest = 255 * values.double(), maps[quantity]["largest"]
        bound = (levels * largest).sqrt() / 255 + largest / (4 * 255**2) + 1e-5
        assert ((levels_of(maps[quantity]) - levels).abs() <= bound).all()
    largest = 255 * float(case["half_width"].max())
    within = f"to within {largest**0.5 / 255:.2f} at 1 level, {(10 * largest) ** 0.5 / 255:.2f} at"
    assert within in page


@pytest.mark.parametrize(
    ("level", "top"), [(0.011, 0.02), (0.3, 0.3), (1, 1), (6.1, 8), (8.5, 10), (11, 20), (0, 1)]
)
def test_colour_scale_ends_at_a_round_level(tmp_path, level, top):
    mean = torch.zeros(1, 1, 5, 4)
    sigma = torch.full_like(mean, level / 255 * (1 - 1e-6))
    page = written(tmp_path, before=mean, prediction=Prediction(mean, sigma))
    assert data_of(page)["maps"][0]["top"] == top


def test_predicted_and_true_error_share_a_scale(tmp_path):
    case = full_case()
    tops = {
        stored["quantity"]: stored["top"] for stored in data_of(written(tmp_path, **case))["maps"]
    }
    # Of errors up to 0.1, 0.3 and 0.2, as the 99.5th percentile of the mean over three channels.
    assert tops == {"sigma": 50, "half_width": 80, "error": 50}


def test_info_holds_the_comparison_with_the_truth(tmp_path):
    from skimage.metrics import peak_signal_noise_ratio

    case = full_case()
    mean, truth = case["prediction"].mean, case["truth"]
    info = info_of(written(tmp_path, **case, info={"Model": "a <b> & c", "Scale": "2"}))
    result = peak_signal_noise_ratio(
        truth.double().numpy(), to_uint8(mean).double().numpy() / 255, data_range=1
    )
    inside = ((mean - truth).abs() <= case["half_width"]).double().mean()
    assert list(info)[:3] == ["Model", "Scale", "Pixels"]
    assert info["Model"] == "a &lt;b&gt; &amp; c"
    assert info["Pixels"] == "16 \u00d7 19 \u2192 31 \u00d7 37"
    assert info["PSNR, result"] == f"{result:.2f} dB"
    assert info["Inside the interval"] == f"{100 * inside:.1f} %"


def test_page_needs_nothing_else(tmp_path):
    page = written(tmp_path, **full_case())
    assert "{{" not in page
    assert set(re.findall(r"\w+://[\w./]+", page)) == {"http://www.w3.org/2000/svg"}  # a name only
    assert all(uri.startswith("data:") for uri in re.findall(r'src="([^"]*)"', page))
    assert "default-src 'none'" in page


def test_script_finds_every_element_it_asks_for(tmp_path):
    page = written(tmp_path, **full_case())
    asked = set(re.findall(r'byId\("(\w+)"\)', page))
    assert {"stage", "map", "rows", "opacity"} < asked
    assert asked <= set(re.findall(r' id="(\w+)"', page))


def test_table_and_choices_name_the_maps(tmp_path):
    page = written(tmp_path, **full_case())
    rows = re.search(r'id="rows">(.*?)</tbody>', page)[1]
    names = ["Sigma", "90 % interval", "True error"]
    assert re.findall(r'<th scope="row">(.*?)</th>', rows) == ["Result", *names]
    choices = re.search(r'id="maps">(.*?)</div>', page)[1]
    assert re.findall(r"<span>(.*?)</span>", choices) == ["Off", *names]


def test_the_page_opens_on_the_result_without_a_map(tmp_path):
    choices = re.search(r'id="maps">(.*?)</div>', written(tmp_path, **full_case()))[1]
    (checked,) = re.findall(r'value="(-?\d+)" checked><span>(.*?)</span>', choices)
    assert checked == ("-1", "Off")


def test_two_sentences_say_what_sigma_and_interval_mean(tmp_path):
    page = written(tmp_path, **full_case())
    explanation = re.search(r'<p class="explanation">(.*?)</p>', page)[1]
    assert explanation.startswith("Sigma is the error that the network expects")
    assert "is meant to hold the true value for 90 % of all values." in explanation
    captions = [stored["caption"] for stored in data_of(page)["maps"]]
    assert captions[0].startswith("Sigma (levels of 255): the absolute error")
    assert (
        captions[1]
        == "90 % interval (levels of 255): half the width of the interval around each value"
    )


def test_strange_titles_stay_titles(tmp_path):
    title = "</title><script>alert(1)</script> {{data}} \\1"
    page = written(tmp_path, title=title, **full_case())
    shown = "&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt; {{data}} \\1"
    assert page.count(shown) == 2
    assert "<script>alert" not in page


def test_grey_denoiser_without_sigma(tmp_path):
    mean = random(1, 1, 37, 31)
    page = written(tmp_path, before=mean + 0.1, prediction=Prediction(mean))
    data = data_of(page)
    assert data["numChannels"] == 1
    assert data["maps"] == []
    assert data["pixels"] is None  # the input has the size of the result
    assert info_of(page) == {"Pixels": "31 \u00d7 37"}
    assert torch.equal(image_of(page, "result"), to_uint8(mean))


def test_large_results_are_shrunk_and_the_page_says_so(tmp_path):
    mean = random(1, 1, 6, 2 * MAX_SIDE)
    sigma = random(1, 1, 6, 2 * MAX_SIDE, top=0.1)
    page = written(tmp_path, before=mean, prediction=Prediction(mean, sigma))
    data = data_of(page)
    assert data["shown"] == [MAX_SIDE, 3]
    assert data["full"] == [2 * MAX_SIDE, 6]
    assert image_of(page, "result").shape == (1, 1, 3, MAX_SIDE)
    levels = levels_of(data["maps"][0])
    assert levels.shape == (1, 1, 3, MAX_SIDE)
    assert float(levels.mean()) == pytest.approx(255 * float(sigma.mean()), rel=0.01)
    assert "The result of 4096 \u00d7 6 pixels is shown and read at 2048 \u00d7 3." in page


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"coverage": None}, ConfigError, "half_width and coverage go together"),
        ({"half_width": None}, ConfigError, "half_width and coverage go together"),
        ({"coverage": 90}, ConfigError, "strictly between 0 and 1"),
        ({"before": torch.zeros(3, 5, 5)}, ImageError, r"before must.*got \(3, 5, 5\)"),
        ({"truth": torch.zeros(1, 3, 37, 30)}, ImageError, "truth must have the shape of mean"),
        ({"truth": torch.full((1, 3, 37, 31), torch.nan)}, ImageError, "truth holds NaN"),
        ({"half_width": torch.full((1, 3, 37, 31), -0.5)}, ImageError, "not be negative, got -0.5"),
    ],
)
def test_bad_input_leaves_the_old_page(tmp_path, change, error, text):
    (tmp_path / "page.html").write_text("old")
    with pytest.raises(error, match=text):
        written(tmp_path, **{**full_case(), **change})
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
