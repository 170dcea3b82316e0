"""Losses as PyTorch modules that add up: ``ExpectedL1() + 0.01 * SigmaL1()``.

Each module takes a prediction and the true image and returns a scalar. `parse` reads the same sum
from the text of a recipe, and `str` writes it. The maths is in `musigma.functional.objectives`.

    >>> import torch
    >>> from musigma import Prediction, losses
    >>> loss = losses.ExpectedL1() + 0.01 * losses.SigmaL1()
    >>> str(loss)
    'expected_l1 + 0.01 * sigma_l1'
    >>> mean, sigma, target = torch.rand(3, 1, 3, 4, 5)
    >>> loss(Prediction(mean, sigma), target).shape
    torch.Size([])
"""

from musigma.losses.base import Loss, LossSum, PixelLoss
from musigma.losses.pixel_losses import (
    L1,
    L2,
    BetaNLL,
    Charbonnier,
    Distillation,
    Edge,
    ExpectedL1,
    ExpectedL1ClosedForm,
    FixedSigma,
    Fourier,
    GaussianNLL,
    HardL1,
    LaplaceNLL,
    LearnedSigma,
    SigmaL1,
    SigmaL2,
    SigmaQuantile,
    SigmaVariance,
    UDLStep1,
    UDLStep2,
)
from musigma.losses.registry import create, names, register
from musigma.losses.text import Objective, parse, phases

__all__ = [
    "L1",
    "L2",
    "BetaNLL",
    "Charbonnier",
    "Distillation",
    "Edge",
    "ExpectedL1",
    "ExpectedL1ClosedForm",
    "FixedSigma",
    "Fourier",
    "GaussianNLL",
    "HardL1",
    "LaplaceNLL",
    "LearnedSigma",
    "Loss",
    "LossSum",
    "Objective",
    "PixelLoss",
    "SigmaL1",
    "SigmaL2",
    "SigmaQuantile",
    "SigmaVariance",
    "UDLStep1",
    "UDLStep2",
    "create",
    "names",
    "parse",
    "phases",
    "register",
]
