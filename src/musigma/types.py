"""The few names that every layer shares: what a model returns, and the errors a user may meet."""

from typing import NamedTuple

from torch import Tensor


class Prediction(NamedTuple):
    """A restored image and how far each of its values may be off.

    Attributes:
        mean: The restored image, ``(N, C, H, W)``, float, in ``[0, 1]`` up to overshoot.
        sigma: The predicted absolute error in the same shape and units, or ``None`` for a network
            without a sigma branch.
    """

    mean: Tensor
    sigma: Tensor | None = None


class MusigmaError(Exception):
    """Something the user can put right; commands print it as one line and exit with a code."""


class ImageError(MusigmaError, ValueError):
    """A picture that cannot be read, written or restored."""


class WeightsError(MusigmaError, ValueError):
    """A weights file that cannot be read or does not fit its network."""


class DataError(MusigmaError, ValueError):
    """A data set or folder that is missing or does not hold what it should."""


class ConfigError(MusigmaError, ValueError):
    """A setting, name or recipe that does not exist or does not make sense."""


def nearest(name: str, known: "list[str] | tuple[str, ...]") -> str:
    """Return the end of an error line: the nearest known names, or all of them.

    Example:
        >>> nearest("edsr-basline", ["bicubic", "edsr-baseline"])
        "did you mean 'edsr-baseline'?"
        >>> nearest("zzz", ["a", "b"])
        'known: a, b'
    """
    import difflib

    close = difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(repr(c) for c in close) + "?"
    return "known: " + ", ".join(sorted(known))
