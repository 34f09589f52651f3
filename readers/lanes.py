"""Lanes as the files give them, and what is done about those that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.boxes import Box
from readers.findings import FindingLog
from readers.pictures import Size

# Clicks jitter: a lane that goes back by less than this, px, has not turned.
TURN_TOLERANCE = 1.0


@dataclass(frozen=True, slots=True)
class RawLane:
    """A lane as a label file gives it.

    Args:
        points: (P, 2) float64, x and y in px; may be any numbers at all.
        where: file and line, or file and number of the lane.
    """

    points: np.ndarray
    where: str


@dataclass(frozen=True)
class LaneCleaner:
    """Cleans the lanes of one data set.

    Args:
        findings: gets what is wrong.
        keeps_useless: keep lanes that nothing can be drawn of, as the benchmarks' scores count
            them; false drops them.
        may_be_empty: whether lanes without any point fill up the lists of the format.
    """

    findings: FindingLog
    keeps_useless: bool
    may_be_empty: bool = False

    def clean(self, raw: Sequence[RawLane], size: Size, *, image_id: str) -> list[np.ndarray]:
        """Return the lanes of one picture, (P, 2) float64 px, in order.

        Args:
            raw: in px.
            size: width and height of the picture, px.
            image_id: for the findings.
        """
        cleaned = (self._clean(lane, size, image_id=image_id) for lane in raw)
        return [points for points in cleaned if points is not None]

    def _clean(self, lane: RawLane, size: Size, *, image_id: str) -> np.ndarray | None:
        points = self._usable_points(lane, image_id=image_id)
        about: dict[str, Any] = {"image_id": image_id, "box_xyxy": _bounds(points)}
        if len(points) == 0 and len(lane.points) == 0 and self.may_be_empty:
            return points
        fault = _fault(points, size)
        if fault is not None:
            action = "lane dropped"
            if self.keeps_useless:
                action = "kept: the benchmark's score counts it as a lane that is never found"
            self.findings.warn(fault[0], lane.where, fault[1], action=action, **about)
            return points if self.keeps_useless else None
        steps = np.diff(points[:, 1])
        down, up = steps[steps > 0].sum(), -steps[steps < 0].sum()
        if min(down, up) > TURN_TOLERANCE:
            message = f"the lane runs {down:.6g} px down and {up:.6g} px up again"
            action = "kept; it has more than one point at some heights"
            self.findings.warn("lane-turns-back", lane.where, message, action=action, **about)
        return points

    def _usable_points(self, lane: RawLane, *, image_id: str) -> np.ndarray:
        points, about = lane.points, {"image_id": image_id}
        is_finite = np.isfinite(points).all(axis=1)
        if not is_finite.all():
            number = int((~is_finite).sum())
            message = f"{number} of {len(points)} points are NaN or infinite"
            action = "points dropped"
            self.findings.warn("non-finite-point", lane.where, message, action=action, **about)
            points = points[is_finite]
        is_repeat = (points[1:] == points[:-1]).all(axis=1)
        if is_repeat.any():
            x, y = points[1:][is_repeat][0].tolist()
            number = int(is_repeat.sum())
            message = f"points equal to the one before: {number}, first {x:.6g} {y:.6g}"
            action = "repeats dropped"
            self.findings.warn("repeated-point", lane.where, message, action=action, **about)
            points = points[np.concatenate([[True], ~is_repeat])]
        return points


def share_outside(lanes: Sequence[np.ndarray], size: Size) -> tuple[int, int]:
    """Return how many points lie outside the picture, and how many there are."""
    points = np.concatenate([np.zeros((0, 2)), *lanes])
    is_outside = ((points < 0) | (points > np.array(size, np.float64))).any(axis=1)
    return int(is_outside.sum()), len(points)


def _fault(points: np.ndarray, size: Size) -> tuple[str, str] | None:
    """Return code and message of what makes a lane useless, if anything does."""
    if len(points) < 2:
        count = "no point" if len(points) == 0 else "one point"
        return "short-lane", f"the lane has {count}; a lane needs two"
    low, high = points.min(axis=0), points.max(axis=0)
    if (high < 0).any() or (low > np.array(size, np.float64)).any():
        x, y = points[0].tolist()
        message = f"the lane lies outside the picture ({size[0]}x{size[1]}), first {x:.6g} {y:.6g}"
        return "lane-outside", message
    return None


def _bounds(points: np.ndarray) -> Box | None:
    if len(points) == 0:
        return None
    x1, y1 = points.min(axis=0).tolist()
    x2, y2 = points.max(axis=0).tolist()
    return x1, y1, x2, y2
