"""Weights files that were made to do harm: one line, at once, in little memory; nothing is run."""

import json
import pickle
import resource
import zipfile

import pytest
import torch
from safetensors.torch import save_file

from musigma.model import load
from musigma.networks import create, weights_file, with_sigma
from musigma.networks.bounded_build import MAX_VALUES
from musigma.networks.stored_tensors import read_stored_tensors
from musigma.networks.weights_file import describe, weights_of
from musigma.types import ConfigError, WeightsError, short_repr, shortened
from musigma.uncertainty.quantities import JointCalibration

SIZE = {"num_blocks": 1, "width": 4}
CALIBRATION = {
    "method": "isotonic",
    "knots": [1.0],
    "values": [1.5],
    "factor": 2.0,
    "coverage": 0.9,
    "confidence": None,
    "num_images": 9,
}


def network():
    return create("edsr-baseline", scale=2, **SIZE)


def line_of(path):
    """Return the one line that loading a file gives."""
    with pytest.raises(WeightsError) as caught:
        load(path)
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) < 400
    return line


def ours(tmp_path, *, text=None, **changes):
    """Write a file of ours with other metadata."""
    metadata = json.dumps(describe(network()) | changes) if text is None else text
    save_file(weights_of(network()), tmp_path / "w.safetensors", {"musigma": metadata})
    return tmp_path / "w.safetensors"


def pickled(tmp_path, content):
    torch.save(content, tmp_path / "w.pth")
    return tmp_path / "w.pth"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "w.safetensors are nested too deeply"),
        ("null", "its metadata are no table, but None"),
        ("[1, 2]", "its metadata are no table, but [1, 2]"),
        ("{" + " " * 2**24, "are longer than 16777216 characters"),
    ],
    ids=["deep", "null", "list", "long"],
)
def test_metadata_that_are_no_table(tmp_path, text, line):
    assert line in line_of(ours(tmp_path, text=text))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"width": -4}, "width must lie in 0..4096, got -4"),
        ({"width": 6.5}, "width of edsr-baseline must be a whole number, got 6.5"),
        ({"width": "x"}, "width of edsr-baseline must be a whole number, got 'x'"),
        ({"width": True}, "width of edsr-baseline must be a whole number, got True"),
        ({"width": 60_000}, "width must lie in 0..4096, got 60000"),
        ({"width": 4096}, "head.0.weight has the shape (4, 3, 3, 3), expected (4096, 3, 3, 3)"),
        ({"num_blocks": 3_000_000}, "num_blocks must lie in 0..4096, got 3000000"),
        ({"num_blocks": 4096}, "far more layers than there are weights"),
        ({"res_scale": 1e300}, "res_scale must be finite and below 1e+06"),
        ({"value_range": [[1.0]]}, "value_range must be a number, a word, or a list of them"),
        ({"x" * 10_000: 1}, "has no setting"),
    ],
)
def test_settings_are_bounded(tmp_path, changes, line, monkeypatch):
    path = ours(tmp_path, settings=SIZE | changes)
    made = []
    # Nothing is built with values, because the shapes are compared first.
    monkeypatch.setattr(
        weights_file, "create", lambda *a, **k: made.append(create(*a, **k)) or made[-1]
    )
    text = line_of(path)
    assert line in text
    assert all(weight.is_meta for built in made for weight in built.parameters())


def test_a_network_of_many_small_blocks_is_refused_early(tmp_path):
    settings = {"num_groups": 4000, "num_blocks": 4000}
    line = line_of(ours(tmp_path, architecture="rcan", settings=settings))
    assert "far more layers than there are weights" in line


def without_values(name, scale, **settings):
    """Return a network on the meta device, whatever its size."""
    with torch.device("meta"):
        return create(name, scale=scale, **settings)


def file_of(tmp_path, built):
    """Write a file of ours of a network, with zeros for weights."""
    state = {key: torch.zeros(value.shape) for key, value in weights_of(built).items()}
    save_file(state, tmp_path / "w.safetensors", {"musigma": json.dumps(describe(built))})
    return tmp_path / "w.safetensors"


def test_tables_that_a_file_asks_for_but_does_not_hold(tmp_path):
    """Each window of 128 x 128 pixels has 2 GiB of positions, and each hash its rotations."""
    one_block = {"num_groups": 1, "num_blocks": 1, "width": 2, "num_heads": 1, "mlp_ratio": 1}
    path = file_of(tmp_path, without_values("swinir-light", 2, window=128, **one_block))
    assert path.stat().st_size < 300_000
    before = peak_memory()
    assert "the settings ask for tables of 268,435,459 values" in line_of(path)
    path = ours(tmp_path, architecture="nlsn", settings={"num_hashes": 4096, "width": 4096})
    assert "the settings ask for tables of" in line_of(path)
    assert peak_memory() - before < 2**28


def test_a_network_that_cannot_run_is_one_line_for_every_command(tmp_path):
    settings = {"num_neighbours": 0, "width": 12, "rank": 2, "num_steps": 1, "window": 7}
    model = load(file_of(tmp_path, without_values("gcdn-colour", 1, **settings)))
    with pytest.raises(
        ConfigError, match=r"the network cannot be run \(ZeroDivisionError: "
    ) as caught:
        model.predict(torch.rand(1, 3, 9, 8))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sigma", "line"),
    [
        ({"width": 4, "depth": 10_000_000}, "depth of the sigma branch must be a whole number"),
        ({"width": -1, "depth": 1}, "width of the sigma branch must be a whole number from 1"),
        ({"width": 60_000, "depth": 1}, "width of the sigma branch must be a whole number"),
        ("x", "sigma must have a width and a depth, got 'x'"),
        (True, "sigma must have a width and a depth, got True"),
        ({"height": 1}, "sigma must have a width and a depth"),
    ],
)
def test_a_sigma_branch_that_no_network_has(tmp_path, sigma, line):
    assert line in line_of(ours(tmp_path, sigma=sigma))


@pytest.mark.parametrize(
    "calibration",
    [
        "x",
        5,
        0,
        [1],
        True,
        {},
        CALIBRATION | {"knots": [[1.0]]},
        CALIBRATION | {"knots": "abc"},
        CALIBRATION | {"factor": "x"},
        CALIBRATION | {"coverage": [1]},
        CALIBRATION | {"protocol": {"degradation": 5}},
        CALIBRATION | {"protocol": {"noise_std": "x"}},
    ],
    ids=str,
)
def test_a_calibration_that_is_none(tmp_path, calibration):
    line = line_of(ours(tmp_path, calibration=calibration))
    assert line.startswith("the calibration in w.safetensors cannot be used: ")


@pytest.mark.parametrize("key", ["architecture", "scale", "settings"])
@pytest.mark.parametrize("value", [None, [1], {"a": 1}, "x", -1, 2.0])
def test_descriptions_of_the_wrong_type(tmp_path, key, value):
    assert line_of(ours(tmp_path, **{key: value})).startswith("w.safetensors describes no network")


def nested(wrapper, depth):
    content = {}
    for _ in range(depth):
        content = {wrapper: content}
    return content


def test_a_state_dict_nested_deeply(tmp_path):
    # pickle itself cannot write it, but its opcodes can be written: n times an empty dictionary
    # and its key, then n times "set the item".
    for wrapper in ("params", "0"):
        key = pickle.BINUNICODE + len(wrapper).to_bytes(4, "little") + wrapper.encode()
        depth = 5000
        content = b"\x80\x02" + (pickle.EMPTY_DICT + key) * depth + pickle.NONE
        content += pickle.SETITEM * depth + pickle.STOP
        archive = pickled(tmp_path, {})
        with zipfile.ZipFile(archive) as before:
            members = {name: before.read(name) for name in before.namelist()}
        with zipfile.ZipFile(archive, "w") as after:
            for name, data in members.items():
                after.writestr(name, content if name.endswith("data.pkl") else data)
        line_of(archive)
    assert line_of(pickled(tmp_path, nested("params", 20))).endswith(
        "save it as a plain state dict"
    )


@pytest.mark.parametrize(
    ("wrapper", "words"), [("params", "nested too deeply"), ("0", "w.pth"), ("other", "w.pth")]
)
def test_a_dictionary_that_holds_itself(tmp_path, wrapper, words):
    content = {}
    content[wrapper] = content
    assert words in line_of(pickled(tmp_path, content))


def test_keys_that_are_no_texts(tmp_path):
    state = weights_of(network())
    strange = {1: torch.zeros(1), None: 3, b"x": 4, (1, 2): 5}
    assert "it holds nothing" in line_of(pickled(tmp_path, {"params": strange}))
    tensors = read_stored_tensors(pickled(tmp_path, {"params": strange | state})).tensors
    assert tensors.keys() == state.keys()


def expanded():
    return torch.zeros(1).expand(10**6, 10**6, 3, 3)


def sparse():
    indices = torch.zeros(4, 0, dtype=torch.long)
    return torch.sparse_coo_tensor(
        indices, torch.zeros(0), (10**6, 10**6, 3, 3), check_invariants=False
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("make", "line"),
    [
        (expanded, "repeats few values many times"),
        (sparse, "is sparse, nested or quantized"),
        (lambda: torch.zeros(4, 3, 3, 3, dtype=torch.complex64), "is complex"),
        (lambda: torch.zeros(4, 3, 3, 3, device="meta"), "has no values"),
        (lambda: torch.quantize_per_tensor(torch.zeros(4), 1.0, 0, torch.qint8), "quantized"),
    ],
)
def test_tensors_that_no_network_has(tmp_path, make, line):
    state = weights_of(network()) | {"head.0.weight": make()}
    text = line_of(pickled(tmp_path, state))
    assert text.startswith("w.pth cannot be loaded: head.0.weight ")
    assert line in text


def test_complex_weights_in_safetensors(tmp_path):
    state = {key: value.to(torch.complex64) for key, value in weights_of(network()).items()}
    save_file(state, tmp_path / "w.safetensors")
    assert "is complex; weights are real numbers" in line_of(tmp_path / "w.safetensors")


def sparse_file(path, start=b""):
    """Write a file of 12 GiB that takes no room on the disk."""
    with path.open("wb") as file:
        file.write(start)
        file.truncate(12 * 2**30)
    return path


def peak_memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("w.pth", b""),
        ("w.safetensors", b""),
        ("w.mat", b""),
        ("w.pth", b"\x80\x02c"),  # the name of a class, without end
        ("w.pth", b"\x80\x02X\xff\xff\xff\xff"),  # a text of 4 GiB
        ("w.pth", b"PK\x03\x04"),
        ("w.pth", b"\x89HDF\r\n\x1a\n"),
        ("w.pth", b"MATLAB 5.0 MAT-file"),
    ],
)
def test_a_file_of_12_gib_is_not_read(tmp_path, name, start):
    before = peak_memory()
    line_of(sparse_file(tmp_path / name, start))
    assert peak_memory() - before < 2**28


def test_tensors_of_12_gib_are_not_read(tmp_path):
    entry = {"dtype": "F32", "shape": [12 * 2**28], "data_offsets": [0, 12 * 2**30]}
    header = json.dumps({"head.0.weight": entry}).encode()
    path = tmp_path / "w.safetensors"
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 12 * 2**30)
    before = peak_memory()
    assert f"networks known here have at most {MAX_VALUES:,}" in line_of(path)
    assert peak_memory() - before < 2**28


def test_an_archive_that_grows_is_refused(tmp_path):
    with (
        zipfile.ZipFile(pickled(tmp_path, {"a.weight": torch.zeros(2**20)})) as plain,
        zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for member in plain.infolist():
            packed.writestr(member.filename, plain.read(member))
    assert "bomb.pth is compressed, unlike files of torch.save" in line_of(tmp_path / "bomb.pth")


def test_a_byte_array_in_a_pickle_takes_no_memory(tmp_path):
    archive = pickled(tmp_path, {})
    with zipfile.ZipFile(archive) as before:
        members = {name: before.read(name) for name in before.namelist()}
    content = pickle.dumps(bytearray(2**10), protocol=2).replace(b"__builtin__", b"builtins")
    with zipfile.ZipFile(archive, "w") as after:
        for name, data in members.items():
            after.writestr(name, content if name.endswith("data.pkl") else data)
    assert "it is damaged or no weights file" in line_of(archive)


def test_files_of_other_programs_are_named(tmp_path):
    import numpy as np

    with zipfile.ZipFile(tmp_path / "w.pt", "w") as archive:
        for member in ("w/data.pkl", "w/code/__torch__.py", "w/constants.pkl"):
            archive.writestr(member, b"\x80\x02}.")
    assert "w.pt is a TorchScript program, which is not run here" in line_of(tmp_path / "w.pt")
    np.savez(tmp_path / "w.npz", weight=np.zeros(3))
    assert "w.npz is a NumPy archive" in line_of(tmp_path / "w.npz")
    for name, start, line in (
        ("w.mat", b"MATLAB 5.0 MAT-file, Platform: GLNXA64", "is a MATLAB file"),
        ("v73.mat", b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n", "is a MATLAB file"),
        ("w.h5", b"\x89HDF\r\n\x1a\n", "is an HDF5 file, as Keras and MATLAB write them"),
    ):
        (tmp_path / name).write_bytes(start + bytes(100))
        assert line in line_of(tmp_path / name)
        assert "save them as safetensors" in line_of(tmp_path / name)
    save_file(weights_of(network()), tmp_path / "w.pth")
    assert "rename it to end in .safetensors" in line_of(tmp_path / "w.pth")


def test_an_onnx_file_of_others_is_named(tmp_path):
    onnx = pytest.importorskip("onnx")
    graph = onnx.helper.make_graph([], "g", [], [])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "w.onnx")
    line = line_of(tmp_path / "w.onnx")
    assert "was not written by 'musigma export'" in line
    assert "load the PyTorch weights that it was made from" in line
    line_of(sparse_file(tmp_path / "w.onnx", b"\x08\x07"))
    line_of(sparse_file(tmp_path / "w.onnx"))


@pytest.mark.parametrize("name", ["w.pth", "w.pt", "w.ckpt", "w.safetensors", "w.ONNX", "w.bin"])
def test_an_onnx_file_under_another_name_is_told_to_be_one(tmp_path, name):
    path = tmp_path / name
    for start in (
        b"\x08\x0a\x12\x07pytorch\x1a\x052.9.0:",  # version, producer, its version, graph
        b"\x08\x07:\x05\x12\x03net",
        b"\x08\x0aB\x04\x0a\x00\x10\x15",  # operators alone
    ):
        for size in (len(start), 10_000):
            path.write_bytes(start.ljust(size, b"\0"))
            assert line_of(path) == f"{name} is an ONNX file; rename it to end in .onnx"
    assert "is an ONNX file" in line_of(sparse_file(path, b"\x08\x07:"))


def test_an_onnx_file_that_was_exported_is_recognized(tmp_path):
    onnx = pytest.importorskip("onnx")
    graph = onnx.helper.make_graph([], "g", [], [])
    onnx.save(onnx.helper.make_model(graph, producer_name="test"), tmp_path / "w.onnx")
    path = (tmp_path / "w.onnx").rename(tmp_path / "w.pth")
    assert line_of(path) == "w.pth is an ONNX file; rename it to end in .onnx"


def test_other_files_are_not_taken_for_onnx(tmp_path):
    for name in ("w.pth", "w.safetensors"):
        for start in (b"", b"\x08", b"\x08\x07", b"\x08\x00:x", b"\x08\xff:x", b"\x08\x07\x00x"):
            (tmp_path / name).write_bytes(start)
            assert "ONNX" not in line_of(tmp_path / name)
    # The size of this header, 0x120708, begins with the bytes of an ONNX file.
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    content = (0x120708).to_bytes(8, "little") + header.ljust(0x120708) + bytes(4)
    (tmp_path / "w.safetensors").write_bytes(content)
    assert list(read_stored_tensors(tmp_path / "w.safetensors").tensors) == ["w"]
    (tmp_path / "w.pth").write_bytes(content)
    assert "rename it to end in .safetensors" in line_of(tmp_path / "w.pth")


def test_a_specification_that_asks_for_too_much(tmp_path):
    state = network().state_dict()
    for text in (
        json.dumps({"name": "edsr-baseline", "scale": 2, "settings": {"num_blocks": 3_000_000}}),
        json.dumps({"name": ["edsr-baseline"], "scale": 2, "settings": {}}),
        json.dumps({"name": "edsr-baseline", "scale": 2, "settings": {"width": -4}}),
        "[" * 100_000,
        " " * 200_000,
    ):
        state["build_spec"] = torch.tensor(list(text.encode()), dtype=torch.uint8)
        assert "w.pth describes no network known here" in line_of(pickled(tmp_path, state))


def test_sizes_of_a_branch_are_checked_by_its_constructor():
    for sizes in ({"width": 0}, {"width": 2.5}, {"depth": -1}, {"depth": 10**7}):
        with pytest.raises(ConfigError, match="of the sigma branch must be a whole number"):
            with_sigma(network(), **sizes)


def test_texts_are_cut():
    assert shortened("a" * 100) == "a" * 77 + "..."
    assert shortened("\x1b]0;owned\x07") == r"\x1b]0;owned\x07"
    assert len(short_repr("a" * 100)) <= 82
    assert len(short_repr(10**6000)) <= 80


def test_gradients_are_as_before_after_a_file_that_asks_for_too_much(tmp_path):
    with pytest.raises(WeightsError):
        load(ours(tmp_path, settings={"num_blocks": 4096}))
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"training": "x"}, "training of w.safetensors must be a table, got 'x'"),
        ({"training": [[1.0]]}, "training of w.safetensors must be a table"),
        ({"training": None}, "training of w.safetensors must be a table, got None"),
        ({"training": {"recipe": 5}}, "training/recipe of w.safetensors must be a table, got 5"),
        ({"licence": ["x"] * 5000}, "licence of w.safetensors must be a text, got ['x', "),
        ({"value_range": [0, 10**400]}, "value_range of the weights must be two numbers"),
        ({"value_range": "9" * 9000}, "value_range of the weights must be two numbers"),
        ({"value_percentiles": [-1, 5]}, "value_percentiles of the weights must lie from 0 to 100"),
    ],
)
def test_entries_of_another_form(tmp_path, changes, line):
    assert line in line_of(ours(tmp_path, **changes))


def test_a_factor_of_joint_errors_that_is_no_number():
    factors = [[0.5, 0.6], [0.8, float("nan")], [0.9, 2.0]]
    with pytest.raises(ConfigError, match="pairs of numbers"):
        JointCalibration.from_dict({"correlation": None, "factors": factors, "num_images": 5})
