"""Measuring: named protocols, one value per image, records from which tables are made."""

from musigma.evaluation.evaluate import Evaluation, evaluate, evaluate_model
from musigma.evaluation.protocol import Protocol, denoising, super_resolution
from musigma.evaluation.record import Record, load_record, provenance

__all__ = [
    "Evaluation",
    "Protocol",
    "Record",
    "denoising",
    "evaluate",
    "evaluate_model",
    "load_record",
    "provenance",
    "super_resolution",
]
