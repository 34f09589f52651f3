"""Quadratic curves through many sets of points at once, by least squares in closed form.

M curves, P points of a curve (some absent), Q abscissae at which a curve is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Below this share of the abscissae's square extent a curve has no slope (or no bend) to fit: its
# points share one abscissa (or two).
DEGENERATE = 1e-12


@dataclass(frozen=True)
class Quadratics:
    """Curves v(t) of degree 2, as sums of polynomials that are orthogonal over their points.

    With s = (t - centre) / extent: p0 = 1, p1 = s - first, p2 = (s - second) p1 - drop.

    Args:
        centre: (M, 1) float64, like all others, in the unit of t.
        extent: half the range of the points' t; 0 where all are equal (s is then t - centre).
        first: mean of s.
        second: mean of s under the weights p1^2.
        drop: mean of p1^2.
        weights: (M, 3), factors of p0, p1 and p2, in the unit of v.
        mean_square: (M,), mean square of the residuals; 0 without points.
    """

    centre: np.ndarray
    extent: np.ndarray
    first: np.ndarray
    second: np.ndarray
    drop: np.ndarray
    weights: np.ndarray
    mean_square: np.ndarray

    def at(self, t: np.ndarray) -> np.ndarray:
        """Return the curves' values, (M, Q) float64, at t, (M, Q) or (1, Q)."""
        s = (t - self.centre) / np.where(self.extent > 0, self.extent, 1)
        linear = s - self.first
        square = (s - self.second) * linear - self.drop
        return self.weights[:, :1] + self.weights[:, 1:2] * linear + self.weights[:, 2:] * square

    def spaced(self, count: int) -> np.ndarray:
        """Return (M, count, 2) float64: evenly spaced t from the first point's to the last's, v."""
        t = self.centre + self.extent * np.linspace(-1, 1, count)
        return np.stack([t, self.at(t)], axis=-1)


def fit_quadratics(t: np.ndarray, values: np.ndarray, *, is_present: np.ndarray) -> Quadratics:
    """Return the curves of degree 2 with the least squares of residuals.

    Points at only two abscissae give a straight line, at one a constant. Orthogonal polynomials
    (Forsythe 1957) in place of normal equations: nothing is inverted, so px of any size lose no
    digits. The reference starts an iterative solver from random numbers instead.

    Args:
        t: (M, P) float, abscissae.
        values: (M, P) float.
        is_present: (M, P) bool; other entries count for nothing, but must be finite.
    """
    weight = is_present.astype(np.float64)
    count = np.maximum(weight.sum(1, keepdims=True), 1)
    is_empty = ~is_present.any(1, keepdims=True)
    low = np.where(is_empty, 0, np.where(is_present, t, np.inf).min(1, keepdims=True))
    high = np.where(is_empty, 0, np.where(is_present, t, -np.inf).max(1, keepdims=True))
    centre, extent = (low + high) / 2, (high - low) / 2
    s = (t - centre) / np.where(extent > 0, extent, 1)
    first = (weight * s).sum(1, keepdims=True) / count
    linear = s - first
    weighted = weight * linear
    drop = (weighted * linear).sum(1, keepdims=True) / count
    second = _divided((weighted * linear * s).sum(1, keepdims=True), drop * count)
    square = (s - second) * linear - drop
    norm = (weight * square * square).sum(1, keepdims=True) / count

    means = [(weight * values * p).sum(1, keepdims=True) / count for p in (1.0, linear, square)]
    weights = np.concatenate([means[0], _divided(means[1], drop), _divided(means[2], norm)], axis=1)
    residual = values - weights[:, :1] - weights[:, 1:2] * linear - weights[:, 2:] * square
    mean_square = (weight * residual * residual).sum(1) / count[:, 0]
    return Quadratics(centre, extent, first, second, drop, weights, mean_square)


def _divided(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return above / below, 0 where nothing is there to divide by."""
    is_zero = below <= DEGENERATE
    return np.where(is_zero, 0, above / np.where(is_zero, 1, below))
