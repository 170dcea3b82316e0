"""Many files: pictures are read ahead and written behind while the network computes."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from musigma.images.decoding import image_size
from musigma.images.listing import ImageSource
from musigma.model import Model
from musigma.prediction.engines import Engine
from musigma.restoration.pipe import Pipe
from musigma.restoration.restore_file import Job, Options, Restored, engine_for, read, strips, write
from musigma.types import ImageError, Prediction

FileProgress = Callable[[ImageSource, int, int], None]
NUM_THREADS = min(4, os.cpu_count() or 1)
"""Pictures that are read, and pictures that are written, at the same time."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A file that could not be restored, and why."""

    source: Path
    error: str


def restore_files(
    model: Model,
    sources: Sequence[ImageSource],
    options: Options,
    *,
    engine: Engine | None = None,
    progress: FileProgress | None = None,
) -> Iterator[Restored | Failed]:
    """Restore picture files as `restore_file` does; yield what became of each as it is known.

    Pictures that are in memory at the same time, with their results, take at most half of
    ``options.memory`` beside that of the tiles; one that needs more has the memory to itself.

    Args:
        model: What restores them.
        sources: The files; none may be the result of another (`find_clashes`).
        options: How.
        engine: What `engine_for` gave for these options, if it is there already.
        progress: Called after each tile with the file, the number of its tiles done and of all.
    """
    engine = engine or engine_for(model, options.engine, ensemble=options.ensemble)
    with _Batch(model, options, engine, progress) as batch:
        batch.waiting.extend(sources)
        while batch.waiting or batch.ahead or batch.behind:
            batch.read_ahead()
            if batch.ahead:
                yield from batch.restore_next()
            yield from batch.finished(block=not batch.ahead)


@dataclass
class _Batch:
    model: Model
    options: Options
    engine: Engine
    progress: FileProgress | None
    waiting: deque[ImageSource] = field(default_factory=deque)
    ahead: deque[tuple[ImageSource, Future[Job]]] = field(default_factory=deque)
    behind: dict[Future[Restored], ImageSource] = field(default_factory=dict)
    held: dict[ImageSource, int] = field(default_factory=dict)  # bytes of each that is in memory

    def __enter__(self) -> Self:
        self.readers = ThreadPoolExecutor(NUM_THREADS, "musigma-read")
        self.writers = ThreadPoolExecutor(NUM_THREADS, "musigma-write")
        return self

    def __exit__(self, *_: object) -> None:
        self.readers.shutdown(cancel_futures=True)
        self.writers.shutdown()

    def read_ahead(self) -> None:
        """Begin to read as many pictures as there are threads and memory for."""
        while self.waiting and len(self.ahead) < NUM_THREADS:
            source = self.waiting[0]
            size = _bytes_in_memory(self.model, source)
            if self.held and sum(self.held.values()) + size > self.options.memory // 2:
                return
            self.held[self.waiting.popleft()] = size
            self.ahead.append((source, self.readers.submit(read, self.model, source, self.options)))

    def restore_next(self) -> Iterator[Failed]:
        """Compute the picture that was read first, and hand its rows to a writer."""
        source, reading = self.ahead.popleft()
        try:
            job = reading.result()
        except ImageError as error:
            del self.held[source]
            yield Failed(source=source.path, error=str(error))
            return
        pipe: Pipe[Prediction] = Pipe()
        self.behind[self.writers.submit(_write, job, pipe)] = source
        self._fill(pipe, job)

    def finished(self, *, block: bool) -> Iterator[Restored | Failed]:
        """Yield the outcome of the files that have been written, waiting for one if need be."""
        done, _ = wait(self.behind, None if block else 0, FIRST_COMPLETED)
        for writing in done:
            source = self.behind.pop(writing)
            del self.held[source]
            try:
                yield writing.result()
            except ImageError as error:
                yield Failed(source=source.path, error=str(error))

    def _fill(self, pipe: Pipe[Prediction], job: Job) -> None:
        report = self.progress

        def progress(done: int, total: int) -> None:
            if report is not None:
                report(job.source, done, total)

        try:
            with closing(strips(job, self.engine, progress=progress)) as rows:
                for strip in rows:
                    if not pipe.put(strip):
                        break  # whoever writes has failed, and its outcome says why
        except BaseException as error:
            pipe.close(error)
            if not isinstance(error, ImageError):  # that is the outcome of this file alone
                raise
        pipe.close()


def _write(job: Job, pipe: Pipe[Prediction]) -> Restored:
    try:
        return write(job, pipe)
    finally:
        pipe.close()


def _bytes_in_memory(model: Model, source: ImageSource) -> int:
    """Return about what a picture takes, its rows in the making included; 0 where it is none."""
    try:
        height, width = image_size(source.path)
    except ImageError:
        return 0  # reading it will say why
    network = model.network
    per_pixel = 8 + 4 * network.out_channels * network.scale**2 * (1 + model.has_sigma)
    return height * width * per_pixel
