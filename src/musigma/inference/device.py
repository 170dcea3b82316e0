"""Where to compute."""

import os

import torch

from musigma.types import ConfigError


def pick_device(name: str) -> torch.device:
    """Return the device of a name; ``auto`` is this process's GPU, or else the CPU."""
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
