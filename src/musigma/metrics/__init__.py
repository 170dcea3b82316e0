"""Metrics over a data set in fixed memory: ``update(mean, target, sigma)``, then ``compute()``."""

from musigma.metrics.image_mean import ImageMean
from musigma.metrics.intervals import Intervals, IntervalScore, Reliability, ReliabilityCurve
from musigma.metrics.sparsification import Sparsification, SparsificationCurve
from musigma.metrics.uncertainty import ConstantSigma, UncertaintyMetrics

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
