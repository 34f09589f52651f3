"""Makes the network's input of a picture or mask, in training, evaluation and serving alike.

A picture is resized to the input's width and to its height over `crop`; the lowest rows are kept.
Only source rows that reach those are touched, where that gives the same pixels.

Shapes: H and W px of a picture, h and w px of the network's input, C channels, N pictures.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np
import torch
from torch.nn import functional

from tasks.lanes import geometry
from tasks.lanes.config import UfldModelConfig

# ImageNet's, RGB
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


class RowPlan(NamedTuple):
    """Which rows of a picture make the rows of the input.

    Args:
        first_row: source rows above it are not needed.
        height: rows that the rest is resized to.
        dropped: how many of these are left out at the top.
    """

    first_row: int
    height: int
    dropped: int


def to_input(picture: np.ndarray, *, model: UfldModelConfig) -> np.ndarray:
    """Return a picture of any size as the network's input.

    Args:
        picture: (H, W, 3) uint8 RGB.
        model: size of the input and crop.

    Returns:
        (h, w, 3) uint8 RGB.

    Source: UFLDv2's test transform (PIL's bilinear filter); differs by a grey level at most.
    """
    plan = row_plan(picture.shape[0], model=model)
    resized = resize(picture[plan.first_row :], width=model.input[0], height=plan.height)
    return resized[plan.dropped :]


def warped_to_input(
    picture: np.ndarray, matrix: np.ndarray, *, model: UfldModelConfig, frame: tuple[int, int]
) -> np.ndarray:
    """Return the network's input of a picture that is first moved within the frame.

    Args:
        picture: (H, W, 3) uint8 RGB; one of another size than the frame is resized to it.
        matrix: (2, 3) float64, the move, px of the frame.
        model: size of the input and crop.
        frame: width and height, px.

    Returns:
        (h, w, 3) uint8 RGB.

    Source: UFLDv2's training transform.
    """
    if picture.shape[1::-1] != tuple(frame):
        picture = resize(picture, width=frame[0], height=frame[1])
    plan = row_plan(frame[1], model=model)
    # the warp of four channels takes half the time of that of three
    with_alpha = cv2.cvtColor(picture, cv2.COLOR_RGB2RGBA)
    moved = geometry.warp_picture(with_alpha, matrix, first_row=plan.first_row)
    resized = resize(moved, width=model.input[0], height=plan.height)
    return np.asarray(cv2.cvtColor(resized[plan.dropped :], cv2.COLOR_RGBA2RGB))


def mask_to_input(
    mask: np.ndarray,
    matrix: np.ndarray | None,
    *,
    model: UfldModelConfig,
    frame: tuple[int, int],
) -> np.ndarray:
    """Return the (h, w) uint8 mask that lies over the network's input.

    Args:
        mask: (H, W) uint8 lane numbers.
        matrix: the move of the picture; None: none.
        model: size of the input and crop.
        frame: width and height in px, for a move.
    """
    first_row = 0
    if matrix is not None:
        if mask.shape[::-1] != tuple(frame):
            mask = _picked(mask, width=frame[0], height=frame[1])
        first_row = row_plan(frame[1], model=model).first_row
        mask = geometry.warp_mask(mask, matrix, first_row=first_row)
    height = resized_height(model)
    source_height = mask.shape[0] + first_row
    rows = nearest_sources(source_height, height)[height - model.input[1] :] - first_row
    columns = nearest_sources(mask.shape[1], model.input[0])
    return mask[rows[:, None], columns]


def normalise(images: torch.Tensor) -> torch.Tensor:
    """Return (N, h, w, 3) uint8 RGB as (N, 3, h, w) float32, minus ImageNet's mean over its std.

    On the images' own device, without waiting for it.
    """
    scale, offset = _scale_and_offset(images.device)
    planes = images.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
    return planes.mul_(scale).sub_(offset)


def resized_height(model: UfldModelConfig) -> int:
    """Return the height that pictures are resized to before the lowest rows are kept, px."""
    return int(model.input[1] / model.crop)


def row_plan(height: int, *, model: UfldModelConfig) -> RowPlan:
    """Return which rows of a picture `height` px high are needed.

    Resizing may begin further down where a whole number of source rows makes a whole number of
    resized ones, if the filter of the first kept row (which reaches as far as the reduction, in
    px) ends below; weights and pixels are then the same.
    """
    whole = resized_height(model)
    dropped = whole - model.input[1]
    divisor = math.gcd(height, whole)
    period = whole // divisor
    reach = max(1.0, height / whole) + 1  # a px more for the rounding of positions
    begin = max(0, math.floor(dropped + 0.5 - reach * whole / height) // period * period)
    return RowPlan(begin * height // whole, whole - begin, dropped - begin)


def resize(picture: np.ndarray, *, width: int, height: int) -> np.ndarray:
    """Return a picture at another size, as PIL's bilinear filter does: widened when shrinking.

    Args:
        picture: (H, W, C) uint8, 3 or 4 channels.
        width: px.
        height: px.

    Returns:
        (height, width, C) uint8, rounded.
    """
    writable = np.require(picture, requirements=["C", "W"])
    # channels stay last in memory, for which torch has a kernel on bytes
    planes = torch.from_numpy(writable)[None].permute(0, 3, 1, 2)
    resized = functional.interpolate(planes, size=(height, width), mode="bilinear", antialias=True)
    return resized[0].permute(1, 2, 0).contiguous().numpy()


def nearest_sources(source: int, target: int) -> np.ndarray:
    """Return on which of `source` px the centre of each of `target` px falls: (target,) int64."""
    return (2 * np.arange(target) + 1) * source // (2 * target)


def _picked(mask: np.ndarray, *, width: int, height: int) -> np.ndarray:
    rows, columns = (
        nearest_sources(mask.shape[0], height),
        nearest_sources(mask.shape[1], width),
    )
    return mask[rows[:, None], columns]


@lru_cache(maxsize=16)
def _scale_and_offset(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    mean, std = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (MEAN, STD))
    scale, offset = 1 / (255 * std), mean / std
    return scale.float().to(device), offset.float().to(device)
