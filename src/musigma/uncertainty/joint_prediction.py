"""Restore a picture together with the joint distribution of its errors, and draw from it."""

from typing import Any, Self

import torch
from torch import Tensor

from musigma.functional.color import match_channels
from musigma.images.conversion import ImageLike, as_batch
from musigma.networks import Network
from musigma.networks.joint_head import JointHead, JointNetwork, with_noise
from musigma.networks.sigma_branch import WithSigma
from musigma.prediction.predict import predict
from musigma.types import ConfigError, Prediction
from musigma.uncertainty.calibration import Calibration
from musigma.uncertainty.consistency import made_consistent
from musigma.uncertainty.given_input import ErrorsGivenInput
from musigma.uncertainty.joint import Correlation, JointErrors, StationaryErrors
from musigma.uncertainty.mixture import MixtureErrors
from musigma.uncertainty.quantities import (
    JointCalibration,
    Quantity,
    Region,
    expected_sum,
    region_weights,
    size_of,
)


class JointPrediction(Prediction):
    """A prediction that also knows how its errors are correlated.

    Attributes:
        errors: The joint distribution of the errors.
        joint: The calibration of quantities.
        coverage: Of the intervals, where nothing else is said.
    """

    errors: JointErrors
    joint: JointCalibration
    coverage: float

    def __new__(
        cls, prediction: Prediction, errors: JointErrors, joint: JointCalibration, coverage: float
    ) -> Self:
        """Add to a prediction what is known of its errors."""
        made = super().__new__(cls, *prediction)
        made.errors, made.joint, made.coverage = errors, joint, coverage
        return made

    def measure(self, weights: Tensor, *, coverage: float | None = None) -> Quantity:
        """Return the weighted sum of the values of the restored picture, with its interval.

        Where the input is known to have been shrunk by bicubic, the value allows for what the input
        says about the error of the sum, so that it may differ a little from that of the picture.

        Args:
            weights: ``(C, H, W)`` in pixels of the result: a profile, a difference of regions, ...
            coverage: One of `JointCalibration.coverages`; by default that of the calibration.
        """
        std = self.errors.variance_of(weights) ** 0.5
        share = self.coverage if coverage is None else coverage
        half_width = self.joint.half_width(std, share, size=size_of(weights))
        value = float((weights.double() * self.mean[0].double()).sum())
        value += expected_sum(self.errors, weights)
        return Quantity(value, value - half_width, value + half_width, share, std)

    def mean_over(
        self,
        region: Region,
        *,
        channel: int | None = None,
        minus: Region | None = None,
        coverage: float | None = None,
    ) -> Quantity:
        """Return the mean over a region of the restored picture, with its interval.

        The interval allows for errors that neighbors share. It was calibrated for boxes of 4 to 32
        pixels and profiles of 16 pixels, on held-out images.

        Args:
            region: A box as x, y, width, height in pixels of the result, or a mask ``(H, W)``.
            channel: The only channel that counts, from 0; by default the mean over all channels.
            minus: A region whose mean is subtracted.
            coverage: One of `JointCalibration.coverages`; by default that of the calibration.
        """
        shape = tuple(self.mean.shape[1:])
        weights = region_weights(shape, region, channel)
        if minus is not None:
            weights = weights - region_weights(shape, minus, channel)
        return self.measure(weights, coverage=coverage)


def predict_errors(
    network: Network,
    image: ImageLike,
    *,
    calibration: Calibration,
    fields: JointHead | Correlation | None,
    **options: Any,
) -> tuple[Prediction, JointErrors]:
    """Restore one picture, and return the joint distribution of its errors.

    Args:
        network: With a sigma branch.
        image: One picture as for `musigma.prediction.predict`.
        calibration: Of the network.
        fields: What says how errors are correlated: a joint head, or a fixed correlation.
        options: ``noise_std``, ``tile`` and ``memory`` as for `musigma.prediction.predict`.
    """
    degraded = match_channels(as_batch(image), network.in_channels - network.takes_noise_level)
    if len(degraded) != 1:
        raise ConfigError(
            f"joint errors are those of one picture, and this is a batch of {len(degraded)}"
        )
    errors: JointErrors
    if isinstance(fields, Correlation):
        prediction = predict(network, degraded, **options)
        errors = StationaryErrors(_std(calibration, prediction), fields)
    else:
        prediction, errors = _predict_mixture(network, fields, calibration, degraded, **options)
    if shrinks_by_bicubic(calibration, network.scale):
        mean = prediction.mean[0]
        errors = ErrorsGivenInput(errors, mean, degraded[0], network.scale)
    return prediction, errors


def _predict_mixture(
    network: Network,
    head: JointHead | None,
    calibration: Calibration,
    degraded: Tensor,
    **options: Any,
) -> tuple[Prediction, MixtureErrors]:
    if head is None or not isinstance(network, WithSigma):
        raise ConfigError("the weights have no joint head; load a weights file that has one")
    together = JointNetwork(network, head).eval()
    prediction, weights = together.split(predict(together, degraded, **options).mean)
    std = _std(calibration, prediction)
    weights = with_noise(weights, std[None])
    return prediction, MixtureErrors(std, weights[0], head.bank())


def _std(calibration: Calibration, prediction: Prediction) -> Tensor:
    if prediction.sigma is None:
        raise ConfigError("joint errors need a network with a sigma branch")
    return calibration.std(prediction.sigma)[0]


def shrinks_by_bicubic(calibration: Calibration, scale: int) -> bool:
    """Say whether a calibration is for inputs that bicubic shrinking made, and for no others."""
    return scale > 1 and (calibration.protocol or {}).get("degradation") == "bicubic"


def draw_pictures(
    prediction: JointPrediction, num_samples: int, *, seed: int, device: torch.device
) -> Tensor:
    """Draw pictures that the input may come from; arguments as for `musigma.Model.sample`.

    Args:
        prediction: The restored picture.
        num_samples: How many.
        seed: Of the random numbers.
        device: Where the noise is drawn and filtered.
    """
    errors = prediction.errors.to(device)
    generator = torch.Generator(errors.std.device).manual_seed(seed)
    drawn = errors.sample((num_samples + 1) // 2, generator)
    pairs = torch.stack([drawn, 2 * errors.shift - drawn], 1).flatten(0, 1)[:num_samples]
    samples = prediction.mean.to(pairs.device) + pairs
    if isinstance(errors, ErrorsGivenInput):
        return made_consistent(samples, errors.degraded[None], errors.scale).cpu()
    return samples.clamp(0, 1).cpu()
