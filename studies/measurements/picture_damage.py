"""What programs and devices do to pictures beyond `musigma.degradations`, with Pillow and NumPy.

`DAMAGES` were looked at while the guard was built. `SEALED` were written down at the same time and
first measured when the guard was done. Each makes from a picture of 8 bits the truth and the input:
most return the truth as it came; some change what is shown (text, haze, a turn), and then the truth
shows the same without loss. Lengths are in pixels of the input.
"""

import io
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont

Array = NDArray[np.float64]
Picture = Image.Image
Random = np.random.Generator


class Pair(NamedTuple):
    """A picture and what is left of it."""

    truth: Picture
    degraded: Picture


Damage = Callable[[Picture, int, Random], Pair]
Change = Callable[[Picture, Random], Picture]


def shrink(picture: Picture, scale: float) -> Picture:
    """Return a picture shrunk by Pillow's bicubic kernel; by 1 it stays as it is."""
    return resized(picture, picture.width / scale, picture.height / scale)


def resized(
    picture: Picture,
    width: float,
    height: float,
    method: Image.Resampling = Image.Resampling.BICUBIC,
) -> Picture:
    """Return a picture of another size."""
    return picture.resize((round(width), round(height)), method)


def after(*changes: Change) -> Damage:
    """Return a damage to the shrunk picture: codecs, noise, filters of programs."""

    def make(truth: Picture, scale: int, random: Random) -> Pair:
        degraded = shrink(truth, scale)
        for change in changes:
            degraded = change(degraded, random)
        return Pair(truth, degraded)

    return make


def scene(draw: Change, *changes: Change) -> Damage:
    """Return a damage whose truth shows something else, such as text."""

    def make(truth: Picture, scale: int, random: Random) -> Pair:
        return after(*changes)(draw(truth, random), scale, random)

    return make


def both(change: Change, *lossy: Change) -> Damage:
    """Return a damage that changes truth and input alike, and the input by loss before."""

    def make(truth: Picture, scale: int, random: Random) -> Pair:
        degraded = after(*lossy)(truth, scale, random).degraded
        return Pair(change(truth, random), change(degraded, random))

    return make


def levels(picture: Picture) -> Array:
    """Return the values of a picture, ``(H, W, 3)``, from 0 to 255."""
    return np.asarray(picture, np.float64)


def to_picture(values: Array) -> Picture:
    """Return values rounded to a picture."""
    return Image.fromarray(np.clip(np.round(values), 0, 255).astype(np.uint8))


def saved(**settings: Any) -> Change:
    """Return what a file format does to a picture."""

    def change(picture: Picture, _: Random) -> Picture:
        buffer = io.BytesIO()
        picture.save(buffer, **settings)
        return Image.open(buffer).convert("RGB")

    return change


def jpeg(quality: int) -> Change:
    """Return JPEG as Pillow writes it."""
    return saved(format="JPEG", quality=quality)


def off_grid(change: Change, *, left: int = 3, top: int = 5) -> Change:
    """Return a change made before the picture was cut, so that its blocks begin elsewhere."""

    def make(picture: Picture, random: Random) -> Picture:
        values = np.pad(levels(picture), ((top, 8), (left, 8), (0, 0)), mode="reflect")
        changed = change(to_picture(values), random)
        return changed.crop((left, top, left + picture.width, top + picture.height))

    return make


def filtered(*filters: ImageFilter.Filter) -> Change:
    """Return filters of Pillow, one after another."""

    def change(picture: Picture, _: Random) -> Picture:
        for item in filters:
            picture = picture.filter(item)
        return picture

    return change


def sharpened(percent: int, radius: float = 1) -> Change:
    """Return unsharp masking."""
    return filtered(ImageFilter.UnsharpMask(radius=radius, percent=percent, threshold=0))


def smoothed(values: Array, std: float) -> Array:
    """Return values after a Gaussian blur, with reflected borders."""
    radius = int(np.ceil(3 * std))
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / std) ** 2)
    return convolved(convolved(values, kernel[None]), kernel[:, None])


def convolved(values: Array, kernel: Array) -> Array:
    """Return the convolution with a kernel of odd sides and any sum above 0."""
    top, left = (side // 2 for side in kernel.shape)
    padded = np.pad(values, ((top, top), (left, left), (0, 0)), mode="reflect")
    height, width = values.shape[:2]
    parts = (
        weight * padded[i : i + height, j : j + width]
        for (i, j), weight in np.ndenumerate(kernel / kernel.sum())
        if weight
    )
    return np.sum(list(parts), axis=0)


def blurred_by(kernel: Callable[[float], Array], size: float) -> Damage:
    """Return a blur of the scene before the picture is taken, of a size in pixels of the input."""

    def make(truth: Picture, scale: int, _: Random) -> Pair:
        blurred = convolved(levels(truth), kernel(size * scale))
        return Pair(truth, shrink(to_picture(blurred), scale))

    return make


def disk(radius: float) -> Array:
    """Return the kernel of a lens out of focus, with a smooth rim."""
    line = np.arange(-np.ceil(radius), np.ceil(radius) + 1)
    return np.asarray(np.clip(radius + 0.5 - np.hypot(line[:, None], line), 0, 1))


def streak(angle: float) -> Callable[[float], Array]:
    """Return kernels of a camera that moves, by their length."""

    def kernel(length: float) -> Array:
        half = int(np.ceil(length / 2))
        weights = np.zeros((2 * half + 1, 2 * half + 1))
        for place in np.linspace(-length / 2, length / 2, 8 * half + 1):
            row, column = (half + place * f(np.deg2rad(angle)) for f in (np.sin, np.cos))
            weights[round(row), round(column)] += 1
        return weights

    return kernel


def added(noise: Callable[[Array, Random], Array]) -> Change:
    """Return noise that is added to a picture."""

    def change(picture: Picture, random: Random) -> Picture:
        values = levels(picture)
        return to_picture(values + noise(values, random))

    return change


def white(std: float) -> Change:
    """Return white noise."""
    return added(lambda values, random: random.normal(0, std, values.shape))


def unit(values: Array) -> Array:
    """Return values scaled to a standard deviation of 1."""
    return np.asarray(values / values.std())


def film_grain(values: Array, random: Random) -> Array:
    """Return grain that is coarse, the same in all colours, and strongest in mid-tones."""
    grain = unit(smoothed(random.normal(size=(*values.shape[:2], 1)), 1.0))
    brightness = values.mean(2, keepdims=True) / 255
    return np.asarray(14 * grain * 4 * brightness * (1 - brightness) * np.ones(3))


def chroma_noise(values: Array, random: Random) -> Array:
    """Return coarse noise of the colours alone, as cameras leave it in the dark."""
    noise = smoothed(random.normal(size=values.shape), 2.0)
    return 12 * unit(noise - noise.mean(2, keepdims=True))


def salt_and_pepper(share: float) -> Change:
    """Return pixels that are black or white."""

    def change(picture: Picture, random: Random) -> Picture:
        values, draw = levels(picture).copy(), random.random(levels(picture).shape[:2])
        values[draw < share / 2], values[draw > 1 - share / 2] = 0, 255
        return to_picture(values)

    return change


def row_noise(values: Array, random: Random) -> Array:
    """Return one offset for each row, as sensors read out."""
    return random.normal(0, 5, (values.shape[0], 1, 1)) * np.ones_like(values)


def vignetted(values: Array, random: Random) -> Array:
    """Return noise that grows to the corners, where a lens was dark and a program brightened."""
    height, width = values.shape[:2]
    rows, columns = (np.linspace(-1, 1, side) for side in (height, width))
    gain = 1 + 2 * (rows[:, None, None] ** 2 + columns[None, :, None] ** 2)
    return np.asarray(2.5 * gain * random.normal(size=values.shape))


def demosaiced(std: float) -> Change:
    """Return a noisy Bayer mosaic, interpolated bilinearly."""

    def change(picture: Picture, random: Random) -> Picture:
        values = levels(picture)
        values = values + random.normal(0, std, values.shape)
        rows, columns = np.indices(values.shape[:2]) % 2
        masks = np.stack([rows + columns == 0, rows + columns == 1, rows + columns == 2], 2)
        kernel = np.array([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]])
        return to_picture(convolved(values * masks, kernel) / convolved(1.0 * masks, kernel))

    return change


def bilateral(picture: Picture, _: Random) -> Picture:
    """Return what smooths areas and keeps edges."""
    values, total, weight = levels(picture), np.zeros(1), np.zeros(1)
    for i in range(-3, 4):
        for j in range(-3, 4):
            other = np.roll(values, (i, j), (0, 1))
            near = np.exp(-(i * i + j * j) / 8 - ((other - values) ** 2).sum(2) / (2 * 30**2))
            total, weight = total + other * near[..., None], weight + near[..., None]
    return to_picture(total / weight)


def equalised(picture: Picture, _: Random) -> Picture:
    """Return local contrast: each value's rank among those around it, limited and mixed in."""
    values, std = levels(picture), picture.width / 20
    around = smoothed(values, std)
    spread = smoothed((values - around) ** 2, std)
    gain = np.clip(45 / np.sqrt(spread + 25), 1, 3)
    return to_picture(around + gain * (values - around))


def dithered(colours: int, *, dither: bool = True) -> Change:
    """Return a picture of a palette, as GIF stores it."""
    mode = Image.Dither.FLOYDSTEINBERG if dither else Image.Dither.NONE

    def change(picture: Picture, _: Random) -> Picture:
        palette = picture.quantize(colours)
        return picture.quantize(palette=palette, dither=mode).convert("RGB")

    return change


def posterised(number: int) -> Change:
    """Return a picture of few levels."""
    step = 255 / (number - 1)
    return lambda picture, _: to_picture(np.round(levels(picture) / step) * step)


def enlarged(factor: float, method: Image.Resampling = Image.Resampling.BICUBIC) -> Change:
    """Return what is left of a picture that was smaller before."""

    def change(picture: Picture, _: Random) -> Picture:
        return resized(shrink(picture, factor), *picture.size, method)

    return change


def interlaced(picture: Picture, _: Random) -> Picture:
    """Return two fields of which one has moved by three pixels."""
    values = levels(picture).copy()
    values[1::2] = np.roll(values[1::2], 3, 1)
    return to_picture(values)


def halftone(picture: Picture, _: Random) -> Picture:
    """Return a scan of printed dots, three pixels apart, at another angle for each colour."""
    large = levels(resized(picture, 4 * picture.width, 4 * picture.height))
    rows, columns = np.indices(large.shape[:2])
    for channel, angle in enumerate((15, 75, 45)):
        turn = np.deg2rad(angle)
        u = np.cos(turn) * columns + np.sin(turn) * rows
        v = np.cos(turn) * rows - np.sin(turn) * columns
        screen = 0.5 + 0.25 * (np.cos(u * np.pi / 6) + np.cos(v * np.pi / 6))
        large[..., channel] = 255 * (large[..., channel] > 255 * screen)
    return resized(to_picture(large), *picture.size, Image.Resampling.BOX)


def linear_light(truth: Picture, scale: int, _: Random) -> Pair:
    """Shrink the light and not the stored values, as careful programs do."""
    values = (levels(truth) / 255) ** 2.2
    height, width = values.shape[0] // scale, values.shape[1] // scale
    means = values.reshape(height, scale, width, scale, 3).mean((1, 3))
    return Pair(truth, to_picture(255 * means ** (1 / 2.2)))


def shrunk_by(method: Image.Resampling) -> Damage:
    """Return shrinking by another kernel."""
    return lambda truth, scale, _: Pair(
        truth, resized(truth, truth.width / scale, truth.height / scale, method)
    )


def first_sharpened(truth: Picture, scale: int, random: Random) -> Pair:
    """Shrink a picture that a program had sharpened, with a radius of one pixel of the input."""
    return Pair(truth, shrink(sharpened(200, float(scale))(truth, random), scale))


def turned(truth: Picture, scale: int, _: Random) -> Pair:
    """Turn the shrunk picture by 3 degrees, bilinearly, and cut off the empty corners."""
    cut = 16 * scale

    def turn(picture: Picture, border: int, method: Image.Resampling) -> Picture:
        inner = (border, border, picture.width - border, picture.height - border)
        return picture.rotate(3, method).crop(inner)

    degraded = turn(shrink(truth, scale), 16, Image.Resampling.BILINEAR)
    return Pair(turn(truth, cut, Image.Resampling.BICUBIC), degraded)


def brightened(gain: float) -> Change:
    """Return a dark shot of 8 bits, brightened."""

    def change(picture: Picture, random: Random) -> Picture:
        values = levels(picture) / gain
        dark = to_picture(values + random.normal(0, 0.5 + 0.1 * np.sqrt(values)))
        return to_picture(levels(dark) * gain)

    return change


def hazed(picture: Picture, _: Random) -> Picture:
    """Return low contrast before a bright sky."""
    return to_picture(0.45 * levels(picture) + 120)


def lettered(picture: Picture, _: Random) -> Picture:
    """Return a picture with text over it."""
    picture = picture.copy()
    draw = ImageDraw.Draw(picture)
    for line in range(0, picture.height, 48):
        font = ImageFont.load_default(size=14 + line // 16)
        draw.text(
            (8, line),
            "The quick brown fox 0123",
            (255, 255, 255),
            font,
            stroke_width=1,
            stroke_fill=(0, 0, 0),
        )
    return picture


def screenshot(picture: Picture, _: Random) -> Picture:
    """Return a window of text with a picture in it."""
    page = Image.new("RGB", picture.size, (250, 250, 250))
    page.paste(shrink(picture, 2.5), (picture.width // 2, picture.height // 2))
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(size=13)
    draw.rectangle((0, 0, picture.width, 18), (60, 90, 160))
    for line in range(24, picture.height - 16, 16):
        draw.text((6, line), "Lorem ipsum dolor sit amet consectetur", (30, 30, 30), font)
    return page


def cartoon(picture: Picture, _: Random) -> Picture:
    """Return flat areas with dark outlines."""
    flat = posterised(5)(picture.filter(ImageFilter.ModeFilter(9)), np.random.default_rng(0))
    edges = np.abs(np.gradient(levels(flat).mean(2))).sum(0) > 12
    return to_picture(levels(flat) * ~edges[..., None])


def phone(picture: Picture, random: Random) -> Picture:
    """Return noise, its removal, sharpening and JPEG, as small cameras do it."""
    for change in (demosaiced(8), bilateral, sharpened(180, 1.2), jpeg(85)):
        picture = change(picture, random)
    return picture


BICUBIC, BILINEAR, LANCZOS, NEAREST, BOX = (
    getattr(Image.Resampling, name) for name in ("BICUBIC", "BILINEAR", "LANCZOS", "NEAREST", "BOX")
)

DAMAGES: Mapping[str, Damage] = {
    "clean": after(),
    "WebP 60": after(saved(format="WEBP", quality=60)),
    "WebP 80": after(saved(format="WEBP", quality=80)),
    "AVIF 50": after(saved(format="AVIF", quality=50)),
    "JPEG 20": after(jpeg(20)),
    "JPEG 75, cut": after(off_grid(jpeg(75))),
    "JPEG 85, cut, JPEG 90": after(off_grid(jpeg(85)), jpeg(90)),
    "enlarged by 2, JPEG 75": after(enlarged(2), jpeg(75)),
    "JPEG 60, enlarged by 1.5": after(lambda picture, random: enlarged_file(picture, random)),
    "sharpened 150 %": after(sharpened(150)),
    "sharpened 400 %": after(sharpened(400)),
    "sharpened 250 %, radius 2.5": after(sharpened(250, 2.5)),
    "sharpened 200 % before shrinking": first_sharpened,
    "out of focus, disk of 1.5": blurred_by(disk, 1.5),
    "out of focus, disk of 3": blurred_by(disk, 3),
    "moved by 5": blurred_by(streak(25), 5),
    "moved by 9, level": blurred_by(streak(0), 9),
    "nearest": shrunk_by(NEAREST),
    "area in linear light": linear_light,
    "by 0.9 and back": after(enlarged(1 / 0.9)),
    "turned by 3 degrees": turned,
    "enlarged by 2, bicubic": after(enlarged(2)),
    "enlarged by 2, nearest": after(enlarged(2, NEAREST)),
    "enlarged by 4, bicubic": after(enlarged(4)),
    "GIF, 256 colours": after(dithered(256)),
    "GIF, 32 colours": after(dithered(32)),
    "32 levels": after(posterised(32)),
    "12 levels": after(posterised(12)),
    "salt and pepper 0.2 %": after(salt_and_pepper(0.002)),
    "salt and pepper 2 %": after(salt_and_pepper(0.02)),
    "film grain": after(added(film_grain)),
    "noise of the colours": after(added(chroma_noise)),
    "noise of rows": after(added(row_noise)),
    "brightened corners": after(added(vignetted)),
    "Bayer, noise 0": after(demosaiced(0)),
    "Bayer, noise 12": after(demosaiced(12)),
    "median of 3": after(filtered(ImageFilter.MedianFilter(3))),
    "median of 5": after(filtered(ImageFilter.MedianFilter(5))),
    "noise 12, smoothed": after(white(12), bilateral),
    "phone": after(phone),
    "local contrast": both(equalised, white(3)),
    "dark, brightened by 6": after(brightened(6)),
    "haze": scene(hazed),
    "interlaced": after(interlaced),
    "printed dots": after(halftone),
    "text over it": scene(lettered),
    "screenshot": scene(screenshot),
    "screenshot, JPEG 60": scene(screenshot, jpeg(60)),
    "cartoon": scene(cartoon),
}


def enlarged_file(picture: Picture, random: Random) -> Picture:
    """Return a JPEG file of a smaller picture, enlarged."""
    return resized(jpeg(60)(shrink(picture, 1.5), random), *picture.size)


def ghost(values: Array, _: Random) -> Array:
    """Return what makes a second, weaker picture beside the first."""
    return np.asarray(0.3 * (np.roll(values, 4, 1) - values))


def hum(values: Array, _: Random) -> Array:
    """Return stripes of an electric disturbance."""
    rows, columns = np.indices(values.shape[:2])
    return 6 * np.sin(0.9 * columns + 0.35 * rows)[..., None] * np.ones(3)


def scratches(picture: Picture, random: Random) -> Picture:
    """Return thin bright lines and dust, as on old film."""
    picture = picture.copy()
    draw = ImageDraw.Draw(picture)
    for _ in range(max(2, picture.width // 24)):
        x, y, dx = (int(v) for v in random.integers(0, picture.width, 3))
        draw.line((x, 0, x + dx // 16, picture.height), (230, 230, 230))
        draw.ellipse((y, dx, y + 2, dx + 2), (15, 15, 15))
    return picture


def ordered_dither(picture: Picture, _: Random) -> Picture:
    """Return 16-bit colours with ordered dithering, as small displays and old programs make."""
    bayer = np.array([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]]) / 16 - 0.47
    steps = np.array([255 / 31, 255 / 63, 255 / 31])
    tiles = [-(-side // 4) for side in (picture.height, picture.width)]
    offset = np.tile(bayer, tiles)[: picture.height, : picture.width, None]
    return to_picture(np.round(levels(picture) / steps + offset) * steps)


def aberration(picture: Picture, _: Random) -> Picture:
    """Return red and blue that a lens enlarges a little less and more."""
    values = levels(picture).copy()
    values[..., 0], values[..., 2] = np.roll(values[..., 0], 1, 1), np.roll(values[..., 2], -1, 1)
    return to_picture(values)


def screen_photo(picture: Picture, _: Random) -> Picture:
    """Return a photo of a screen: its stripes of red, green and blue, seen slightly too coarse."""
    values = levels(resized(picture, 6 * picture.width, 6 * picture.height, BOX))
    columns = np.arange(values.shape[1]) / 2.15
    lit = np.stack([np.floor(columns) % 3 == channel for channel in range(3)], 1)
    seen = resized(to_picture(values * lit), *picture.size, BOX)
    return to_picture(3 * levels(seen))


def line_doubled(picture: Picture, _: Random) -> Picture:
    """Return one field of video, each row twice."""
    return to_picture(levels(picture)[np.arange(picture.height) // 2 * 2])


def speckle(values: Array, random: Random) -> Array:
    """Return noise in proportion to the light."""
    return np.asarray(0.12 * values * random.normal(size=values.shape))


def hot_pixels(picture: Picture, random: Random) -> Picture:
    """Return single bright pixels of one colour."""
    values = levels(picture).copy()
    values[random.random(values.shape) < 0.001] = 255
    return to_picture(values)


SEALED: Mapping[str, Damage] = {
    "JPEG 2000": after(
        saved(format="JPEG2000", quality_mode="rates", quality_layers=[24], irreversible=True)
    ),
    "JPEG 50, saturated colours": both(
        lambda picture, _: ImageEnhance.Color(picture).enhance(1.8), jpeg(50)
    ),
    "contrast of 2": both(lambda picture, _: ImageEnhance.Contrast(picture).enhance(2), jpeg(85)),
    "16-bit colours, dithered": after(ordered_dither),
    "hot pixels": after(hot_pixels),
    "stripes": after(added(hum)),
    "colour fringes": after(aberration),
    "oil paint": after(filtered(ImageFilter.ModeFilter(5))),
    "photo of a screen": after(screen_photo),
    "lines doubled": after(line_doubled),
    "enlarged by 1.5, sharpened": after(enlarged(1.5, LANCZOS), sharpened(200, 1.5)),
    "speckle": after(added(speckle)),
    "second picture": after(added(ghost)),
    "scratches and dust": after(scratches),
    "noise 15, median of 3": after(white(15), filtered(ImageFilter.MedianFilter(3))),
    "shaken": blurred_by(lambda size: disk(size) * (np.indices(disk(size).shape)[0] % 2 + 0.2), 2),
    "moved by 7, JPEG 80": lambda truth, scale, random: Pair(
        truth, jpeg(80)(blurred_by(streak(60), 7)(truth, scale, random).degraded, random)
    ),
    "WebP 30, sharpened": after(saved(format="WEBP", quality=30), sharpened(150)),
}
