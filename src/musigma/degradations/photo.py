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
_NOISE = "noise(0.3..{noise}:log, gain=0/0.01..{gain}:log, grey=3*0/1{grain})"
_JPEG = "jpeg({quality}, subsampling=420/444)"
_AGAIN = "(noise(0.3..{noise}:log)?0.5 | jpeg({quality}, subsampling=420/444))?0.2"


def photo_text(scale: int) -> str:
    """Return the text of the chain for photographs at a scale, as `parse` reads it.

    Above scale 1, 18 % of the images are shrunk by bicubic and nothing else, so that clean inputs
    stay good. The others are blurred (75 %), shrunk in one of the ways of programs, noisy (65 %),
    saved as JPEG (75 %), and some are saved a second time. At scale 1, 15 % stay as they are, and
    the noise and the compression of the others reach further.
    """
    if scale == 1:
        return (
            f"(({_BLURS.format(std=1, length=2)})?0.5"
            f" | {_NOISE.format(noise=50, gain=5, grain=', grain=0/0.3..1')}?0.65"
            f" | {_JPEG.format(quality='2*8..98/8..40')}?0.75"
            f" | {_AGAIN.format(noise=4, quality='40..98')})?0.85 | round"
        )
    std, length = number_text(scale), number_text(2 * scale)
    return (
        f"18*bicubic/82*(({_BLURS.format(std=std, length=length)})?0.75"
        f" | {_SHRINKS}"
        f" | {_NOISE.format(noise=15, gain=1, grain='')}?0.65"
        f" | {_JPEG.format(quality='30..98')}?0.75"
        f" | {_AGAIN.format(noise=4, quality='50..98')}) | round"
    )
