"""Draws boxes on pictures: for the run's fixed pictures, worst cases, predictions, data reports.

Pictures are (H, W, 3) uint8 RGB; what is given is never drawn on.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from tasks.detection.geometry import Scene, resize
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


def class_colour(label: int) -> Rgb:
    """Return a class's colour; neighbouring labels are far apart."""
    return number_colour(label)


def draw_boxes(
    image: np.ndarray, boxes_xyxy: np.ndarray, labels: Sequence[int], texts: Sequence[str]
) -> np.ndarray:
    """Return a copy of the picture with solid boxes in their classes' colours.

    Args:
        image: the picture.
        boxes_xyxy: (N, 4), px of the picture.
        labels: N class numbers from 0, for the colours.
        texts: N labels; letters beyond ASCII are shown as `?`.
    """
    drawn = np.ascontiguousarray(image).copy()
    # the first (best) ones come last, on top, and letters above all lines
    marks = list(reversed(list(zip(boxes_xyxy, labels, texts, strict=True))))
    for box, label, _ in marks:
        left, top, right, bottom = _corners(box)
        colour = class_colour(int(label))
        cv2.rectangle(drawn, (left, top), (right, bottom), colour, line_width(drawn))
    height = text_height(drawn, len(marks))
    for box, label, text in marks:
        left, top, _, _ = _corners(box)
        colour = class_colour(int(label))
        write_label(drawn, text, left=left, top=top, colour=colour, height=height)
    return drawn


def draw_dashed(image: np.ndarray, boxes_xyxy: np.ndarray) -> np.ndarray:
    """Return a copy of the picture with boxes (N, 4) in black and white dashes."""
    drawn = np.ascontiguousarray(image).copy()
    width = line_width(drawn)
    for box in boxes_xyxy:
        left, top, right, bottom = _corners(box)
        cv2.rectangle(drawn, (left, top), (right, bottom), BLACK, width)
        for start, end in (
            ((left, top), (right, top)),
            ((right, top), (right, bottom)),
            ((right, bottom), (left, bottom)),
            ((left, bottom), (left, top)),
        ):
            _dashes(drawn, np.array(start), np.array(end), width)
    return drawn


def compare(truth: Scene, detections: Scene, *, texts: Sequence[str], title: str) -> np.ndarray:
    """Return a picture with what is labelled (dashed) and what was found (coloured), for the UI.

    Args:
        truth: the picture and its labelled boxes.
        detections: the same picture and the boxes found, best first.
        texts: the label of each found box.
        title: written above the picture, e.g. its name.

    Returns:
        The picture with a strip on top, its long side near 640 px.
    """
    height, width = shown_size(*truth.image.shape[:2])
    shown = resize(truth, width=width, height=height)
    found = resize(detections, width=width, height=height)
    drawn = draw_dashed(shown.image, shown.boxes_xyxy)
    drawn = draw_boxes(drawn, found.boxes_xyxy, found.labels.tolist(), texts)
    return np.concatenate([title_strip(title, width), drawn])


def _corners(box: np.ndarray) -> tuple[int, int, int, int]:
    left, top, right, bottom = np.asarray(box).round().astype(int).tolist()
    return left, top, right - 1, bottom - 1


def _dashes(drawn: np.ndarray, start: np.ndarray, end: np.ndarray, width: int) -> None:
    length = float(np.abs(end - start).max())
    step = 4.0 * width
    for begin in np.arange(0, length, 2 * step):
        first = start + (end - start) * (begin / length)
        last = start + (end - start) * (min(begin + step, length) / length)
        cv2.line(drawn, _point(first), _point(last), WHITE, width)


def _point(position: np.ndarray) -> tuple[int, int]:
    return round(float(position[0])), round(float(position[1]))
