"""Draws how a training picture is varied: zoom, rotation, shift, mirror, light.

All draws of a sample are made at once and always in the same order, so that switching one kind of
variation on or off leaves the others as they were.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import cv2
import numpy as np

from tasks.lanes import geometry
from tasks.lanes.config import LaneAugmentConfig

# Rec. 601
GREY = (0.299, 0.587, 0.114)


@dataclass(frozen=True, slots=True)
class Variation:
    """How one picture is varied.

    Args:
        scale: zoom in x and y.
        degrees: rotation, clockwise.
        shift: px of the frame in x and y.
        is_mirrored: whether left and right change places.
        gain: factor of all grey levels.
        contrast: factor of their distance from the picture's mean.
    """

    scale: tuple[float, float] = (1.0, 1.0)
    degrees: float = 0.0
    shift: tuple[float, float] = (0.0, 0.0)
    is_mirrored: bool = False
    gain: float = 1.0
    contrast: float = 1.0

    @property
    def moves(self) -> bool:
        """Whether any pixel changes its place."""
        place = (self.scale, self.degrees, self.shift, self.is_mirrored)
        return place != ((1.0, 1.0), 0.0, (0.0, 0.0), False)

    def matrix(self, centre: tuple[float, float], *, width: int) -> np.ndarray:
        """Return the move as a (2, 3) float64 matrix.

        Args:
            centre: what zoom and rotation are about, px of the frame.
            width: that of the frame, px.
        """
        matrix = geometry.affine(
            scale=self.scale, degrees=self.degrees, shift=self.shift, centre=centre
        )
        return geometry.mirrored(matrix, width=width) if self.is_mirrored else matrix


def draw_variation(config: LaneAugmentConfig, draw: random.Random) -> Variation:
    """Return a variation as the configuration spreads them, every value uniform in its range.

    Source: UFLDv2 (zoom, rotation, shift); mirror and light are ours.
    """
    scale = (draw.uniform(*config.scale), draw.uniform(*config.scale))
    degrees = draw.uniform(-config.rotate, config.rotate)
    shift_x, shift_y = config.shift
    shift = (draw.uniform(-shift_x, shift_x), draw.uniform(-shift_y, shift_y))
    return Variation(
        scale=scale,
        degrees=degrees,
        shift=shift,
        is_mirrored=draw.random() < config.flip,
        gain=1 + draw.uniform(-config.gain, config.gain),
        contrast=1 + draw.uniform(-config.contrast, config.contrast),
    )


def vary_light(picture: np.ndarray, variation: Variation) -> np.ndarray:
    """Return the picture with other contrast, then other brightness.

    Args:
        picture: (H, W, 3) uint8 RGB.
        variation: `gain` and `contrast` of it.

    Returns:
        (H, W, 3) uint8, rounded and cut at 0 and 255.
    """
    if variation.gain == 1 and variation.contrast == 1:
        return picture
    mean = float(np.dot(cv2.mean(picture)[:3], GREY))
    levels = mean + variation.contrast * (np.arange(256) - mean)
    table = np.clip(np.rint(variation.gain * levels), 0, 255).astype(np.uint8)
    return np.asarray(cv2.LUT(picture, table))
