"""Beta distributions on [0, 1], fitted to a mean and a variance, over arrays.

Source: pkg/trimaran/lowriskovercommitment/beta.go of sigs.k8s.io/scheduler-plugins (upstream). Edge cases behave as in
that file.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scoring.arrays import Bools, Float64s

_SMALLEST = np.nextafter(0.0, 1.0)


class BetaFit(NamedTuple):
    """Parameters of a fitted beta distribution for each element.

    Attributes:
        fitted: false where no beta distribution has the given mean and variance.
        alpha: parameter alpha; 1 where nothing was fitted.
        beta: parameter beta; 1 where nothing was fitted.
    """

    fitted: Bools
    alpha: Float64s
    beta: Float64s


def match_moments(first: ArrayLike, second: ArrayLike) -> BetaFit:
    """Fit beta distributions to their first two moments.

    Args:
        first: means E[X], any shape.
        second: means of squares E[X^2], the same shape.
    """
    m1, m2 = np.asarray(first, np.float64), np.asarray(second, np.float64)
    variance = m2 - m1 * m1
    with np.errstate(all="ignore"):
        impossible = (m1 < 0) | (m1 > 1) | (variance < 0) | (variance >= m1 * (1 - m1))
        concentration = np.maximum((m1 * (1 - m1) / variance) - 1, _SMALLEST)
        alpha, beta = m1 * concentration, (1 - m1) * concentration
    return BetaFit(~impossible, np.where(impossible, 1.0, alpha), np.where(impossible, 1.0, beta))


def distribution(alpha: ArrayLike, beta: ArrayLike, x: ArrayLike) -> Float64s:
    """Return P(X <= x) of beta distributions; 0 where alpha or beta is not above 0 or x is outside [0, 1].

    Upstream also returns 0 in these cases.
    """
    from scipy.special import betainc  # importing scipy takes 0.1 s that most importers never need

    a, b, t = np.broadcast_arrays(*(np.asarray(values, np.float64) for values in (alpha, beta, x)))
    defined = (a > 0) & (b > 0) & (t >= 0) & (t <= 1)
    inner = defined & (t > 0) & (t < 1)
    p = np.where(defined & (t == 1), 1.0, 0.0)
    p[inner] = betainc(a[inner], b[inner], t[inner])
    return np.where((p >= 0) & (p <= 1), p, 0.0)


def max_variance(mean: ArrayLike) -> Float64s:
    """Return the largest variance of a distribution on [0, 1] with this mean; 0 for a mean outside (0, 1)."""
    m1 = np.asarray(mean, np.float64)
    return np.where((m1 > 0) & (m1 < 1), m1 * (1 - m1), 0.0)


def probability_at_most(mu: ArrayLike, sigma: ArrayLike, threshold: ArrayLike) -> tuple[Float64s, BetaFit]:
    """Return P(X <= threshold) of the beta distributions with the given means and deviations, and their fit.

    The probability is 1 for a mean of 0, and for a deviation of 0 with the mean at or below the threshold. It is 0 for
    a deviation of 0 with the mean above the threshold, and where no beta distribution has this mean and deviation. In
    these cases the fit's ``fitted`` is false.

    Args:
        mu: means, any shape.
        sigma: standard deviations.
        threshold: thresholds, 0 to 1; the three arguments are broadcast.
    """
    m, s, t = np.broadcast_arrays(*(np.asarray(values, np.float64) for values in (mu, sigma, threshold)))
    fit = match_moments(m, s * s + m * m)
    certain = (m == 0) | ((s == 0) & (m <= t))
    impossible = (s == 0) & (m > t)
    used = fit.fitted & ~certain & ~impossible
    probability = np.where(certain, 1.0, 0.0)
    probability[used] = distribution(fit.alpha[used], fit.beta[used], t[used])
    return probability, BetaFit(used, fit.alpha, fit.beta)
