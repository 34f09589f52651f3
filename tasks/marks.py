"""Lines, letters and colours for marks on pictures of any task.

The tracking UI shows pictures 256 px wide, so lines and letters are made for that: at least 3 px
and large at 640 px. Pictures are (H, W, 3) uint8 RGB.
"""

from __future__ import annotations

import colorsys

import cv2
import numpy as np

LONG_SIDE = 640
MOST_ENLARGED = 3.0
# more marks than this are labelled in small letters
MANY_MARKS = 8
FONT = cv2.FONT_HERSHEY_SIMPLEX
# height of a capital letter at font scale 1, px
CAPITAL = 22
BLACK, WHITE, GROUND = (0, 0, 0), (255, 255, 255), (28, 28, 28)

Rgb = tuple[int, int, int]


def number_colour(number: int) -> Rgb:
    """Return a bright colour for a number from 0; neighbouring numbers are far apart."""
    red, green, blue = colorsys.hsv_to_rgb(number * 0.618034 % 1, 0.85, 1.0)
    return round(red * 255), round(green * 255), round(blue * 255)


def line_width(image: np.ndarray) -> int:
    """Return the width of lines on a picture, px: 3 at 640 px."""
    return int(max(1, round(max(image.shape[:2]) / 190)))


def text_height(image: np.ndarray, num_texts: int) -> int:
    """Return the height of a capital letter on a picture with so many labels, px."""
    share = 26 if num_texts <= MANY_MARKS else 44
    return int(max(8, max(image.shape[:2]) // share))


def shown_size(height: int, width: int) -> tuple[int, int]:
    """Return the (height, width) at which the UI gets a picture: its long side near 640 px."""
    factor = min(LONG_SIDE / max(height, width), MOST_ENLARGED)
    return max(1, round(height * factor)), max(1, round(width * factor))


def write_label(
    drawn: np.ndarray, text: str, *, left: int, top: int, colour: Rgb, height: int
) -> None:
    """Write a label on a filled ground, above (left, top) where there is room, else inside.

    Args:
        drawn: the picture; changed.
        text: letters beyond ASCII are shown as `?`; an empty one leaves no mark.
        left: px.
        top: px.
        colour: of the ground; the letters are black or white.
        height: of a capital letter, px.
    """
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


def title_strip(title: str, width: int) -> np.ndarray:
    """Return a dark strip with a title, (height, width, 3); what does not fit is cut off."""
    height = max(10, width // 32)
    strip = np.full((2 * height, width, 3), GROUND, np.uint8)
    scale = height / CAPITAL
    text = title.encode("ascii", "replace").decode()
    while len(text) > 1 and cv2.getTextSize(text, FONT, scale, 1)[0][0] > width - 8:
        text = text[:-1]
    at = (4, height + height // 2)
    cv2.putText(strip, text, at, FONT, scale, WHITE, max(1, height // 10), cv2.LINE_AA)
    return strip
