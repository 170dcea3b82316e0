"""What a user wants to know about a network before choosing it: sizes and costs."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from musigma.networks.base import Network
from musigma.networks.registry import create, entry
from musigma.networks.sigma_branch import WithSigma, mean_only, with_sigma
from musigma.networks.weights_file import shipped_metadata
from musigma.types import short_repr

HR_SIZE = (720, 1280)
"""Height and width of the image for which the field counts MACs."""


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Sizes and costs of one network at one scale.

    Attributes:
        name: Registered name.
        task: ``"super-resolution"``, ``"denoising"`` or ``"restoration"``.
        scale: Zoom factor.
        params: Learned values of the network, without the sigma branch.
        macs_g: Multiply-adds of its convolutions for a 1280x720 result, in units of 1e9.
        sigma_params: Learned values of the sigma branch.
        sigma_macs_g: Multiply-adds of the sigma branch.
        receptive_radius: Receptive radius in input pixels; `None` for the whole image.
        size_multiple: Origins of exact tiles are multiples of this.
        tiling: ``"exact"``: tiles give what the whole image gives; or ``"approximate"``.
        value_range: Range that the layers of a network trained here work in.
        shipped: Whether trained weights come with the package.
        licence: License of these weights; empty where none ship.
        purpose: What these weights are for; empty where none ship.
        summary: One line about the network.
        paper: Where the network was published.
        year: When; `None` where it was not.
    """

    name: str
    task: str
    scale: int
    params: int
    macs_g: float
    sigma_params: int
    sigma_macs_g: float
    receptive_radius: int | None
    size_multiple: int
    tiling: str
    value_range: float
    shipped: bool
    licence: str
    purpose: str
    summary: str
    paper: str
    year: int | None


def num_params(network: torch.nn.Module) -> int:
    """Count the learned values."""
    return sum(parameter.numel() for parameter in network.parameters())


def macs(network: Network, *, height: int, width: int) -> int:
    """Count the multiply-adds of one forward pass for an input of a size.

    The network should lie on the meta device, where counting computes nothing.
    """
    return sum(_macs_by_part(network, height, width).values())


def _macs_by_part(network: Network, height: int, width: int) -> dict[str, int]:
    device = next((p.device for p in network.parameters()), torch.device("meta"))
    degraded = torch.zeros(1, network.in_channels, height, width, device=device)
    # It imports triton, whose LLVM must not meet that of Mesa in the process of a viewer.
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(degraded)
    parts = counter.get_flop_counts()
    branch = sum(parts.get(f"{type(network).__name__}.branch", {}).values()) // 2
    return {"base": counter.get_total_flops() // 2 - branch, "branch": branch}


def purpose_of(metadata: Mapping[str, Any]) -> str:
    """Say in a few words what weights are for, from the metadata of their file.

    Example:
        >>> purpose_of({"scale": 2, "training": {"recipe": {}}})
        'enlarges by 2; trained on bicubically reduced images'
        >>> purpose_of({"scale": 1, "training": {"recipe": {"noise_std": [0, 50]}}})
        'removes Gaussian noise of level 0 to 50'
        >>> purpose_of({"scale": 1, "training": {"recipe": {"degrade": "pairs"}}})
        'restores at the same size; trained on pairs of input and target'
    """
    scale = metadata.get("scale", 1)
    recipe = metadata.get("training", {}).get("recipe", {})
    verb = f"enlarges by {scale}" if scale > 1 else "restores at the same size"
    if recipe.get("degrade") == "photo":
        return f"{verb}; for photographs: blurred, noisy, saved as JPEG, shrunk by any program"
    if recipe.get("degrade") == "pairs":
        return f"{verb}; trained on pairs of input and target"
    if recipe.get("degrade"):
        return f"{verb}; trained on images degraded by {recipe['degrade']}"
    if recipe.get("noise_std") is not None:
        levels = recipe["noise_std"]
        text = " to ".join(map(_number, levels if isinstance(levels, list) else [levels]))
        return f"removes Gaussian noise of level {text}"
    return f"{verb}; trained on bicubically reduced images" if scale > 1 else verb


def _number(value: object) -> str:
    """Return a number as a text, and what a file has in its place as Python writes it."""
    return f"{value:g}" if isinstance(value, int | float) else short_repr(value)


@functools.cache
def card(name: str, *, scale: int) -> ModelCard:
    """Describe a registered network.

    Example:
        >>> edsr = card("edsr-baseline", scale=2)
        >>> edsr.params, round(edsr.macs_g, 1)
        (1369859, 316.2)
    """
    with torch.device("meta"):
        network = with_sigma(on_meta(name, scale=scale))
    return _describe(name, network)


def on_meta(name: str, *, scale: int, **settings: Any) -> Network:
    """Build a network without values, which takes milliseconds and no memory."""
    with torch.device("meta"):
        return create(name, scale=scale, **settings)


def _describe(name: str, network: WithSigma) -> ModelCard:
    registered, base = entry(name), mean_only(network)
    info = base.info
    height, width = (side // info.scale for side in HR_SIZE)
    counted = _macs_by_part(network, height, width)
    shipped = shipped_metadata(name, info.scale)
    return ModelCard(
        name=name,
        task=info.task,
        scale=info.scale,
        params=num_params(base),
        macs_g=counted["base"] / 1e9,
        sigma_params=num_params(network.branch),
        sigma_macs_g=counted["branch"] / 1e9,
        receptive_radius=info.receptive_radius,
        size_multiple=info.size_multiple,
        tiling="approximate" if info.receptive_radius is None else "exact",
        value_range=getattr(getattr(base, "shift", base), "value_range", 1.0),
        shipped=bool(shipped),
        licence=shipped.get("licence", ""),
        purpose=purpose_of(shipped) if shipped else "",
        summary=registered.summary,
        paper=registered.paper,
        year=registered.year,
    )
