"""When the promise of a calibration holds for a picture, and what to say where it does not."""

from typing import NamedTuple

from musigma.functional.noise import noise_of
from musigma.functional.picture_statistics import PictureStatistics
from musigma.images.image_io import ImageMeta
from musigma.restoration.options import Options
from musigma.uncertainty.calibration import Calibration
from musigma.uncertainty.guard import Reference, unlike

FLOAT32_ENGINES = ("torch", "onnx", "openvino")
"""Calibrations are fitted in float32. Other engines round more, so that no promise is made."""

_JPEG_FORMATS = ("JPEG", "TIFF")
_FORMAT_NAMES = {"WEBP": "lossy WebP", "TIFF": "TIFF with JPEG compression"}


class Promise(NamedTuple):
    """What the intervals of a picture promise.

    Attributes:
        text: The promise with its conditions, or `None` where nothing is promised.
        reason: Why nothing is promised, as the end of "... does not hold for this file: "; `None`
            where something is.
    """

    text: str | None
    reason: str | None

    def taken_back(self, reason: str) -> "Promise":
        """Return that nothing is promised, for this reason and those that there are already.

        Example:
            >>> Promise("90 % lie inside", None).taken_back("it was resized").reason
            'it was resized'
        """
        return Promise(None, f"{self.reason}; {reason}" if self.reason else reason)


def promise_for(
    calibration: Calibration,
    meta: ImageMeta,
    options: Options,
    statistics: PictureStatistics | None = None,
) -> Promise:
    """Return what the intervals of a picture promise under these options.

    Args:
        calibration: The calibration of the model.
        meta: What the file of the picture says; one channel where red, green and blue are equal.
        options: With the engine that runs and the noise level of this picture.
        statistics: What was measured in the picture. Where it is left out, the picture is not
            compared with those of the calibration.
    """
    reason = _reason_in_picture(calibration, meta, options)
    return _promise(calibration, options, statistics, reason)


def science_promise(
    calibration: Calibration,
    format_name: str,
    options: Options,
    statistics: PictureStatistics | None = None,
) -> Promise:
    """Return what the intervals of a scientific file promise: nothing, for most weights.

    Weights promise something only if the key ``formats`` of the data of their calibration names
    the format of the file.

    Args:
        calibration: The calibration of the model.
        format_name: Such as ``GeoTIFF``; one of those of `ScienceImage`.
        options: As for `promise_for`.
        statistics: As for `promise_for`.
    """
    reason = _reason_in_format(calibration, format_name)
    return _promise(calibration, options, statistics, reason)


def _promise(
    calibration: Calibration,
    options: Options,
    statistics: PictureStatistics | None,
    reason_in_file: str | None,
) -> Promise:
    """Return the promise, unless the file or anything else speaks against it."""
    reasons = (
        _reason_in_calibration(calibration),
        reason_in_file,
        _reason_in_arithmetic(options),
        _reason_in_noise(calibration, options),
        _reason_in_statistics(calibration, statistics, options),
    )
    reason = "; ".join(reason for reason in reasons if reason)
    return Promise(None, reason) if reason else Promise(calibration.promise, None)


def _reason_in_format(calibration: Calibration, format_name: str) -> str | None:
    if format_name == "picture" or format_name in (calibration.data or {}).get("formats", ()):
        return None
    if format_name == "array":
        return "it may hold measured values, and the model is calibrated on photographs"
    return "it holds measured values, and the model is calibrated on photographs"


def _reason_in_calibration(calibration: Calibration) -> str | None:
    if not calibration.has_guarantee:
        return f"the model is calibrated by {calibration.method}, which has no guarantee"
    if calibration.protocol is None:
        return "the weights do not say for which images they were calibrated"
    return None


def _reason_in_arithmetic(options: Options) -> str | None:
    if options.ensemble:
        return "the model is calibrated without --ensemble"
    if options.engine is not None and options.engine not in FLOAT32_ENGINES:
        return f"the model is calibrated in float32, and {options.engine} rounds more"
    return None


def _reason_in_noise(calibration: Calibration, options: Options) -> str | None:
    if options.noise_std is None:
        return None
    if options.estimate_noise:
        return "its noise level is an estimate, and the promise is for a known level"
    if not calibration.includes_noise_std(options.noise_std):
        return f"the model is not calibrated for the noise level {options.noise_std:.3g}"
    return None


def _reason_in_picture(calibration: Calibration, meta: ImageMeta, options: Options) -> str | None:
    num_channels = (calibration.protocol or {}).get("channels", meta.channels)
    if options.noise_std is not None and meta.channels < num_channels:
        return "it is gray, and the model is calibrated for noise in colors"
    return lossy_reason(calibration, meta.format) if meta.lossy else None


def lossy_reason(calibration: Calibration, format_name: str) -> str | None:
    """Say why nothing is promised for a picture that was stored with loss.

    Args:
        calibration: The calibration of the model.
        format_name: How the picture was stored, such as ``JPEG``.

    Returns:
        `None` where the calibration was fitted on pairs from disk, or on JPEG and it is one. Other
        codecs leave other artifacts, of which intervals fitted on JPEG hold fewer.
    """
    degradation = str((calibration.protocol or {}).get("degradation", ""))
    name = _FORMAT_NAMES.get(format_name, format_name)
    article = "an" if name == "AVIF" else "a"
    if degradation == "pairs":
        return None
    if "jpeg" not in degradation:
        return (
            f"it is {article} {name}, and the model is calibrated for pictures without JPEG "
            "artifacts"
        )
    if format_name in _JPEG_FORMATS:
        return None
    return f"it is {article} {name}, and the model is calibrated for JPEG"


def _reason_in_statistics(
    calibration: Calibration, statistics: PictureStatistics | None, options: Options
) -> str | None:
    if calibration.reference is None or statistics is None:
        return None
    reference = Reference.from_dict(calibration.reference)
    # A level that was estimated need not be compared with another estimate.
    told = noise_of(statistics).std if options.estimate_noise else options.noise_std
    sentences = unlike(reference, statistics, noise_std=told)
    clauses = [sentence[0].lower() + sentence[1:].rstrip(".") for sentence in sentences]
    return "; ".join(clauses) or None
