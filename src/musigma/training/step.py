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

from musigma.datasets.patch_bank import Bank, Patches
from musigma.kernels.cuda_graph import capture
from musigma.kernels.half_precision import half_copy
from musigma.losses import Objective
from musigma.networks import Network
from musigma.networks.weights_file import weights_of
from musigma.training.checkpoint import differing_part
from musigma.training.compiled_blocks import compile_blocks, repeated_blocks
from musigma.training.deferred_gradients import DeferringConv, defer, gradients_of
from musigma.training.optimizers import Optimizer
from musigma.training.patch_feed import HostFeed
from musigma.training.recipe import Recipe
from musigma.types import DataError, Prediction


class Step:
    """A network in training, and the operation that improves it once.

    There are three copies of the weights. `network` holds them in float32; the optimizer changes
    these. `working_copy` holds them in the precision of the arithmetic and is rounded again after
    each update, so that no layer has to cast its weights. `averages` holds their running mean.

    When the bank lies on the step's device, patches are made inside the step. Otherwise the host
    gathers them and sends them one step ahead.

    Args:
        recipe: Settings of the run.
        network: The network with its initial weights.
        objective: The loss to minimize; or the first one, and the one that closes the run.
        bank: Source of the patches.
        device: Where to compute.
        rank: Number of this process.
        world: Number of processes that share a batch.
    """

    def __init__(
        self,
        recipe: Recipe,
        network: Network,
        objective: Objective | Sequence[Objective],
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
        self._sampling: dict[str, Any] = {
            "batch": share,
            "seed": self.seed,
            "first": rank * share,
        }
        self._feed = (
            None if bank.device.type == device.type else HostFeed(bank, device, **self._sampling)
        )
        self.network = network.to(device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        objectives = [objective] if isinstance(objective, Objective) else objective
        self.objectives = [each.to(device) for each in objectives]
        self.closing = torch.zeros((), device=device)  # 1 where the last objective counts
        self.half = recipe.precision == "bf16-everywhere" or (
            recipe.precision == "bf16" and device.type == "cuda"
        )
        self.working_copy = (
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
            # Not those of the network itself, which is validated on images of other sizes.
            blocks = repeated_blocks(self.working_copy) if self.half else []
            compile_blocks(blocks)
            if not blocks:
                self._loss = torch.compile(self._loss_of_patches, fullgraph=True, dynamic=False)
        before = copy.deepcopy(self.state())
        self._graph, _ = capture(self._update)
        self.load_state(before)

    def restart(self, network: Network, seed: int) -> None:
        """Start again with other weights and another seed; the captured graph is used again."""
        state = tree_map(torch.zeros_like, self.state())
        self.recipe = replace(self.recipe, seed=seed)
        self.seed.fill_(seed)
        self.load_state(state | {"weights": network.state_dict()})

    def read_loss(self, num_steps: int) -> float:
        """Return the mean loss over all processes since the last call.

        This is the only place that waits for the device. The result is not finite when the weights
        are not finite, even if the loss was.
        """
        largest = torch.stack(torch._foreach_norm(self.weights, torch.inf)).max()
        total = torch.where(largest.isfinite(), self.loss_sum, torch.nan)
        self.loss_sum.zero_()
        if self.world > 1:
            distributed.all_reduce(total)
        return total.item() / num_steps / self.world

    @contextmanager
    def averaged(self) -> Iterator[Network]:
        """Give the network with its averaged weights; the last weights are restored at the end."""
        if self.recipe.ema == 0 or self.steps_done == 0:
            yield self.network
            return
        last = [weight.detach().clone() for weight in self.weights]
        # The running mean started from zero; dividing by this share corrects for that start.
        share = 1 - self.recipe.ema**self.steps_done
        with torch.no_grad():
            torch._foreach_copy_(self.weights, torch._foreach_div(self.averages, share))
            try:
                yield self.network
            finally:
                torch._foreach_copy_(self.weights, last)

    def state(self) -> dict[str, Any]:
        """Return everything that the next update depends on, for a checkpoint."""
        return {
            "number": self.number,
            "weights": self.network.state_dict(),
            "averages": self.averages,
            "optimizer": self.optimizer.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Copy a state into place, so that a captured graph continues from it.

        Raises:
            DataError: If it is no state of a step like this one.
        """
        self._check_state(state)
        with torch.no_grad():
            self.steps_done = int(state["number"])
            self.number.copy_(state["number"])
            self.network.load_state_dict(state["weights"])
            torch._foreach_copy_(self.averages, [a.to(self.device) for a in state["averages"]])
            self.optimizer.load_state(state["optimizer"])
            self._refresh_working_copy()
        self.loss_sum.zero_()

    def _check_state(self, state: object) -> None:
        part = differing_part(self.state() | {"weights": weights_of(self.network)}, state)
        if part is not None:
            raise DataError(f"{part} is missing or has another form")

    def _seed_noise(self) -> None:
        # Like the patches, noise follows from (seed, step, process). So a resumed run draws what it
        # would have drawn anyway, and no state of a generator has to be saved.
        key = f"{self.recipe.seed}/{self.steps_done}/{self.rank}".encode()
        self._noise.manual_seed(int.from_bytes(blake2b(key, digest_size=8).digest()))

    def _update(self) -> None:
        loss = self._loss()
        gradients = gradients_of(loss, _trainable(self.working_copy), self._deferred)
        with torch.no_grad():
            if self.world > 1:
                gradients = _mean_over_processes(gradients)
            _assign_gradients(gradients, self.weights)
            if self.recipe.clip:
                nn.utils.clip_grad_norm_(self.weights, self.recipe.clip, foreach=True)
            self.optimizer.step()
            self._refresh_working_copy()
            if self.recipe.ema:
                torch._foreach_lerp_(self.averages, self.weights, 1 - self.recipe.ema)
            self.loss_sum += loss.detach()
            self.number += 1

    def _loss_of_patches(self) -> Tensor:
        if self._feed is not None:
            patches = self._feed.patches()
        else:
            patches = self.bank.sample(self.number, **self._sampling)
        degraded = network_input(patches, with_level=self.working_copy.takes_noise_level)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            prediction = self.working_copy(degraded)
        mean, sigma = prediction
        prediction = Prediction(mean.float(), None if sigma is None else sigma.float())
        losses = [
            objective(
                prediction,
                patches.target,
                degraded=degraded,
                counted=patches.counted,
                taught=patches.taught,
            )
            for objective in self.objectives
        ]
        # A captured step cannot branch, so it computes both; the other one has the weight 0.
        return torch.lerp(losses[0], losses[-1], self.closing) if len(losses) > 1 else losses[0]

    def _defer(self) -> None:
        # The kernel is for half precision, which only the working copy uses.
        if self.half and find_spec("triton"):
            share, side = self.recipe.batch // self.world, self.recipe.patch
            example = torch.zeros(share, self.working_copy.in_channels, side, side)
            with torch.autocast(self.device.type, torch.bfloat16):
                self._deferred = defer(self.working_copy, example.to(self.device))

    def _refresh_working_copy(self) -> None:
        if self.working_copy is not self.network:
            torch._foreach_copy_(_trainable(self.working_copy), self.weights)


def network_input(patches: Patches, *, with_level: bool) -> Tensor:
    """Return the input of a network, with a map of the noise level behind it where it takes one."""
    if not with_level:
        return patches.degraded
    assert patches.noise_level is not None
    level = patches.noise_level.view(-1, 1, 1, 1) / 255
    return torch.cat([patches.degraded, level.expand_as(patches.degraded[:, :1])], dim=1)


def _global_generator(device: torch.device) -> torch.Generator:
    # Compiled and captured steps can draw from the global generator alone.
    if device.type != "cuda":
        return torch.default_generator
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]


def _trainable(network: Network) -> list[Tensor]:
    return [weight for weight in network.parameters() if weight.requires_grad]


def _assign_gradients(gradients: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
    """Store gradients with the weights, in the precision and memory order of the weights."""
    others: list[tuple[Tensor, Tensor]] = []
    for gradient, weight in zip(gradients, weights, strict=True):
        # Fused Adam pairs gradients and weights by their order in memory.
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
