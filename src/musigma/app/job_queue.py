"""A bounded queue of jobs: each knows its place, reports progress, and can be cancelled."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from musigma.app.limits import BusyError, CancelledError

Work = Callable[["Ticket"], Any]


class Ticket:
    """A job in the queue.

    Attributes:
        done: Number of steps done.
        total: Number of steps in all; 0 before the first is done.
        finished: Set when there is a result or an error.
    """

    def __init__(self, queue: "JobQueue", work: Work, deadline: float) -> None:
        self._queue, self._work, self._deadline = queue, work, deadline
        self._cancelled = False
        self._result: Any = None
        self._error: BaseException | None = None
        self.done = self.total = 0
        self.finished = threading.Event()

    @property
    def position(self) -> int:
        """Number of jobs that must start before this one; 0 also while it runs."""
        return self._queue.position(self)

    def cancel(self) -> None:
        """Ask the job to stop; it does at its next step, or at once if it waits."""
        self._cancelled = True
        if self._queue.withdraw(self):
            self._end(error=CancelledError("the request was cancelled"))

    def report(self, done: int, total: int) -> None:
        """Take note of a step of the job; called by the job itself.

        Raises:
            CancelledError: If the job should stop.
            BusyError: If its time is over.
        """
        self.done, self.total = done, total
        if self._cancelled:
            raise CancelledError("the request was cancelled")
        if time.monotonic() > self._deadline:
            raise BusyError(
                f"the request took too long; {done} of {total or 'all'} tiles were done in time",
                position=0,
                retry_after=self._queue.expected_seconds(),
            )

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the job; return what it returned, or raise what it raised."""
        if not self.finished.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._result

    def run(self) -> None:
        """Do the work, unless its time is over already; called by a thread of the queue."""
        try:
            self.report(0, 0)
            result = self._work(self)
        except BaseException as error:  # noqa: BLE001 (the caller of `result` gets it)
            self._end(error=error)
        else:
            self._end(result)

    def _end(self, result: Any = None, *, error: BaseException | None = None) -> None:
        self._result, self._error = result, error
        del self._work  # and what it holds
        self.finished.set()


class JobQueue:
    """Runs jobs in the order in which they come; a limited number waits.

    Args:
        max_waiting: Number of jobs that may wait besides those that run.
        num_workers: Number of jobs that run at the same time. One job keeps all processors busy.
        seconds: Time that a job may take, waiting included.

    Example:
        >>> queue = JobQueue(max_waiting=1)
        >>> queue.submit(lambda ticket: 2 + 2).result()
        4
        >>> queue.close()
    """

    def __init__(self, *, max_waiting: int, num_workers: int = 1, seconds: float = 900.0) -> None:
        self._max_waiting, self._seconds = max_waiting, seconds
        self._waiting: deque[Ticket] = deque()
        self._changed = threading.Condition()
        self._running: set[Ticket] = set()
        self._closed = False
        self._mean_seconds = 5.0  # of the last jobs, roughly
        self._threads = [
            threading.Thread(target=self._work, name=f"musigma-job-{index}", daemon=True)
            for index in range(num_workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Work) -> Ticket:
        """Append a job.

        Args:
            work: Called with its ticket, in another thread.

        Raises:
            BusyError: If too many jobs wait; it tells how many.
        """
        ticket = Ticket(self, work, time.monotonic() + self._seconds)
        with self._changed:
            num_before = len(self._waiting) + len(self._running)
            if self._closed or num_before >= self._max_waiting + len(self._threads):
                raise BusyError(
                    f"the queue is full: {num_before} requests are before this one; try again in "
                    f"{self.expected_seconds()} s",
                    position=num_before,
                    retry_after=self.expected_seconds(),
                )
            self._waiting.append(ticket)
            self._changed.notify()
        return ticket

    def position(self, ticket: Ticket) -> int:
        """Return how many jobs run or wait before this one; 0 for one that runs or has ended."""
        with self._changed:
            if ticket not in self._waiting:
                return 0
            return self._waiting.index(ticket) + len(self._running)

    def withdraw(self, ticket: Ticket) -> bool:
        """Take a job out of the queue; return whether it was still waiting."""
        with self._changed:
            if ticket not in self._waiting:
                return False
            self._waiting.remove(ticket)
            return True

    def expected_seconds(self) -> int:
        """Return about how long a job that comes now waits, at least 1."""
        with self._changed:
            num_before = len(self._waiting) + len(self._running)
        return max(1, round(self._mean_seconds * num_before / len(self._threads)))

    def __len__(self) -> int:
        with self._changed:
            return len(self._waiting) + len(self._running)

    def close(self) -> None:
        """Cancel what waits and runs, and wait for the threads."""
        with self._changed:
            self._closed = True
            tickets = [*self._waiting, *self._running]
            self._changed.notify_all()
        for ticket in tickets:
            ticket.cancel()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (ticket := self._next()) is not None:
            start = time.monotonic()
            ticket.run()
            with self._changed:
                self._running.discard(ticket)
                self._mean_seconds += 0.2 * (time.monotonic() - start - self._mean_seconds)
            del ticket  # a result may be large

    def _next(self) -> Ticket | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            ticket = self._waiting.popleft()
            self._running.add(ticket)
            return ticket
