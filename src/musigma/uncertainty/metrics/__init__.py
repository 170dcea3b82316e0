"""Metrics over a data set in fixed memory: ``update(mean, target, sigma)``, then ``compute()``."""

from musigma.uncertainty.metrics.all_metrics import ConstantSigma, UncertaintyMetrics
from musigma.uncertainty.metrics.intervals import (
    Intervals,
    IntervalScore,
    Reliability,
    ReliabilityCurve,
)
from musigma.uncertainty.metrics.per_image_mean import ImageMean
from musigma.uncertainty.metrics.sparsification import Sparsification, SparsificationCurve

__all__ = [
    "ConstantSigma",
    "ImageMean",
    "IntervalScore",
    "Intervals",
    "Reliability",
    "ReliabilityCurve",
    "Sparsification",
    "SparsificationCurve",
    "UncertaintyMetrics",
]
