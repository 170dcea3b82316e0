"""Restore many files on a Ray cluster; all its machines must see the files under the same paths.

Each picture is one task, so that a picture that fails is one file. Ray repeats the task of a worker
that died.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from musigma.images.listing import ImageSource, image_error
from musigma.model import Model
from musigma.prediction.device import limit_threads
from musigma.prediction.engines import Engine
from musigma.restoration.batch import Failed, failure_of
from musigma.restoration.options import Options, check_options, engine_for
from musigma.restoration.restore_file import restore_file
from musigma.restoration.restored import Restored
from musigma.types import ConfigError, MusigmaError

NUM_RETRIES = 5
"""How often the task of a worker that died is repeated."""

NUM_QUEUED = 4
"""Tasks that wait for each processor: enough to keep it busy, few enough for the scheduler."""


def restore_on_ray(
    model: Model, sources: Sequence[ImageSource], options: Options, *, device: str = "auto"
) -> Iterator[Restored | Failed]:
    """Restore picture files on the workers of a Ray cluster; yield the outcome of each.

    The cluster is the one this process is connected to, or the one that ``RAY_ADDRESS`` names, or a
    new one on this machine. A worker takes one processor, ``options.memory`` and, where there are
    GPUs and the device is not the CPU, one of them.

    Args:
        model: The model, in host memory.
        sources: The files; none may be the result of another (`find_clashes`).
        options: How to restore them.
        device: Where each worker computes, as for `Model.to`.
    """
    ray = _import_ray()
    check_options(model, options)
    if ray.is_initialized():
        yield from _spread(ray, model, sources, options, device)
        return
    ray.init(log_to_driver=False, include_dashboard=False, logging_level="error")
    try:
        yield from _spread(ray, model, sources, options, device)
    finally:
        ray.shutdown()


def _spread(
    ray: Any, model: Model, sources: Sequence[ImageSource], options: Options, device: str
) -> Iterator[Restored | Failed]:
    resources = ray.cluster_resources()
    num_gpus = 1 if device != "cpu" and resources.get("GPU") else 0
    task = ray.remote(
        num_cpus=1, num_gpus=num_gpus, memory=options.memory, max_retries=NUM_RETRIES
    )(_restore)
    shared = ray.put(model)
    limit = NUM_QUEUED * max(1, int(resources.get("CPU", 1)))
    waiting = deque(sources)
    running: dict[Any, ImageSource] = {}
    while waiting or running:
        while waiting and len(running) < limit:
            source = waiting.popleft()
            # Inside a list Ray passes the reference, so that a worker fetches the model once.
            running[task.remote([shared], source, options, device)] = source
        (done,), _ = ray.wait(list(running), num_returns=1)
        yield _outcome(ray, done, running.pop(done))


def _outcome(ray: Any, done: Any, source: ImageSource) -> Restored | Failed:
    try:
        outcome: Restored | Failed | MusigmaError = ray.get(done)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().split("\n", 1)[0]
        return Failed(
            source=source.path, error=str(image_error(source.path, f"no worker did it ({reason})"))
        )
    if isinstance(outcome, MusigmaError):
        raise outcome
    return outcome


def _restore(
    shared: list[Any], source: ImageSource, options: Options, device: str
) -> Restored | Failed | MusigmaError:
    """Run in a worker; errors are returned, since Ray would wrap those that are raised."""
    try:
        model, engine = _prepared(shared[0], options, device)
    except MusigmaError as error:  # of all files
        return error
    try:
        return restore_file(model, source, options, engine=engine)
    except Exception as error:  # noqa: BLE001 - any error of one file is its outcome
        return failure_of(source.path, error)


@lru_cache(maxsize=1)
def _prepared(shared: Any, options: Options, device: str) -> tuple[Model, Engine]:
    """Fetch the model and make its engine, once per worker."""
    model: Model = _import_ray().get(shared)
    limit_threads(model.to(device).device)
    return model, engine_for(model, options)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ConfigError("Ray is not installed; pip install 'musigma[ray]'") from error
    return ray
