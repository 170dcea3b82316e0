"""Where to compute."""

import os

import torch

from musigma.types import ConfigError

THREADS_BESIDE_GPU = 4
"""Where a GPU runs the network, metrics and files are left to the CPU: short operations, in which a
thread for each of many processors spends its time waiting for the others: two processes with 16
threads each on 16 processors took minutes to measure 100 crops.
"""


def select_device(name: str) -> torch.device:
    """Return the device of a name; ``auto`` is this process's GPU, or else the CPU."""
    if name == "auto":
        number = os.environ.get("LOCAL_RANK", "0")
        name = f"cuda:{number}" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)  # a name may be right and this machine without the device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n", 1)[0]
        raise ConfigError(
            f"the device {name!r} cannot be used ({reason}); give auto, cpu, cuda or cuda:N"
        ) from error
    if device.type == "cuda":
        torch.set_num_threads(min(THREADS_BESIDE_GPU, torch.get_num_threads()))
    return device
