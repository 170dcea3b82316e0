"""The way of strips from the thread that makes them to the one that writes them."""

from collections.abc import Iterator
from threading import Condition
from typing import Generic, TypeVar

T = TypeVar("T")


class Pipe(Generic[T]):
    """Hands one item at a time from a maker to a taker, each in a thread of its own.

    Nothing is stored: what is offered waits with its maker until it is taken, so that there are at
    most two items, one being used and one being made.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._offers: list[T] = []
        self._is_open = True
        self._error: BaseException | None = None

    def put(self, item: T) -> bool:
        """Offer an item and wait until it is taken; say whether it was."""
        with self._changed:
            self._offers.append(item)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not (self._offers and self._is_open))
            return self._is_open

    def close(self, error: BaseException | None = None) -> None:
        """Let both ends know that nothing more will come, or be taken; the taker gets the error."""
        with self._changed:
            self._is_open, self._error = False, self._error or error
            self._changed.notify_all()

    def __iter__(self) -> Iterator[T]:
        """Yield what is offered until the pipe is closed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._offers or not self._is_open)
                if self._error is not None:
                    raise self._error
                if not self._offers:
                    return
                item = self._offers.pop()
                self._changed.notify_all()
            yield item
            del item  # lest it live until the next one is there
