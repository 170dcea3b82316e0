"""Patches for a bank too large for the GPU: gathered by the host, sent one step ahead."""

from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from musigma.data.patches import Bank, Patches


class HostFeed:
    """Keeps a batch in fixed device memory, where a captured step finds it.

    Args:
        bank: A bank in host memory.
        device: Where the step computes.
        batch: Patches per step.
        seed: Which random sequence.
        first: Number of this process's first patch.
    """

    def __init__(
        self, bank: Bank, device: torch.device, *, batch: int, seed: Tensor, first: int
    ) -> None:
        self.bank = bank
        self.batch, self.seed, self.first = batch, seed, first
        self.pinned = device.type == "cuda"
        self.pool = ThreadPoolExecutor(1)
        self.ahead: tuple[int, Future[Patches]] | None = None
        self.buffers = Patches(*(part.to(device) for part in self._gather(0)))

    def send(self, step: int) -> None:
        """Put the patches of a step into the buffers, and start on those of the next."""
        ready = self.ahead[1].result() if self.ahead and self.ahead[0] == step else None
        patches = ready or self._gather(step)
        for buffer, part in zip(self.buffers, patches, strict=True):
            buffer.copy_(part, non_blocking=True)
        self.ahead = (step + 1, self.pool.submit(self._gather, step + 1))

    def _gather(self, step: int) -> Patches:
        patches = self.bank.sample(
            torch.tensor(step), batch=self.batch, seed=self.seed, first=self.first
        )
        return Patches(*(part.pin_memory() for part in patches)) if self.pinned else patches
