"""Changes of a picture's colours as one linear map per pixel; plus the hue, which is not linear.

A map is (3, 4) float64: new RGB = map[:, :3] @ RGB + map[:, 3], in 0 to 255. Maps are multiplied
together first, so that a picture is passed over once and clipped once.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

# weights of a grey picture, ITU-R BT.601: what torchvision and OpenCV take
GREY = np.array([0.299, 0.587, 0.114])


def gain(factors: float | Sequence[float]) -> np.ndarray:
    """Return the map that multiplies all channels by one factor, or each by its own."""
    return _map(np.diag(np.broadcast_to(factors, 3)))


def offset(added: float) -> np.ndarray:
    """Return the map that adds a value (0 to 255) to every channel."""
    return _map(np.eye(3), added)


def contrast(factor: float, *, mean: float) -> np.ndarray:
    """Return the map that spreads (factor > 1) or narrows the values about `mean` (0 to 255)."""
    return _map(np.eye(3) * factor, (1 - factor) * mean)


def saturation(factor: float) -> np.ndarray:
    """Return the map that blends with the grey picture: 0 is grey, 1 changes nothing."""
    return _map(np.eye(3) * factor + (1 - factor) * np.tile(GREY, (3, 1)))


def permutation(order: Sequence[int]) -> np.ndarray:
    """Return the map whose channel c is the picture's channel order[c]."""
    return _map(np.eye(3)[list(order)])


def chain(*maps: np.ndarray) -> np.ndarray:
    """Return one map for several, the first applied first; clipping in between is left out."""
    joined = np.eye(4)
    for each in maps:
        joined = np.vstack([each, [0, 0, 0, 1]]) @ joined
    return joined[:3]


def apply(image: np.ndarray, colour_map: np.ndarray) -> np.ndarray:
    """Return the (H, W, 3) uint8 picture under a map, rounded and clipped to 0..255."""
    mapped: np.ndarray = cv2.transform(image, colour_map)
    return mapped


def mean_grey(image: np.ndarray, colour_map: np.ndarray) -> float:
    """Return the mean of the grey picture under a map, 0 to 255, before clipping."""
    mean_rgb = np.array(cv2.mean(image)[:3])
    return float(GREY @ (colour_map[:, :3] @ mean_rgb + colour_map[:, 3]))


def shift_hue(image: np.ndarray, turn: float) -> np.ndarray:
    """Return the RGB picture with its hue turned by a share of the circle, in [-0.5, 0.5]."""
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL)
    # uint8 wraps round as the circle of hues does
    hsv[..., 0] += np.uint8(round(turn * 256) % 256)
    turned: np.ndarray = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)
    return turned


def _map(matrix: np.ndarray, added: float = 0.0) -> np.ndarray:
    return np.hstack([np.asarray(matrix, np.float64), np.full((3, 1), added)])
