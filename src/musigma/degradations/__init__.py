"""How the inputs of networks are made from their targets, as objects that compose.

``parse("blur(0.2..2)?0.7 | area | noise(5) | jpeg(30..95)", scale=2)`` gives a `Degradation`;
`musigma.degradations.text` has the grammar. Training, evaluation and calibration use the same one.

Pairs from disk are not degradations: their inputs are read, not made.
"""

from musigma.degradations.base import Degradation
from musigma.degradations.blur_stages import Blur, MotionBlur, Sharpen
from musigma.degradations.compose import Chain, Choice, Maybe
from musigma.degradations.image import degrade_image
from musigma.degradations.noise_stages import Noise, PoissonNoise, RawNoise
from musigma.degradations.smoothing_stages import Bilateral, Wiener
from musigma.degradations.stages import Bicubic, Jpeg, Resample, Round, Shrink
from musigma.degradations.text import names, parse, photo
from musigma.degradations.values import OneOf, Range

__all__ = [
    "Bicubic",
    "Bilateral",
    "Blur",
    "Chain",
    "Choice",
    "Degradation",
    "Jpeg",
    "Maybe",
    "MotionBlur",
    "Noise",
    "OneOf",
    "PoissonNoise",
    "Range",
    "RawNoise",
    "Resample",
    "Round",
    "Sharpen",
    "Shrink",
    "Wiener",
    "degrade_image",
    "names",
    "parse",
    "photo",
]
