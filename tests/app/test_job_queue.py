"""The queue of a server: order, places, cancelling, time."""

import threading

import pytest

from musigma.app.job_queue import JobQueue
from musigma.app.limits import BusyError, CancelledError


@pytest.fixture
def queue():
    queue = JobQueue(max_waiting=2)
    yield queue
    queue.close()


@pytest.fixture
def blocked(queue):
    """A queue whose worker waits until ``go`` is set."""
    go, started = threading.Event(), threading.Event()

    def wait(ticket):
        started.set()
        go.wait(30)
        ticket.report(1, 2)
        return "first"

    first = queue.submit(wait)
    assert started.wait(30)
    yield first, go
    go.set()


def test_jobs_run_in_order_and_know_their_place(queue, blocked):
    first, go = blocked
    order = []
    second, third = (queue.submit(lambda _, name=name: order.append(name)) for name in "bc")
    assert (first.position, second.position, third.position) == (0, 1, 2)
    go.set()
    third.result(30)
    assert order == ["b", "c"]
    assert first.result(30) == "first"
    assert (first.done, first.total) == (1, 2)


def test_a_full_queue_says_how_many_are_before(queue, blocked):
    for _ in range(2):
        queue.submit(lambda _: None)
    with pytest.raises(BusyError, match="3 requests are before this one") as caught:
        queue.submit(lambda _: None)
    assert caught.value.position == 3
    assert caught.value.retry_after >= 1


def test_a_job_that_waits_is_cancelled_at_once(queue, blocked):
    second = queue.submit(lambda _: pytest.fail("must not run"))
    second.cancel()
    with pytest.raises(CancelledError):
        second.result(30)
    assert len(queue) == 1


def test_a_job_that_runs_is_cancelled_at_its_next_step(blocked):
    first, go = blocked
    first.cancel()
    assert not first.finished.is_set()
    go.set()
    with pytest.raises(CancelledError):
        first.result(30)


def test_a_job_whose_time_is_over_is_not_begun():
    queue = JobQueue(max_waiting=1, seconds=-1)
    with pytest.raises(BusyError, match="took too long"):
        queue.submit(lambda _: pytest.fail("must not run")).result(30)
    queue.close()


def test_an_error_of_a_job_reaches_its_caller_and_the_next_job_runs(queue):
    with pytest.raises(ZeroDivisionError):
        queue.submit(lambda _: 1 / 0).result(30)
    assert queue.submit(lambda _: 5).result(30) == 5


def test_closing_cancels_what_waits():
    queue = JobQueue(max_waiting=2)
    go = threading.Event()
    first = queue.submit(lambda _: go.wait(30))
    second = queue.submit(lambda _: None)
    threading.Timer(0.05, go.set).start()
    queue.close()
    assert first.finished.is_set()
    with pytest.raises(CancelledError):
        second.result(0)
    with pytest.raises(BusyError):
        queue.submit(lambda _: None)
