import torch

from helpers.runs import CPU, small_bank, small_recipe
from musigma.datasets.patch_bank import RawPatches
from musigma.training.patch_feed import HostFeed

CHOICE = {"batch": 3, "seed": 5, "first": 6}


def assert_step(feed: HostFeed, step: int) -> None:
    expected = feed.bank.sample(torch.tensor(step), **CHOICE)
    patches = feed.patches()
    assert torch.equal(patches.degraded, expected.degraded)
    assert torch.equal(patches.target, expected.target)


def test_steps_come_in_order_and_after_a_jump():
    feed = HostFeed(small_bank(small_recipe()), CPU, **CHOICE)
    places = [buffer.data_ptr() for buffer in feed.buffers]
    for step in (0, 1, 2, 3, 40, 41, 7, 8, 8):
        feed.send(step)
        assert_step(feed, step)
    assert [buffer.data_ptr() for buffer in feed.buffers] == places


def test_the_next_batch_is_made_ahead():
    gathered: list[int] = []

    class Counting(HostFeed):
        def _gather(self, step: int) -> RawPatches:
            gathered.append(step)
            return super()._gather(step)

    feed = Counting(small_bank(small_recipe()), CPU, **CHOICE)
    for step in range(3):
        feed.send(step)
    feed.pool.shutdown()
    assert gathered == [0, 0, 1, 2, 3]  # the first only gives the buffers their shape
