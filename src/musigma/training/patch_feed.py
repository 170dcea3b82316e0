"""Patches for a bank too large for the GPU: gathered by the host, sent one step ahead."""

from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from musigma.datasets.patch_bank import Bank, Patches, RawPatches, to_patches


class HostFeed:
    """Keeps a batch at a fixed address of the device, as a captured step needs it.

    The host sends bytes; the device makes patches from them.

    Args:
        bank: A bank in host memory.
        device: Where the step computes.
        batch: Patches per step.
        seed: Seed of the random choices.
        first: Number of this process's first patch.
    """

    def __init__(
        self, bank: Bank, device: torch.device, *, batch: int, seed: Tensor, first: int
    ) -> None:
        self.bank = bank
        self.batch, self.seed, self.first = batch, seed, first
        self.pinned = device.type == "cuda"
        self.pool = ThreadPoolExecutor(1)
        self.ahead: tuple[int, Future[RawPatches]] | None = None
        self.buffers = RawPatches(*(part.to(device) for part in self._gather(0)))

    def send(self, step: int) -> None:
        """Send the batch of a step, and start to gather that of the next step."""
        ready = self.ahead[1].result() if self.ahead and self.ahead[0] == step else None
        raw = ready or self._gather(step)
        for buffer, part in zip(self.buffers, raw, strict=True):
            buffer.copy_(part, non_blocking=True)
        self.ahead = (step + 1, self.pool.submit(self._gather, step + 1))

    def patches(self) -> Patches:
        """Make patches from the batch that was sent last."""
        return to_patches(self.buffers, self.bank.degradation)

    def _gather(self, step: int) -> RawPatches:
        raw = self.bank.cut(torch.tensor(step), batch=self.batch, seed=self.seed, first=self.first)
        return RawPatches(*(part.pin_memory() for part in raw)) if self.pinned else raw
