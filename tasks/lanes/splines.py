"""Smooth lanes: natural cubic splines through many lanes' points at once.

M lanes, P points of the longest lane, T samples of all lanes together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SAMPLES_PER_SEGMENT = 50


@dataclass(frozen=True)
class LaneSamples:
    """Points along lanes, one lane after the other.

    Args:
        x: (T,) float32, px.
        y: (T,) float32, px.
        counts: (M,) int64, samples of each lane; 0 for a lane of fewer than two different points.
    """

    x: np.ndarray
    y: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class _Knots:
    """Lanes with two points or more, padded: points (P, M', 2) float64, `counts` (M',) int64."""

    points: np.ndarray
    counts: np.ndarray


def sample_splines(lanes: Sequence[np.ndarray], *, scale: tuple[float, float]) -> LaneSamples:
    """Return 50 samples per segment and the last point of the spline through each lane's points.

    The spline is natural, cubic and runs over the chord length; of a lane of two points only these
    are returned. Points and samples are float32, the coefficients float64. Points that repeat the
    one before and points that are not finite are left out.

    Args:
        lanes: each (P, 2), x and y.
        scale: factors of x and y, applied first.

    Source: CULane's evaluator (XingangPan/SCNN, spline.cpp); it divides by zero at a repeat.
    """
    knots, lengths = _knots_of(lanes, scale)
    is_line = lengths >= 2
    counts = np.where(lengths > 2, (lengths - 1) * SAMPLES_PER_SEGMENT + 1, 2 * is_line)
    if not is_line.any():
        return LaneSamples(np.zeros(0, np.float32), np.zeros(0, np.float32), counts)
    chord, bend = _second_derivatives(knots)
    is_segment = (np.arange(len(chord))[:, None] < knots.counts - 1) & (knots.counts > 2)
    # lane by lane, then segment by segment
    lane, segment = np.nonzero(is_segment.T)
    begins = np.cumsum(counts[is_line]) - counts[is_line]
    place = begins[lane] + segment * SAMPLES_PER_SEGMENT
    ends = (knots.counts - 1, np.arange(len(knots.counts)))
    sampled = []
    for axis in (0, 1):
        line = np.empty(int(counts.sum()), np.float32)
        values = _evaluated(knots.points[..., axis], chord, bend[..., axis], at=(segment, lane))
        line[begins] = knots.points[0, :, axis]
        line[place[:, None] + np.arange(SAMPLES_PER_SEGMENT)] = values
        line[begins + counts[is_line] - 1] = knots.points[(*ends, axis)]
        sampled.append(line)
    return LaneSamples(sampled[0], sampled[1], counts)


def _knots_of(lanes: Sequence[np.ndarray], scale: tuple[float, float]) -> tuple[_Knots, np.ndarray]:
    """Return the lanes of two points or more, and the number of points of every lane, (M,)."""
    flat = np.concatenate([np.zeros((0, 2)), *lanes])
    owner = np.repeat(np.arange(len(lanes)), [len(lane) for lane in lanes])
    with np.errstate(over="ignore"):  # what float32 cannot hold is not finite, and left out
        points = (flat * scale).astype(np.float32)
    is_finite = np.isfinite(points).all(1)
    points, owner = points[is_finite], owner[is_finite]
    is_new = np.ones(len(points), bool)
    is_new[1:] = (points[1:] != points[:-1]).any(1) | (owner[1:] != owner[:-1])
    points, owner = points[is_new], owner[is_new]
    lengths = np.bincount(owner, minlength=len(lanes))

    chosen = np.nonzero(lengths >= 2)[0]
    is_chosen = (lengths >= 2)[owner]
    column = np.cumsum(lengths >= 2)[owner] - 1
    row = np.arange(len(owner)) - (np.cumsum(lengths) - lengths)[owner]
    padded = np.zeros((lengths.max(initial=0), len(chosen), 2))
    padded[row[is_chosen], column[is_chosen]] = points[is_chosen]
    return _Knots(padded, lengths[chosen]), lengths


def _second_derivatives(knots: _Knots) -> tuple[np.ndarray, np.ndarray]:
    """Return the chords, (P - 1, M'), and the second derivatives at the knots, (P, M', 2).

    With chords h, slopes s = diff(points) / h and second derivatives m, zero at both ends:
    h[i-1] m[i-1] + 2 (h[i-1] + h[i]) m[i] + h[i] m[i+1] = 6 (s[i] - s[i-1]), eliminated downwards.
    """
    step = np.diff(knots.points, axis=0)
    is_segment = np.arange(len(step))[:, None] < knots.counts - 1
    chord = np.where(is_segment, np.hypot(step[..., 0], step[..., 1]), 1)
    slope = step / chord[..., None]
    bend = np.zeros_like(knots.points)
    # beyond a lane's last inner knot the right-hand side is 0, and nothing couples to it
    is_inner = is_segment[1:]
    right = np.where(is_inner[..., None], 6 * np.diff(slope, axis=0), 0)
    diagonal = 2 * (chord[:-1] + chord[1:])
    below = np.where(is_inner, chord[:-1], 0)
    above = np.zeros_like(diagonal)
    above[:-1] = np.where(is_inner[1:], chord[1:-1], 0)
    for i in range(1, len(diagonal)):
        factor = below[i] / diagonal[i - 1]
        diagonal[i] -= factor * above[i - 1]
        right[i] -= factor[:, None] * right[i - 1]
    for i in range(len(diagonal) - 1, -1, -1):
        after = bend[i + 2] * above[i][:, None]
        bend[i + 1] = (right[i] - after) / diagonal[i][:, None]
    return chord, bend


def _evaluated(
    knots: np.ndarray, chord: np.ndarray, bend: np.ndarray, *, at: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return (segments, 50) float32: a coordinate along the segments `at`."""
    i, lane = at
    h, begin, end = chord[at][:, None], knots[at][:, None], knots[i + 1, lane][:, None]
    m, m_next = bend[at][:, None], bend[i + 1, lane][:, None]
    linear = (end - begin) / h - h * (2 * m + m_next) / 6
    cubic = (m_next - m) / (6 * h)
    t = h / SAMPLES_PER_SEGMENT * np.arange(SAMPLES_PER_SEGMENT)
    value = cubic * t
    for coefficient in (m / 2, linear):
        value += coefficient
        value *= t
    value += begin
    return value.astype(np.float32)
