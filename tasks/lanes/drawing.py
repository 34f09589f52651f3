"""Draws lanes on pictures: for the run's fixed pictures, worst cases, predictions, data reports.

One colour language for all of them:

- a solid line with a dark edge is a lane as it was found (or as it is shown alone), in the colour
  of its slot; grey: it has no slot;
- black and white dashes, wider than that line, are a lane as it was labelled; the disc at its
  lower end has the colour of its slot. Dashes on both sides of a solid line: found where it lies;
  dashes alone: missed; a solid line alone: not labelled; disc and line of two colours: found in
  another slot.

Pictures are (H, W, 3) uint8 RGB; what is given is never drawn on. A lane is (P, 2), x and y in px
of the picture; it may run out of the picture and may have any number of points.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from tasks.marks import (
    BLACK,
    WHITE,
    Rgb,
    line_width,
    number_colour,
    shown_size,
    text_height,
    title_strip,
    write_label,
)

NO_SLOT: Rgb = (190, 190, 190)
# points are given to OpenCV in 1/16 px
_SHIFT = 4
# points farther out than this many px are pulled in: OpenCV's coordinates end at 2**31 / 16, and a
# line must not get millions of dashes
_FARTHEST = 1e5


def slot_colour(slot: int) -> Rgb:
    """Return a slot's colour; grey for a lane without one (-1)."""
    return number_colour(slot) if slot >= 0 else NO_SLOT


def draw_lanes(
    picture: np.ndarray,
    lanes: Sequence[np.ndarray],
    slots: Sequence[int],
    *,
    texts: Sequence[str] = (),
) -> np.ndarray:
    """Return a copy of the picture with solid lanes in their slots' colours.

    Args:
        picture: the picture.
        lanes: each (P, 2), px of the picture.
        slots: slot of each lane from 0; -1: none.
        texts: a label for each lane, written at its lower end; none where empty.
    """
    drawn = np.ascontiguousarray(picture).copy()
    marks = list(zip(lanes, slots, strict=True))
    width = line_width(drawn)
    for lane, _ in marks:
        _line(drawn, lane, colour=BLACK, width=width + 2)
    for lane, slot in marks:
        _line(drawn, lane, colour=slot_colour(int(slot)), width=width)
    if texts:
        # letters lie above all lines
        for (lane, slot), text in zip(marks, texts, strict=True):
            _write_at_lower_end(drawn, lane, text, colour=slot_colour(int(slot)))
    return drawn


def draw_dashed(picture: np.ndarray, lanes: Sequence[np.ndarray]) -> np.ndarray:
    """Return a copy of the picture with lanes in black and white dashes, as labels are shown."""
    drawn = np.ascontiguousarray(picture).copy()
    # on both sides of a found line and its dark edge, two px of white remain
    width = 2 * line_width(drawn) + 5
    for lane in lanes:
        _line(drawn, lane, colour=BLACK, width=width)
        for dash in _dashes(lane, length=2.0 * width):
            _line(drawn, dash, colour=WHITE, width=width - 2)
    return drawn


def compare(
    picture: np.ndarray,
    truth_lanes: Sequence[np.ndarray],
    truth_slots: Sequence[int],
    found_lanes: Sequence[np.ndarray],
    found_slots: Sequence[int],
    *,
    title: str,
) -> np.ndarray:
    """Return a picture with what is labelled (dashed) and what was found (coloured), for the UI.

    Args:
        picture: the picture.
        truth_lanes: labelled lanes, px of the picture.
        truth_slots: their slots from 0; -1: none.
        found_lanes: lanes that were found, px of the picture.
        found_slots: their slots.
        title: written above the picture, e.g. its name.

    Returns:
        The picture with a strip on top, its long side near 640 px.
    """
    height, width = picture.shape[:2]
    new_height, new_width = shown_size(height, width)
    way = cv2.INTER_AREA if new_width < width else cv2.INTER_LINEAR
    drawn = cv2.resize(picture, (new_width, new_height), interpolation=way)
    factor = np.array([new_width / width, new_height / height])
    truth = [_points(lane) * factor for lane in truth_lanes]
    drawn = draw_dashed(drawn, truth)
    drawn = draw_lanes(drawn, [_points(lane) * factor for lane in found_lanes], found_slots)
    for lane, slot in zip(truth, truth_slots, strict=True):
        _disc(drawn, lane, slot_colour(int(slot)))
    return np.concatenate([title_strip(title, new_width), drawn])


def _points(lane: np.ndarray) -> np.ndarray:
    points = np.asarray(lane, np.float64).reshape(-1, 2)
    return np.clip(points, -_FARTHEST, _FARTHEST)


def _line(drawn: np.ndarray, lane: np.ndarray, *, colour: Rgb, width: int) -> None:
    points = _points(lane)
    if len(points):
        # OpenCV's pixel centres are whole numbers
        fixed = np.round((points - 0.5) * 2**_SHIFT).astype(np.int32)
        cv2.polylines(drawn, [fixed], False, colour, width, cv2.LINE_AA, _SHIFT)


def _dashes(lane: np.ndarray, *, length: float) -> list[np.ndarray]:
    """Return every other piece of `length` px along the lane, each a line of its own."""
    points = _points(lane)
    along = np.r_[0, np.cumsum(np.hypot(*np.diff(points, axis=0).T))] if len(points) else []
    if len(points) < 2 or not along[-1] > 0:
        return []
    starts = np.arange(0, along[-1], 2 * length)
    at = np.minimum(starts[:, None] + np.linspace(0, length, 4), along[-1])
    x, y = (np.interp(at, along, points[:, axis]) for axis in (0, 1))
    return list(np.stack([x, y], axis=-1))


def _disc(drawn: np.ndarray, lane: np.ndarray, colour: Rgb) -> None:
    radius = line_width(drawn) + 5
    end = _lower_end(lane, drawn, margin=radius)
    if end is not None:
        cv2.circle(drawn, end, radius + 1, BLACK, -1, cv2.LINE_AA)
        cv2.circle(drawn, end, radius - 1, colour, -1, cv2.LINE_AA)


def _write_at_lower_end(drawn: np.ndarray, lane: np.ndarray, text: str, *, colour: Rgb) -> None:
    end = _lower_end(lane, drawn, margin=0)
    if end is not None:
        height = text_height(drawn, 0)
        write_label(drawn, text, left=end[0], top=end[1], colour=colour, height=height)


def _lower_end(lane: np.ndarray, drawn: np.ndarray, *, margin: int) -> tuple[int, int] | None:
    """Return about the lowest place of the lane that is so many px inside the picture."""
    points = _points(lane)
    if not len(points):
        return None
    at = np.linspace(0, len(points) - 1, 8 * len(points))
    x, y = (np.interp(at, np.arange(len(points)), points[:, axis]) for axis in (0, 1))
    height, width = drawn.shape[:2]
    inside = (x >= margin) & (x <= width - margin) & (y >= margin) & (y <= height - margin)
    if not inside.any():
        return None
    lowest = np.where(inside, y, -1).argmax()
    return round(float(x[lowest])), round(float(y[lowest]))
