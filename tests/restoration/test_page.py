import base64
import hashlib
import json
import re

import numpy as np
import pytest
import torch

from musigma.functional.color import to_uint8
from musigma.restoration.promise import Promise
from musigma.restoration.viewer import data as viewer_data
from musigma.restoration.viewer.page import write_page
from musigma.restoration.viewer.tiles import Layer, error_level, level_factors
from musigma.types import ConfigError, ImageError, Prediction
from studies.measurements.page_size import data_of, make_page, measure, photo
from studies.measurements.page_size import stored_samples as samples_of


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


def levels_of(stored, level=0):
    return error_level(samples_of(stored["layer"], level)).double()


def info_of(page):
    table = re.search(r'<table class="mu-info">.*?</table>', page)[0]
    return dict(re.findall(r'<tr><th scope="row">(.*?)</th><td>(.*?)</td></tr>', table))


def test_pictures_are_those_of_the_files(tmp_path):
    case = full_case()
    layers = data_of(written(tmp_path, **case))["layers"]
    assert torch.equal(samples_of(layers["result"]), to_uint8(case["prediction"].mean))
    assert torch.equal(samples_of(layers["input"]), to_uint8(case["before"]))
    assert {layer["type"] for layer in layers.values()} == {"image/png"}


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
    assert (
        "holds the values exactly, in 8 bits, and the errors to within 1 % or 0.01 levels" in page
    )
    for quantity, values in expected.items():
        levels = 255 * values.double()
        assert ((levels_of(maps[quantity]) - levels).abs() <= 0.011 * (1 + levels)).all()


@pytest.mark.parametrize(
    ("level", "top"), [(0.011, 0.02), (0.3, 0.3), (1, 1), (6.1, 8), (8.5, 10), (11, 20), (0, 1)]
)
def test_color_scale_ends_at_a_round_level(tmp_path, level, top):
    mean = torch.zeros(1, 1, 5, 4)
    sigma = torch.full_like(mean, level / 255 * (1 - 1e-6))
    page = written(tmp_path, before=mean, prediction=Prediction(mean, sigma))
    assert data_of(page)["maps"][0]["top"] == top


def test_predicted_and_true_error_share_a_scale(tmp_path):
    maps = data_of(written(tmp_path, **full_case()))["maps"]
    # Of errors up to 0.1, 0.3 and 0.2, as the 99.5th percentile of the mean over three channels.
    tops = {stored["quantity"]: stored["top"] for stored in maps}
    assert tops == {"sigma": 50, "half_width": 80, "error": 50}


def test_quantiles_say_which_pixels_are_the_surest(tmp_path):
    case = full_case()
    stored = data_of(written(tmp_path, **case))["maps"][1]
    expected = np.percentile(255 * case["half_width"].mean(1).numpy(), np.arange(101))
    assert stored["quantiles"] == pytest.approx(expected, rel=1e-3)


def test_info_holds_the_comparison_with_the_truth(tmp_path):
    case = full_case()
    mean, truth = case["prediction"].mean, case["truth"]
    info = info_of(written(tmp_path, **case, info={"Model": "a <b> & c", "Scale": "2"}))
    inside = ((mean - truth).abs() <= case["half_width"]).double().mean()
    typical = 255 * float(case["half_width"].mean(1).median())
    assert info == {
        "Model": "a &lt;b&gt; &amp; c",
        "Scale": "2",
        "Inside the interval": f"{100 * inside:.1f} % of the values",
        "Pixels": "16 \u00d7 19 \u2192 31 \u00d7 37",
        "Typical interval": f"value \u00b1 {typical:.1f} levels of 255",
    }


def test_page_needs_nothing_else_and_runs_nothing_else(tmp_path):
    page = written(tmp_path, **full_case())
    assert "{{" not in page
    assert set(re.findall(r"\w+://[\w./]+", page)) == {"http://www.w3.org/2000/svg"}  # a name only
    policy = re.search(r'Content-Security-Policy"\s+content="(.*?)"', page)[1]
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_two_sentences_say_what_sigma_and_interval_mean(tmp_path):
    page = written(tmp_path, **full_case())
    explanation = re.search(r'<section class="mu-panel mu-explanation".*?</section>', page)[0]
    assert "<p>Sigma is how far the network expects each value to be off" in explanation
    assert "is meant to hold the true value for 90 % of all values.</p>" in explanation
    captions = [stored["caption"] for stored in data_of(page)["maps"]]
    assert captions[0].startswith("Sigma (levels of 255): the absolute error")
    assert (
        captions[1]
        == "90 % interval (levels of 255): half the width of the interval around each value"
    )


@pytest.mark.parametrize(
    ("promise", "calibrated", "heading", "text"),
    [
        (Promise("It holds", None), True, "The 90 % intervals come with a promise", "It holds."),
        (Promise(None, "it is a JPEG"), True, "No promise for this picture", ": it is a JPEG."),
        (None, False, "No promise for this picture", "The model is not calibrated: "),
    ],
)
def test_the_promise_is_told_in_words(tmp_path, promise, calibrated, heading, text):
    case = full_case()
    if not calibrated:
        case["half_width"] = case["coverage"] = None
    page = written(tmp_path, promise=promise, **case)
    banner = re.search(r'<section class="mu-promise.*?</section>', page)[0]
    assert f"<h2>{heading}</h2>" in banner
    assert text in banner
    holds = promise is not None and promise.text is not None
    assert ("mu-none" in banner) != holds
    assert (page.index(banner) < page.index('id="viewer"')) != holds  # bad news comes first


def test_strange_titles_stay_titles(tmp_path):
    title = "</title><script>alert(1)</script> {{data}} \\1"
    page = written(tmp_path, title=title, info={"<i>": "<b>{{style}}"}, **full_case())
    shown = "&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt; {{data}} \\1"
    assert page.count(shown) == 2
    assert "<script>alert" not in page
    assert info_of(page)["&lt;i&gt;"] == "&lt;b&gt;{{style}}"
    summary = json.loads(re.search(r'id="summary">(.*?)</script>', page)[1])
    assert summary["title"] == title


def test_gray_denoiser_without_sigma(tmp_path):
    mean = random(1, 1, 37, 31)
    page = written(tmp_path, before=mean + 0.1, prediction=Prediction(mean))
    data = data_of(page)
    assert data["channels"] == ["Gray"]
    assert data["maps"] == []
    assert info_of(page) == {"Pixels": "31 \u00d7 37"}
    assert torch.equal(samples_of(data["layers"]["result"]), to_uint8(mean))
    assert "mu-promise" not in page.split("</style>")[1].split("<script")[0]


def test_alpha_is_a_layer(tmp_path):
    alpha = random(1, 1, 37, 31)
    layers = data_of(written(tmp_path, alpha=alpha, **full_case()))["layers"]
    assert torch.equal(samples_of(layers["alpha"]), to_uint8(alpha))


def test_levels_are_averages_however_the_rows_arrive():
    picture = photo(1000, 1500)
    layers = []
    for num_rows in (1000, 7):
        layer = Layer((1000, 1500))
        for rows in picture.split(num_rows, dim=2):
            layer.add(rows)
        layers.append(layer.to_json())
    assert layers[0] == layers[1]
    assert level_factors((1000, 1500)) == [1, 3]
    assert torch.equal(samples_of(layers[0]), to_uint8(picture))
    small = samples_of(layers[0], level=1)
    assert small.shape == (1, 3, 334, 500)
    boxes = picture[..., :999, :].unfold(2, 3, 3).unfold(3, 3, 3).mean((-1, -2))
    assert (small[..., :333, :].float() - 255 * boxes).abs().max() <= 0.51


def test_a_result_beyond_the_limit_is_shrunk_and_the_page_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(viewer_data, "MAX_PIXELS", 4000)
    mean, sigma = random(1, 1, 100, 80), random(1, 1, 100, 80, top=0.1, seed=1)
    page = written(tmp_path, before=mean, prediction=Prediction(mean, sigma))
    data = data_of(page)
    assert data["shown"] == [40, 50]
    assert data["full"] == [80, 100]
    assert samples_of(data["layers"]["result"]).shape == (1, 1, 50, 40)
    assert samples_of(data["layers"]["input"]).shape == (1, 1, 50, 40)
    assert float(levels_of(data["maps"][0]).mean()) == pytest.approx(
        255 * float(sigma.mean()), rel=0.01
    )
    assert "The result of 80 \u00d7 100 pixels is shown and read at 40 \u00d7 50." in page


@pytest.mark.parametrize("scale", [1, 2])
def test_three_megapixels_take_three_megabytes(tmp_path, scale):
    """The bar is 12 MB for 12 megapixels; `studies.measurements.page_size` measures such a page."""
    shown = make_page(tmp_path / "a.html", height=1500, width=2000, scale=scale)
    page = (tmp_path / "a.html").read_text()
    measured = measure(page, shown)
    assert measured["megabytes"] < 3
    assert measured["mean_error_of_values"] < 3
    assert measured["half_width_error_95"] < 0.2
    stated = re.search(r"by at most (\d+) of 255 levels .*?, and an error by at most (\d+) %", page)
    # The page measures one tile in four, and the worst of its maps.
    assert int(stated[1]) == pytest.approx(measured["value_error_95"], abs=1)
    assert int(stated[2]) / 100 > measured["half_width_error_95"] - 0.015


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
        ({"alpha": torch.zeros(1, 1, 5, 5)}, ImageError, "alpha must have the shape"),
    ],
)
def test_bad_input_leaves_the_old_page(tmp_path, change, error, text):
    (tmp_path / "page.html").write_text("old")
    with pytest.raises(error, match=text):
        written(tmp_path, **{**full_case(), **change})
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
