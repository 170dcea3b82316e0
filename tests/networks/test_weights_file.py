"""Weights files: ours come back as they were, those of others load alike, bad ones do no harm."""

import json
import os
import pickle
import warnings

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from helpers.networks import released
from musigma.model import load, load_file, save
from musigma.networks import create, warm_start, weights_file, with_sigma
from musigma.networks.layers import RGB_MEAN
from musigma.networks.weights_file import weights_of
from musigma.types import ConfigError, WeightsError

DEGRADED = torch.rand(1, 3, 9, 7, generator=torch.Generator().manual_seed(0))


def small(scale=2, **settings):
    torch.manual_seed(0)
    return create("edsr-baseline", scale=scale, num_blocks=2, width=8, **settings).eval()


def same_outputs(one, other):
    with torch.inference_mode():
        pairs = zip(one(DEGRADED), other(DEGRADED), strict=True)
        return all((a is b is None) or torch.equal(a, b) for a, b in pairs)


def test_ours_come_back_with_their_facts(tmp_path):
    network = with_sigma(small(3), width=8, depth=1).eval()
    costs = {"training": {"seed": 3, "steps": 10}, "licence": "CC0"}
    save(tmp_path / "new" / "w.safetensors", network, **costs)
    model = load(tmp_path / "new" / "w.safetensors")
    assert same_outputs(model.network, network)
    assert (model.name, model.scale, model.has_sigma) == ("edsr-baseline", 3, True)
    assert not model.network.training
    assert model.metadata["training"] == costs["training"]
    assert model.metadata["sigma"] == {"width": 8, "depth": 1}
    assert len(model.digest) == 64
    assert load(str(tmp_path / "new" / "w.safetensors"), scale=3).digest == model.digest


def test_half_precision_is_half_the_size_and_loads_as_float32(tmp_path):
    network = small()
    save(tmp_path / "whole.safetensors", network)
    save(tmp_path / "half.safetensors", network, half=True)
    sizes = [(tmp_path / f"{name}.safetensors").stat().st_size for name in ("half", "whole")]
    assert sizes[0] < 0.7 * sizes[1]
    loaded = load(tmp_path / "half.safetensors").network
    for ours, theirs in zip(network.parameters(), loaded.parameters(), strict=True):
        assert theirs.dtype == torch.float32
        assert torch.equal(theirs, ours.half().float())


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    network = small()
    network.head[0].bias.data[0] = float("nan")
    with pytest.raises(WeightsError, match="was not written: the weights hold non-finite values"):
        save(tmp_path / "w.safetensors", network)
    network.head[0].bias.data[0] = 1e6  # beyond half precision
    with pytest.raises(WeightsError, match="non-finite"):
        save(tmp_path / "w.safetensors", network, half=True)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_could_not_be_loaded_again_is_refused(tmp_path):
    with pytest.raises(WeightsError, match=r"w\.pth was not written: the name must end in \.safet"):
        save(tmp_path / "w.pth", small())


def basicsr_names(state, num_blocks=2):
    """The names that BasicSR gives the same layers (basicsr/archs/edsr_arch.py)."""
    renamed = {}
    for key, value in state.items():
        parts = key.split(".")
        if key.startswith("head.0."):
            name = f"conv_first.{parts[-1]}"
        elif key.startswith(f"body.{num_blocks}."):
            name = f"conv_after_body.{parts[-1]}"
        elif key.startswith("body."):
            number = {"0": 1, "2": 2}[parts[3]]
            name = f"body.{parts[1]}.conv{number}.{parts[-1]}"
        elif key.startswith("tail.0."):
            name = f"upsample.{parts[2]}.{parts[-1]}"
        else:
            name = f"conv_last.{parts[-1]}"
        renamed[name] = value
    return renamed


def with_mean_shift(state):
    """The 1x1 convolutions with which the official release shifts the mean color."""
    eye, mean = torch.eye(3).view(3, 3, 1, 1), 255 * torch.tensor(RGB_MEAN)
    shift = {"sub_mean.weight": eye, "sub_mean.bias": -mean}
    return {**shift, **state, "add_mean.weight": eye, "add_mean.bias": mean}


def prefixed(state, prefix="module."):
    return {prefix + key: value for key, value in state.items()}


FOREIGN = {
    "official": with_mean_shift,
    "module.": lambda state: prefixed(with_mean_shift(state)),
    "compiled in DDP": lambda state: prefixed(with_mean_shift(state), "module._orig_mod."),
    "params_ema": lambda state: {"params": {"not": "these"}, "params_ema": with_mean_shift(state)},
    "basicsr": lambda state: {"params": basicsr_names(state)},
    "trainer": lambda state: {"epoch": 3, "state_dict": prefixed(with_mean_shift(state))},
}


@pytest.mark.parametrize("part", FOREIGN)
@pytest.mark.parametrize("scale", [2, 3, 4])
def test_released_files_load_alike(tmp_path, scale, part):
    network = small(scale, value_range=255.0)
    content = FOREIGN[part](weights_of(network))
    torch.save(content, tmp_path / "edsr.pth")
    files = ["edsr.pth"]
    if all(isinstance(value, torch.Tensor) for value in content.values()):
        copies = {key: value.clone() for key, value in content.items()}
        save_file(copies, tmp_path / "edsr.safetensors")
        files.append("edsr.safetensors")
    for file in files:
        model = load(tmp_path / file)
        assert (model.name, model.scale, model.metadata) == ("edsr-baseline", scale, {})
        assert same_outputs(model.network, network)


def test_the_old_format_of_pytorch_is_read(tmp_path):
    network = small(value_range=255.0)
    options = {"_use_new_zipfile_serialization": False}
    torch.save(network.state_dict(), tmp_path / "old.pth", **options)
    assert same_outputs(load(tmp_path / "old.pth").network, network)


class Malicious:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("by_torch", [True, False], ids=["torch", "pickle"])
def test_a_malicious_pickle_is_refused(tmp_path, by_torch):
    content = {**weights_of(small()), "extra": Malicious(tmp_path / "harm")}
    if by_torch:
        torch.save(content, tmp_path / "w.pth")
    else:
        (tmp_path / "w.pth").write_bytes(pickle.dumps({"extra": Malicious(tmp_path / "harm")}))
    with pytest.raises(WeightsError) as caught:
        load(tmp_path / "w.pth")
    line = str(caught.value)
    assert line.startswith("w.pth cannot be loaded safely: ")
    assert "weights_only" not in line  # torch would advise to load it all the same
    if by_torch:
        assert "it would call posix.mkdir; re-save it" in line
    assert line.isprintable()
    assert not (tmp_path / "harm").exists()


def broken(tmp_path, name, content):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    return path


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("w.pth", b"", "it is damaged or no weights file; fetch it again"),
        ("w.pth", b"no pickle at all", "it is damaged or no weights file"),
        ("w.pth", [1, 2], "holds a list, not a state dict"),
        ("w.pth", torch.zeros(3), "holds a Tensor, not a state dict"),
        ("w.pth", {}, "no file of a network known here (it holds nothing, ...)"),
        ("w.pth", {"params": 3}, "it holds nothing"),
        ("w.pth", {"a.weight": torch.zeros(3)}, "(it holds a.weight, ...); 'musigma models'"),
        ("w.safetensors", b"", "is not a whole safetensors file"),
        ("w.safetensors", b"\xff" * 100, "is not a whole safetensors file"),
        ("w.safetensors", b"\x10\0\0\0\0\0\0\0{", "is not a whole safetensors file"),
    ],
)
def test_files_that_hold_no_weights(tmp_path, name, content, line):
    with pytest.raises(WeightsError) as caught:
        load(broken(tmp_path, name, content))
    assert str(caught.value).startswith(name)
    assert line in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_truncated_files(tmp_path, suffix):
    network, path = small(value_range=255.0), tmp_path / f"w{suffix}"
    if suffix == ".pth":
        torch.save(weights_of(network), path)
    else:
        save(path, network)
    whole = path.read_bytes()
    for length in (1, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(WeightsError) as caught:
            load(path)
        assert str(caught.value).isprintable()


def with_metadata(path, text):
    """Write our weights with other metadata."""
    save(path, small())
    with safe_open(path, framework="pt") as file:
        state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        own = json.loads(file.metadata()["musigma"])
    content = text if isinstance(text, str) else json.dumps(own | text)
    save_file(state, path, {"musigma": content})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", "the metadata of w.safetensors is no JSON"),
        ("[1]", "describes no network known here"),
        (
            '{"architecture": "edsr"}',
            "describes no network known here: the description lacks 'scale'",
        ),
        ({"architecture": "edsr-basline"}, "did you mean 'edsr-baseline'?"),
        ({"scale": 7}, "edsr-baseline exists for scale 1, 2, 3 or 4, not 7"),
        ({"settings": {"width": 8, "blocks": 2}}, "has no setting 'blocks'"),
        ({"settings": {"width": 9, "num_blocks": 2}}, "does not fit its network"),
        ({"sigma": {"width": 8, "depth": 1}}, "does not fit its network"),
        ({"sigma": {"height": 8}}, "describes no network known here"),
    ],
)
def test_metadata_that_do_not_fit(tmp_path, text, line):
    path = tmp_path / "w.safetensors"
    with_metadata(path, text)
    with pytest.raises(WeightsError) as caught:
        load(path)
    assert line in str(caught.value)
    assert "w.safetensors" in str(caught.value)


def test_the_scale_of_a_file_cannot_be_another(tmp_path):
    save(tmp_path / "w.safetensors", small(2))
    with pytest.raises(ConfigError, match=r"w\.safetensors enlarges by 2, not by 4"):
        load(tmp_path / "w.safetensors", scale=4)
    torch.save(weights_of(small(3)), tmp_path / "w.pth")
    with pytest.raises(ConfigError, match=r"w\.pth exists for scale 3, not 4"):
        load(tmp_path / "w.pth", scale=4)


def test_a_file_for_every_scale_must_be_told_which(tmp_path):
    vdsr = create("vdsr", scale=2, width=8, value_range=255.0)
    torch.save(released(vdsr), tmp_path / "vdsr.pth")
    with pytest.raises(ConfigError, match=r"vdsr\.pth exists for scale .* choose one of them"):
        load(tmp_path / "vdsr.pth")
    assert load(tmp_path / "vdsr.pth", scale=3).scale == 3


def test_names_and_paths_that_lead_nowhere(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'edsr-baseline'"):
        load("edsr-basline", scale=2)
    with pytest.raises(WeightsError, match=r"there is no weights file runs/best\.safetensors"):
        load("runs/best.safetensors")
    with pytest.raises(WeightsError, match="there is no weights file"):
        load(tmp_path)
    with pytest.raises(WeightsError, match=r"could not be read \(No such file"):
        load_file(tmp_path / "nowhere.pth")
    with pytest.raises(ConfigError, match=r"exists for scale 2, 3 or 4; choose one"):
        load("bicubic")
    with pytest.raises(ConfigError, match=r"exists for scale 2, 3 or 4, not 5"):
        load("bicubic", scale=5)
    with pytest.raises(ConfigError, match=r"exists for scale 2, 3 or 4, not '2'"):
        load("bicubic", scale="2")
    with pytest.raises(WeightsError, match="no trained weights ship for rcan x2; pass a weights"):
        load("rcan", scale=2)


def test_shipped_weights_are_found_by_name(tmp_path, monkeypatch):
    network = small(4)
    save(tmp_path / "edsr-baseline-x4.safetensors", network)
    save(tmp_path / "sharp-x4.safetensors", network)
    monkeypatch.setattr(weights_file, "SHIPPED", tmp_path)
    assert same_outputs(load("edsr-baseline", scale=4).network, network)
    # Weights may be called after what they are for; then they have a name of their own.
    sharp = load("sharp")
    assert (sharp.name, sharp.scale, sharp.network.build_spec.name) == ("sharp", 4, "edsr-baseline")


def test_shipped_weights_say_that_their_data_have_terms_of_their_own():
    licence = load("edsr-baseline", scale=2).metadata["licence"]
    assert licence.startswith("Apache-2.0 for the project's own rights")
    assert "images that have terms of their own" in licence


def test_warm_start_copies_what_fits():
    source, network = small(2), create("edsr-baseline", scale=3, num_blocks=2, width=8)
    left_out = warm_start(network, source)
    assert left_out == ["tail.0.0.weight", "tail.0.0.bias"]
    theirs = weights_of(source)
    for key, value in weights_of(network).items():
        assert (key in left_out) or torch.equal(value, theirs[key])
    with pytest.raises(WeightsError, match="nothing in the weights to start from fits"):
        warm_start(create("espcn", scale=2), source)


def test_an_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "w.safetensors"
    save(path, small(2))
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(path, small(3))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_loading_warns_of_nothing(tmp_path):
    """A pickle of another protocol makes torch warn; one line of error says what matters."""
    (tmp_path / "w.pth").write_bytes(pickle.dumps({"a": 1}, protocol=4))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(WeightsError):
            load(tmp_path / "w.pth")
    assert seen == []


def test_weights_without_sigma_start_a_network_that_has_it():
    source, network = small(2), with_sigma(small(2), width=4)
    left_out = warm_start(network, source)
    assert all(key.startswith("branch.") for key in left_out)
    assert torch.equal(network.base.head[0].weight, source.head[0].weight)


def test_weights_with_sigma_start_a_network_that_has_none():
    source, network = with_sigma(small(2), width=4), small(2)
    torch.nn.init.normal_(network.head[0].weight)
    assert warm_start(network, source) == []
    assert torch.equal(network.head[0].weight, source.base.head[0].weight)
