"""Where lanes cross row or column anchors, read from one pair of a network's output arrays.

Shapes: N pictures, L slots of the network, S slots that are read, A anchors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Crossings:
    """Lanes of one kind, as positions at fixed anchors.

    Args:
        slots: the S slots.
        positions: (N, S, A) float32, px of the frame: x at row anchors, y at column anchors.
        is_present: (N, S, A) bool, whether the lane crosses the anchor.
        probability: (N, S, A) float32, of crossing it.
        is_kept: (N, S) bool, whether the slot has a lane at all.
    """

    slots: Sequence[int]
    positions: np.ndarray
    is_present: np.ndarray
    probability: np.ndarray
    is_kept: np.ndarray


@dataclass(frozen=True)
class LaneRule:
    """How many anchors a lane needs.

    Args:
        share: of all anchors of its kind, in [0, 1].
        least: it needs more than this number.
    """

    share: float
    least: int

    def exceeded(self, is_present: np.ndarray) -> np.ndarray:
        """Tell, (N, S), which lanes cross more than `share` of the anchors."""
        count = is_present.sum(-1)
        return (count > self.share * is_present.shape[-1]) & (count > self.least)

    def reached(self, is_present: np.ndarray) -> np.ndarray:
        """Tell, (N, S), which lanes cross `share` of the anchors or more."""
        count = is_present.sum(-1)
        enough = max(self.share * is_present.shape[-1], 1)
        return (count >= enough) & (count > self.least)


def read_crossings(
    location: np.ndarray,
    existence: np.ndarray,
    *,
    slots: Sequence[int],
    window: int,
    extent: int,
    rule: LaneRule,
) -> Crossings:
    """Return the crossings of some slots.

    Args:
        location: (N, cells, A, L) float32 logits.
        existence: (N, 2, A, L) float32 logits; the second is that of a crossing.
        slots: slots to read, rising.
        window: cells on each side of the peak.
        extent: width of the frame for rows, height for columns, px.
        rule: which lanes are kept.
    """
    chosen = as_slice(slots)
    margin = existence[:, 1][..., chosen] - existence[:, 0][..., chosen]
    margin = np.ascontiguousarray(margin.transpose(0, 2, 1))
    is_present = margin > 0
    cells = location.shape[1]
    # float32 and in this order, as in the reference: TuSimple's positions are then cut to integers
    positions = expected_cells(location[..., chosen], window) / np.float32(cells - 1)
    return Crossings(
        slots=slots,
        positions=positions * np.float32(extent),
        is_present=is_present,
        probability=1 / (1 + np.exp(-margin)),
        is_kept=rule.exceeded(is_present),
    )


def expected_cells(logits: np.ndarray, window: int) -> np.ndarray:
    """Return the expected cell about each peak, plus a half.

    pos = 1/2 + sum(k * softmax(z)_k) over the cells k within `window` of the largest logit z.
    The half is there because label cell k stands for [k, k + 1).

    Args:
        logits: (N, cells, A, S) float32.
        window: cells on each side of the peak; cut at the first and last cell.

    Returns:
        (N, S, A) float32, in [0.5, cells - 0.5].
    """
    # cells last and close together: the search for the peak then runs along memory
    cells_last = np.ascontiguousarray(logits.transpose(0, 3, 2, 1))
    num_cells = cells_last.shape[-1]
    peak = cells_last.argmax(-1)
    flat = cells_last.reshape(-1)
    begin = np.arange(0, flat.size, num_cells).reshape(peak.shape)
    highest = flat[begin + peak]
    total = np.zeros_like(highest)
    moment = np.zeros_like(highest)
    for offset in range(-window, window + 1):
        cell = peak + offset
        is_inside = (cell >= 0) & (cell < num_cells)
        near = flat[begin + np.clip(cell, 0, num_cells - 1)]
        weight = np.exp(near - highest) * is_inside
        total += weight
        moment += weight * np.float32(offset)
    return peak.astype(np.float32) + moment / total + np.float32(0.5)


def as_slice(slots: Sequence[int]) -> slice | list[int]:
    """Return rising slots as a slice where they are evenly spaced: slices are not copied."""
    if not slots:
        return slice(0, 0)
    steps = set(np.diff(slots).tolist()) or {1}
    if len(steps) == 1:
        return slice(slots[0], slots[-1] + 1, steps.pop())
    return list(slots)
