"""The key of a training run: what links training records, evaluation records and weights files.

The digest of the weights links records whose weights still exist. The weights of most study runs
were not kept, so their records are linked by the description of the run instead. Evaluation records
and weights files carry that description, and so does the training record.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from musigma.evaluation.record import Record
from musigma.training.recipe import default_values

RENAMED = {"optimiser": "optimizer"}
"""Recipe keys that older weights files spell differently."""


def run_key(training: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a training description.

    Args:
        training: ``recipe``, ``seed``, ``steps``, ``seconds`` and ``commit``, as a weights file
            holds them under ``training``. Recipe keys that are absent count as their defaults.

    Example:
        >>> run = {"seed": 0, "steps": 9, "seconds": 1.5, "commit": "c"}
        >>> short = run_key(run | {"recipe": {"network": "edsr-baseline"}})
        >>> short == run_key(run | {"recipe": {"network": "edsr-baseline", "keep_mean": False}})
        True
    """
    stated = {RENAMED.get(key, key): value for key, value in training["recipe"].items()}
    recipe = json.loads(json.dumps(default_values())) | stated
    # Some files name their commit by its first seven digits only.
    commit = training["commit"][:7]
    parts = [recipe, *(training[name] for name in ("seed", "steps", "seconds")), commit]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def key_of_record(record: Record) -> str | None:
    """Return the key of the run that a record tells of, or `None` where it tells of none."""
    if record.kind == "training":
        return run_key(
            {
                "recipe": record.model["recipe"],
                "seed": record.seed,
                "steps": record.result["steps"],
                "seconds": record.result["seconds"],
                "commit": record.provenance["commit"],
            }
        )
    training = record.model.get("training")
    return run_key(training) if training else None
