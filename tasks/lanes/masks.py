"""Masks of lane numbers, drawn where a data set has none and kept by their content."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

THICKNESS = 16  # px of the picture
DRAWING = 1  # changes when the same lanes give another mask

# points farther out, px, are pulled in: OpenCV's coordinates end
FARTHEST = 1e6

Size = tuple[int, int]


def draw_mask(
    lanes: Sequence[np.ndarray], slots: np.ndarray, *, size: Size, thickness: int = THICKNESS
) -> np.ndarray:
    """Return a picture of lane numbers.

    Args:
        lanes: per lane (P, 2) float64, px of the picture; decimals are cut off.
        slots: (len(lanes),) int64, slot of each lane from 0, -1 for lanes that are not drawn; later
            slots lie above.
        size: width and height of the picture, px.
        thickness: of the lines, px.

    Returns:
        (H, W) uint8, 0 ground, slot + 1 on lanes.

    Source: UFLDv2's conversions; CULane's own masks are of this width as well.
    """
    mask = np.zeros((size[1], size[0]), np.uint8)
    for number in np.argsort(slots, kind="stable")[(slots < 0).sum() :]:
        points = np.clip(lanes[number], -FARTHEST, FARTHEST).astype(np.int32)
        cv2.polylines(mask, [points], False, int(slots[number]) + 1, thickness)
    return mask


def made_mask(
    folder: Path,
    lanes: Sequence[np.ndarray],
    slots: np.ndarray,
    *,
    size: Size,
    content: str,
) -> Path:
    """Return the file of a picture's mask, drawn unless it is there; arguments as for `draw_mask`.

    The file is named by everything that the mask comes from, so it never goes stale. It is put in
    place whole: another process or an interrupted run sees all of it or nothing.

    Args:
        folder: where masks are kept; made when missing.
        lanes: the picture's lanes.
        slots: their slots.
        size: the picture's.
        content: SHA-256 of the picture's file.
    """
    key = _key(lanes, slots, size=size, content=content)
    path = folder / key[:2] / f"{key}.png"
    if path.exists() and path.stat().st_size > 0:  # empty: a power cut came too soon
        return path
    _, encoded = cv2.imencode(".png", draw_mask(lanes, slots, size=size))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    partial.write_bytes(encoded.tobytes())
    partial.replace(path)
    return path


def _key(lanes: Sequence[np.ndarray], slots: np.ndarray, *, size: Size, content: str) -> str:
    lengths = [len(lane) for lane in lanes]
    settings = [DRAWING, THICKNESS, *size, content, slots.tolist(), lengths]
    digest = hashlib.sha256(repr(settings).encode())
    for lane in lanes:
        digest.update(np.ascontiguousarray(lane, "<f8").tobytes())
    return digest.hexdigest()
