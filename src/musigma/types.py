"""The few names that every layer shares: what a model returns, and the errors a user may meet."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image as PilImage
    from torch import Tensor


def _in_short(values: "Tensor | None") -> str:
    if values is None:
        return "None"
    return f"<{tuple(values.shape)}, mean {float(values.detach().float().mean()):.3g}>"


class Prediction(NamedTuple):
    """A restored image and how far each of its values may be off.

    Attributes:
        mean: The restored image, ``(N, C, H, W)``, float, in ``[0, 1]`` up to overshoot.
        sigma: The predicted absolute error in the same shape and units, or ``None`` for a network
            without a sigma branch.
    """

    mean: "Tensor"
    sigma: "Tensor | None" = None

    def __repr__(self) -> str:
        """What a Python prompt shows: shapes and means instead of thousands of values.

        Example:
            >>> import torch
            >>> Prediction(torch.full((1, 3, 4, 5), 0.5))
            Prediction(mean=<(1, 3, 4, 5), mean 0.5>, sigma=None)
        """
        return f"Prediction(mean={_in_short(self.mean)}, sigma={_in_short(self.sigma)})"

    def to_uint8(self) -> "NDArray[np.uint8]":
        """Return the mean as an array of bytes: ``(H, W, C)``, or ``(N, H, W, C)`` of a batch.

        Example:
            >>> import torch
            >>> Prediction(torch.full((1, 3, 4, 5), 0.5)).to_uint8().shape
            (4, 5, 3)
        """
        levels = self.mean.detach().float().cpu().clamp(0, 1) * 255 + 0.5
        array = levels.floor().byte().permute(0, 2, 3, 1).contiguous().numpy()
        return array[0] if len(array) == 1 else array

    def to_pil(self) -> "PilImage":
        """Return the mean of one image as a PIL image of mode L or RGB.

        Example:
            >>> import torch
            >>> Prediction(torch.full((1, 1, 4, 5), 0.5)).to_pil()  # doctest: +ELLIPSIS
            <PIL.Image.Image image mode=L size=5x4 at ...>
        """
        from PIL import Image

        if len(self.mean) != 1:
            text = f"a PIL image holds one image, and this is a batch of {len(self.mean)}"
            raise ImageError(f"{text}; use to_uint8")
        array = self.to_uint8()
        return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


class MusigmaError(Exception):
    """Something the user can put right; commands print it as one line and exit with a code.

    Texts name arguments of Python functions in backticks, such as `noise_std`; commands print them
    as options, such as ``--noise-std``.
    """


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

    name = name[:100]  # the time grows with the square of the length
    close = difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(repr(c) for c in close) + "?"
    return "known: " + ", ".join(sorted(known))


def no_scale(name: str, scales: tuple[int, ...], asked: object) -> ConfigError:
    """Return the error of a zoom factor for which something does not exist.

    Args:
        name: Of the network, the weights or the file.
        scales: The factors that it exists for.
        asked: What was asked for.

    Example:
        >>> str(no_scale("photo", (1, 2, 4), 3))
        'photo exists for scale 1, 2 or 4, not 3'
    """
    return ConfigError(f"{name} exists for scale {alternatives(scales)}, not {short_repr(asked)}")


def alternatives(numbers: tuple[int, ...]) -> str:
    """Return numbers to choose from, as a text.

    Example:
        >>> alternatives((1, 2, 4)), alternatives((3,))
        ('1, 2 or 4', '3')
    """
    *others, last = map(str, numbers)
    return f"{', '.join(others)} or {last}" if others else last


def shortened(text: str, length: int = 80) -> str:
    """Return a text of limited length, with signs that a terminal would obey made visible.

    Example:
        >>> shortened("width"), shortened("x" * 100, 10)
        ('width', 'xxxxxxx...')
    """
    text = text if len(text) <= length else f"{text[: length - 3]}..."
    return text if text.isprintable() else ascii(text)[1:-1]


def short_repr(value: object, length: int = 80) -> str:
    """Return the `repr` of a value, of limited length.

    Example:
        >>> short_repr("width"), short_repr([1] * 100, 10)
        ("'width'", '[1, 1, ...')
    """
    if isinstance(value, str):
        return repr(value if len(value) <= length else f"{value[: length - 3]}...")
    try:
        return shortened(repr(value), length)
    except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
        return f"a {type(value).__name__} that is too large to print"


def first_line(error: BaseException, length: int = 200) -> str:
    r"""Return the first line of an error's text, or its type where it has none, not too long.

    Example:
        >>> first_line(ValueError("no such width\nat alloc.cpp:127"))
        'no such width'
    """
    lines = str(error).strip().splitlines()
    return shortened(lines[0] if lines else type(error).__name__, length)
