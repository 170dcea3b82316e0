"""Where to compute, and with how many threads."""

import os

import torch

from musigma.types import ConfigError

THREADS_BESIDE_GPU = 4
"""Where a GPU runs the network, metrics and files are left to the CPU: short operations, in which a
thread for each of many processors spends its time waiting for the others: two processes with 16
threads each on 16 processors took minutes to measure 100 crops.
"""

MAX_REASON = 120
"""Characters that are shown of PyTorch's reason, which may be a page long."""


def select_device(name: str | torch.device) -> torch.device:
    """Return the device of a name; ``auto`` is this process's GPU, or else the CPU.

    Args:
        name: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.

    Example:
        >>> select_device("cpu")
        device(type='cpu')
    """
    if name == "auto":
        index = os.environ.get("LOCAL_RANK", "0")
        name = f"cuda:{index}" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError("it computes nothing")
        torch.empty(1, device=device)  # a name may be right and this machine without the device
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        if len(reason) > MAX_REASON:
            reason = reason[:MAX_REASON] + "..."
        raise ConfigError(
            f"the device {str(name)!r} cannot be used ({reason}); give auto, cpu, cuda, cuda:N or "
            "mps"
        ) from error
    return device


def limit_threads(device: torch.device) -> None:
    """Give the CPU few threads in this process where a GPU runs the network.

    This changes PyTorch's thread count for the whole process, so commands call it, and no function
    that other programs call.
    """
    if device.type == "cuda":
        torch.set_num_threads(min(THREADS_BESIDE_GPU, torch.get_num_threads()))


def select_device_and_threads(name: str) -> torch.device:
    """Return the device of a name as `select_device` does, and call `limit_threads` for it."""
    device = select_device(name)
    limit_threads(device)
    return device
