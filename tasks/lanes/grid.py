"""Lanes at fixed heights: the form in which labels are kept, moved and classified.

G is the number of heights, P the number of points of a lane, L the number of slots.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from readers.lane_records import ABSENT, ImageLanes
from tasks.lanes.config import GridConfig

Size = tuple[int, int]

# The benchmarks' own grids, at their own frames: first, last and step, px.
BENCHMARK_GRIDS = {
    ("tusimple", (1280, 720)): (160, 710, 10),
    ("culane", (1640, 590)): (250, 590, 10),
    ("curvelanes", (2560, 1440)): (200, 1440, 10),
}
ABOUT_HEIGHTS = 72
# Heights that a sum of floats misses by less, px, are the grid's.
TOLERANCE = 1e-6


def grid_heights(grid: GridConfig | None, *, layout: str, frame: Size) -> np.ndarray:
    """Return the heights at which lanes are kept, (G,) float32, px of the frame, rising.

    Args:
        grid: the experiment's; None: the benchmark's own at its own frame, else about 72 heights
            over the whole frame, a whole number of px apart.
        layout: format of the labels (`tusimple`, `culane`, ...).
        frame: width and height that labels count in, px.
    """
    if grid is not None:
        first, last, step = grid.first, grid.last, grid.step
    elif (layout, frame) in BENCHMARK_GRIDS:
        first, last, step = BENCHMARK_GRIDS[layout, frame]
    else:
        first, last, step = 0, frame[1], max(1, round(frame[1] / ABOUT_HEIGHTS))
    return np.arange(first, last + 1, step, dtype=np.float32)


def scaled_lanes(record: ImageLanes, frame: Size) -> list[np.ndarray]:
    """Return a record's lanes in px of the frame, per lane (P, 2) float64, in the file's order."""
    size = (record.width, record.height)
    if size == tuple(frame):
        return list(record.lanes)
    return [lane * np.array(frame, np.float64) / size for lane in record.lanes]


def downward(lane: np.ndarray) -> np.ndarray:
    """Return a lane's points by rising y, (P, 2), as CurveLanes' validation texts have them."""
    return lane[np.argsort(lane[:, 1], kind="stable")]


def at_heights(lane: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Return a lane at the grid's heights.

    A lane whose points follow the grid's steps is taken as it is, gaps and all, as UFLDv2 does.
    Any other is a line from point to point; where it is at a height twice, the first counts.

    Args:
        lane: (P, 2) float64, px of the frame.
        heights: (G,) float32, evenly spaced, px of the frame.

    Returns:
        (G, 2) float32, x and y; -99999 above, below and in the gaps of the lane.
    """
    if len(lane) == 0:
        return _absent(heights)
    first, step = float(heights[0]), float(heights[1] - heights[0])
    places = np.rint((lane[:, 1] - first) / step)
    is_on_grid = np.abs(first + places * step - lane[:, 1]).max() <= TOLERANCE
    if is_on_grid and np.median(np.abs(np.diff(places, prepend=places[0] - 1))) <= 1:
        return _by_place(lane[:, 0], places.astype(np.int64), heights)
    return _with_heights(_between_points(lane, heights.astype(np.float64)), heights)


def fitted(lane: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Return the cubic x(y) through a lane at the grid's heights between its ends.

    Args:
        lane: (P, 2) float64, px of the frame, in any order; of fewer than four points the degree is
            one less than their number.
        heights: (G,) float32, px of the frame.

    Returns:
        (G, 2) float32, x and y; -99999 above and below the lane.

    Source: UFLDv2's CurveLanes conversion.
    """
    num_heights = len(np.unique(lane[:, 1]))
    if num_heights < 2:
        return _absent(heights)
    x, y = lane.T
    low, high = y.min(), y.max()

    def powers(values: np.ndarray) -> np.ndarray:
        # -1 to 1, so that the cubes are of one size
        return np.vander((2 * values - low - high) / (high - low), min(num_heights, 4))

    factors = np.linalg.lstsq(powers(y), x, rcond=None)[0]
    is_within = (heights >= low) & (heights <= high)
    at_grid = powers(heights.astype(np.float64)) @ factors
    return _with_heights(np.where(is_within, at_grid, np.nan), heights)


def slot_grid(
    points: Sequence[np.ndarray], lane_of_slot: np.ndarray, *, num_heights: int
) -> np.ndarray:
    """Return the lanes' points by slot.

    Args:
        points: per lane (G, 2) float32.
        lane_of_slot: (L,) int64, -1 where a slot has no lane.
        num_heights: G.

    Returns:
        (L, G, 2) float32; -99999 where a slot has no point.
    """
    grid = np.full((len(lane_of_slot), num_heights, 2), ABSENT, np.float32)
    for slot in np.flatnonzero(lane_of_slot >= 0):
        grid[slot] = points[lane_of_slot[slot]]
    return grid


def _by_place(x: np.ndarray, places: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Return x at the heights of these numbers; those beyond the grid's ends are dropped."""
    is_inside = (places >= 0) & (places < len(heights))
    at_grid = np.full(len(heights), np.nan)
    at_grid[places[is_inside]] = x[is_inside]
    return _with_heights(at_grid, heights)


def _between_points(lane: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Return x at each height on the first stretch that crosses it, NaN where none does."""
    start, end = lane[:-1, 1, None], lane[1:, 1, None]
    crosses = (start - heights) * (end - heights) <= 0
    if not len(crosses):
        return np.full(len(heights), np.nan)
    first = crosses.argmax(axis=0)
    x0, y0 = lane[first].T
    x1, y1 = lane[first + 1].T
    rise = np.where(y1 == y0, 1.0, y1 - y0)
    x = x0 + (x1 - x0) * (heights - y0) / rise
    return np.where(crosses.any(axis=0), x, np.nan)


def _with_heights(x: np.ndarray, heights: np.ndarray) -> np.ndarray:
    grid = np.stack([x, heights], axis=1).astype(np.float32)
    grid[np.isnan(x)] = ABSENT
    return grid


def _absent(heights: np.ndarray) -> np.ndarray:
    return np.full((len(heights), 2), ABSENT, np.float32)
