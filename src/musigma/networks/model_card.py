"""What a user wants to know of a network before choosing it, computed rather than typed."""

from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from musigma.networks.base import Network
from musigma.networks.registry import create, entry
from musigma.networks.sigma_branch import mean_only, with_sigma
from musigma.networks.weights_file import shipped_metadata

HR_SIZE = (720, 1280)
"""Height and width of the image for which the field counts MACs."""


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """The facts of one network at one scale.

    Attributes:
        name: Registered name.
        task: ``"upscale"`` or ``"denoise"``.
        scale: Zoom factor.
        params: Learned values of the network, without the sigma branch.
        macs_g: Multiply-adds of its convolutions for a 1280x720 result, in units of 1e9.
        sigma_params: Learned values of the sigma branch.
        sigma_macs_g: Its multiply-adds, counted apart.
        radius: Receptive-field radius in input pixels; ``None`` for the whole image.
        size_multiple: Origins of exact tiles are multiples of this.
        tiling: ``"exact"``: tiles give what the whole image gives; or ``"approximate"``.
        value_range: Range that the layers of a network trained here work in.
        licence: Of the weights that ship; empty where none do.
        paper: Where the network was published.
        year: When.
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
    licence: str
    paper: str
    year: int


def num_params(network: torch.nn.Module) -> int:
    """Count the learned values."""
    return sum(parameter.numel() for parameter in network.parameters())


def macs(network: Network, *, height: int, width: int) -> int:
    """Count the multiply-adds of one forward pass for an input of a size.

    The network should lie on the meta device, where counting costs nothing.
    """
    return sum(_macs_by_part(network, height, width).values())


def _macs_by_part(network: Network, height: int, width: int) -> dict[str, int]:
    device = next((p.device for p in network.parameters()), torch.device("meta"))
    degraded = torch.zeros(1, network.in_channels, height, width, device=device)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(degraded)
    parts = counter.get_flop_counts()
    branch = sum(parts.get(f"{type(network).__name__}.branch", {}).values()) // 2
    return {"base": counter.get_total_flops() // 2 - branch, "branch": branch}


def card(name: str, *, scale: int) -> ModelCard:
    """Describe a registered network.

    Example:
        >>> edsr = card("edsr-baseline", scale=2)
        >>> edsr.params, round(edsr.macs_g, 1)
        (1369859, 316.2)
    """
    facts = entry(name)
    with torch.device("meta"):
        network = with_sigma(create(name, scale=scale))
    height, width = (side // scale for side in HR_SIZE)
    base = mean_only(network)
    counted = _macs_by_part(network, height, width)
    return ModelCard(
        name=name,
        task=facts.task,
        scale=scale,
        params=num_params(base),
        macs_g=counted["base"] / 1e9,
        sigma_params=num_params(network.branch),
        sigma_macs_g=counted["branch"] / 1e9,
        receptive_radius=base.receptive_radius,
        size_multiple=base.size_multiple,
        tiling="approximate" if base.receptive_radius is None else "exact",
        value_range=getattr(getattr(base, "shift", None), "value_range", 1.0),
        licence=shipped_metadata(name, scale).get("licence", ""),
        paper=facts.paper,
        year=facts.year,
    )
