"""Where to compute."""

import os
from pathlib import Path

import torch

from musigma.types import ConfigError


def pick_device(name: str) -> torch.device:
    """Return the device of a name; ``auto`` is this process's GPU, or else the CPU."""
    limit_threads()
    if name == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    try:
        device = torch.device(name)
        torch.empty(1, device=device)  # a name may be right and this machine without the device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n", 1)[0]
        raise ConfigError(
            f"the device {name!r} cannot be used ({reason}); give auto, cpu, cuda or cuda:N"
        ) from error
    return device


def limit_threads() -> None:
    """Let PyTorch start no more threads than there are processors for this process.

    It counts those of the machine. In a container that is given 16 of 192, threads wait for each
    other most of the time.
    """
    if torch.get_num_threads() > (most := num_processors()):
        torch.set_num_threads(most)


def num_processors(quota_file: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return how many processors this process may use at a time."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    most = len(affinity(0)) if affinity else os.cpu_count() or 1
    try:
        quota, period = quota_file.read_text().split()
        return max(1, min(most, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or no limit: its word for that is "max"
        return most
