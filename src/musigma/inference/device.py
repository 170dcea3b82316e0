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
    except RuntimeError as error:
        raise ConfigError(f"there is no device {name!r}; give auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("no GPU can be used here; give --device cpu")
    return device
