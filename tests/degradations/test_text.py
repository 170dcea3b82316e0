import pytest

from musigma.degradations import (
    Bicubic,
    Blur,
    Chain,
    Choice,
    Jpeg,
    Maybe,
    MotionBlur,
    Noise,
    OneOf,
    PoissonNoise,
    Range,
    Round,
    Shrink,
    names,
    parse,
)
from musigma.functional.shrink import METHODS
from musigma.types import ConfigError

TEXTS = [
    "blur(1.2) | area | noise(5) | jpeg(75)",
    "blur(0.2..2, across=0.3..1, angle=0..180)?0.7 | bicubic/area/bilinear/lanczos | round",
    "3*bicubic/bicubic_aliased/0.5*nearest | noise(0.5..15:log, grey=0/1)",
    "18*bicubic/82*(blur(1) | lanczos | jpeg(30..95)?0.7) | round",
    "(blur(1)/2*motion(1..5, angle=-45..45))?0.5 | area | poisson(0.25, grey=1)",
    "area | (noise(2) | jpeg(50..98, subsampling=3*420/444))?0.2",
    "noise(5)/poisson(1)?0.5/(jpeg(50)/jpeg(60)) | area",
    "(noise(5)?0.5)?0.5 | area",
    "blur(1e-05) | area",
    "raw(0.5, std=1, color=0.2..0.7, color_grain=0.5..3:log) | jpeg(80, left=4*0/0..7, top=3)",
    "area | noise(1/5..9/20, gain=0/0.1..2:log, grain=0.5) | poisson(1, grain=0..1)",
]


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(text):
    degradation = parse(text, scale=2)
    assert parse(str(degradation), scale=2) == degradation
    assert str(parse(str(degradation), scale=2)) == str(degradation)


@pytest.mark.parametrize("text", [t for t in TEXTS if t.startswith(("blur", "3*", "18*", "(blur"))])
def test_the_shortest_form_is_printed_as_it_was_typed(text):
    assert str(parse(text, scale=2)) == text


@pytest.mark.parametrize("scale", [1, 2, 3, 4])
def test_photo_has_a_text_of_its_own(scale):
    photo = parse("photo", scale=scale)
    assert photo.scale == scale
    assert parse(str(photo), scale=scale) == photo


def test_what_is_read_is_what_is_built():
    text = "blur(.5..2)?.7|2*area / lanczos|noise(3,grey=1)|jpeg( 30, 444)|poisson(gain=1)|round"
    read = parse(text, scale=4)
    built = Chain(
        [
            Maybe(Blur((0.5, 2)), 0.7),
            Choice([Shrink("area", 4), Shrink("lanczos", 4)], weights=(2, 1)),
            Noise(3, grey=1),
            Jpeg(30, subsampling=444),
            PoissonNoise(1),
            Round(),
        ]
    )
    assert read == built
    assert hash(read) == hash(built)
    assert parse("motion(1..3:log, angle=0/3*90..120)") == MotionBlur(
        Range(1, 3, log=True), angle=OneOf((Range(0, 0), Range(90, 120)), (1, 3))
    )
    assert parse("motion(3)") != parse("motion(2)")


def test_without_a_way_of_shrinking_it_is_bicubic_after_the_blurs():
    for text, full in {
        "noise(5)": "bicubic | noise(5)",
        "blur(1) | motion(2)?0.5 | jpeg(50)": "blur(1) | motion(2)?0.5 | bicubic | jpeg(50)",
        "blur(1)": "blur(1) | bicubic",
        "blur(1)/motion(2)": "blur(1)/motion(2) | bicubic",
        "area/(blur(1) | noise(2))": "area/(blur(1) | bicubic | noise(2))",
    }.items():
        assert str(parse(text, scale=3)) == full
        assert parse(text, scale=3) == parse(full, scale=3)


def test_bicubic_alone_is_the_published_one():
    assert parse("bicubic", scale=2) == Bicubic(2)
    assert parse("", scale=2) == Bicubic(2)
    assert parse(" bicubic ", scale=3) == parse(str(Bicubic(3)), scale=3)
    assert parse("bicubic | round", scale=2).stages[0] == Shrink("bicubic", 2)
    assert parse("bicubic/area", scale=2).options[0] == Shrink("bicubic", 2)
    assert parse("bicubic/(area | jpeg(50))", scale=2).options[0] == Bicubic(2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("blurr(1)", "no degradation 'blurr'; did you mean 'blur'"),
        ("blur(1) | lancos", "did you mean 'lanczos'"),
        ("jpeg(75, subsamplin=420)", "no argument 'subsamplin'; did you mean 'subsampling'"),
        ("jpeg(75, subsampling=422)", "subsampling is 420 or 444, not 422"),
        ("jpeg(75, subsampling=420..444)", "subsampling is 420 or 444, not 420..444"),
        ("jpeg(0)", "quality lies between 1 and 100, not at 0"),
        ("jpeg(10..101)", "between 1 and 100, not at 10..101"),
        ("jpeg", r"jpeg needs a number: jpeg\(quality\)"),
        ("noise(5, std=3)", "std is given twice"),
        ("jpeg(1, 420, 3, 0, 5)", "jpeg takes quality, subsampling, left, top; got 5 arguments"),
        ("round(3)", "round takes none; got 1 arguments"),
        ("blur(2, across=1)", "needs both across and angle"),
        ("area(2)", "expected no arguments, since area takes none before"),
        ("area | area", "shrinks more than once"),
        ("area?0.5", "what shrinks cannot be left out"),
        ("noise(5)?1.5", "a probability lies between 0 and 1"),
        ("noise(5..2)", "from a smaller to a larger number"),
        ("noise(0..2:log)", "begins above 0"),
        ("noise(1..2:lin)", r"expected 'log' before 'lin\)'"),
        ("noise(5", r"expected '\)' before the end"),
        ("noise(5) noise(3)", r"expected '\|' or the end before 'noise\(3\)'"),
        ("noise(a)", "expected '=' before"),
        ("noise()", "expected a number before"),
        ("| noise(5)", "expected the name of a stage before"),
        ("noise(5) & area", "a name, a number or a sign before '& area'"),
        ("0*area/bicubic", "a weight is above 0"),
    ],
)
def test_errors_say_what_is_wrong(text, message):
    with pytest.raises(ConfigError, match=message):
        parse(text, scale=2)


def test_scale_one_shrinks_nothing():
    assert str(parse("noise(25)")) == "noise(25)"
    with pytest.raises(ConfigError, match="at scale 1 nothing is shrunk; leave area out"):
        parse("blur(1) | area", scale=1)
    with pytest.raises(ConfigError, match="expected the name of a stage before the end"):
        parse("", scale=1)
    with pytest.raises(ConfigError, match="the scale is 1 or more, not 0"):
        parse("noise(5)", scale=0)


def test_alternatives_agree_about_shrinking():
    with pytest.raises(ConfigError, match="either all alternatives shrink"):
        Choice([Shrink("area", 2), Noise(5)])
    with pytest.raises(ConfigError, match="expected 2 weights"):
        Choice([Noise(5), Noise(6)], weights=(1,))


def test_every_name_can_be_parsed():
    alone = {"photo", "round", *METHODS}
    for name in names():
        text = name if name in alone else f"{name}(1)"
        assert parse(text, scale=2).scale == 2


@pytest.mark.parametrize(
    "text", ["bicubic | " * 4000 + "area", "noise(1e999)", "(" * 900, "x" * 900, "blur(1) | " * 90]
)
def test_hostile_texts_are_refused_in_a_short_line(text):
    with pytest.raises(ConfigError) as error:
        parse(text, scale=2)
    assert len(str(error.value)) < 500
