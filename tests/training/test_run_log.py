import sys

import pytest
from PIL import Image

from helpers.runs import small_recipe
from musigma.training.run_log import LOG, RunLog, read_log
from musigma.training.schedule import Clock
from musigma.types import ConfigError


def test_lines_are_kept_and_read(tmp_path):
    recipe = small_recipe()
    with RunLog(tmp_path / "run", recipe, writes=True) as run_log:
        clock = Clock(recipe, spent=3.0)
        run_log.loading(1, 3)
        run_log.log(5, clock, loss=0.5)
        run_log.log(5, clock)  # nothing to say
        run_log.log(10, clock, loss=0.25, psnr_y=30.0)
        run_log.note("a [sentence] of text")
    first, second, note = read_log(tmp_path / "run")
    assert first == {"step": 5, "seconds": 3.0, "loss": 0.5}
    assert second.pop("patches_per_second") > 0
    assert second == {"step": 10, "seconds": 3.0, "loss": 0.25, "psnr_y": 30.0}
    assert note == {"note": "a [sentence] of text"}


def test_only_one_process_writes(tmp_path, capsys):
    recipe = small_recipe()
    with RunLog(tmp_path / "run", recipe, writes=False) as run_log:
        run_log.loading(1, 3)
        run_log.log(5, Clock(recipe), loss=0.5)
        run_log.note("text")
    assert not (tmp_path / "run").exists()
    assert capsys.readouterr() == ("", "")


def test_a_line_cut_off_by_a_crash_costs_that_line_alone(tmp_path):
    assert read_log(tmp_path) == []
    (tmp_path / LOG).write_text('{"step": 5, "seconds": 1, "loss": 1.0}\n{"step": 10, "lo')
    assert [line["step"] for line in read_log(tmp_path)] == [5]
    recipe = small_recipe()
    for step in (10, 15):
        with RunLog(tmp_path, recipe, writes=True) as run_log:
            run_log.log(step, Clock(recipe), loss=0.5)
    assert [line["step"] for line in read_log(tmp_path)] == [5, 10, 15]


@pytest.mark.parametrize("loss", [0.1, -3.0])
@pytest.mark.parametrize("score", ["psnr_y", "psnr"])
def test_curves_are_drawn(tmp_path, loss, score):
    recipe = small_recipe()
    with RunLog(tmp_path, recipe, writes=True) as run_log:
        assert run_log.draw() is None
        assert not (tmp_path / "curves.png").exists()
        # Steps 20 and 25 are done twice, as after a resume.
        for step in (5, 10, 15, 20, 25, 20, 25, 30):
            run_log.log(step, Clock(recipe), loss=loss + 1 / step)
            if step % 10 == 0:
                run_log.log(step, Clock(recipe), **{score: 30 + step / 10})
        path = run_log.draw()
    with Image.open(path) as picture:
        assert picture.size == (960, 540)
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 50  # not an empty sheet


def test_tensorboard_is_used_where_there_is_one(tmp_path, monkeypatch):
    class Writer:
        def __init__(self, folder: str) -> None:
            self.folder, self.scalars = folder, []

        def add_scalar(self, *values: object) -> None:
            self.scalars.append(values)

        def close(self) -> None:
            self.scalars.append("closed")

    module = type(sys)("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, module.__name__, module)
    recipe = small_recipe()
    with RunLog(tmp_path, recipe, writes=True) as run_log:
        run_log.log(5, Clock(recipe), loss=0.5)
    assert run_log.board.folder == str(tmp_path / "tensorboard")
    assert run_log.board.scalars == [("loss", 0.5, 5), "closed"]


def test_without_tensorboard_all_is_well(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # importing it fails
    with RunLog(tmp_path, small_recipe(), writes=True) as run_log:
        assert run_log.board is None
        run_log.log(5, Clock(run_log.recipe), loss=0.5)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match="cannot make the folder of the run"),
        RunLog(tmp_path / "file" / "run", small_recipe(), writes=True),
    ):
        pass
