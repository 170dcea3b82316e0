"""A training picture that is nearly a test picture is found; others are not."""

import io

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps

from musigma.datasets.catalog import find_dataset
from musigma.datasets.drawn_pictures import draw_pictures
from musigma.evaluation.record import load_record
from studies.data_sets.near_duplicates import (
    LIMIT,
    difference_hash,
    distances,
    main,
    near_duplicates,
)

PICTURES = [Image.fromarray(p.numpy()) for p in draw_pictures(torch.arange(12), size=96)]


def changed(image: Image.Image) -> dict[str, Image.Image]:
    """The same picture as others would have it."""
    jpeg = io.BytesIO()
    image.save(jpeg, "JPEG", quality=40)
    return {
        "smaller": image.resize((60, 60), Image.Resampling.BICUBIC),
        "jpeg": Image.open(jpeg),
        "darker": ImageEnhance.Brightness(image).enhance(0.7),
        "grey": image.convert("L"),
        "cut": image.crop((1, 1, 95, 95)),
    }


def save_all(folder, images):
    folder.mkdir()
    for name, image in images.items():
        image.save(folder / f"{name}.png")
    return find_dataset(folder)


def test_changes_that_keep_the_picture_keep_the_hash():
    for image in PICTURES[:4]:
        own = difference_hash(image)[None]
        for name, other in changed(image).items():
            assert distances(own, difference_hash(other)[None])[0, 0] <= LIMIT, name


def test_different_pictures_are_far_apart():
    hashes = np.stack([difference_hash(image) for image in PICTURES])
    apart = distances(hashes, hashes)
    assert (apart.diagonal() == 0).all()
    assert apart[~np.eye(len(PICTURES), dtype=bool)].min() > LIMIT


def test_pairs_are_named_even_when_mirrored(tmp_path):
    test = save_all(tmp_path / "test", {"a": PICTURES[0], "b": PICTURES[1]})
    copies = {"c": PICTURES[2], "d": ImageOps.mirror(PICTURES[1].resize((70, 70)))}
    result = near_duplicates([save_all(tmp_path / "train", copies)], [test])["train, test"]
    assert [pair[:2] for pair in result["pairs"]] == [["d", "b"]]
    assert result["pairs"][0][2] == result["smallest_distance"]


def test_the_record_holds_every_pair_of_sets(tmp_path, capsys):
    save_all(tmp_path / "train", {"c": PICTURES[2]})
    save_all(tmp_path / "test", {"a": PICTURES[2], "b": PICTURES[3]})
    path = tmp_path / "record.json"
    main([str(path), "--train", str(tmp_path / "train"), "--test", str(tmp_path / "test")])
    result = load_record(path).result["train, test"]
    assert (result["num_training"], result["smallest_distance"]) == (1, 0)
    assert result["pairs"] == [["c", "a", 0]]
    assert "same: [['c', 'a', 0]]" in capsys.readouterr().out
