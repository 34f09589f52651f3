"""Exact moves of a picture together with its boxes: pure, no draws.

Boxes are (N, 4) float64 xyxy in px, x to the right, y down, end exclusive: the right edge of a
picture W px wide is x = W. Nothing is changed in place.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

# ImageNet's mean colour: what torchvision's presets put where a picture has no pixels
FILL = (123, 117, 104)


class Scene(NamedTuple):
    """A picture and what is labelled on it.

    Args:
        image: (H, W, 3) uint8 RGB.
        boxes_xyxy: (N, 4) float64, px.
        labels: (N,) int64.
    """

    image: np.ndarray
    boxes_xyxy: np.ndarray
    labels: np.ndarray


def hflip(scene: Scene) -> Scene:
    """Return the scene as in a mirror: x1' = W - x2."""
    boxes = scene.boxes_xyxy[:, [2, 1, 0, 3]]
    boxes[:, [0, 2]] = scene.image.shape[1] - boxes[:, [0, 2]]
    return Scene(cv2.flip(scene.image, 1), boxes, scene.labels)


def vflip(scene: Scene) -> Scene:
    """Return the scene upside down: y1' = H - y2."""
    boxes = scene.boxes_xyxy[:, [0, 3, 2, 1]]
    boxes[:, [1, 3]] = scene.image.shape[0] - boxes[:, [1, 3]]
    return Scene(cv2.flip(scene.image, 0), boxes, scene.labels)


def transpose(scene: Scene) -> Scene:
    """Return the scene with x and y swapped; an H x W picture becomes W x H."""
    return Scene(cv2.transpose(scene.image), scene.boxes_xyxy[:, [1, 0, 3, 2]], scene.labels)


def resize(scene: Scene, *, width: int, height: int) -> Scene:
    """Return the scene at another size; shrinking averages, growing interpolates linearly."""
    old_height, old_width = scene.image.shape[:2]
    shrinks = width * height < old_width * old_height
    method = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    image = cv2.resize(scene.image, (width, height), interpolation=method)
    factors = np.array([width / old_width, height / old_height] * 2)
    return Scene(image, scene.boxes_xyxy * factors, scene.labels)


def crop(scene: Scene, *, left: int, top: int, width: int, height: int) -> Scene:
    """Return a part of the scene; boxes are cut at its edges, those wholly outside dropped."""
    image = scene.image[top : top + height, left : left + width]
    boxes = clip_boxes(
        scene.boxes_xyxy - np.array([left, top, left, top]), width=width, height=height
    )
    return keep(Scene(image, boxes, scene.labels), has_area(boxes))


def pad(scene: Scene, *, left: int, top: int, width: int, height: int) -> Scene:
    """Return the scene on a larger ground of `FILL`, its corner at (left, top)."""
    old_height, old_width = scene.image.shape[:2]
    image = np.empty((height, width, 3), np.uint8)
    image[:] = FILL
    image[top : top + old_height, left : left + old_width] = scene.image
    return Scene(image, scene.boxes_xyxy + np.array([left, top, left, top]), scene.labels)


def warp(scene: Scene, matrix: np.ndarray, *, min_visible: float) -> Scene:
    """Return the scene moved by an affine map that keeps rectangles upright, at the same size.

    Args:
        scene: the scene.
        matrix: (2, 3) float64 from old to new positions in px; its left part has one entry per
            row and column (scaling, flips, transpose).
        min_visible: boxes with a smaller share of their area left in the frame are dropped.
    """
    height, width = scene.image.shape[:2]
    # OpenCV counts from pixel centres, the matrix from pixel corners
    centred = matrix.copy()
    centred[:, 2] += matrix[:, :2].sum(1) * 0.5 - 0.5
    image = cv2.warpAffine(
        scene.image, centred, (width, height), flags=cv2.INTER_LINEAR, borderValue=FILL
    )
    corners = scene.boxes_xyxy.reshape(-1, 2, 2) @ matrix[:, :2].T + matrix[:, 2]
    moved = np.concatenate([corners.min(1), corners.max(1)], axis=1)
    boxes = clip_boxes(moved, width=width, height=height)
    visible = area(boxes) >= min_visible * area(moved)
    return keep(Scene(image, boxes, scene.labels), visible & has_area(boxes))


def keep(scene: Scene, kept: np.ndarray) -> Scene:
    """Return the scene with only those boxes where `kept` (N,) bool is true."""
    if kept.all():
        return scene
    return Scene(scene.image, scene.boxes_xyxy[kept], scene.labels[kept])


def clip_boxes(boxes_xyxy: np.ndarray, *, width: int, height: int) -> np.ndarray:
    """Return (N, 4) boxes cut at the frame; those outside come out without area."""
    limits = np.array([width, height, width, height], np.float64)
    return np.asarray(np.clip(boxes_xyxy, 0, limits))


def area(boxes_xyxy: np.ndarray) -> np.ndarray:
    """Return the (N,) areas in px^2."""
    sides = boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]
    return np.asarray(sides[:, 0] * sides[:, 1])


def has_area(boxes_xyxy: np.ndarray, *, min_side: float = 0.0) -> np.ndarray:
    """Return (N,) bool, true where both sides are longer than `min_side` px."""
    return np.asarray((boxes_xyxy[:, 2:] - boxes_xyxy[:, :2] > min_side).all(1))


def iou_with(boxes_xyxy: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the (N,) overlaps, intersection over union, of boxes with one other box (4,)."""
    left_top = np.maximum(boxes_xyxy[:, :2], other[:2])
    right_bottom = np.minimum(boxes_xyxy[:, 2:], other[2:])
    shared = np.prod(np.clip(right_bottom - left_top, 0, None), axis=1)
    return np.asarray(shared / (area(boxes_xyxy) + area(other[None])[0] - shared))
