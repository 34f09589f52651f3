"""The pixels of one short thick line: what drawing a lane adds at each step.

OpenCV draws a line of some width between two whole points as a turned rectangle with round ends.
Its pixels depend only on the step, so that they are looked up here, row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np

# px of a step in x or y; longer ones are drawn
LONGEST_STEP = 3


@dataclass(frozen=True)
class Stamp:
    """The rows of a line that begins at (0, 0): it covers columns first..last, both inclusive.

    Args:
        rows: (K,) row numbers, rising.
        first: (K,) column numbers.
        last: (K,) column numbers.
    """

    rows: tuple[int, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]


@lru_cache(maxsize=512)
def stamp_of(dx: int, dy: int, *, lane_width: int) -> Stamp | None:
    """Return the pixels of a line from (0, 0) to (dx, dy), both at most `LONGEST_STEP` long.

    None where a row of it has a gap, which OpenCV leaves at the corners of a few steps at some
    widths (12 px, a step of 3 and 1).

    Args:
        dx: px to the right.
        dy: px down.
        lane_width: px.
    """
    margin = lane_width // 2 + LONGEST_STEP + 4
    canvas = np.zeros((2 * margin + 1, 2 * margin + 1), np.uint8)
    cv2.line(canvas, (margin, margin), (margin + dx, margin + dy), 1, lane_width)
    rows, first, last = row_intervals(canvas)
    if (last - first + 1).sum() != canvas.sum():
        return None
    return Stamp(
        tuple((rows - margin).tolist()),
        tuple((first - margin).tolist()),
        tuple((last - margin).tolist()),
    )


@lru_cache(maxsize=8)
def steps_with_stamps(lane_width: int) -> np.ndarray:
    """Tell which steps have a stamp: bool, at [dx + LONGEST_STEP, dy + LONGEST_STEP]."""
    steps = range(-LONGEST_STEP, LONGEST_STEP + 1)
    return np.array(
        [[stamp_of(dx, dy, lane_width=lane_width) is not None for dy in steps] for dx in steps]
    )


def row_intervals(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of a mask that hold anything, and the first and last column in each."""
    rows = np.nonzero(mask.any(1))[0]
    held = mask[rows] != 0
    return rows, held.argmax(1), held.shape[1] - 1 - held[:, ::-1].argmax(1)
