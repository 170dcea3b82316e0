"""Checks that every registered network must pass; `test_all_networks.py` runs them."""

import io
import itertools

import torch
from torch import Tensor

from musigma.networks import (
    Network,
    create,
    entries,
    mean_only,
    measure_receptive_radius,
    with_sigma,
)
from musigma.networks.layers import RGB_MEAN
from musigma.networks.weights_file import weights_of

# Large networks are tested with fewer or narrower blocks; all others as they are.
REDUCED = {
    "brdnet": {"width": 8},
    "brdnet-grey": {"width": 8},
    "dncnn": {"num_layers": 3},
    "dncnn-colour": {"num_layers": 3},
    "dps": {"num_blocks": 1},
    "drunet": {"num_blocks": 1, "widths": (8, 8, 12, 16)},
    "drunet-grey": {"num_blocks": 1, "widths": (8, 8, 12, 16)},
    "drunet-small": {"num_blocks": 2, "widths": (8, 8, 8, 8)},
    "drunet-small-blind": {"num_blocks": 2, "widths": (8, 8, 8, 8)},
    "edsr": {"num_blocks": 1, "width": 16},
    "edsr-baseline": {"num_blocks": 1},
    "ffdnet": {"num_layers": 3},
    "ffdnet-colour": {"num_layers": 3},
    "focnet": {"width": 8, "num_sweeps": 2},
    "focnet-colour": {"width": 8, "num_sweeps": 2},
    "gcdn": {"width": 12, "rank": 2, "num_steps": 1, "num_neighbours": 4, "window": 7},
    "gcdn-colour": {"width": 12, "rank": 2, "num_steps": 1, "num_neighbours": 4, "window": 7},
    "han": {"num_groups": 1, "num_blocks": 1},
    "idn": {"num_blocks": 1},
    "imdn": {"num_blocks": 1},
    "ipt": {"width": 8, "num_heads": 2, "num_layers": 1, "window": 6},
    "ircnn-bank": {"width": 8, "num_members": 3},
    "ircnn-bank-colour": {"width": 8, "num_members": 3},
    "kpn": {"num_blocks": 1, "kernel_size": 3},
    "lp-kpn": {"num_blocks": 1, "kernel_size": 3},
    "mwcnn": {"width": 4},
    "mwcnn-grey": {"width": 4},
    "n3net": {"width": 8, "between": 2, "num_layers": 3, "num_neighbours": 2, "window": 3},
    "n3net-colour": {"width": 8, "between": 2, "num_layers": 3, "num_neighbours": 2, "window": 3},
    "nlrn": {"width": 8, "num_steps": 2, "window": 4},
    "nlrn-colour": {"width": 8, "num_steps": 2, "window": 4},
    "nlsn": {"num_blocks": 1, "width": 32},
    "oisr-lf-s": {"num_blocks": 1},
    "oisr-rk2-s": {"num_blocks": 1},
    "plksr": {"num_blocks": 1, "width": 16},
    "plksr-tiny": {"num_blocks": 1, "width": 16},
    "rcan": {"num_groups": 1, "num_blocks": 1},
    "rcan-realsr": {"num_groups": 1, "num_blocks": 1},
    "rdn": {"num_blocks": 2, "num_layers": 2, "width": 8, "growth": 8},
    "rdn-denoise": {"num_blocks": 2, "num_layers": 2, "width": 8, "growth": 8},
    "rdn-denoise-grey": {"num_blocks": 2, "num_layers": 2, "width": 8, "growth": 8},
    "ridnet": {"width": 8, "reduction": 4},
    "ridnet-grey": {"width": 8, "reduction": 4},
    "rlfn": {"num_blocks": 1},
    "rlfn-ntire": {"num_blocks": 1},
    "rlfn-s": {"num_blocks": 1},
    "rnan": {"num_groups": 3, "width": 8},
    "rnan-grey": {"num_groups": 3, "width": 8},
    "rpcnn": {"width": 8, "window": 3},
    "rpcnn-grey": {"width": 8, "window": 3},
    "safmn": {"num_blocks": 1},
    "safmn-l": {"num_blocks": 1, "width": 16},
    "san": {"num_groups": 1, "num_blocks": 1},
    "smfanet": {"num_blocks": 1},
    "smfanet-plus": {"num_blocks": 1},
    "span": {"num_blocks": 2, "width": 16},
    "span-s": {"num_blocks": 1},
    "srresnet": {"num_blocks": 1},
    "srresnet-realsr": {"num_blocks": 1},
    "swinir-light": {"num_groups": 1, "num_blocks": 2},
    "vdsr": {"num_layers": 3},
    "vdsr-y": {"num_layers": 3},
}
# Algorithms that learn nothing, and can neither be compiled nor exported; see `test_classical.py`.
CLASSICAL = {"bm3d", "bm3d-colour", "wnnm", "wnnm-colour"}
NETWORKS = [entry for entry in entries() if entry.name not in CLASSICAL]
CASES = [(entry.name, scale) for entry in NETWORKS for scale in entry.scales]
NAMES = [(entry.name, entry.scales[0]) for entry in NETWORKS]


def build(name: str, scale: int, *, sigma: bool = False, seed: int = 0) -> Network:
    """Build a small network of a registered name, with random weights, in evaluation mode."""
    torch.manual_seed(seed)
    network = create(name, scale=scale, **REDUCED.get(name, {}))
    return (with_sigma(network, width=8, depth=1) if sigma else network).eval()


def one_of_each_class() -> list[tuple[str, int]]:
    """Return one name and scale for each class; the other names differ in settings alone."""
    with torch.device("meta"):
        classes = {type(build(name, scale)): (name, scale) for name, scale in NAMES[::-1]}
    return list(classes.values())[::-1]


def released(network: Network) -> dict[str, Tensor]:
    """Return the weights as a released file holds them: with the mean shift of EDSR's authors."""
    value_range = network.build_spec.settings.get("value_range", 1.0)
    eye, mean = torch.eye(3).view(3, 3, 1, 1), value_range * torch.tensor(RGB_MEAN)
    shift = {"sub_mean.weight": eye, "sub_mean.bias": -mean}
    return {**shift, **weights_of(network), "add_mean.weight": eye, "add_mean.bias": mean}


def recognised_names(state: dict[str, Tensor]) -> list[str]:
    """Return the names that the recognisers of all families give a state dict."""
    recognisers = dict.fromkeys(entry.recognise for entry in entries() if entry.recognise)
    answers = [recognise(state) for recognise in recognisers]
    return [answer[0] for answer in answers if answer]


def image_for(network: Network, height: int, width: int, *, num_images: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(num_images, network.in_channels, height, width, generator=generator)


def image_and_level(network: Network, height: int, width: int) -> tuple[Tensor, dict[str, float]]:
    """Return an image for `predict`, and the noise level as an option where one is needed."""
    image = image_for(network, height, width)
    if not network.takes_noise_level:
        return image, {}
    return image[:, :-1], {"noise_std": 25.0}


def check_size(network: Network, height: int, width: int) -> None:
    degraded = image_for(network, height, width)
    with torch.inference_mode():
        prediction = network(degraded)
    expected = (1, network.out_channels, height * network.scale, width * network.scale)
    assert prediction.mean.shape == prediction.sigma.shape == expected
    assert prediction.mean.isfinite().all()
    assert ((prediction.sigma > 0) & (prediction.sigma < 1)).all()


def check_gradients(name: str, scales: tuple[int, ...]) -> None:
    """Every parameter learns, at one of the scales and with one of a few random weights.

    Some networks carry the upsamplers of all scales, and small layers may start with dead units.
    """
    idle: set[str] | None = None
    for seed, scale in itertools.product(range(4), scales):
        without = idle_parameters(build(name, scale, sigma=True, seed=seed))
        idle = without if idle is None else idle & without
        if not idle:
            return
    raise AssertionError(f"no gradient reaches {sorted(idle or ())}")


def idle_parameters(network: Network) -> set[str]:
    """Name the parameters without a gradient; even a single pixel must give finite ones."""
    network.train()
    for height, width in ((1, 1), (13, 11)):
        network.zero_grad()
        mean, sigma = network(image_for(network, height, width, num_images=2))
        torch.cat((mean, sigma)).square().sum().backward()
        gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
        infinite = [k for k, g in gradients.items() if g is not None and not g.isfinite().all()]
        assert not infinite, f"{height}x{width} pixels give no finite gradient for {infinite}"
    return {name for name, gradient in gradients.items() if gradient is None or not gradient.any()}


def check_state_round_trip(network: Network, other: Network) -> None:
    """Weights saved from one network make another one, built with other weights, the same."""
    degraded = image_for(network, 13, 11)
    buffer = io.BytesIO()
    torch.save(network.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer, weights_only=True), strict=True)
    with torch.inference_mode():
        for ours, theirs in zip(network(degraded), other(degraded), strict=True):
            assert torch.equal(ours, theirs)


def check_sigma_keeps_mean(base: Network) -> None:
    degraded = image_for(base, 13, 11)
    network = with_sigma(base, width=8, depth=1).eval()
    with torch.inference_mode():
        alone, beside, after = base(degraded), network(degraded), mean_only(network)(degraded)
    assert alone.sigma is None
    assert after.sigma is None
    assert torch.equal(alone.mean, beside.mean)
    assert torch.equal(alone.mean, after.mean)


def check_compiles(network: Network) -> None:
    """One graph without breaks; that it holds for other sizes too, the export shows."""
    torch.compiler.reset()
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    degraded = image_for(network, 13, 11)
    with torch.no_grad():
        assert_close(compiled(degraded), network(degraded))


def check_channels_last(network: Network) -> None:
    degraded = image_for(network, 13, 11, num_images=2)
    with torch.inference_mode():
        expected = network(degraded)
        network.to(memory_format=torch.channels_last)
        assert_close(network(degraded.to(memory_format=torch.channels_last)), expected)


def check_bfloat16(network: Network) -> None:
    degraded = image_for(network, 13, 11)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        mean, sigma = network(degraded)
    assert mean.isfinite().all()
    assert sigma.isfinite().all()
    assert sigma.dtype == torch.float32


def check_receptive_radius(network: Network) -> None:
    """The stated radii are what the gradient shows, for features, mean and sigma."""
    base = mean_only(network)
    assert measure_receptive_radius(base) == base.receptive_radius
    assert measure_receptive_radius(base, of="features") == base.feature_receptive_radius
    # The radius of the branch adds two that are each rounded up, so that it may be one too large.
    measured = measure_receptive_radius(network, of="sigma")
    assert measured <= network.receptive_radius <= max(measured + 1, base.receptive_radius)


def assert_close(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    """Equal but for the order of sums, measured by the largest value."""
    for ours, theirs in zip(actual, expected, strict=True):
        tolerance = 1e-5 * theirs.abs().max().item()
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)
