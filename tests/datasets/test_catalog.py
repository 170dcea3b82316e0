import hashlib
import os
from pathlib import Path

import pytest

from musigma.datasets.catalog import Dataset, Item, data_hash, describe_data, find_dataset
from musigma.types import DataError


def touch(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def pairs(dataset):
    return [(item.target.name, item.degraded and item.degraded.name) for item in dataset.items]


@pytest.mark.parametrize("name", ["Set5", "set5", "SET5", "benchmark/Set5"])
def test_names_are_found_in_any_case(tmp_path, name):
    touch(tmp_path, "benchmark/Set5/HR/bird.png", "benchmark/Set5/HR/baby.png")
    dataset = find_dataset(name, root=tmp_path)
    folder = tmp_path / "benchmark" / "Set5" / "HR"
    assert dataset == Dataset(
        "Set5", (Item("baby", folder / "baby.png"), Item("bird", folder / "bird.png"))
    )


@pytest.mark.parametrize("group", ["benchmark", "denoising", "real", "train", "validation", "."])
def test_every_group_is_searched_under_the_variable(tmp_path, monkeypatch, group):
    touch(
        tmp_path, f"{group}/Mine/a.webp", f"{group}/Mine/SOURCES.csv", f"{group}/Mine/.hidden.png"
    )
    monkeypatch.setenv("MUSIGMA_DATA", str(tmp_path))
    assert pairs(find_dataset("mine")) == [("a.webp", None)]


def test_edsr_benchmark_layout(tmp_path):
    touch(tmp_path, "Set5/HR/baby.png", "Set5/LR_bicubic/X2/babyx2.png")
    assert pairs(find_dataset(tmp_path / "Set5", scale=2)) == [("baby.png", "babyx2.png")]
    assert find_dataset(tmp_path / "Set5", scale=2).inputs == "published"
    assert pairs(find_dataset(tmp_path / "Set5" / "HR", scale=2)) == [("baby.png", "babyx2.png")]
    assert pairs(find_dataset(tmp_path / "Set5", scale=3)) == [("baby.png", None)]
    assert pairs(find_dataset(tmp_path / "Set5")) == [("baby.png", None)]


def test_edsr_div2k_layout(tmp_path):
    touch(
        tmp_path,
        "DIV2K/DIV2K_train_HR/0001.png",
        "DIV2K/DIV2K_train_LR_bicubic/X2/0001x2.png",
        "DIV2K/DIV2K_valid_HR/0801.png",
    )
    train = find_dataset("div2k_train", root=tmp_path, scale=2)
    assert train.name == "DIV2K_train"
    assert pairs(train) == [("0001.png", "0001x2.png")]
    assert find_dataset(tmp_path / "DIV2K" / "DIV2K_train_HR", scale=2) == train
    assert pairs(find_dataset("DIV2K_valid", root=tmp_path, scale=2)) == [("0801.png", None)]
    with pytest.raises(DataError, match="several sets: DIV2K_train, DIV2K_valid; give one"):
        find_dataset("DIV2K", root=tmp_path)


def test_basicsr_layout(tmp_path):
    touch(tmp_path, "Set5/GTmod12/baby.png", "Set5/LRbicx4/baby.png")
    dataset = find_dataset(tmp_path / "Set5", scale=4)
    assert dataset.name == "Set5"
    assert dataset.items[0].degraded == tmp_path / "Set5" / "LRbicx4" / "baby.png"


def test_an_original_whose_name_ends_like_a_scale(tmp_path):
    touch(tmp_path, "Set/GTmod12/viewx2.png", "Set/LRbicx2/viewx2.png")
    assert pairs(find_dataset(tmp_path / "Set", scale=2)) == [("viewx2.png", "viewx2.png")]


def test_a_name_means_the_known_set_and_a_path_the_folder(tmp_path, monkeypatch):
    touch(tmp_path, "root/train/photos/known.png", "here/photos/own.png", "here/scans/own.png")
    monkeypatch.chdir(tmp_path / "here")
    root = tmp_path / "root"
    assert pairs(find_dataset("photos", root=root)) == [("known.png", None)]
    assert pairs(find_dataset("./photos", root=root)) == [("own.png", None)]
    assert pairs(find_dataset(Path("photos"), root=root)) == [("own.png", None)]
    assert pairs(find_dataset("scans", root=root)) == [("own.png", None)]
    monkeypatch.chdir("scans")
    assert find_dataset(".").name == "scans"
    assert find_dataset("../photos").name == "photos"


def test_missing_things_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("MUSIGMA_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"\$MUSIGMA_DATA, which is not set; set it to the folder"):
        find_dataset("Set5")
    with pytest.raises(DataError, match="'nowhere' does not exist; set MUSIGMA_DATA"):
        find_dataset("Set5", root="nowhere")
    with pytest.raises(DataError, match=r"no data set 'Set5' .*; it holds no data sets"):
        find_dataset("Set5", root=tmp_path)
    touch(tmp_path, "benchmark/Set14/HR/baboon.png", "empty/notes.txt")
    with pytest.raises(DataError, match=r"no data set 'Set15' .*; did you mean 'Set14'"):
        find_dataset("Set15", root=tmp_path)
    with pytest.raises(DataError, match=r"holds no images \(\.bmp, .*; give another folder"):
        find_dataset(tmp_path / "empty")
    with pytest.raises(DataError, match=r"holds no images .*; give one of its folders: Set14"):
        find_dataset("benchmark", root=tmp_path)


def test_a_low_resolution_folder_must_match_its_originals(tmp_path):
    touch(tmp_path, "HR/a.png", "HR/b.png", "LR_bicubic/X2/ax2.png", "LR_bicubic/X2/cx2.png")
    with pytest.raises(DataError, match=r"without a target: c; targets without an input: b;"):
        find_dataset(tmp_path, scale=2)


def test_pairs_of_a_camera_are_used_at_any_scale(tmp_path):
    touch(tmp_path, "real/City/HR/001.png", "real/City/LR/001.jpg")
    assert find_dataset("City", root=tmp_path).inputs == "made"
    for scale in (1, 2):
        dataset = find_dataset("City", root=tmp_path, scale=scale)
        assert dataset.inputs == "pairs"
        assert pairs(dataset) == [("001.png", "001.jpg")]


def test_a_folder_of_inputs_is_matched_by_name(tmp_path):
    touch(tmp_path, "high/a.png", "high/b.png", "low/a.jpg", "low/bx2.png")
    dataset = find_dataset(tmp_path / "high", degraded=tmp_path / "low", scale=2)
    assert dataset.inputs == "pairs"
    assert pairs(dataset) == [("a.png", "a.jpg"), ("b.png", "bx2.png")]
    with pytest.raises(DataError, match=r"there is no folder .*nowhere' of inputs"):
        find_dataset(tmp_path / "high", degraded=tmp_path / "nowhere")
    (tmp_path / "low" / "a.jpg").unlink()
    with pytest.raises(DataError, match="targets without an input: a;"):
        find_dataset(tmp_path / "high", degraded=tmp_path / "low", scale=2)


def test_two_images_of_one_name_are_refused(tmp_path):
    touch(tmp_path, "a.png", "a.jpg", "b.png")
    with pytest.raises(DataError, match="two images of the same name: a; rename"):
        find_dataset(tmp_path)


def test_hash_is_the_stated_one_and_ignores_order_and_place(tmp_path):
    (tmp_path / "a.png").write_bytes(b"first")
    (tmp_path / "b.png").write_bytes(b"second")
    one, two = Item("a", tmp_path / "a.png"), Item("b", tmp_path / "b.png")
    lines = [
        f"{name}\0target\0{hashlib.sha256(content).hexdigest()}\n"
        for name, content in (("a", b"first"), ("b", b"second"))
    ]
    expected = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert data_hash(Dataset("x", (one, two))) == expected
    assert data_hash(Dataset("y", (two, one))) == expected


def test_hash_changes_with_content_and_name(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"first")
    hashes = {data_hash(Dataset("x", (Item(name, path),))) for name in ("a", "b")}
    path.write_bytes(b"other")
    hashes.add(data_hash(Dataset("x", (Item("a", path),))))
    assert len(hashes) == 3


def test_targets_and_inputs_have_a_hash_each(tmp_path):
    touch(tmp_path, "Set/HR/a.png", "Set/LR/a.png")
    made = describe_data(find_dataset(tmp_path / "Set"))
    pairs = describe_data(find_dataset(tmp_path / "Set", scale=1))
    assert made.keys() == {"name", "hash"}
    assert made["hash"] == pairs["hash"]
    assert pairs["inputs"] == "pairs"
    (tmp_path / "Set/LR/a.png").write_bytes(b"other")
    changed = describe_data(find_dataset(tmp_path / "Set", scale=1))
    assert changed["hash"] == pairs["hash"]
    assert changed["inputs_hash"] != pairs["inputs_hash"]


@pytest.mark.skipif(not os.environ.get("MUSIGMA_DATA"), reason="MUSIGMA_DATA is not set")
@pytest.mark.parametrize(
    ("name", "count"),
    {
        "Set5": 5,
        "Set14": 14,
        "B100": 100,
        "Urban100": 100,
        "Set12": 12,
        "BSD68": 68,
        "CBSD68": 68,
        "Kodak24": 24,
    }.items(),
)
def test_the_usual_sets_are_whole(name, count):
    assert len(find_dataset(name).items) == count
