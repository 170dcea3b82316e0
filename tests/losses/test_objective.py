"""Objectives from text: their values, what they need, the teacher, compilation, errors."""

import pytest
import torch
from torch import Tensor, nn

from musigma.functional import objectives as F  # noqa: N812
from musigma.losses import Objective, names
from musigma.types import ConfigError, Prediction

SHAPE = (2, 3, 37, 31)
OPEN_SETTINGS = {
    "fixed_sigma": "fixed_sigma(noise_std=0.1)",
    "sigma_quantile": "sigma_quantile(level=0.9)",
}
NEEDS_TEACHER = ("distillation", "udl_step2")


class Teacher(nn.Module):
    """Half of the input as mean, a quarter as sigma, with dropout to tell its mode."""

    def __init__(self, *, with_sigma: bool = True):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(0.5))
        self.dropout = nn.Dropout(0.5)
        self.with_sigma = with_sigma

    def forward(self, degraded: Tensor) -> Prediction | Tensor:
        mean = self.dropout(degraded * self.gain)
        return Prediction(mean, mean / 2) if self.with_sigma else mean


def pictures() -> list[Tensor]:
    """Mean, target, sigma and the input of the teacher."""
    return [torch.rand(SHAPE, generator=torch.Generator().manual_seed(s)) for s in range(4)]


def build(name: str) -> Objective:
    teacher = Teacher() if name in NEEDS_TEACHER else None
    return Objective(OPEN_SETTINGS.get(name, name), teacher=teacher)


# The value.


def by_function(name: str, generator: torch.Generator) -> Tensor:
    mean, target, sigma, degraded = pictures()
    drawn = {"generator": generator}
    match name:
        case "distillation":
            return F.distillation(mean, degraded / 2)
        case "udl_step2":
            return F.udl_step2(mean, target, degraded / 4)
        case "sigma_quantile":
            return F.sigma_quantile(mean, target, sigma, level=0.9)
        case "fixed_sigma":
            return F.fixed_sigma(mean, target, noise_std=0.1, **drawn)
        case "expected_l1":
            return F.expected_l1(mean, target, **drawn)
        case "learned_sigma":
            return F.learned_sigma(mean, target, sigma, **drawn)
        case "sigma_l1" | "sigma_l2" | "sigma_variance" | "udl_step1":
            return getattr(F, name)(mean, target, sigma)
        case "laplace_nll" | "gaussian_nll" | "beta_nll":
            return getattr(F, name)(mean, target, sigma)
    return getattr(F, name)(mean, target)


@pytest.mark.parametrize("name", names())
def test_an_objective_is_the_mean_of_its_function(name):
    mean, target, sigma, degraded = pictures()
    generator = torch.Generator().manual_seed(5)
    value = build(name)(Prediction(mean, sigma), target, degraded=degraded, generator=generator)
    assert value.shape == ()
    assert torch.equal(value, by_function(name, torch.Generator().manual_seed(5)).mean())


def test_parts_are_weighted_and_add_up():
    mean, target, sigma, _ = pictures()
    objective = Objective("expected_l1_closed_form + 0.01 * sigma_l1 + 3 * edge")
    parts = objective.parts(Prediction(mean, sigma), target)
    assert list(parts) == ["expected_l1_closed_form", "sigma_l1", "edge"]
    torch.testing.assert_close(parts["sigma_l1"], 0.01 * F.sigma_l1(mean, target, sigma).mean())
    torch.testing.assert_close(
        objective(Prediction(mean, sigma), target), torch.stack(list(parts.values())).sum()
    )


def test_settings_reach_the_function():
    mean, target, _, _ = pictures()
    text = "expected_l1(mask=false, samples=4, distribution=laplace)"
    generator = torch.Generator().manual_seed(5)
    value = Objective(text)(mean, target, generator=generator)
    expected = F.expected_l1(
        mean,
        target,
        mask=False,
        samples=4,
        distribution="laplace",
        generator=torch.Generator().manual_seed(5),
    )
    assert torch.equal(value, expected.mean())


@pytest.mark.parametrize("name", names())
def test_every_objective_compiles_as_one_graph(name):
    torch.compiler.reset()
    mean, target, sigma, degraded = (picture[..., :5, :7] for picture in pictures())
    mean.requires_grad_()
    sigma.requires_grad_()
    objective = build(name)
    compiled = torch.compile(objective, fullgraph=True, backend="aot_eager")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        by_graph = compiled(Prediction(mean, sigma), target, degraded=degraded)
        torch.manual_seed(0)
        by_python = objective(Prediction(mean, sigma), target, degraded=degraded)
    torch.testing.assert_close(by_graph, by_python)
    by_graph.backward()
    assert mean.grad is not None or sigma.grad is not None


# What it needs.


@pytest.mark.parametrize(
    ("text", "needs"), [("expected_l1", False), ("l1 + 0.01 * sigma_l1", True), ("edge", False)]
)
def test_which_objectives_need_sigma(text, needs):
    assert Objective(text).needs_sigma is needs


def test_a_prediction_without_sigma_is_refused_by_a_term_that_needs_it():
    mean, target, _, _ = pictures()
    message = r"sigma_l1 needs a sigma and the prediction has none; with_sigma\(network\)"
    with pytest.raises(ConfigError, match=message):
        Objective("l1 + 0.01 * sigma_l1")(Prediction(mean), target)


def test_the_teacher_is_frozen_and_keeps_its_mode():
    teacher = Teacher()
    objective = Objective("distillation", teacher=teacher).train()
    assert objective.training
    assert not teacher.training
    assert not teacher.dropout.training
    mean, target, _, degraded = pictures()
    mean.requires_grad_()
    objective(mean, target, degraded=degraded).backward()
    assert teacher.gain.grad is None
    assert not teacher.gain.requires_grad


def test_a_teacher_may_return_a_bare_mean():
    mean, target, _, degraded = pictures()
    value = Objective("distillation", teacher=Teacher(with_sigma=False))(
        mean, target, degraded=degraded
    )
    torch.testing.assert_close(value, F.l1(mean, degraded / 2).mean())
    with pytest.raises(ConfigError, match="udl_step2 needs the teacher's sigma"):
        Objective("udl_step2", teacher=Teacher(with_sigma=False))(mean, target, degraded=degraded)


def test_the_teacher_comes_with_its_input_and_only_where_it_is_needed():
    mean, target, _, _ = pictures()
    with pytest.raises(ConfigError, match=r"'l1 \+ distillation' needs a teacher"):
        Objective("l1 + distillation")
    with pytest.raises(ConfigError, match="'l1' has no use for a teacher"):
        Objective("l1", teacher=Teacher())
    with pytest.raises(ConfigError, match=r"needs the input: call with degraded=\.\.\."):
        Objective("distillation", teacher=Teacher())(mean, target)


# The text.


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("expected_l1 + 0.01 * sigma_l1", "expected_l1 + 0.01 * sigma_l1"),
        ("  l1+1e-2*sigma_l1( detach = False )", "l1 + 0.01 * sigma_l1(detach=false)"),
        ("1e+1*l1", "10.0 * l1"),
        (".5 * l1()", "0.5 * l1"),
        ("1 * expected_l1(samples=1, mask=true)", "expected_l1"),
        (
            "expected_l1(distribution=laplace, mask=FALSE)",
            "expected_l1(mask=false, distribution=laplace)",
        ),
        ("charbonnier(epsilon=1e-6)", "charbonnier(epsilon=1e-06)"),
        ("sigma_quantile(level=0.9)", "sigma_quantile(level=0.9)"),
    ],
)
def test_text_comes_back_in_its_shortest_form(text, canonical):
    assert str(Objective(text)) == canonical
    assert str(Objective(canonical)) == canonical
    assert repr(Objective(text)) == f"Objective({canonical})"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read its end; expected [weight *] name[(key=value, ...)], joined by +"),
        ("l1 +", "objective 'l1 +': cannot read its end"),
        ("l1 + * l2", "cannot read '* l2'"),
        ("l1 l2", "cannot read 'l1 l2'"),
        ("l1 - 0.1 * l2", "cannot read 'l1 - 0.1 * l2'"),
        ("l1 + two * l2", "cannot read 'two * l2'"),
        ("l1 + l2(", "cannot read 'l2('"),
        ("expectd_l1", "there is no objective called 'expectd_l1'; did you mean 'expected_l1'"),
        ("l1 + l1", "the sum has l1 twice; give it one weight"),
        ("0 * l1", "the weight of l1 is positive, not 0.0"),
        ("1e999 * l1", "the weight of l1 is positive, not inf"),
        ("l1(mask=true)", "l1 has no setting called 'mask'; it takes none"),
        ("expected_l1(smaples=2)", "no setting called 'smaples'; did you mean 'samples'?"),
        ("expected_l1(samples)", "expected_l1: expected key=value, got 'samples'"),
        ("expected_l1(samples=2,)", "expected_l1: expected key=value, got ''"),
        ("expected_l1(samples=two)", "expected_l1: samples is a whole number, not 'two'"),
        ("expected_l1(mask=1)", "expected_l1: mask is true or false, not '1'"),
        ("expected_l1(mask=true, mask=true)", "expected_l1: mask is given twice"),
        ("expected_l1(generator=1)", "expected_l1 has no setting called 'generator'"),
        ("expected_l1(distribution=gauss)", "distribution cannot be 'gauss'; known: laplace,"),
        ("beta_nll(beta=half)", "beta_nll: beta is a number, not 'half'"),
        ("fixed_sigma", "fixed_sigma needs noise_std: fixed_sigma(noise_std=...)"),
        ("expected_l1(samples=0)", "expected_l1: samples must be from 1 to 1024, got 0"),
        ("sigma_quantile(level=2)", "sigma_quantile: level must be between 0 and 1, got 2.0"),
        ("charbonnier(epsilon=nan)", "charbonnier: epsilon is a number, not nan"),
        ("charbonnier(epsilon=inf)", "charbonnier: epsilon must be above 0 and finite, got inf"),
        ("fixed_sigma(noise_std=inf)", "noise_std must be 0 or more and finite, got inf"),
        ("laplace_nll(floor=inf)", "laplace_nll: floor must be above 0 and finite, got inf"),
        ("9" * 60_000 + " * l1", "has 60005 characters; at most 1000 are read"),
        ("l1 + " * 50_000 + "l1", "has 250002 characters; at most 1000 are read"),
    ],
)
def test_errors_point_at_the_wrong_piece(text, message):
    with pytest.raises(ConfigError) as caught:
        Objective(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "text",
    [
        "1" * 60_000,
        "1" * 900,
        "l1 " * 300,
        "(" * 900,
        "y" * 900,
        " " * 999,
        "l1+" * 300,
        f"expected_l1(samples={'9' * 900})",
        f"expected_l1(distribution={'z' * 900})",
        f"charbonnier(epsilon={'1' * 900})",
        "expected_l1(samples=1000000)",
        "charbonnier(epsilon=inf)",
        "fixed_sigma(noise_std=1e400)",
    ],
    ids=lambda text: text[:12],
)
def test_hostile_texts_give_a_short_line(text):
    with pytest.raises(ConfigError) as caught:
        Objective(text)
    assert len(str(caught.value)) < 500
