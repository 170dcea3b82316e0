"""Further damage, written down before the factor of a picture and the guard's later sums were made.

None of these kinds is in another list: no calibration was fitted on them, and no guard was shown
them. `studies.measurements.damage_rates` measures them beside those of
`studies.measurements.picture_damage`.
"""

from collections.abc import Mapping

import numpy as np
from PIL import Image, ImageFilter

from studies.measurements.picture_damage import (
    Array,
    Damage,
    Pair,
    Picture,
    Random,
    after,
    convolved,
    demosaiced,
    filtered,
    jpeg,
    levels,
    resized,
    sharpened,
    shrink,
    smoothed,
    to_picture,
    white,
)


def thresholded(picture: Picture, _: Random) -> Picture:
    """Return what is left when weak coefficients of overlapping cosine transforms are removed."""
    side, threshold = 8, 24.0
    k = np.arange(side)
    matrix = np.cos(np.pi * (2 * k + 1) * k[:, None] / (2 * side)) * np.sqrt(2 / side)
    matrix[0] /= np.sqrt(2)
    padded = np.pad(levels(picture), ((side, side), (side, side), (0, 0)), mode="reflect")
    total, count = np.zeros_like(padded), np.zeros_like(padded)
    for top in range(0, side, 4):
        for left in range(0, side, 4):
            rows, columns = (padded.shape[0] - top) // side, (padded.shape[1] - left) // side
            part = np.s_[top : top + rows * side, left : left + columns * side]
            blocks = padded[part].reshape(rows, side, columns, side, 3).transpose(0, 2, 4, 1, 3)
            spectrum = matrix @ blocks @ matrix.T
            keep = np.abs(spectrum) >= threshold
            keep[..., 0, 0] = True
            calm = (matrix.T @ (spectrum * keep) @ matrix).transpose(0, 3, 1, 4, 2)
            total[part] += calm.reshape(rows * side, columns * side, 3)
            count[part] += 1
    return to_picture((total / np.maximum(count, 1))[side:-side, side:-side])


def painted(picture: Picture, _: Random) -> Picture:
    """Return the mean of the calmest of the four squares around each pixel (Kuwahara)."""
    values, square = levels(picture), np.ones((3, 3))
    mean = convolved(values, square)
    spread = (convolved(values**2, square) - mean**2).sum(2)
    shifts = [(i, j) for i in (-1, 1) for j in (-1, 1)]
    means = np.stack([np.roll(mean, shift, (0, 1)) for shift in shifts])
    calmest = np.stack([np.roll(spread, shift, (0, 1)) for shift in shifts]).argmin(0)
    return to_picture(np.take_along_axis(means, calmest[None, ..., None], 0)[0])


def squeezed(picture: Picture, _: Random) -> Picture:
    """Return a frame that was stored with three quarters of its width, as much video is."""
    narrow = resized(picture, 0.75 * picture.width, picture.height)
    return resized(narrow, *picture.size)


def soft_corners(picture: Picture, _: Random) -> Picture:
    """Return what a simple lens gives: sharp in the middle, soft in the corners."""
    values = levels(picture)
    rows, columns = (np.linspace(-1, 1, side) for side in values.shape[:2])
    share = np.clip(rows[:, None] ** 2 + columns**2, 0, 1)[..., None]
    return to_picture((1 - share) * values + share * smoothed(values, 1.5))


def few_colours(picture: Picture, _: Random) -> Picture:
    """Return brightness in full and colours at a quarter of the width, as video tapes have them."""
    luma, *chroma = picture.convert("YCbCr").split()
    narrow = (resized(plane, picture.width / 4, picture.height) for plane in chroma)
    wide = (resized(plane, *picture.size, Image.Resampling.BILINEAR) for plane in narrow)
    return Image.merge("YCbCr", (luma, *wide)).convert("RGB")


def half_a_pixel(picture: Picture, _: Random) -> Picture:
    """Return a picture that was moved by half a pixel down and back, bilinearly."""
    values = levels(picture)
    down = (values + np.roll(values, 1, 0)) / 2
    return to_picture((down + np.roll(down, -1, 0)) / 2)


def less_variation(picture: Picture, _: Random) -> Picture:
    """Return a picture of less total variation: fifty steps downhill from it."""
    start, values = levels(picture), levels(picture)
    for _step in range(50):
        down, right = (np.roll(values, -1, axis) - values for axis in (0, 1))
        length = np.sqrt(down**2 + right**2 + 4)
        down, right = down / length, right / length
        divergence = down - np.roll(down, 1, 0) + right - np.roll(right, 1, 1)
        values = values + 0.5 * (divergence - 0.06 * (values - start))
    return to_picture(values)


def deconvolved(picture: Picture, _: Random) -> Picture:
    """Return what twelve steps of Richardson and Lucy make of a slightly blurred picture."""
    seen = np.maximum(np.round(smoothed(levels(picture), 0.9)), 1)
    values = seen
    for _step in range(12):
        values = values * smoothed(seen / np.maximum(smoothed(values, 0.9), 1), 0.9)
    return to_picture(values)


def frosted(picture: Picture, random: Random) -> Picture:
    """Return each pixel from one of its neighbours, as behind rough glass."""
    values = levels(picture)
    height, width = values.shape[:2]
    rows, columns = np.indices((height, width))
    steps = random.integers(-1, 2, (2, height, width)) * (random.random((height, width)) < 0.4)
    return to_picture(
        values[np.clip(rows + steps[0], 0, height - 1), np.clip(columns + steps[1], 0, width - 1)]
    )


def averaged_frames(truth: Picture, scale: int, random: Random) -> Pair:
    """Return the mean of four noisy frames that a hand moved by up to half a pixel."""
    values, frames = levels(truth), []
    for _frame in range(4):
        shift = tuple(int(v) for v in random.integers(-scale // 2, scale // 2 + 1, 2))
        frame = levels(shrink(to_picture(np.roll(values, shift, (0, 1))), scale))
        frames.append(frame + random.normal(0, 8, frame.shape))
    return Pair(truth, to_picture(np.mean(frames, 0)))


def stretched(truth: Picture, scale: int, _: Random) -> Pair:
    """Return a picture whose upper edge was pulled outwards, bilinearly, and the truth likewise."""

    def pull(picture: Picture, method: Image.Resampling) -> Picture:
        width, height = picture.size
        corners = (0.06 * width, 0, 0, height, width, height, 0.94 * width, 0)
        return picture.transform(picture.size, Image.Transform.QUAD, corners, method)

    degraded = pull(shrink(truth, scale), Image.Resampling.BILINEAR)
    return Pair(pull(truth, Image.Resampling.BICUBIC), degraded)


def uneven_light(values: Array) -> Array:
    """Return values after a curve that lifts shadows, as programs do."""
    return np.asarray(255 * (values / 255) ** 0.6)


def lifted_shadows(truth: Picture, scale: int, random: Random) -> Pair:
    """Return a noisy JPEG whose shadows a program lifted, and the truth likewise."""
    degraded = jpeg(85)(white(3)(shrink(truth, scale), random), random)
    return Pair(to_picture(uneven_light(levels(truth))), to_picture(uneven_light(levels(degraded))))


FRESH: Mapping[str, Damage] = {
    "noise 8, weak coefficients removed": after(white(8), thresholded),
    "Kuwahara": after(painted),
    "three quarters of the width": after(squeezed),
    "soft corners": after(soft_corners),
    "colours at a quarter of the width": after(few_colours),
    "moved by half a pixel and back": after(half_a_pixel),
    "noise 8, less variation": after(white(8), less_variation),
    "Richardson-Lucy": after(deconvolved),
    "behind rough glass": after(frosted),
    "mean of four frames": averaged_frames,
    "stretched": stretched,
    "lifted shadows": lifted_shadows,
    "JPEG 30, blurred by 0.6": after(jpeg(30), filtered(ImageFilter.GaussianBlur(0.6))),
    "small camera": after(
        demosaiced(6), filtered(ImageFilter.MedianFilter(3)), sharpened(120), jpeg(88)
    ),
}
