"""Affine moves of a picture, its mask and its lane points: pure, no draws.

A move is a (2, 3) float64 matrix from old to new positions in px of the frame, x to the right and
y down, in continuous coordinates: the pixel in row i and column j covers [j, j+1) x [i, i+1).
Nothing is changed in place.

Shapes: H and W px of a picture, L slots, G points of a slot.
"""

from __future__ import annotations

import math

import cv2
import numpy as np

from readers.lane_records import ABSENT


def affine(
    *,
    scale: tuple[float, float] = (1.0, 1.0),
    degrees: float = 0.0,
    shift: tuple[float, float] = (0.0, 0.0),
    centre: tuple[float, float],
) -> np.ndarray:
    """Return the matrix that zooms about a centre, then turns about it, then shifts.

    Args:
        scale: zoom in x and in y.
        degrees: angle of the turn; above 0 it takes the x axis towards the y axis (clockwise as
            one looks at the picture).
        shift: px in x and y.
        centre: x and y, px.

    Source: UFLDv2's training augmentation.
    """
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turn_and_zoom = np.array([[cos, -sin], [sin, cos]]) * scale
    offset = np.add(centre, shift) - turn_and_zoom @ centre
    return np.column_stack([turn_and_zoom, offset])


def mirrored(matrix: np.ndarray, *, width: int) -> np.ndarray:
    """Return the move followed by x' = width - x."""
    return np.array([[-1.0], [1.0]]) * matrix + np.array([[0.0, 0.0, width], [0.0, 0.0, 0.0]])


def warp_picture(picture: np.ndarray, matrix: np.ndarray, *, first_row: int = 0) -> np.ndarray:
    """Return the moved picture, linear between pixel centres; what lies outside counts as black.

    Args:
        picture: (H, W, C) uint8; four channels are twice as fast as three.
        matrix: the move.
        first_row: rows above it are not computed.

    Returns:
        (H - first_row, W, C) uint8, rounded.
    """
    return _warp(picture, matrix, first_row=first_row, method=cv2.INTER_LINEAR)


def warp_mask(mask: np.ndarray, matrix: np.ndarray, *, first_row: int = 0) -> np.ndarray:
    """Return the moved mask (H - first_row, W): of each pixel that which it comes from, 0 outside.

    Source: UFLDv2 blends lane numbers linearly, which makes lanes of other numbers at the edges.
    """
    return _warp(mask, matrix, first_row=first_row, method=cv2.INTER_NEAREST)


def move_points(points: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return the points where the move takes them; absent ones stay absent.

    Args:
        points: (L, G, 2) float32, px.
        matrix: the move.

    Returns:
        (L, G, 2) float32.
    """
    moved = (points @ matrix[:, :2].T + matrix[:, 2]).astype(np.float32)
    is_absent = (points <= ABSENT).any(axis=-1, keepdims=True)
    return np.where(is_absent, np.float32(ABSENT), moved)


def slots_from_right(lanes: int) -> np.ndarray:
    """Return each slot's number from the other end, (lanes,) int64."""
    return np.arange(lanes)[::-1]


def slots_of_other_side(lanes: int) -> np.ndarray:
    """Return the slot as far from the middle on the other side, (lanes,) int64; -1: there is none.

    For slots that belong to a side, lanes // 2 to the left one. Of an odd number the right side's
    last slot has no counterpart.
    """
    return np.maximum(2 * (lanes // 2) - 1 - np.arange(lanes), -1)


def swap_points(points: np.ndarray, new_slots: np.ndarray) -> np.ndarray:
    """Return a mirrored picture's points in the slots that its lanes have there.

    Args:
        points: (L, G, 2) float32, by the slots before the mirror.
        new_slots: (L,) int64, slot that each becomes; -1: its lane is left out.
    """
    swapped = np.full_like(points, ABSENT)
    kept = new_slots >= 0
    swapped[new_slots[kept]] = points[kept]
    return swapped


def swap_mask(mask: np.ndarray, new_slots: np.ndarray) -> np.ndarray:
    """Return a mirrored picture's mask with its lanes numbered anew.

    Args:
        mask: (H, W) uint8, 0 ground, slot + 1 on lanes; numbers above L stay.
        new_slots: (L,) int64, as for `swap_points`.
    """
    table = np.arange(256, dtype=np.uint8)
    table[1 : len(new_slots) + 1] = new_slots + 1
    return np.asarray(cv2.LUT(mask, table))


def _warp(image: np.ndarray, matrix: np.ndarray, *, first_row: int, method: int) -> np.ndarray:
    height, width = image.shape[:2]
    # OpenCV counts from pixel centres, the matrix from pixel corners
    centred = matrix.copy()
    centred[:, 2] += matrix[:, :2].sum(axis=1) * 0.5 - 0.5
    centred[1, 2] -= first_row
    return np.asarray(cv2.warpAffine(image, centred, (width, height - first_row), flags=method))
