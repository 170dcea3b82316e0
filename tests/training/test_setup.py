from dataclasses import replace

import pytest
import torch
from PIL import Image

from helpers.runs import CPU, assert_same, small_recipe, small_step, write_pictures
from musigma.datasets.patch_bank import load_images
from musigma.functional.color import rgb_to_y
from musigma.functional.fidelity import psnr
from musigma.model import load, save
from musigma.networks import mean_only
from musigma.training import setup
from musigma.training.checkpoint import save_checkpoint
from musigma.training.run_log import RunLog, read_log
from musigma.training.setup import build_network, find_run, load_bank, training_data
from musigma.training.trainer import train
from musigma.types import ConfigError, DataError


def checkpoint(folder, recipe, step=5):
    content = {"recipe": recipe.as_json(), "step": {}, "spent": 1.0, "rate_factor": 1.0}
    return save_checkpoint(folder, step, content)


def test_a_new_run_has_nothing_to_go_on_from(tmp_path):
    for resume in (True, False):
        assert find_run(small_recipe(), tmp_path, world=1, resume=resume) is None


def test_a_run_is_not_overwritten(tmp_path):
    recipe = small_recipe()
    checkpoint(tmp_path, recipe)
    with pytest.raises(ConfigError, match="holds a run already; continue it with --resume"):
        find_run(recipe, tmp_path, world=1, resume=False)
    assert find_run(recipe, tmp_path, world=1, resume=True)["recipe"] == recipe.as_json()


def test_a_run_from_before_a_key_was_there_goes_on(tmp_path):
    recipe = small_recipe(sigma=True, objective="sigma_l2", start_from="before.pth")
    old = {key: value for key, value in recipe.as_json().items() if key != "keep_mean"}
    save_checkpoint(tmp_path, 1, {"recipe": old, "step": {}, "spent": 1.0, "rate_factor": 1.0})
    assert find_run(recipe, tmp_path, world=1, resume=True) is not None
    with pytest.raises(ConfigError, match="the run to resume has keep_mean = False"):
        find_run(replace(recipe, keep_mean=True), tmp_path, world=1, resume=True)


def test_another_recipe_does_not_go_on_with_a_run(tmp_path):
    checkpoint(tmp_path, small_recipe())
    longer = small_recipe(steps=99, log_every=3, save_every=7)
    assert find_run(longer, tmp_path, world=1, resume=True) is not None
    for changes in ({"seed": 1}, {"settings": {"num_blocks": 2}}, {"data": ["elsewhere"]}):
        with pytest.raises(ConfigError, match=f"the run to resume has {next(iter(changes))} ="):
            find_run(small_recipe(**changes), tmp_path, world=1, resume=True)


def test_a_run_of_damaged_checkpoints_is_not_begun_anew(tmp_path):
    recipe = small_recipe()
    checkpoint(tmp_path, recipe).write_bytes(b"")
    with pytest.raises(DataError, match=r"every checkpoint in .* is damaged"):
        find_run(recipe, tmp_path, world=1, resume=True)


def test_processes_must_share_the_batch(tmp_path):
    with pytest.raises(ConfigError, match="a batch of 4 cannot be shared by 3 processes"):
        find_run(small_recipe(batch=4), tmp_path, world=3, resume=False)


def test_data_are_looked_for_first(tmp_path):
    with pytest.raises(DataError, match="nowhere"):
        find_run(small_recipe(validation="nowhere"), tmp_path, world=1, resume=False)
    with pytest.raises(DataError, match="nowhere"):
        training_data(small_recipe())


def test_several_folders_are_one_set(tmp_path):
    folders = [write_pictures(tmp_path / name, num) for name, num in (("a", 2), ("b", 3))]
    recipe = small_recipe(data=[str(folder) for folder in folders])
    dataset = training_data(recipe)
    assert dataset.name == "a+b"
    assert [item.name for item in dataset.items] == ["a/0", "a/1", "b/0", "b/1", "b/2"]
    assert load_bank(recipe, CPU).num_images == 5


def test_images_too_small_for_a_patch(tmp_path):
    folder = write_pictures(tmp_path / "images", height=20, width=20)
    with pytest.raises(DataError, match="room for a patch of 22x22"):
        load_bank(small_recipe(data=[str(folder)], patch=11), CPU)


def test_patches_are_made_by_the_chain_of_the_recipe(tmp_path):
    folder = write_pictures(tmp_path / "images")
    plain, chain = (
        load_bank(small_recipe(data=[str(folder)], degrade=degrade), CPU).sample(
            torch.tensor(0), batch=4, seed=0
        )
        for degrade in ("", "blur(2) | jpeg(10)")
    )
    assert torch.equal(plain.target, chain.target)
    assert (plain.degraded - chain.degraded).abs().mean() > 0.01


def test_a_network_must_have_something_to_train():
    with pytest.raises(ConfigError, match="bicubic has no weights to train"):
        build_network(small_recipe(network="bicubic", settings={}))


def test_a_network_must_fit_the_images():
    with pytest.raises(ConfigError, match="takes images of 3 channels; set channels = 3"):
        build_network(small_recipe(channels=1))


def test_a_misspelt_setting_of_the_network():
    with pytest.raises(ConfigError, match="has no setting 'widht'; did you mean 'width'"):
        build_network(small_recipe(settings={"widht": 8}))


@pytest.mark.parametrize("settings", [{"width": -4}, {"width": "x"}, {"scale": 3}])
def test_settings_that_build_nothing_are_refused_in_one_line(settings):
    with pytest.raises(ConfigError) as caught:
        build_network(small_recipe(settings=settings))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("network", "settings"),
    [
        ("span", {"num_blocks": 0}),
        ("imdn", {"num_blocks": 0}),
        ("swinir-light", {"num_heads": 7}),
        ("plksr", {"kernel_size": 2, "num_blocks": 1, "width": 16}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_settings_that_build_a_network_that_cannot_run(tmp_path, monkeypatch, network, settings):
    """They are refused in one line, before the data are loaded."""
    monkeypatch.setattr(setup, "load_bank", lambda *_: pytest.fail("the data were loaded"))
    recipe = small_recipe(network=network, settings=settings)
    with pytest.raises(ConfigError, match=f"{network} cannot be run with settings = ") as caught:
        train(recipe, tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_the_trial_before_a_run_leaves_the_network_as_it_was(tmp_path):
    """SRResNet has batch norms, whose averages change with every image in training."""
    pictures = str(write_pictures(tmp_path / "images", height=40, width=40))
    recipe = small_recipe(network="srresnet", scale=4, settings={"num_blocks": 1}, data=[pictures])
    expected = build_network(recipe).state_dict()
    with RunLog(tmp_path / "run", recipe, writes=True) as run_log:
        step, _ = setup.set_up(recipe, None, run_log, device=CPU)
    assert step.network.training
    assert_same(step.network.state_dict(), expected)


def test_initial_weights_follow_from_the_seed():
    before = torch.get_rng_state()
    first, again = (build_network(small_recipe(seed=3)).state_dict() for _ in range(2))
    assert_same(first, again)
    other = build_network(small_recipe(seed=4)).state_dict()
    assert not torch.equal(first["head.0.weight"], other["head.0.weight"])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_network_starts_from_another(tmp_path):
    trained = small_step(small_recipe(seed=9)).network
    save(tmp_path / "x2.safetensors", trained)
    start = str(tmp_path / "x2.safetensors")
    assert_same(build_network(small_recipe(start_from=start)).state_dict(), trained.state_dict())
    larger = build_network(small_recipe(start_from=start, scale=3)).state_dict()
    shared = load(start).network.state_dict()
    assert torch.equal(larger["head.0.weight"], shared["head.0.weight"])
    assert larger["tail.0.0.weight"].shape != shared["tail.0.0.weight"].shape


def test_a_name_means_the_shipped_weights_of_the_same_scale():
    recipe = small_recipe(start_from="edsr-baseline", scale=3, network="edsr-baseline", settings={})
    shipped = mean_only(load("edsr-baseline", scale=3).network).state_dict()
    assert_same(build_network(recipe).state_dict(), shipped)


def write_pairs(folder, *, scale=1):
    write_pictures(folder / "HR", height=36, width=32)
    (folder / "LR").mkdir()
    for path in (folder / "HR").iterdir():
        image = Image.open(path)
        size = (image.width // scale, image.height // scale)
        image.resize(size, Image.Resampling.BOX).point(lambda level: level // 2).save(
            folder / "LR" / path.name
        )
    return folder


@pytest.mark.parametrize("by", ["layout", "low"])
def test_pairs_are_read_from_disk(tmp_path, by):
    folder = write_pairs(tmp_path / "camera")
    data = {"data": [str(folder)]} if by == "layout" else {"data": [str(folder / "HR")]}
    low = [str(folder / "LR")] if by == "low" else []
    bank = load_bank(small_recipe(scale=1, degrade="pairs", low=low, **data), CPU)
    patches = bank.sample(torch.tensor(0), batch=8, seed=0)
    halved = (patches.target * 255).round().long() // 2
    assert torch.equal((patches.degraded * 255).round().long(), halved)


def test_pairs_of_a_scale_are_read_from_disk(tmp_path):
    folder = write_pairs(tmp_path / "camera", scale=2)
    bank = load_bank(small_recipe(degrade="pairs", data=[str(folder)]), CPU)
    patches = bank.sample(torch.tensor(0), batch=8, seed=0)
    assert patches.target.shape[-1] == 2 * patches.degraded.shape[-1] == 16


def test_pairs_that_do_not_fit_are_refused(tmp_path):
    folder = write_pairs(tmp_path / "camera")
    with pytest.raises(DataError, match="must have 16x18 pixels"):
        load_bank(small_recipe(degrade="pairs", data=[str(folder)]), CPU)
    with pytest.raises(DataError, match="has no input"):
        load_bank(small_recipe(degrade="pairs", data=[str(folder / "LR")]), CPU)
    with pytest.raises(ConfigError, match="one folder for each"):
        small_recipe(degrade="pairs", low=["a", "b"])
    with pytest.raises(ConfigError, match='degrade = "pairs"'):
        small_recipe(low=["a"])
    with pytest.raises(ConfigError, match="leave shrink out"):
        small_recipe(degrade="pairs", shrink=[0.5])


def test_a_run_on_pairs_learns_them_and_is_validated_on_pairs(tmp_path):
    folder = write_pairs(tmp_path / "camera")
    recipe = small_recipe(
        scale=1,
        degrade="pairs",
        data=[str(folder)],
        validation=str(folder),
        steps=150,
        learning_rate=1e-2,
    )
    train(recipe, tmp_path / "run", device="cpu")
    inputs, targets = (
        torch.stack(load_images(sorted((folder / side).iterdir()), num_channels=3)).float() / 255
        for side in ("LR", "HR")
    )
    untouched = float(psnr(rgb_to_y(inputs), rgb_to_y(targets), data_range=1.0, shave=0).mean())
    # The inputs are half as bright; a network that learned nothing would leave them so.
    assert read_log(tmp_path / "run")[-1]["psnr_y"] > untouched + 3


def test_drawn_pictures_join_the_bank_and_keep_their_share(tmp_path, monkeypatch):
    monkeypatch.setattr("musigma.training.setup.NUM_DRAWN_BESIDE", 2)
    monkeypatch.setattr("musigma.training.setup.DRAWN_SIZE_BESIDE", 20)
    data = [str(write_pictures(tmp_path / "images"))]
    recipe = small_recipe(data=data, drawn_every=2, candidates=2)
    bank = load_bank(recipe, CPU)
    assert (bank.num_images, bank.num_drawn, bank.drawn_every, bank.candidates) == (5, 2, 2, 2)
    assert bank.heights[-2:].tolist() == [20, 20]
    alone = load_bank(replace(recipe, drawn_every=0, candidates=1), CPU)
    assert (alone.num_images, alone.num_drawn, alone.detail) == (3, 0, None)
