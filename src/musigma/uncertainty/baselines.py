"""Baselines of the sigma branch: other ways to predict sigma, each as a network.

They can be used wherever a network with a sigma branch can: tiles, engines, calibration,
evaluation. `musigma.evaluation.baseline_models` makes them from loaded weights.

===================== ================== ===========================================================
`WithConstantSigma`   1 forward pass     the same sigma for every value
`SpreadOverViews`     8                  standard deviation over the flips and quarter turns
`MeanOverViews`       8                  mean over them of the sigma of the network
`Ensemble`            1 for each member  standard deviation of the mixture of all members
`mc_dropout`          1 for each draw    the same for a network under draws of its dropout
===================== ================== ===========================================================
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from musigma.functional.geometry import NUM_DIHEDRAL, dihedral, dihedral_inverse
from musigma.networks import BuildSpec, Network, mean_only
from musigma.networks.dropout import sample_dropout_mask
from musigma.prediction.self_ensemble import mean_over_views
from musigma.types import ConfigError, Prediction


class Baseline(Network):
    """A network around another network of the same scale and channels.

    Attributes:
        num_passes: Number of forward passes of a prediction.
    """

    num_passes: int = 1

    def __init__(self, base: Network) -> None:
        super().__init__()
        self.info = base.info
        self.has_sigma = True
        self.base = base

    @property
    def build_spec(self) -> BuildSpec:
        """How to build the network inside again."""
        return self.base.build_spec

    def features(self, degraded: Tensor) -> Tensor:
        """Return the features of the network inside."""
        return self.base.features(degraded)

    def reconstruct(self, features: Tensor, degraded: Tensor) -> Tensor:
        """Return the mean of the network inside."""
        return self.base.reconstruct(features, degraded)


class WithConstantSigma(Baseline):
    """The baseline of the paper: the same sigma for every value of every image.

    Args:
        base: The network whose mean is kept, to the bit; its sigma branch is not used.
        sigma: The constant, such as the mean absolute error on a set, `ConstantSigma`.
    """

    def __init__(self, base: Network, sigma: float) -> None:
        if not 0 < sigma < math.inf:
            raise ConfigError(f"a constant sigma is positive, not {sigma}")
        super().__init__(mean_only(base))
        self.sigma = sigma

    def forward(self, degraded: Tensor) -> Prediction:
        """Restore a batch of images."""
        mean = self.base(degraded).mean
        return Prediction(mean, torch.full_like(mean, self.sigma, dtype=torch.float32))


class SpreadOverViews(Baseline):
    """Test-time augmentation: mean and standard deviation over the eight flips and quarter turns.

    A sigma branch is not used. Tiles give what the whole image gives, except for networks with a
    `size_multiple`.
    """

    num_passes = NUM_DIHEDRAL

    def __init__(self, base: Network) -> None:
        super().__init__(mean_only(base))

    def forward(self, degraded: Tensor) -> Prediction:
        """Restore a batch of images eight times."""
        return mixture(
            Prediction(dihedral_inverse(self.base(dihedral(degraded, k).contiguous()).mean, k))
            for k in range(NUM_DIHEDRAL)
        )


class MeanOverViews(Baseline):
    """The self-ensemble: the network's own mean and sigma, each averaged over the eight views.

    It is what eight passes give a network that has a sigma branch already. As a network it can be
    calibrated, which `musigma.prediction.self_ensemble.SelfEnsemble` cannot.
    """

    num_passes = NUM_DIHEDRAL

    def __init__(self, base: Network) -> None:
        if not base.has_sigma:
            raise ConfigError("the network has no sigma to average; tta takes its spread instead")
        super().__init__(base)

    def forward(self, degraded: Tensor) -> Prediction:
        """Restore a batch of images eight times."""
        return mean_over_views(self.base, degraded)


class Ensemble(Baseline):
    """Several networks for the same task; `mixture` joins their predictions.

    Example:
        >>> from musigma.networks import create
        >>> members = [create("espcn", scale=2).eval() for _ in range(3)]
        >>> mean, sigma = Ensemble(members)(torch.rand(1, 3, 7, 5))
        >>> tuple(mean.shape) == tuple(sigma.shape) == (1, 3, 14, 10)
        True
    """

    def __init__(self, members: Sequence[Network]) -> None:
        if len(members) < 2:
            raise ConfigError(f"an ensemble has two members or more, got {len(members)}")
        super().__init__(members[0])
        for member in members:
            if _task(member) != _task(members[0]):
                raise ConfigError(
                    "the members of an ensemble share scale, input and output channels; got "
                    f"{_task(members[0])} and {_task(member)}"
                )
        self.members = nn.ModuleList(members)
        self.num_passes = len(members)
        self.info = replace(
            self.info,
            receptive_radius=_largest(member.receptive_radius for member in members),
            feature_receptive_radius=_largest(
                member.feature_receptive_radius for member in members
            ),
            size_multiple=math.lcm(*(member.size_multiple for member in members)),
        )

    def forward(self, degraded: Tensor) -> Prediction:
        """Restore a batch of images by every member."""
        return mixture(member(degraded) for member in self.members)


def mc_dropout(network: Network, *, num_samples: int, seed: int = 0) -> Ensemble:
    """Return the ensemble of the networks that draws of a network's dropout leave.

    The draws are made once, so that the same image gives the same prediction again.

    Args:
        network: Trained with dropout, such as the setting `dropout` of EDSR.
        num_samples: Number of draws, and of forward passes of a prediction.
        seed: Seed of the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    return Ensemble([sample_dropout_mask(network, generator) for _ in range(num_samples)])


def mixture(predictions: Iterable[Prediction]) -> Prediction:
    r"""Return mean and standard deviation of an equal mixture of predictions.

    .. math:: \mu = \frac1K \sum_k \mu_k, \qquad
        \sigma^2 = \frac1K \sum_k \sigma_k^2 + \frac1K \sum_k (\mu_k - \mu)^2

    Each sigma is read as a standard deviation; a prediction without sigma counts as zero. No more
    than two predictions are held at a time.

    Example:
        >>> dark, light = torch.full((1, 1, 1, 1), 0.2), torch.full((1, 1, 1, 1), 0.8)
        >>> [round(float(part), 4) for part in mixture([Prediction(dark), Prediction(light)])]
        [0.5, 0.3]
    """
    remaining: Iterator[Prediction] = iter(predictions)
    mean, sigma = next(remaining)
    variance = torch.zeros_like(mean) if sigma is None else sigma.square()
    # Welford's update: the difference of two sums of squares would be lost in rounding.
    for count, (other, sigma) in enumerate(remaining, start=2):
        change = other - mean
        mean = mean + change / count
        added = change * (other - mean)
        if sigma is not None:
            added = added + sigma.square()
        variance = variance + (added - variance) / count
    return Prediction(mean, variance.sqrt())


def _task(network: Network) -> tuple[int, int, int]:
    return network.scale, network.in_channels, network.out_channels


def _largest(radii: Iterable[int | None]) -> int | None:
    known = list(radii)
    return None if None in known else max(radius for radius in known if radius is not None)
