"""What the quality report shows of a detection set: counts, and findings drawn on pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import cv2
import numpy as np

from readers.index import ImageBoxesIndex
from readers.records import Finding, ImageBoxes
from tasks.quality import finding_drawer

SIDE = 448  # px; twice the thumbnail, so that lines stay smooth
FAR = 1e9  # px; boxes of any numbers at all are drawn as if they ended there
MARGIN = 0.25  # how far beyond the frame a box is shown, share of the side
GREEN, RED, GREY = (60, 180, 90), (230, 40, 40), (128, 128, 128)
SIDES = (8, 16, 32, 64, 128, 256, 512)  # px, edges of the table of box sizes
PER_PICTURE = (1, 2, 5, 10, 20, 50)  # edges of the table of boxes per picture
COCO_AREAS = {"small (below 32^2 px)": (0, 32), "medium": (32, 96), "large (from 96^2 px)": (96, 0)}
SIZES_SHOWN = 12


def box_counts(index: ImageBoxesIndex) -> dict[str, Any]:
    """Return counts of an index and small tables of sizes, for the quality report."""
    boxes = [record.boxes_xyxy for record in index]
    joined = np.concatenate([np.zeros((0, 4)), *boxes])
    sides = np.sqrt((joined[:, 2] - joined[:, 0]) * (joined[:, 3] - joined[:, 1]))
    sizes = Counter(f"{width}x{height}" for width, height in index.sizes.tolist())
    common = dict(sizes.most_common(SIZES_SHOWN))
    if len(sizes) > SIZES_SHOWN:
        common["other sizes"] = len(index) - sum(common.values())
    return {
        **index.counts(),
        "classes": len(index.class_names),
        "digest": index.digest[:12],
        "box_areas": {
            name: int(((sides >= low) & ((sides < high) | (high == 0))).sum())
            for name, (low, high) in COCO_AREAS.items()
        },
        "square_root_of_box_area": _histogram(sides, SIDES, "px"),
        "boxes_per_picture": _histogram(np.array([len(item) for item in boxes]), PER_PICTURE),
        "picture_sizes": common,
    }


def draw_finding(index: ImageBoxesIndex) -> Callable[[Finding], np.ndarray | None]:
    """Return a function that draws findings; see `tasks.quality.finding_drawer`."""
    return finding_drawer(index, _drawn)


def _drawn(picture: np.ndarray, record: ImageBoxes, finding: Finding) -> np.ndarray:
    box_xyxy = finding.box_xyxy
    scale = SIDE / max(record.width, record.height)
    size = max(1, round(record.width * scale)), max(1, round(record.height * scale))
    canvas: np.ndarray = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    shift = np.zeros(2)
    wrong = None if box_xyxy is None else np.clip(box_xyxy, -FAR, FAR) * scale
    if wrong is not None:
        canvas, shift = _with_margin(canvas, wrong)
    for box in record.boxes_xyxy:
        _rectangle(canvas, box * scale, shift, color=GREEN)
    if wrong is not None:
        _rectangle(canvas, wrong, shift, color=RED)
    return canvas


def _with_margin(canvas: np.ndarray, box: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the canvas with grey ground where the box runs out of it, and the shift (x, y)."""
    height, width = canvas.shape[:2]
    x1, x2 = sorted((box[0], box[2]))
    y1, y2 = sorted((box[1], box[3]))
    most = MARGIN * max(height, width)
    left, top, right, bottom = (
        int(np.clip(beyond + 6, 0, most)) if beyond > 1 else 0
        for beyond in (-x1, -y1, x2 - width, y2 - height)
    )
    if left or top or right or bottom:
        canvas = cv2.copyMakeBorder(
            canvas, top, bottom, left, right, cv2.BORDER_CONSTANT, value=GREY
        )
    return canvas, np.array([left, top], np.float64)


def _rectangle(
    canvas: np.ndarray, box: np.ndarray, shift: np.ndarray, *, color: tuple[int, int, int]
) -> None:
    """Draw a box; one without visible extent gets a cross."""
    limit = 4.0 * SIDE  # far-off corners overflow the drawing's integers
    x1, y1, x2, y2 = np.clip(np.rint(box + np.tile(shift, 2)), -limit, limit).astype(int).tolist()
    thickness = 4 if color == RED else 2
    if min(abs(x2 - x1), abs(y2 - y1)) < 2 * thickness and color == RED:
        centre = ((x1 + x2) // 2, (y1 + y2) // 2)
        cv2.drawMarker(canvas, centre, color, cv2.MARKER_TILTED_CROSS, 28, thickness)
    cv2.rectangle(canvas, (x1, y1), (x2, y2), color, thickness)


def _histogram(values: np.ndarray, edges: Sequence[int], unit: str = "") -> dict[str, int]:
    """Return how many values lie below the first edge, between two, and from the last on."""
    unit = f" {unit}" if unit else ""
    names = [f"below {edges[0]}{unit}" if edges[0] > 1 else "0"]
    names += [
        f"{low} to {high}{unit}" if unit else _whole(low, high) for low, high in pairwise(edges)
    ]
    names.append(f"from {edges[-1]}{unit}")
    counts = np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(names))
    return dict(zip(names, counts.tolist(), strict=True))


def _whole(low: int, high: int) -> str:
    return str(low) if high == low + 1 else f"{low} to {high - 1}"
