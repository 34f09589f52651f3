"""The pixels that thick lanes cover, as one interval of columns per image row.

A lane that never turns back in y, drawn with some width, covers one interval in every row. Its ends
are the least and greatest over its steps' stamps, so that areas and intersections of all lanes of
many frames are sums over rows. Lanes that turn back, or whose samples lie far apart, are drawn.

M lanes, H and W rows and columns of the image, T samples of all lanes together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from tasks.lanes.splines import LaneSamples
from tasks.lanes.stamps import LONGEST_STEP, row_intervals, stamp_of, steps_with_stamps

# px; lanes are cut there so that coordinates fit whole numbers of 32 bits
FARTHEST = 10_000_000
# first column of a row without a lane; negative, the last one
NO_INT16 = 16_000
NO_INT32 = 2**29


@dataclass(frozen=True)
class Canvas:
    """What lanes are drawn on.

    Args:
        width: px.
        height: px.
        lane_width: px of the lines.
    """

    width: int
    height: int
    lane_width: int


@dataclass(frozen=True)
class DrawnLane:
    """A lane that is no interval in some row: its pixels within its bounding box.

    Args:
        top: first row of the box.
        left: first column.
        mask: (h, w) bool.
        before: (h, w + 1) int32, pixels of the lane in the row before each column.
    """

    top: int
    left: int
    mask: np.ndarray
    before: np.ndarray


@dataclass(frozen=True)
class LaneAreas:
    """The pixels of lanes.

    Args:
        first: (M, H) int, first column in each row; larger than `last` where there is none.
        last: (M, H) int, last column.
        area: (M,) int64, pixels.
        drawn: lane -> its pixels, for those that are no intervals; their rows above are empty.
    """

    first: np.ndarray
    last: np.ndarray
    area: np.ndarray
    drawn: Mapping[int, DrawnLane]


def areas_of(samples: LaneSamples, canvas: Canvas) -> LaneAreas:
    """Return the pixels of lanes drawn through their samples, rounded half to even.

    Args:
        samples: px of the canvas.
        canvas: size and width of the lines.

    Source: CULane's evaluator draws the same pixels, with `cv::line` on whole images.
    """
    steps = _steps_of(samples)
    is_flowing = _flow(steps, canvas.lane_width)
    first, last = _stamped(steps, canvas, is_flowing)
    area = np.maximum(last - first + 1, 0).sum(1, dtype=np.int64)
    drawn: dict[int, DrawnLane] = {}
    for lane in np.nonzero(~is_flowing & (steps.counts > 0))[0].tolist():
        found = _draw(steps.points_of(lane), canvas)
        if found is None:
            continue
        area[lane] = found.mask.sum()
        rows, left, right = row_intervals(found.mask)
        if (right - left + 1).sum() == area[lane]:
            first[lane, rows + found.top] = left + found.left
            last[lane, rows + found.top] = right + found.left
        else:
            drawn[lane] = found
    return LaneAreas(first, last, area, drawn)


def intersections(areas: LaneAreas, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the number of common pixels of pairs of lanes.

    Args:
        areas: of all lanes.
        ones: (K,) int64, a lane of each pair.
        others: (K,) int64, the other.

    Returns:
        (K,) int64.
    """
    width = np.minimum(areas.last[ones], areas.last[others])
    width -= np.maximum(areas.first[ones], areas.first[others])
    width += 1
    found = np.maximum(width, 0, out=width).sum(1, dtype=np.int64)
    if areas.drawn:
        is_drawn = np.zeros(len(areas.area), bool)
        is_drawn[list(areas.drawn)] = True
        for pair in np.nonzero(is_drawn[ones] | is_drawn[others])[0].tolist():
            found[pair] = _common(areas, int(ones[pair]), int(others[pair]))
    return found


@dataclass(frozen=True)
class _Steps:
    """From each whole point of a lane to its next; the last point of a lane has a step of 0.

    All (T',) int32, px, but for `counts` and `begins`: points of each lane, and where they begin.
    """

    x: np.ndarray
    y: np.ndarray
    dx: np.ndarray
    dy: np.ndarray
    owner: np.ndarray
    counts: np.ndarray
    begins: np.ndarray

    def points_of(self, lane: int) -> np.ndarray:
        """Return (P, 2) int32."""
        part = slice(self.begins[lane], self.begins[lane] + self.counts[lane])
        return np.stack([self.x[part], self.y[part]], axis=1)


def _steps_of(samples: LaneSamples) -> _Steps:
    num_lanes = len(samples.counts)
    owner = np.repeat(np.arange(num_lanes, dtype=np.int32), samples.counts)
    x, y = (
        np.rint(values).clip(-FARTHEST, FARTHEST).astype(np.int32)
        for values in (samples.x, samples.y)
    )
    is_new = np.ones(len(x), bool)
    is_new[1:] = (x[1:] != x[:-1]) | (y[1:] != y[:-1]) | (owner[1:] != owner[:-1])
    x, y, owner = x[is_new], y[is_new], owner[is_new]
    dx, dy = np.zeros_like(x), np.zeros_like(y)
    goes_on = owner[1:] == owner[:-1]
    dx[:-1] = np.diff(x) * goes_on
    dy[:-1] = np.diff(y) * goes_on
    counts = np.bincount(owner, minlength=num_lanes)
    return _Steps(x, y, dx, dy, owner, counts, counts.cumsum() - counts)


def _flow(steps: _Steps, lane_width: int) -> np.ndarray:
    """Tell, (M,) bool, which lanes never turn back in y and have only steps with stamps."""
    is_flowing = np.zeros(len(steps.counts), bool)
    there = np.nonzero(steps.counts)[0]
    if not len(there):
        return is_flowing
    begins = steps.begins[there]
    is_short = np.maximum(np.abs(steps.dx), np.abs(steps.dy)) <= LONGEST_STEP
    right, down = (np.where(is_short, step, 0) + LONGEST_STEP for step in (steps.dx, steps.dy))
    is_known = is_short & steps_with_stamps(lane_width)[right, down]
    falls = np.minimum.reduceat(steps.dy, begins) >= 0
    rises = np.maximum.reduceat(steps.dy, begins) <= 0
    is_flowing[there] = np.logical_and.reduceat(is_known, begins) & (falls | rises)
    return is_flowing


def _stamped(
    steps: _Steps, canvas: Canvas, is_flowing: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and last columns, (M, H) each, of the lanes that flow."""
    margin = 2 * (canvas.lane_width + LONGEST_STEP)
    # narrow numbers where they suffice: this is what takes the time
    kind, none = (np.int16, NO_INT16) if canvas.width + margin < NO_INT16 else (np.int32, NO_INT32)
    shape = (len(steps.counts), canvas.height)
    first, last = np.full(shape, none, kind), np.full(shape, -none, kind)
    # the last point's disc is part of the step before, unless it is the only point
    is_step = (steps.dx != 0) | (steps.dy != 0) | (steps.counts == 1)[steps.owner]
    use = is_step & is_flowing[steps.owner]
    x, y, dx, dy, owner = (
        values[use] for values in (steps.x, steps.y, steps.dx, steps.dy, steps.owner)
    )
    # the same line from its upper end
    is_rising = dy < 0
    x, y = x + dx * is_rising, y + dy * is_rising
    dx, dy = np.where(is_rising, -dx, dx), np.abs(dy)
    is_near = (y >= -margin) & (y < canvas.height + margin)
    # beyond the margin a line is outside, wherever it is
    x = x.clip(-margin, canvas.width + margin).astype(kind)
    code = np.where(is_near, (dx + LONGEST_STEP) * (LONGEST_STEP + 1) + dy, -1)
    for key in np.unique(code[is_near]).tolist():
        chosen = np.nonzero(code == key)[0]
        right, down = divmod(key, LONGEST_STEP + 1)
        stamp = stamp_of(right - LONGEST_STEP, down, lane_width=canvas.lane_width)
        assert stamp is not None
        places = (owner[chosen], y[chosen], x[chosen])
        _press(first, places, stamp.rows, stamp.first, reduce=np.minimum)
        _press(last, places, stamp.rows, stamp.last, reduce=np.maximum)
    np.maximum(first, 0, out=first)
    np.minimum(last, canvas.width - 1, out=last)
    return first, last


def _press(
    ends: np.ndarray,
    places: tuple[np.ndarray, np.ndarray, np.ndarray],
    rows: Sequence[int],
    columns: Sequence[int],
    *,
    reduce: np.ufunc,
) -> None:
    """Take one stamp at many places into the ends of intervals.

    Args:
        ends: (M, H), changed in place.
        places: owner, y and x of each stamp.
        rows: of the stamp.
        columns: of the stamp, one per row.
        reduce: minimum for first columns, maximum for last ones.
    """
    owner, y, x = places
    lanes, place = np.unique(owner, return_inverse=True)
    top, height = int(y.min()), ends.shape[1]
    none = NO_INT16 if ends.dtype == np.int16 else NO_INT32
    nothing = none if reduce is np.minimum else -none
    # of all stamps of a lane in a row only the outermost counts
    outermost = np.full((len(lanes), int(y.max()) - top + 1), nothing, ends.dtype)
    reduce.at(outermost, (place, y - top), x)
    found = np.full((len(lanes), height), nothing, ends.dtype)
    shifted = np.empty_like(outermost)
    for row, column in zip(rows, columns, strict=True):
        begin, end = max(top + row, 0), min(top + row + outermost.shape[1], height)
        if begin >= end:
            continue
        source = outermost[:, begin - top - row : end - top - row]
        moved = np.add(source, ends.dtype.type(column), out=shifted[:, : end - begin])
        part = found[:, begin:end]
        reduce(part, moved, out=part)
    ends[lanes] = reduce(ends[lanes], found)


def _draw(points: np.ndarray, canvas: Canvas) -> DrawnLane | None:
    """Return the pixels of a line through whole points, (P, 2) int32; None: it has none."""
    around = canvas.lane_width // 2 + 2
    left, top = np.maximum(points.min(0) - around, 0).tolist()
    right, bottom = np.minimum(points.max(0) + around + 1, (canvas.width, canvas.height)).tolist()
    if left >= right or top >= bottom:
        return None
    pixels = np.zeros((bottom - top, right - left), np.uint8)
    cv2.polylines(pixels, [points - np.array([left, top], np.int32)], False, 1, canvas.lane_width)
    if not pixels.any():
        return None
    before = np.zeros((pixels.shape[0], pixels.shape[1] + 1), np.int32)
    pixels.cumsum(1, dtype=np.int32, out=before[:, 1:])
    return DrawnLane(top, left, pixels.astype(bool), before)


def _common(areas: LaneAreas, one: int, other: int) -> int:
    """Return the common pixels of two lanes of which at least one is drawn."""
    if one not in areas.drawn:
        one, other = other, one
    drawn = areas.drawn[one]
    if other in areas.drawn:
        return _common_drawn(drawn, areas.drawn[other])
    height, width = drawn.mask.shape
    rows = slice(drawn.top, drawn.top + height)
    begin = (areas.first[other, rows].astype(np.int64) - drawn.left).clip(0, width)
    end = (areas.last[other, rows].astype(np.int64) + 1 - drawn.left).clip(0, width)
    number = np.arange(height)
    pixels = drawn.before[number, np.maximum(end, begin)] - drawn.before[number, begin]
    return int(pixels.sum())


def _common_drawn(one: DrawnLane, other: DrawnLane) -> int:
    boxes = np.array(
        [[d.top, d.left, d.top + d.mask.shape[0], d.left + d.mask.shape[1]] for d in (one, other)]
    )
    top, left = boxes[:, :2].max(0)
    bottom, right = boxes[:, 2:].min(0)
    if top >= bottom or left >= right:
        return 0
    parts = [
        d.mask[top - d.top : bottom - d.top, left - d.left : right - d.left] for d in (one, other)
    ]
    return int((parts[0] & parts[1]).sum())
