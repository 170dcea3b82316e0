import json
import math

import pytest

from helpers.runs import small_recipe, small_values, write_recipe
from musigma.training.recipe import Recipe, load_recipe, make_recipe, shipped_recipes
from musigma.types import ConfigError


def rate(recipe: Recipe, progress: float, step: int = 0) -> float:
    return recipe.learning_rate_at(step=step, progress=progress)


def test_warmup_rises_in_a_line():
    recipe = small_recipe(learning_rate=0.4, schedule="constant", warmup=0.1)
    assert rate(recipe, 0.025) == pytest.approx(0.1)
    assert rate(recipe, 0.05) == pytest.approx(0.2)
    assert rate(recipe, 0.1) == rate(recipe, 0.7) == rate(recipe, 1.0) == 0.4
    assert rate(recipe, 0.0) == pytest.approx(0.4e-3)  # not nought: the first step counts too


def test_cosine_falls_to_a_thousandth():
    recipe = small_recipe(learning_rate=0.4, schedule="cosine", warmup=0.1)
    # Of the nine tenths after the warm-up: none, a third (cos 60 = 1/2), half (cos 90 = 0), two
    # thirds (cos 120 = -1/2), all of them; and whatever comes after.
    expected = {0.1: 0.4, 0.4: 0.3, 0.55: 0.2, 0.7: 0.1, 1.0: 0.4e-3, 1.2: 0.4e-3}
    for progress, value in expected.items():
        assert rate(recipe, progress) == pytest.approx(value)


def test_halving_goes_by_steps():
    recipe = small_recipe(learning_rate=0.4, schedule="halving", halve_every=200, warmup=0.0)
    expected = {0: 0.4, 199: 0.4, 200: 0.2, 399: 0.2, 400: 0.1, 999: 0.025}
    for step, value in expected.items():
        assert rate(recipe, step / 1000, step) == pytest.approx(value)


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
        assert rate(recipe, step / 1e6, step) == pytest.approx(value)


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
        ({"noise_std": [0, 50]}, "goes with scale = 1"),
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
        ({"batch": 0}, "batch must be above nought"),
        ({"learning_rate": math.nan}, "learning_rate must be above nought"),
        ({"learning_rate": math.inf}, "learning_rate must be above nought"),
        ({"halve_every": 0}, "halve_every must be above nought"),
        ({"save_every": -1}, "save_every must be nought or more"),
        ({"warmup": 1.0}, "warmup must be nought or more and below 1"),
        ({"ema": 1.0}, "ema must be nought or more and below 1"),
        ({"betas": [0.9, 1.0]}, "betas must be nought or more and below 1"),
        ({"seed": 2**31}, "seed must be from 0"),
    ],
)
def test_a_wrong_recipe_is_refused(changes, message):
    with pytest.raises(ConfigError) as caught:
        make_recipe(small_values(**changes))
    assert message in str(caught.value)


def test_noise_levels_are_a_range():
    values = small_values(network="kpn", scale=1, settings={}, noise_std=[50.0, 0.0])
    with pytest.raises(ConfigError, match="noise_std must be"):
        make_recipe(values)
    assert make_recipe(values | {"noise_std": [0, 50]}).noise_std == (0.0, 50.0)
    del values["noise_std"]
    with pytest.raises(ConfigError, match="at scale 1 say how inputs are made"):
        make_recipe(values)
    assert make_recipe(values | {"degrade": "jpeg(30..95)"}).degradation().scale == 1


def test_a_degradation_is_read_before_anything_is_loaded():
    assert str(make_recipe(small_values()).degradation()) == "bicubic"
    chain = make_recipe(small_values(degrade="blur(0..2) | area | jpeg(30..95)")).degradation()
    assert str(chain) == "blur(0..2) | area | jpeg(30..95)"
    with pytest.raises(ConfigError, match="did you mean 'jpeg'"):
        make_recipe(small_values(degrade="jpg(30)"))


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
