"""Metrics over a data set in fixed memory: `update` for every batch, then `compute`."""

from musigma.uncertainty.metrics.all_metrics import (
    HIGHER_IS_BETTER,
    ConstantSigma,
    UncertaintyMetrics,
)
from musigma.uncertainty.metrics.base import Metric
from musigma.uncertainty.metrics.intervals import (
    Intervals,
    IntervalScore,
    Reliability,
    ReliabilityCurve,
)
from musigma.uncertainty.metrics.per_image_mean import ImageMean
from musigma.uncertainty.metrics.sparsification import Sparsification, SparsificationCurve

__all__ = [
    "HIGHER_IS_BETTER",
    "ConstantSigma",
    "ImageMean",
    "IntervalScore",
    "Intervals",
    "Metric",
    "Reliability",
    "ReliabilityCurve",
    "Sparsification",
    "SparsificationCurve",
    "UncertaintyMetrics",
]
