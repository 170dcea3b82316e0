import json
import math

import pytest

from helpers.runs import small_recipe, small_values, write_recipe
from musigma.degradations import Bicubic, Noise
from musigma.training.recipe import load_recipe, make_recipe, shipped_recipes
from musigma.training.schedule import learning_rate_at
from musigma.types import ConfigError


def test_paper_has_the_papers_settings():
    """Section "Implementation details" of arXiv 2201.10084."""
    recipe = load_recipe("paper")
    assert (recipe.network, recipe.batch, recipe.patch) == ("edsr-baseline", 16, 48)
    assert (recipe.optimizer, recipe.betas, recipe.epsilon) == ("adam", (0.9, 0.999), 1e-8)
    assert (recipe.learning_rate, recipe.steps, recipe.halve_every) == (1e-4, 10**6, 2 * 10**5)
    assert recipe.objective == "expected_l1 + 0.01 * sigma_l1"
    assert (recipe.sigma, recipe.sigma_width) == (True, 160)
    assert (recipe.warmup, recipe.clip, recipe.ema) == (0.0, 0.0, 0.0)
    values = {0: 1e-4, 199_999: 1e-4, 200_000: 5e-5, 999_999: 6.25e-6}
    for step, value in values.items():
        rate = learning_rate_at(recipe, step=step, progress=step / 1e6)
        assert rate == pytest.approx(value)


@pytest.mark.parametrize("name", shipped_recipes())
def test_shipped_recipes_load(name):
    recipe = load_recipe(name)
    plain = json.loads(json.dumps(recipe.as_json()))
    assert make_recipe({k: v for k, v in plain.items() if v is not None}) == recipe


def test_overrides_change_values(tmp_path):
    path = write_recipe(tmp_path / "own.toml", steps=10)
    changes = ["seconds=2.5", "objective=l1 + 2 * l2", "data=a", "settings={width=4}", "clip=1"]
    recipe = load_recipe(path, changes)
    assert (recipe.steps, recipe.seconds) == (None, 2.5)
    assert (recipe.objective, recipe.data) == ("l1 + 2 * l2", ("a",))
    assert (recipe.settings, recipe.clip) == ({"width": 4}, 1.0)
    assert load_recipe(path, ["data=['a', 'b']"]).data == ("a", "b")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"netwrok": "x"}, "a recipe has no key 'netwrok'; did you mean 'network'?"),
        ({"lerning_rate": 1}, "did you mean 'learning_rate'?"),
        ({"network": "edsr-basline"}, "did you mean 'edsr-baseline'"),
        ({"objective": "l3"}, "there is no objective called 'l3'"),
        ({"objective": "sigma_l1", "sigma": False}, "needs sigma = true"),
        ({"objective": "l1", "sigma": True}, "does not train sigma"),
        ({"objective": "distillation"}, "needs a teacher"),
        ({"steps": 5, "seconds": 5}, "either as steps or as seconds"),
        ({"steps": None}, "either as steps or as seconds"),
        ({"scale": 5}, "exists for scale"),
        ({"noise_std": [0, 50]}, "noise_std is for denoisers, of scale 1"),
        ({"degrade": "blurr(1)"}, "did you mean 'blur'"),
        ({"degrade": "area | bicubic"}, "shrinks more than once"),
        ({"data": ["drawn-shapes", "b"]}, "drawn-shapes cannot be mixed with other data"),
        ({"batch": 10_000_000}, "batch must be from 1 to 65536, got 10000000"),
        ({"network": "swinir-light", "settings": {"window": 0}}, "size_multiple must be 1 or more"),
        (
            {"network": "swinir-light", "settings": {"window": 512}},
            "the settings ask for tables of",
        ),
        ({"sigma_width": 100_000}, "sigma_width must be from 1 to 4096"),
        ({"clip": math.inf}, "clip must be zero or more"),
        ({"objective": "expected_l1(samples=0)"}, "samples must be from 1 to"),
        ({"settings": "x" * 5000}, "settings must be a table, got 'xxx"),
        ({"data": []}, "data must name at least one"),
        ({"batch": "16"}, "batch must be a whole number, got '16'"),
        ({"batch": 16.0}, "batch must be a whole number"),
        ({"batch": True}, "batch must be a whole number"),
        ({"learning_rate": "fast"}, "learning_rate must be a number"),
        ({"sigma": 1}, "sigma must be true or false"),
        ({"data": 3}, "data must be a list"),
        ({"data": [3]}, "data must be a string"),
        ({"betas": [0.9]}, "betas must hold 2 values"),
        ({"settings": 3}, "settings must be a table"),
        ({"network": 3}, "network must be a string"),
        ({"schedule": "linear"}, "schedule must be one of"),
        ({"channels": 2}, "channels must be one of"),
        ({"channels": 3.0}, "channels must be one of"),
        ({"batch": 0}, "batch must be from 1 to 65536, got 0"),
        ({"learning_rate": math.nan}, "learning_rate must be above zero"),
        ({"learning_rate": math.inf}, "learning_rate must be above zero"),
        ({"halve_every": 0}, "halve_every must be above zero"),
        ({"save_every": -1}, "save_every must be zero or more"),
        ({"warmup": 1.0}, "warmup must be zero or more and below 1"),
        ({"ema": 1.0}, "ema must be zero or more and below 1"),
        ({"betas": [0.9, 1.0]}, "betas must be zero or more and below 1"),
        ({"seed": 2**31}, "seed must be from 0"),
        ({"objective": "l1 then l2 then l1"}, "one or two objectives, got 3"),
        ({"objective": "l1 then"}, "objective '': cannot read its end"),
        ({"objective": "l1 then sigma_l1", "sigma": True}, "'l1' does not train sigma"),
        ({"closing": 1.0}, "closing must be zero or more and below 1"),
        ({"candidates": 0}, "candidates must be from 1 to 64"),
        ({"drawn_every": -1}, "drawn_every must be zero or more"),
        ({"degrade": "pairs", "drawn_every": 4}, "takes pictures as they are"),
        ({"degrade": "pairs", "candidates": 4}, "takes pictures as they are"),
    ],
)
def test_a_wrong_recipe_is_refused(changes, message):
    with pytest.raises(ConfigError) as caught:
        make_recipe(small_values(**changes))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400


def denoiser_values(**changes):
    return small_values(network="kpn", scale=1, settings={}, **changes)


def test_noise_levels_are_a_range():
    with pytest.raises(ConfigError, match=r"noise_std must be \[low, high\]"):
        make_recipe(denoiser_values(noise_std=[50.0, 0.0]))
    with pytest.raises(ConfigError, match="noise_std must be from 0 to 255"):
        make_recipe(denoiser_values(noise_std=[0.0, math.inf]))
    recipe = make_recipe(denoiser_values(noise_std=[0, 50]))
    assert recipe.noise_std == (0.0, 50.0)
    assert str(recipe.degradation) == "noise(0..50)"
    assert make_recipe(denoiser_values(noise_std=[25, 25])).degradation == Noise(25)


def test_a_network_of_scale_1_is_told_how_its_inputs_are_made():
    with pytest.raises(ConfigError, match=r"scale 1 must be told how its inputs are made.*degrade"):
        make_recipe(denoiser_values())
    with pytest.raises(ConfigError, match="give either noise_std or degrade"):
        make_recipe(denoiser_values(noise_std=[0, 50], degrade="jpeg(50)"))
    assert str(make_recipe(denoiser_values(degrade="blur(1) | jpeg(50)")).degradation) == (
        "blur(1) | jpeg(50)"
    )


def test_a_network_that_takes_the_noise_level_is_told_it():
    values = denoiser_values() | {"network": "drunet-small"}
    with pytest.raises(ConfigError, match=r"must be told the noise level, which .*jpeg\(50\)"):
        make_recipe(values | {"degrade": "jpeg(50)"})
    assert isinstance(make_recipe(values | {"degrade": "noise(0..50)"}).degradation, Noise)


def test_inputs_are_made_by_any_chain():
    assert isinstance(small_recipe().degradation, Bicubic)
    recipe = small_recipe(degrade="blur(0.2..2)?0.7 | noise(0..10) | jpeg(30..95)")
    assert str(recipe.degradation) == "blur(0.2..2)?0.7 | bicubic | noise(0..10) | jpeg(30..95)"
    assert recipe.degradation.scale == 2


def test_what_is_published_holds_no_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = small_recipe(
        data=["/home/alice/patients", "BSD400", "train/clic/", "."],
        validation="../elsewhere/held-out",
        start_from="/home/alice/before.pth",
        teacher="~/secret/teacher.pth",
        objective="l1 + distillation",
    )
    published = recipe.published()
    assert published["data"] == ("patients", "BSD400", "clic", tmp_path.name)
    assert published["validation"] == "held-out"
    assert (published["start_from"], published["teacher"]) == ("before.pth", "teacher.pth")
    assert small_recipe().published()["validation"] == ""
    assert recipe.as_json()["data"][0] == "/home/alice/patients"


@pytest.mark.parametrize("text", ["a = " + "[" * 5000 + "]" * 5000, "a = " + "9" * 5000])
def test_a_hostile_file_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_recipe(tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match="batch must be a whole number, got '"):
        load_recipe("smoke", [text.replace("a =", "batch =")])


def test_a_missing_key_is_named():
    values = small_values()
    del values["patch"]
    with pytest.raises(ConfigError, match="the recipe lacks 'patch'"):
        make_recipe(values)


def test_a_recipe_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no recipe 'papr'.* did you mean 'paper'"):
        load_recipe("papr")
    with pytest.raises(ConfigError, match="expected key=value"):
        load_recipe("paper", ["steps"])
    (tmp_path / "bad.toml").write_text("steps = = 3")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_recipe(tmp_path / "bad.toml")
    (tmp_path / "bad.toml").write_bytes(b"network = '\xff'")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_recipe(tmp_path / "bad.toml")


def line_of(**changes):
    with pytest.raises(ConfigError) as caught:
        small_recipe(**changes)
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) < 1000
    return line


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"width": -4}}, "width must lie in 0..4096, got -4"),
        ({"settings": {"width": "x"}}, "width of edsr-baseline must be a whole number, got 'x'"),
        ({"settings": {"width": 6.5}}, "must be a whole number, got 6.5"),
        ({"settings": {"width": 30_000}}, "width must lie in 0..4096, got 30000"),
        ({"settings": {"width": 4096}}, "weights with these settings; at most 268,435,456"),
        ({"settings": {"num_blocks": 4096}}, "far more layers than there are weights"),
        ({"settings": {"scale": 3}}, "scale is a key of the recipe, not one of settings"),
        ({"settings": {"x" * 5000: 3}}, "edsr-baseline has no setting 'xxx"),
        ({"network": "swinir-light", "settings": {"window": 0}}, "size_multiple must be 1 or more"),
        (
            {"network": "swinir-light", "settings": {"window": 512}},
            "the settings ask for tables of",
        ),
        ({"sigma_width": 100_000}, "sigma_width must be from 1 to 4096"),
        ({"batch": 10**7}, "batch must be from 1 to 65536"),
        ({"batch": 65536, "patch": 4096}, "at most 67,108,864 are trained at once"),
        ({"steps": 10**30}, "steps must be above zero and below 1e15"),
        ({"log_every": 10**400}, "log_every must be above zero and below 1e15"),
        ({"clip": 10**400}, "clip must be zero or more and below 1e15, got inf"),
        ({"shrink": [0.5] * 2000}, "shrink must have at most 16 factors"),
        ({"network": "x" * 10**5}, "there is no network called 'xxx"),
        ({"objective": "x" * 10**5}, "has 100000 characters; at most 1000 are read"),
        ({"degrade": "x" * 10**5}, "is too long; at most 10000 characters"),
        ({"degrade": "(" * 5000}, "is too long; at most 10000 characters and 100 brackets"),
        ({"degrade": "noise(1e999)"}, "a range goes from a smaller to a larger number, not inf"),
        ({"data": ["x" * 5000]}, "no file or folder can be called 'xxx"),
        ({"validation": "a\0b"}, r"no file or folder can be called 'a\x00b'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_hostile_values_are_refused_in_one_line(changes, message):
    assert message in line_of(**changes)


def test_the_best_weights_need_a_validation():
    with pytest.raises(ConfigError, match="keep_best needs a set for validation"):
        small_recipe(keep_best=True)
