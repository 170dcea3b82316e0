"""The list of networks: registering one's own, building directly, plug-ins of other packages."""

import textwrap
import warnings

import pytest
import torch
from torch import nn

import musigma
from musigma.networks import (
    BuildSpec,
    DuplicateNetworkError,
    Network,
    NetworkInfo,
    create,
    entries,
    entry,
    register,
    registry,
    with_sigma,
)
from musigma.networks.denoising.drunet import DRUNet
from musigma.networks.super_resolution.carn import CARN
from musigma.networks.super_resolution.edsr import EDSR
from musigma.types import ConfigError, MusigmaError
from musigma.uncertainty.baselines import SpreadOverViews, WithConstantSigma

IMAGE = torch.rand(1, 3, 7, 5, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def own_list(monkeypatch):
    """Every test changes a copy of the list."""
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    monkeypatch.setattr(registry, "_PLUGINS_LOADED", set(registry._PLUGINS_LOADED))


class Mine(Network):
    """A network as somebody outside the package would write it."""

    def __init__(self, *, scale=2, width=8):
        super().__init__()
        self.info = NetworkInfo(
            scale=scale,
            task="super-resolution",
            feature_channels=width,
            feature_scale=scale,
            feature_receptive_radius=1,
            receptive_radius=2,
        )
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.tail = nn.Conv2d(width, 3 * scale**2, 3, padding=1)

    def features(self, degraded):
        return self.head(degraded).relu()

    def reconstruct(self, features, degraded):
        return nn.functional.pixel_shuffle(self.tail(features), self.scale)


def same(network, other):
    with torch.inference_mode():
        return all(
            torch.equal(ours, theirs)
            for ours, theirs in zip(network.eval()(IMAGE), other(IMAGE), strict=True)
        )


def test_a_registered_class_is_saved_and_loaded(tmp_path):
    assert musigma.register("mine")(Mine) is Mine
    network = with_sigma(create("mine", scale=3, width=4), width=8, depth=1)
    musigma.save(tmp_path / "w.safetensors", network)
    model = musigma.load(tmp_path / "w.safetensors")
    assert (model.name, model.scale) == ("mine", 3)
    assert model.network.build_spec == BuildSpec("mine", 3, {"width": 4})
    assert same(network, model.network)
    assert model.predict(IMAGE).mean.shape == (1, 3, 21, 15)
    assert "mine" in [each.name for each in entries()]


def test_a_registered_function_is_saved_and_loaded(tmp_path):
    @register("narrow", scales=(2,))
    def narrow(*, scale, **settings):
        return Mine(scale=scale, **{"width": 4, **settings})

    network = create("narrow", scale=2)
    musigma.save(tmp_path / "w.safetensors", network)
    model = musigma.load(tmp_path / "w.safetensors")
    assert model.name == "narrow"
    torch.testing.assert_close(model.network.head.weight, network.head.weight)


def test_a_class_without_a_scale_has_its_own(tmp_path):
    @register("double", scales=(2,))
    class Double(Mine):
        def __init__(self):
            super().__init__(scale=2)

    musigma.save(tmp_path / "w.safetensors", create("double", scale=2))
    assert musigma.load(tmp_path / "w.safetensors").name == "double"
    register("any-double")(Double)
    with pytest.raises(ConfigError, match="any-double enlarges by 2, not by 3"):
        create("any-double", scale=3)


@pytest.mark.parametrize(
    ("network", "spec"),
    [
        (
            lambda: EDSR(scale=2, num_blocks=1, width=8),
            BuildSpec("edsr-baseline", 2, {"num_blocks": 1, "width": 8}),
        ),
        (
            lambda: DRUNet(scale=1, num_blocks=1, widths=(8, 8, 8, 8), channels=1),
            BuildSpec("drunet", 1, {"num_blocks": 1, "widths": (8, 8, 8, 8), "channels": 1}),
        ),
        (lambda: CARN(scale=3, width=8), BuildSpec("carn", 3, {"width": 8})),
    ],
    ids=["edsr", "drunet", "carn"],
)
def test_a_network_built_directly_knows_how_to_be_built_again(network, spec, tmp_path):
    direct = network()
    assert direct.build_spec == spec
    musigma.save(tmp_path / "w.safetensors", direct)
    again = musigma.load(tmp_path / "w.safetensors").network
    assert again.info == direct.info
    ours, theirs = direct.state_dict(), again.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours if key != "build_spec")


def test_settings_of_the_registered_form_do_not_leak_into_a_direct_one():
    register("wide", settings={"width": 16})(Mine)
    direct = Mine(scale=2)
    assert direct.build_spec == BuildSpec("wide", 2, {"width": 8})
    assert create("wide", scale=2, **direct.build_spec.settings).info == direct.info


def test_a_network_that_is_not_registered_works_but_cannot_be_saved(tmp_path):
    network = with_sigma(Mine(scale=2), width=8, depth=1).eval()
    assert network(IMAGE).sigma.shape == (1, 3, 14, 10)
    assert WithConstantSigma(network, 0.1)(IMAGE).sigma.shape == (1, 3, 14, 10)
    assert SpreadOverViews(network)(IMAGE).mean.shape == (1, 3, 14, 10)
    with pytest.raises(
        ConfigError, match=r'Mine is not registered.*@musigma\.register\("a-name"\)'
    ):
        musigma.save(tmp_path / "w.safetensors", network)
    assert list(tmp_path.iterdir()) == []


def test_two_networks_of_one_name():
    before = dict(registry._ENTRIES)
    with pytest.raises(DuplicateNetworkError, match="'edsr' is registered already") as caught:
        register("edsr")(Mine)
    assert isinstance(caught.value, MusigmaError)
    assert before == registry._ENTRIES
    register("edsr", replace=True)(Mine)
    assert entry("edsr").build is Mine


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: register(Mine), r'write @register\("a-name"\)'),
        (lambda: register("mine")(nn.Conv2d), "expected a subclass of musigma.Network"),
        (lambda: register("mine")(3), "expected a subclass of musigma.Network"),
        (lambda: register("mine", settings={"widht": 3})(Mine), "did you mean 'width'"),
        (lambda: register("mine")(lambda **_: 3) and create("mine", scale=2), "builds a int"),
    ],
)
def test_register_refuses_what_could_not_be_created(call, line):
    before = set(registry._ENTRIES)
    with pytest.raises(ConfigError, match=line):
        call()
    assert set(registry._ENTRIES) - before <= {"mine"}


def test_unknown_settings_are_explained_without_building():
    with pytest.raises(ConfigError, match="bicubic has no setting 'foo'; it takes no settings"):
        create("bicubic", scale=2, foo=1)

    class Unbuildable(Mine):
        def __init__(self, *, scale, width=8):
            raise AssertionError("must not be built")

    register("unbuildable")(Unbuildable)
    with pytest.raises(ConfigError, match="did you mean 'width'"):
        create("unbuildable", scale=2, widht=3)


def test_a_network_without_info_says_so():
    class Forgetful(Mine):
        def __init__(self, *, scale):
            nn.Module.__init__(self)

    register("forgetful")(Forgetful)
    line = r"Forgetful has no info; its constructor must set self.info = NetworkInfo\(\.\.\.\)"
    for call in (lambda: create("forgetful", scale=2), lambda: with_sigma(Forgetful(scale=2))):
        with pytest.raises(ConfigError, match=line):
            call()


def test_info_must_be_whole():
    with pytest.raises(TypeError, match=r"missing .* 'receptive_radius'"):
        NetworkInfo(
            scale=1,
            task="denoising",
            feature_channels=3,
            feature_scale=1,
            feature_receptive_radius=0,
        )


def install(folder, monkeypatch, *, module, points):
    """Lay a distribution into a folder as pip does, and put the folder on the path."""
    (folder / "extra_networks.py").write_text(textwrap.dedent(module))
    info = folder / "extra_networks-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra-networks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(points))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(__import__("sys").modules, "extra_networks", raising=False)


PLUGIN = """
    from musigma import register
    from musigma.networks.super_resolution.espcn import ESPCN

    class Plain(ESPCN):
        '''Not registered by itself.'''

    @register("extra", scales=(2,))
    class Extra(ESPCN):
        '''Registered when the module is imported.'''
"""


def test_networks_of_another_package_are_found(tmp_path, monkeypatch):
    points = """
        [musigma.networks]
        everything = extra_networks
        plain = extra_networks:Plain
    """
    install(tmp_path, monkeypatch, module=PLUGIN, points=points)
    create("bicubic", scale=2)
    assert "extra_networks" not in __import__("sys").modules  # a known name imports nothing
    assert create("extra", scale=2).build_spec.name == "extra"
    assert create("plain", scale=2).scale == 2
    assert [each.name for each in entries()][-2:] == ["extra", "plain"]


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("raise RuntimeError('broken inside')", "RuntimeError: broken inside"),
        ("from musigma import register, Network\nregister('edsr')(Network)", "DuplicateNetwork"),
    ],
)
def test_a_broken_plug_in_is_named_and_harms_nothing(tmp_path, monkeypatch, module, reason):
    points = "[musigma.networks]\nbroken = extra_networks\n"
    install(tmp_path, monkeypatch, module=module, points=points)
    before = dict(registry._ENTRIES)
    with pytest.warns(UserWarning, match=f"plug-in 'broken' of extra-networks .*{reason}"):
        names = [each.name for each in entries()]
    assert names == list(before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the warning comes once
        list(entries())
