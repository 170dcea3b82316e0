"""Restore many files: pictures are read and written in other threads while the network runs."""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore
from typing import Self

from musigma.images.decoding import declared_size
from musigma.images.listing import ImageSource, image_error
from musigma.model import Model
from musigma.prediction.engines import Engine
from musigma.prediction.predict import is_out_of_memory
from musigma.restoration.options import Options, check_options, engine_for
from musigma.restoration.picture_job import Job, read_picture
from musigma.restoration.picture_memory import output_bytes
from musigma.restoration.restore_file import (
    compute_strips,
    restore_science_file,
    science_format_of,
    write_results,
)
from musigma.restoration.restored import Restored
from musigma.types import ImageError, MusigmaError, Prediction

_LOGGER = logging.getLogger(__name__)
FileProgress = Callable[[ImageSource, int, int], None]
NUM_THREADS = min(4, os.cpu_count() or 1)
"""Number of threads that read, and of threads that write."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A file that could not be restored, and why."""

    source: Path
    error: str


def failure_of(source: Path, error: Exception) -> Failed:
    """Return the failure of one file in one line, whatever the error is."""
    _LOGGER.debug("%s failed", source, exc_info=error)
    if isinstance(error, ImageError):
        return Failed(source=source, error=str(error))
    if isinstance(error, MusigmaError):
        text = str(error)
    elif is_out_of_memory(error):
        text = "there is not enough memory for it; set `memory` to less, or close other programs"
    elif isinstance(error, OSError):
        text = f"could not be restored ({error.strerror or error})"
    else:
        text = f"could not be restored ({type(error).__name__}: {error}); --debug shows where"
    return Failed(source=source, error=str(image_error(source, text)))


def restore_files(
    model: Model,
    sources: Sequence[ImageSource],
    options: Options,
    *,
    engine: Engine | None = None,
    progress: FileProgress | None = None,
) -> Iterator[Restored | Failed]:
    """Restore picture files as `restore_file` does; yield the outcome of each when it is known.

    Any error of one file is the outcome of that file; the others are done. What is wrong for every
    file, such as a model without sigma, is raised before the first one.

    Pictures that are in memory at the same time take at most an eighth of ``options.memory``, and
    the tiles the rest. A picture that needs more is processed alone, with smaller tiles.

    Args:
        model: The model.
        sources: The files; none may be the result of another (`find_clashes`).
        options: How to restore them.
        engine: The engine of `engine_for` for these options, if it was made already.
        progress: Called after each tile with the file, the number of its tiles done and of all.
    """
    check_options(model, options)
    engine = engine or engine_for(model, options)
    ordinary: list[ImageSource] = []
    for source in sources:
        outcome = _restore_science(model, source, options, engine, progress)
        if outcome is None:
            ordinary.append(source)
        else:
            yield outcome
    with _Batch(model, options, engine, progress) as batch:
        batch.waiting.extend(ordinary)
        try:
            while batch.waiting or batch.reading or batch.writing:
                batch.start_reading()
                if batch.reading:
                    yield from batch.restore_next()
                yield from batch.finished(block=not batch.reading)
        except (KeyboardInterrupt, SystemExit):
            yield from batch.completed()
            raise


def _restore_science(
    model: Model,
    source: ImageSource,
    options: Options,
    engine: Engine,
    progress: FileProgress | None,
) -> Restored | Failed | None:
    """Restore a scientific file; return `None` for an ordinary picture."""

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(source, done, total)

    try:
        if (format_name := science_format_of(model, source, options)) is None:
            return None
        return restore_science_file(
            model, source, format_name, options, engine=engine, progress=report
        )
    except Exception as error:  # noqa: BLE001 - any error of one file is its outcome
        return failure_of(source.path, error)


class StripQueue:
    """Hands strips from the thread that computes them to the thread that writes them.

    `put` returns when the strip has been taken. So there are at most two strips in memory: one that
    is being written, and one that is being computed or waits.
    """

    def __init__(self) -> None:
        self._strips: SimpleQueue[Prediction | BaseException | None] = SimpleQueue()
        self._taken = Semaphore(0)
        self._writer_ended = False

    def put(self, strip: Prediction) -> bool:
        """Offer a strip and wait until it is taken; return whether the writer wants more."""
        self._strips.put(strip)
        self._taken.acquire()
        return not self._writer_ended

    def end(self, error: BaseException | None = None) -> None:
        """Tell the writer that there is no further strip, because of an error or not."""
        self._strips.put(error)

    def stop(self) -> None:
        """Tell the thread that computes that the writer has ended."""
        self._writer_ended = True
        self._taken.release()

    def __iter__(self) -> Iterator[Prediction]:
        """Yield strips until the end; raise the error of the thread that computes them."""
        while True:
            strip = self._strips.get()
            if strip is None:
                return
            if isinstance(strip, BaseException):
                raise strip
            self._taken.release()
            yield strip
            del strip  # otherwise it would stay in memory until the next one arrives


@dataclass
class _Batch:
    model: Model
    options: Options
    engine: Engine
    progress: FileProgress | None
    waiting: deque[ImageSource] = field(default_factory=deque)
    reading: deque[tuple[ImageSource, Future[Job]]] = field(default_factory=deque)
    writing: dict[Future[Restored], ImageSource] = field(default_factory=dict)
    num_bytes: dict[ImageSource, int] = field(default_factory=dict)  # of pictures in memory

    def __enter__(self) -> Self:
        self.readers = ThreadPoolExecutor(NUM_THREADS, "musigma-read")
        self.writers = ThreadPoolExecutor(NUM_THREADS, "musigma-write")
        return self

    def __exit__(self, *_: object) -> None:
        self.readers.shutdown(cancel_futures=True)
        self.writers.shutdown()

    def start_reading(self) -> None:
        """Start to read as many pictures as there are threads and memory for."""
        limit = self.options.picture_memory
        while self.waiting and len(self.reading) < NUM_THREADS:
            source = self.waiting[0]
            size = _bytes_in_memory(self.model, source, self.options)
            if self.num_bytes and sum(self.num_bytes.values()) + size > limit:
                return
            self.num_bytes[self.waiting.popleft()] = size
            job = self.readers.submit(
                read_picture, self.model, source, self.options, engine=self.engine
            )
            self.reading.append((source, job))

    def restore_next(self) -> Iterator[Failed]:
        """Compute the picture that was read first; a writer gets its rows."""
        source, reading = self.reading.popleft()
        if isinstance(error := reading.exception(), Exception):
            del self.num_bytes[source]
            yield failure_of(source.path, error)
            return
        job = reading.result()
        strips = StripQueue()
        try:
            self.writing[self.writers.submit(_write, job, strips)] = source
            self._compute(job, strips)
        except BaseException as error:
            strips.end(error)  # the writer fails with it, and that is the outcome of the file
            if not isinstance(error, Exception):  # the user has stopped the run
                raise
            if source not in self.writing.values():  # the system allows no further thread
                del self.num_bytes[source]
                yield failure_of(source.path, error)

    def finished(self, *, block: bool) -> Iterator[Restored | Failed]:
        """Yield the outcome of the files that were written; wait for one if `block` is true."""
        done, _ = wait(self.writing, None if block else 0, FIRST_COMPLETED)
        for writing in done:
            source = self.writing.pop(writing)
            del self.num_bytes[source]
            if isinstance(error := writing.exception(), Exception):
                yield failure_of(source.path, error)
            else:
                yield writing.result()

    def completed(self) -> Iterator[Restored]:
        """Yield the files whose rows were all computed when the run was stopped."""
        wait(self.writing)
        for writing in self.writing:
            if writing.exception() is None:
                yield writing.result()

    def _compute(self, job: Job, strips: StripQueue) -> None:
        report = self.progress

        def progress(done: int, total: int) -> None:
            if report is not None:
                report(job.source, done, total)

        with closing(compute_strips(job, self.engine, progress=progress)) as computed:
            for strip in computed:
                if not strips.put(strip):
                    break  # the writer has failed; its outcome says why
        strips.end()


def _write(job: Job, strips: StripQueue) -> Restored:
    try:
        return write_results(job, strips)
    finally:
        strips.stop()


def _bytes_in_memory(model: Model, source: ImageSource, options: Options) -> int:
    """Estimate the memory of a picture and its result; 0 for a file that is no picture.

    Reading such a file will say what is wrong with it.
    """
    try:
        declared = declared_size(source.path)
        num_pixels = declared.height * declared.width
        result = output_bytes(model, source, options, num_pixels)
    except ImageError:
        return 0
    return max(declared.decoding_bytes, declared.sample_bytes + result)
