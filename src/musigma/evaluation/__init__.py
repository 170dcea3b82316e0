"""Measuring: named protocols, a value per image, and records from which tables are made."""

from musigma.evaluation.calibrate import calibrate
from musigma.evaluation.evaluate import Evaluation, evaluate, evaluate_model
from musigma.evaluation.protocol import (
    Protocol,
    denoising,
    protocol_for,
    restoration,
    super_resolution,
)
from musigma.evaluation.record import Record, load_record, provenance
from musigma.evaluation.restored_pairs import RestoredPair, restored_pairs

__all__ = [
    "Evaluation",
    "Protocol",
    "Record",
    "RestoredPair",
    "calibrate",
    "denoising",
    "evaluate",
    "evaluate_model",
    "load_record",
    "protocol_for",
    "provenance",
    "restoration",
    "restored_pairs",
    "super_resolution",
]
