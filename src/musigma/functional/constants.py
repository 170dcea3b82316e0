"""Numbers that more than one formula must agree on."""

import math

SIGMA_FLOOR = 1 / (255 * math.sqrt(12))
"""The smallest sigma a likelihood or an interval may use: the std of rounding to 8 bits.

The paper states no floor. Without one a single pixel with sigma = 0 makes PLL minus infinity.
"""
