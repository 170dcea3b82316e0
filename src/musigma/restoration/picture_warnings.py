"""What users should know about a result: warnings, and the lines of its page."""

from musigma.images.image_io import Raster
from musigma.images.science.value_range import SMALL_SHARE
from musigma.restoration.picture_job import Job


def page_info(job: Job) -> dict[str, str]:
    """Return what the page of a result says about it, as labels and texts."""
    info = {"Model": job.model.name}
    level = job.options.noise_std
    if level is not None and not job.options.estimate_noise:
        info["Noise level"] = f"{level:.3g} of 255"
    info["Noise"] = f"{job.noise}, estimated from the picture"
    if warnings := warnings_of(job):
        info["Warning"] = " ".join(warnings)
    return info


def warnings_of(job: Job) -> list[str]:
    """Return what the user should know about a result, in whole sentences."""
    meta, options, warnings = job.picture.meta, job.options, []
    if meta.num_frames > 1 and options.frame is None:
        warnings.append(
            f"It holds {meta.num_frames} frames, and the first one was used; --frame chooses."
        )
    if meta.format == "TIFF" and meta.bits == 16 and meta.channels == 1:
        warnings += _range_warnings(job.picture.colors)
    if options.estimate_noise and not job.noise.is_white:
        warnings.append(
            f"The noise, of about {job.noise.std:.3g} levels, is not white: JPEG or smoothing has "
            f"joined it into grains. {job.model.name} is made for white noise and may leave some "
            "of it; the weights photo need no noise level (leave --noise-std and --model out)."
        )
    if options.estimate_noise and job.noise.left_out:
        warnings.append(
            f"The picture has noise of {job.noise.left_out}, which the estimate of "
            f"{job.noise.level} leaves out: no weights of musigma are made for such noise."
        )
    if options.estimate_noise and job.noise.is_white and job.noise.has_blocks:
        warnings.append(
            f"The picture has JPEG blocks. JPEG removes weak noise together with fine details, so "
            f"that the noise may be stronger than the estimate of {job.noise.level}; the weights "
            "photo need no noise level (leave --noise-std and --model out)."
        )
    return warnings


def _range_warnings(samples: Raster) -> list[str]:
    """Say that measured values fill a small part of 16 bits, so that a network sees them dark."""
    highest, full_scale = samples.highest, samples.full_scale
    if highest >= SMALL_SHARE * full_scale:
        return []
    return [
        f"Its values reach {highest:g} of {full_scale}, so that the network sees a dark picture; "
        f"if they are measured values, --range 0,{highest:g} suits better."
    ]
