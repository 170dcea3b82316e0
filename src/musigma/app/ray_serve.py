"""The API on a Ray cluster: one gateway, and replicas of the predictor on any machine.

A replica that dies costs nothing but time: the gateway gives its request to another one.
"""

import asyncio
import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from musigma.app.api import Answer, ApiRequest, Service, answer_request, error_response, to_response
from musigma.app.gate import Gate
from musigma.app.job_queue import JobQueue
from musigma.app.limits import BusyError, Limits
from musigma.app.restorer import Restorer
from musigma.app.workspace import Workspace
from musigma.types import ConfigError, MusigmaError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

NUM_TRIES = 5
"""How often a request is given to a replica before the gateway says that none did it."""

RETRY_SECONDS = 1.0


class Predictor:
    """Restores pictures, one at a time; Ray Serve runs several of them.

    Args:
        limits: What is admitted.
        engine: As for `Restorer`.
        device: As for `Restorer`.
    """

    def __init__(self, limits: Limits, engine: str | None, device: str) -> None:
        restorer = Restorer(limits, engine=engine, device=device)
        queue = JobQueue(max_waiting=limits.max_waiting, seconds=limits.seconds)
        self._service = Service(restorer, queue, Workspace())
        restorer.warm_up()

    def __del__(self) -> None:
        """Remove the folder; Ray Serve calls this when it stops a replica."""
        service = getattr(self, "_service", None)
        if service is not None:
            service.workspace.close()

    async def answer(self, body: bytes, settings: dict[str, str]) -> Answer | MusigmaError:
        """Answer a request; errors are returned, since Ray would wrap those that are raised."""
        try:
            return await asyncio.to_thread(self._answer, body, settings)
        except MusigmaError as error:
            return error

    def _answer(self, body: bytes, settings: dict[str, str]) -> Answer:
        service, request = self._service, ApiRequest.parse(settings)
        with service.workspace.scratch() as folder:
            source = folder / "source"
            source.write_bytes(body)
            answer: Answer = service.queue.submit(
                lambda ticket: answer_request(
                    service.restorer, source, request, folder / "out", ticket
                )
            ).result()
            return answer


class Gateway:
    """Checks requests and gives them to the predictors.

    Args:
        predictor: Handle of the predictors.
        limits: What is admitted.
        token: What clients must know.
    """

    def __init__(self, predictor: Any, limits: Limits, token: str | None) -> None:
        self._predictor, self._limits = predictor, limits
        self._gate = Gate(_nothing, limits=limits, token=token)
        self._num_waiting = 0

    async def __call__(self, request: "Request") -> "Response":
        """Answer an HTTP request."""
        from starlette.responses import JSONResponse

        refusal = self._gate.refusal(request.scope)
        if refusal is not None:
            status, text, headers = refusal
            return JSONResponse({"error": text}, status, headers)
        if (request.method, request.url.path) == ("GET", "/api/status"):
            return JSONResponse({"ready": True, "queue": self._num_waiting})
        if (request.method, request.url.path) != ("POST", "/api/restore"):
            return JSONResponse({"error": "there is POST /api/restore and GET /api/status"}, 404)
        try:
            return to_response(await self._restore(request))
        except MusigmaError as error:
            return error_response(error)

    async def _restore(self, request: "Request") -> Answer:
        settings = dict(request.query_params)
        ApiRequest.parse(settings)
        body = await request.body()
        self._limits.check_bytes(len(body))
        if self._num_waiting >= self._limits.max_waiting:
            raise BusyError(
                f"the queue is full: {self._num_waiting} requests are before this one",
                position=self._num_waiting,
                retry_after=5,
            )
        self._num_waiting += 1
        try:
            return await self._answer(body, settings)
        finally:
            self._num_waiting -= 1

    async def _answer(self, body: bytes, settings: dict[str, str]) -> Answer:
        from ray.exceptions import RayError

        deadline = time.monotonic() + self._limits.seconds
        for _ in range(NUM_TRIES):
            try:
                response = self._predictor.answer.remote(body, settings)
                answer = await asyncio.wait_for(response, deadline - time.monotonic())
            except TimeoutError:
                break
            except RayError:  # the replica died; Ray starts another one
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if isinstance(answer, MusigmaError):
                raise answer
            return Answer(*answer)
        raise BusyError("no replica answered in time", position=self._num_waiting, retry_after=5)


async def _nothing(*_: object) -> None:
    """Stand for the application of a gate that is only asked."""


def start_on_ray(
    limits: Limits,
    *,
    host: str,
    port: int,
    token: str | None = None,
    replicas: int = 1,
    engine: str | None = None,
    device: str = "auto",
) -> None:
    """Start the API on the Ray cluster that `RAY_ADDRESS` names, or on a new one on this machine.

    Args:
        limits: What is admitted; `max_waiting` counts requests of the whole cluster.
        host: Address to listen on.
        port: Port to listen on.
        token: What clients must know.
        replicas: Number of predictors. Each takes one processor and, where there are GPUs and the
            device is not the CPU, one of them.
        engine: What runs the network.
        device: Where each predictor computes.
    """
    ray, serve = _import_serve()
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False, logging_level="error")
    if "RAY_ADDRESS" not in os.environ:
        _require_unused(host, port)
    num_gpus = 1 if device != "cpu" and ray.cluster_resources().get("GPU") else 0
    predictor = serve.deployment(
        Predictor,
        num_replicas=replicas,
        max_ongoing_requests=1,
        health_check_period_s=2,
        ray_actor_options={"num_cpus": 1, "num_gpus": num_gpus},
    )
    gateway = serve.deployment(
        Gateway, max_ongoing_requests=2 * limits.max_waiting + 16, ray_actor_options={"num_cpus": 0}
    )
    serve.start(http_options={"host": host, "port": port})
    serve.run(gateway.bind(predictor.bind(limits, engine, device), limits, token), name="musigma")


def _require_unused(host: str, port: int) -> None:
    """Refuse a port that another program, or Ray itself, listens on.

    Ray Serve would share it without a word, and requests would go to either.
    """
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        raise ConfigError(f"port {port} is in use (Ray itself uses some); choose another --port")


def stop_on_ray() -> None:
    """Stop the API on the cluster; its replicas remove their files."""
    _, serve = _import_serve()
    serve.delete("musigma")


def _import_serve() -> tuple[Any, Any]:
    try:
        import ray
        from ray import serve
    except ImportError as error:
        raise ConfigError("Ray Serve is not installed; pip install 'musigma[ray]'") from error
    return ray, serve
