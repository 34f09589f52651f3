"""Pictures on a sheet and as PNG files, for the reports of every task."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from tasks.marks import GROUND


def contact_sheet(
    pictures: Sequence[np.ndarray], *, columns: int = 4, side: int = 320
) -> np.ndarray:
    """Return pictures side by side in cells of `side` px, row by row; rows are as high as needed.

    Args:
        pictures: at least one, each (H, W, 3) uint8 RGB of any size.
        columns: cells per row; fewer where there are fewer pictures.
        side: px of a cell's width, and of its largest height.
    """
    columns = min(columns, len(pictures))
    shrunk = [_shrunk(picture, side - 4) for picture in pictures]
    rows = [shrunk[start : start + columns] for start in range(0, len(shrunk), columns)]
    heights = [max(picture.shape[0] for picture in row) + 4 for row in rows]
    sheet = np.full((sum(heights), columns * side, 3), GROUND, np.uint8)
    top = 2
    for row, cell_height in zip(rows, heights, strict=True):
        for column, picture in enumerate(row):
            height, width = picture.shape[:2]
            left = column * side + 2
            sheet[top : top + height, left : left + width] = picture
        top += cell_height
    return sheet


def _shrunk(picture: np.ndarray, longest: int) -> np.ndarray:
    factor = longest / max(picture.shape[:2])
    height, width = (max(1, round(length * factor)) for length in picture.shape[:2])
    return cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)


def encode_png(image: np.ndarray) -> bytes:
    """Return a picture, (H, W, 3) RGB or (H, W) grey uint8, as a PNG file's bytes."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR) if image.ndim == 3 else image
    encoded: np.ndarray = cv2.imencode(".png", bgr)[1]
    return encoded.tobytes()


def worst_files(pictures: Sequence[np.ndarray]) -> dict[str, bytes]:
    """Return `worst.png`, all pictures on one sheet, and each as `worst/NN.png`."""
    if not pictures:
        return {}
    files = {"worst.png": encode_png(contact_sheet(pictures))}
    for number, picture in enumerate(pictures, start=1):
        files[f"worst/{number:02d}.png"] = encode_png(picture)
    return files
