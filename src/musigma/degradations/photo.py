"""What users' pictures went through: the named chain that photograph weights are trained on."""

from musigma.degradations.values import number_text

_BLURS = (
    "6*blur(0.2..{std})"
    "/3*blur(0.2..{std}, across=0.2..{std}, angle=0..180)"
    "/motion(0.5..{length}, angle=0..180)"
)
_SHRINKS = (
    "4*bicubic/3*area/3*bilinear/3*lanczos/0.75*bicubic_aliased/0.75*bilinear_aliased/0.5*nearest"
)
_NOISE = (
    "2*noise(0.3..{noise}:log, gain=0/0.01..{gain}:log, grey=3*0/1{grain})"
    "/raw(0.02..{gain}:log, std=0.02..2:log{grain})"
)
_CAMERA = (
    "raw(0.02..5:log, std=0.02..2:log, grain=0/0.3..1, color=0.15..0.7, color_grain=0.5..3:log)"
)
_SMOOTH = (
    "(bilateral(4..40:log, std=0.7..1.5, amount=0.5..1)"
    "/wiener(2..12:log, std=0.6..1, amount=0.5..1))?0.2"
)
_RESAMPLE = "resample(0.7..0.98, support=1/2)?0.12"
_SHARPEN = "sharpen(0.2..1.5, std=0.5..1.5)?0.15"
_JPEG = "jpeg({quality}, subsampling=420/444{corner})"
_CORNER = ", left=4*0/0..7, top=4*0/0..7"
_AGAIN = "(noise(0.3..{noise}:log)?0.5 | jpeg({quality}, subsampling=420/444))?0.2"


def photo_text(scale: int) -> str:
    """Return the text of the chain for photographs at a scale, as `parse` reads it.

    Above scale 1, 14 % of the images are shrunk by bicubic and nothing else, so that clean inputs
    stay good. The others are blurred (50 %) and shrunk in one of the ways of programs. Of these,
    70 % are a camera's: noisy (60 %), smoothed by the noise reduction of cameras, which takes weak
    texture with it (20 %), made smaller and larger again (12 %), at times sharpened, saved as JPEG
    (65 %), and some are saved a second time. At scale 1, 10 % stay as they are, and the noise and
    the compression of the others reach further. A third of the noise there is that of cameras,
    which smooth the noise of the color differences more than that of the luma, and some files were
    cut after they were saved, so that their blocks begin anywhere. Few are blurred (9 %): most
    photographs are a little soft at the size at which they were taken, and a network that sharpens
    them makes them worse.
    """
    if scale == 1:
        return (
            f"(({_BLURS.format(std=1, length=2)})?0.1"
            f" | (2*({_NOISE.format(noise=50, gain=5, grain=', grain=0/0.3..1.5')})/{_CAMERA})?0.65"
            f" | {_SMOOTH}"
            f" | {_RESAMPLE}"
            f" | {_SHARPEN}"
            f" | {_JPEG.format(quality='8..98/8..40', corner=_CORNER)}?0.7"
            f" | {_AGAIN.format(noise=4, quality='40..98')})?0.9 | round"
        )
    std, length = number_text(scale), number_text(2 * scale)
    return (
        f"14*bicubic/86*(({_BLURS.format(std=std, length=length)})?0.5"
        f" | {_SHRINKS}"
        f" | (({_NOISE.format(noise=15, gain=1, grain='')})?0.6"
        f" | {_SMOOTH}"
        f" | {_RESAMPLE}"
        f" | {_SHARPEN}"
        f" | {_JPEG.format(quality='30..98', corner='')}?0.65"
        f" | {_AGAIN.format(noise=4, quality='50..98')})?0.7) | round"
    )
