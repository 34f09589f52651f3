"""Draws boxes on pictures: for the run's fixed pictures, worst cases, predictions, data reports.

The tracking UI shows pictures 256 px wide, so lines and letters are made for that: at least 3 px
and large at 640 px. Pictures are (H, W, 3) uint8 RGB; what is given is never drawn on.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

import cv2
import numpy as np

from tasks.detection.geometry import Scene, resize

LONG_SIDE = 640
MOST_ENLARGED = 3.0
# more boxes than this are labelled in small letters
MANY_BOXES = 8
FONT = cv2.FONT_HERSHEY_SIMPLEX
# height of a capital letter at font scale 1, px
CAPITAL = 22
BLACK, WHITE, GROUND = (0, 0, 0), (255, 255, 255), (28, 28, 28)

Rgb = tuple[int, int, int]


def class_colour(label: int) -> Rgb:
    """Return a class's colour; neighbouring labels are far apart."""
    red, green, blue = colorsys.hsv_to_rgb(label * 0.618034 % 1, 0.85, 1.0)
    return round(red * 255), round(green * 255), round(blue * 255)


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
    height = _text_height(drawn, len(marks))
    for box, label, text in marks:
        left, top, _, _ = _corners(box)
        _write(drawn, text, left, top, colour=class_colour(int(label)), height=height)
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


def line_width(image: np.ndarray) -> int:
    """Return the width of lines on a picture, px: 3 at 640 px."""
    return int(max(1, round(max(image.shape[:2]) / 190)))


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
    height, width = truth.image.shape[:2]
    factor = min(LONG_SIDE / max(height, width), MOST_ENLARGED)
    size = {"width": max(1, round(width * factor)), "height": max(1, round(height * factor))}
    shown, found = resize(truth, **size), resize(detections, **size)
    drawn = draw_dashed(shown.image, shown.boxes_xyxy)
    drawn = draw_boxes(drawn, found.boxes_xyxy, found.labels.tolist(), texts)
    return np.concatenate([_title_strip(title, drawn.shape[1]), drawn])


def contact_sheet(
    pictures: Sequence[np.ndarray], *, columns: int = 4, side: int = 320
) -> np.ndarray:
    """Return pictures side by side in cells of `side` x `side` px, row by row.

    Args:
        pictures: at least one, of any sizes.
        columns: cells per row; fewer where there are fewer pictures.
        side: px of a cell.
    """
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    sheet = np.full((rows * side, columns * side, 3), GROUND, np.uint8)
    for number, picture in enumerate(pictures):
        factor = (side - 4) / max(picture.shape[:2])
        height, width = (max(1, round(length * factor)) for length in picture.shape[:2])
        shrunk = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)
        top, left = (number // columns) * side + 2, (number % columns) * side + 2
        sheet[top : top + height, left : left + width] = shrunk
    return sheet


def encode_png(image: np.ndarray) -> bytes:
    """Return a picture as a PNG file's bytes."""
    encoded: np.ndarray = cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))[1]
    return encoded.tobytes()


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


def _text_height(image: np.ndarray, num_texts: int) -> int:
    share = 26 if num_texts <= MANY_BOXES else 44
    return int(max(8, max(image.shape[:2]) // share))


def _write(drawn: np.ndarray, text: str, left: int, top: int, *, colour: Rgb, height: int) -> None:
    """Write a label on a filled ground, above (left, top) where there is room, else inside."""
    if not text:
        return
    scale, thickness = height / CAPITAL, max(1, height // 9)
    ascii_text = text.encode("ascii", "replace").decode()
    (width, _), _ = cv2.getTextSize(ascii_text, FONT, scale, thickness)
    margin = max(2, height // 4)
    full = height + 2 * margin
    left = int(np.clip(left, 0, max(0, drawn.shape[1] - width - 2 * margin)))
    top = top - full if top >= full else max(top, 0)
    cv2.rectangle(drawn, (left, top), (left + width + 2 * margin, top + full - 1), colour, -1)
    is_bright = np.dot(colour, [0.299, 0.587, 0.114]) > 140
    position = (left + margin, top + full - margin - 1)
    letters = BLACK if is_bright else WHITE
    cv2.putText(drawn, ascii_text, position, FONT, scale, letters, thickness, cv2.LINE_AA)


def _title_strip(title: str, width: int) -> np.ndarray:
    height = max(10, width // 32)
    strip = np.full((2 * height, width, 3), GROUND, np.uint8)
    scale = height / CAPITAL
    text = title.encode("ascii", "replace").decode()
    while len(text) > 1 and cv2.getTextSize(text, FONT, scale, 1)[0][0] > width - 8:
        text = text[:-1]
    at = (4, height + height // 2)
    cv2.putText(strip, text, at, FONT, scale, WHITE, max(1, height // 10), cv2.LINE_AA)
    return strip
