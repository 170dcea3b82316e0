"""One update, from patches to averaged weights: eager on a CPU, one captured graph on a GPU."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.utils._pytree import tree_map

from musigma.datasets.patch_bank import Bank
from musigma.kernels.cuda_graph import capture
from musigma.kernels.half_precision import half_copy
from musigma.losses import Objective
from musigma.networks import Network
from musigma.training.deferred_gradients import DeferringConv, defer, gradients_of
from musigma.training.optimizers import Optimizer
from musigma.training.patch_feed import HostFeed
from musigma.training.recipe import Recipe
from musigma.types import Prediction


class Step:
    """A network in training, and the operation that improves it once.

    There are three copies of the weights. `network` holds them in float32 and is what the optimizer
    changes; the worker holds them in the precision of the arithmetic, rounded anew after each
    update, so that no layer casts its own; `averages` holds their running mean.

    The bank serves patches inside the step when it lies on the step's device; otherwise they are
    gathered on the host and sent across, one step ahead of their use.

    Args:
        recipe: What to do.
        network: The network, with its initial weights.
        objective: What to minimise.
        bank: Where patches come from.
        device: Where to compute.
        rank: Number of this process.
        world: How many processes share a batch.
    """

    def __init__(
        self,
        recipe: Recipe,
        network: Network,
        objective: Objective,
        bank: Bank,
        *,
        device: torch.device,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.recipe, self.bank, self.device = recipe, bank, device
        self.rank, self.world = rank, world
        share = recipe.batch // world
        self.seed = torch.tensor(recipe.seed, device=bank.device)
        self._choice: dict[str, Any] = {"batch": share, "seed": self.seed, "first": rank * share}
        self._feed = (
            None if bank.device.type == device.type else HostFeed(bank, device, **self._choice)
        )
        self.network = network.to(device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.objective = objective.to(device)
        self.half = recipe.precision == "bf16" and device.type == "cuda"
        self.worker = (
            half_copy(self.network, torch.bfloat16, share_buffers=True)
            if self.half
            else self.network
        )
        self.weights = _trainable(self.network)
        self.averages = [torch.zeros_like(weight) for weight in self.weights]
        self.steps_done = 0
        self.number = torch.zeros((), dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), device=device)
        self.learning_rate = torch.zeros((), device=device)
        self._noise = _global_generator(device)
        self.optimizer = Optimizer(recipe, self.weights, self.learning_rate)
        self._loss: Callable[[], Tensor] = self._loss_of_patches
        self._deferred: list[list[DeferringConv]] = []
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, learning_rate: float) -> None:
        """Make one update; nothing is read back from the device."""
        self.learning_rate.fill_(learning_rate)
        self._seed_noise()
        if self._feed is not None:
            self._feed.send(self.steps_done)
        if self._graph is not None:
            self._graph.replay()
        else:
            self._update()
        self.steps_done += 1

    def prepare(self) -> None:
        """Compile and capture on a GPU, leaving the state as it was; on a CPU do nothing."""
        if self.device.type != "cuda":
            return
        torch.backends.cudnn.benchmark = True
        if self.recipe.compile:
            self._defer()
            self._loss = torch.compile(self._loss_of_patches, fullgraph=True, dynamic=False)
        before = copy.deepcopy(self.state())
        self._graph, _ = capture(self._update)
        self.load_state(before)

    def restart(self, network: Network, seed: int) -> None:
        """Begin anew with other initial weights and another seed; what is captured serves again."""
        state = tree_map(torch.zeros_like, self.state())
        self.recipe = replace(self.recipe, seed=seed)
        self.seed.fill_(seed)
        self.load_state(state | {"weights": network.state_dict()})

    def read_loss(self, num_steps: int) -> float:
        """Return the mean loss since the last reading over all processes: the one wait there is.

        It is not finite either where the last update left weights that are not.
        """
        largest = torch.stack(torch._foreach_norm(self.weights, torch.inf)).max()
        total = torch.where(largest.isfinite(), self.loss_sum, torch.nan)
        self.loss_sum.zero_()
        if self.world > 1:
            distributed.all_reduce(total)
        return total.item() / num_steps / self.world

    @contextmanager
    def averaged(self) -> Iterator[Network]:
        """Lend the network with the averaged weights in place of the last ones."""
        if self.recipe.ema == 0 or self.steps_done == 0:
            yield self.network
            return
        last = [weight.detach().clone() for weight in self.weights]
        # The running mean started from nought; this takes out what that start still weighs.
        share = 1 - self.recipe.ema**self.steps_done
        with torch.no_grad():
            torch._foreach_copy_(self.weights, torch._foreach_div(self.averages, share))
            try:
                yield self.network
            finally:
                torch._foreach_copy_(self.weights, last)

    def state(self) -> dict[str, Any]:
        """Return everything that the next update depends on."""
        return {
            "number": self.number,
            "weights": self.network.state_dict(),
            "averages": self.averages,
            "optimizer": self.optimizer.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Put a state back in place; a captured graph goes on with it."""
        with torch.no_grad():
            self.steps_done = int(state["number"])
            self.number.copy_(state["number"])
            self.network.load_state_dict(state["weights"])
            torch._foreach_copy_(self.averages, [a.to(self.device) for a in state["averages"]])
            self.optimizer.load_state(state["optimizer"])
            self._refresh_worker()
        self.loss_sum.zero_()

    def _seed_noise(self) -> None:
        # Like the patches, noise follows from (seed, step, process): a resumed run and all its
        # processes go on with what they would have drawn, and no generator is carried along.
        key = f"{self.recipe.seed}/{self.steps_done}/{self.rank}".encode()
        self._noise.manual_seed(int.from_bytes(blake2b(key, digest_size=8).digest()))

    def _update(self) -> None:
        loss = self._loss()
        gradients = gradients_of(loss, _trainable(self.worker), self._deferred)
        with torch.no_grad():
            if self.world > 1:
                gradients = _mean_over_processes(gradients)
            _hand_over(gradients, self.weights)
            if self.recipe.clip:
                nn.utils.clip_grad_norm_(self.weights, self.recipe.clip, foreach=True)
            self.optimizer.step()
            self._refresh_worker()
            if self.recipe.ema:
                torch._foreach_lerp_(self.averages, self.weights, 1 - self.recipe.ema)
            self.loss_sum += loss.detach()
            self.number += 1

    def _loss_of_patches(self) -> Tensor:
        if self._feed is not None:
            degraded, target, noise_level = self._feed.patches()
        else:
            degraded, target, noise_level = self.bank.sample(self.number, **self._choice)
        if self.worker.takes_noise_level:
            assert noise_level is not None
            level = noise_level.view(-1, 1, 1, 1) / 255
            degraded = torch.cat([degraded, level.expand_as(degraded[:, :1])], dim=1)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            prediction = self.worker(degraded)
        mean, sigma = prediction
        prediction = Prediction(mean.float(), None if sigma is None else sigma.float())
        return self.objective(prediction, target, degraded=degraded)

    def _defer(self) -> None:
        # The kernel is for half precision, in which the worker alone computes.
        if self.half and find_spec("triton"):
            share, side = self.recipe.batch // self.world, self.recipe.patch
            example = torch.zeros(share, self.worker.in_channels, side, side)
            with torch.autocast(self.device.type, torch.bfloat16):
                self._deferred = defer(self.worker, example.to(self.device))

    def _refresh_worker(self) -> None:
        if self.worker is not self.network:
            torch._foreach_copy_(_trainable(self.worker), self.weights)


def _global_generator(device: torch.device) -> torch.Generator:
    # Compiled and captured steps draw from no other.
    if device.type != "cuda":
        return torch.default_generator
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]


def _trainable(network: Network) -> list[Tensor]:
    return [weight for weight in network.parameters() if weight.requires_grad]


def _hand_over(gradients: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
    """Make gradients those of the weights, in the precision and the order of the weights."""
    others: list[tuple[Tensor, Tensor]] = []
    for gradient, weight in zip(gradients, weights, strict=True):
        # Fused Adam walks through memory: values in another order would meet other weights.
        if gradient.dtype == weight.dtype and gradient.stride() == weight.stride():
            weight.grad = gradient
        else:
            assert weight.grad is not None
            others.append((weight.grad, gradient))
    if others:
        mine, theirs = zip(*others, strict=True)
        torch._foreach_copy_(mine, theirs)


def _mean_over_processes(gradients: Sequence[Tensor]) -> Sequence[Tensor]:
    flat = torch.cat([gradient.reshape(-1).float() for gradient in gradients])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    pieces = torch.split(flat, [gradient.numel() for gradient in gradients])
    return [p.view(g.shape) for p, g in zip(pieces, gradients, strict=True)]
