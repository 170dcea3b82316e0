"""The statistics behind calibration: ranks, bounds and monotone fits of plain numbers."""

import math

import numpy as np
from numpy.typing import NDArray

from musigma.uncertainty.methods import Method

Floats = NDArray[np.float64]

# A product such as 0.07 * 100 = 7.000000000000001 must not move a rank by one.
_ROUNDING = 1e-9


def conformal_rank(num_scores: int, confidence: float) -> int:
    """Return k = ceil((n + 1) confidence): the k-th smallest of n scores is the conformal quantile.

    A new score, exchangeable with the n, is at most the k-th smallest with probability at least
    `confidence`. Where k > n no finite quantile exists: n is below `conformal_min_scores`.

    Example:
        >>> conformal_rank(9, 0.9), conformal_rank(99, 0.9), conformal_rank(8, 0.9)
        (9, 90, 9)
    """
    return math.ceil((num_scores + 1) * confidence - _ROUNDING)


def conformal_mean(num_samples: int, mean: float) -> float:
    """Return the mean that n samples in [0, 1] need so that a new sample is expected at `mean`.

    ``(n + 1) mean / n``: the new sample is counted as 0. Where that exceeds 1, n is below
    `conformal_min_scores`.

    Example:
        >>> round(conformal_mean(9, 0.9), 6), round(conformal_mean(100, 0.9), 6)
        (1.0, 0.909)
    """
    return (num_samples + 1) * mean / num_samples - _ROUNDING


def conformal_min_scores(confidence: float) -> int:
    """Return the smallest n for which ``conformal_rank(n, confidence) <= n``.

    Example:
        >>> conformal_min_scores(0.9), conformal_min_scores(0.95)
        (9, 19)
    """
    return math.ceil(confidence / (1 - confidence) - _ROUNDING)


def hoeffding_bentkus(risk: float, bound: float, num_samples: int) -> float:
    r"""Return the p-value of "the true risk exceeds `bound`", from the mean of n losses in [0, 1].

    .. math:: \min\left( e^{-n h(\hat R \wedge \alpha, \alpha)},
        e \, P(\mathrm{Bin}(n, \alpha) \le \lceil n \hat R \rceil) \right), \quad
        h(a, b) = a \log\frac{a}{b} + (1 - a) \log\frac{1 - a}{1 - b}

    with R = `risk` and alpha = `bound`, as in risk-controlling prediction sets (im2im-uq).

    Example:
        >>> round(hoeffding_bentkus(0.0, 0.1, 22), 4)  # 0.9 ** 22
        0.0985
    """
    low = min(risk, bound)
    divergence = (1 - low) * math.log((1 - low) / (1 - bound))
    if low > 0:
        divergence += low * math.log(low / bound)
    hoeffding = math.exp(-num_samples * divergence)
    successes = math.ceil(num_samples * risk - _ROUNDING)
    return min(hoeffding, math.e * _binomial_cdf(successes, num_samples, bound))


def risk_control_min_samples(bound: float, confidence: float) -> int:
    """Return the smallest n at which zero observed risk proves `bound`: (1 - bound)^n <= delta.

    Example:
        >>> risk_control_min_samples(0.1, 0.9)
        22
    """
    return math.ceil(math.log(1 - confidence) / math.log(1 - bound) - _ROUNDING)


def images_needed(method: Method, coverage: float, confidence: float | None) -> int:
    """Return the least number of held-out images with which a method can keep its promise.

    Example:
        >>> images_needed("conformal-risk-control", 0.99, None)
        99
    """
    if method == "conformal-risk-control":
        return conformal_min_scores(coverage)
    if method == "conformal" and confidence is not None:
        return conformal_min_scores(confidence)
    if method == "risk-control" and confidence is not None:
        return risk_control_min_samples(1 - coverage, confidence)
    return 1


def isotonic_regression(values: Floats, weights: Floats) -> Floats:
    """Return the non-decreasing sequence nearest to `values` in weighted squares.

    Pool-adjacent-violators: a value below the block before it is averaged into that block.

    Example:
        >>> isotonic_regression(np.array([1.0, 3.0, 2.0, 4.0]), np.ones(4)).tolist()
        [1.0, 2.5, 2.5, 4.0]
    """
    blocks: list[tuple[float, float, int]] = []  # (mean, weight, length)
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, total, length = value, weight, 1
        while blocks and blocks[-1][0] > mean:
            last_mean, last_weight, last_length = blocks.pop()
            mean = (mean * total + last_mean * last_weight) / (total + last_weight)
            total += last_weight
            length += last_length
        blocks.append((mean, total, length))
    return np.repeat([mean for mean, _, _ in blocks], [length for _, _, length in blocks])


def _binomial_cdf(successes: int, num_trials: int, probability: float) -> float:
    """Return P(Bin(n, p) <= k), summed in logarithms so that no factorial overflows."""
    terms = (
        math.lgamma(num_trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(num_trials - k + 1)
        + k * math.log(probability)
        + (num_trials - k) * math.log1p(-probability)
        for k in range(min(successes, num_trials) + 1)
    )
    return min(1.0, math.fsum(math.exp(term) for term in terms))
