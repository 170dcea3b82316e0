import json

import numpy as np
import pytest
import torch

from musigma.images.npz_stream import npz_writer
from musigma.types import ImageError


def test_arrays_come_back_however_they_were_cut(tmp_path):
    generator = torch.Generator().manual_seed(0)
    arrays = {name: torch.rand(1, 3, 37, 31, generator=generator) for name in ("mean", "sigma")}
    for num_rows in (1, 10, 37):
        with npz_writer(tmp_path / f"{num_rows}.npz", list(arrays), (1, 3, 37, 31)) as rows:
            for top in range(0, 37, num_rows):
                for name, values in arrays.items():
                    rows[name].write(values[:, :, top : top + num_rows])
        with np.load(tmp_path / f"{num_rows}.npz", allow_pickle=False) as stored:
            assert sorted(stored) == ["mean", "sigma"]
            for name, values in arrays.items():
                assert np.array_equal(stored[name], values.numpy())
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_the_description_is_one_string_of_json(tmp_path):
    with npz_writer(tmp_path / "a.npz", ["std"], (1, 1, 2, 2), info={"unit": "1 = \u00b5"}) as rows:
        rows["std"].write(torch.ones(1, 1, 2, 2))
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert json.loads(arrays["info"].item()) == {"unit": "1 = \u00b5"}


def test_nothing_is_left_of_what_was_not_finished(tmp_path):
    with (
        pytest.raises(ImageError, match="could not be written"),
        npz_writer(tmp_path / "a.npz", ["mean"], (1, 1, 2, 2)),
    ):
        raise OSError("no more room")
    assert list(tmp_path.iterdir()) == []
