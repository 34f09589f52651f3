"""Anchors held against the labels: a network whose anchors no lane crosses would learn nothing."""

from __future__ import annotations

import numpy as np

from readers.lane_index import ImageLanesIndex
from readers.lane_records import ABSENT
from readers.records import DatasetError
from tasks.lanes.config import UfldModelConfig
from tasks.lanes.decoding import anchors_of

PICTURES_AT_ONCE = 256


def check_anchors(index: ImageLanesIndex, model: UfldModelConfig) -> None:
    """Make sure that the lanes of a split reach the rows and the columns of the anchors.

    Args:
        index: the split that is trained on.
        model: the experiment's `model` section.

    Raises:
        DatasetError: in one sentence, with the key and where the lanes are.
    """
    width, height = index.frame
    for key, axis, extent, anchors in (
        ("columns", 0, width, model.columns),
        ("rows", 1, height, model.rows),
    ):
        places = anchors_of(anchors, extent=extent)
        low, high = _reached(index, axis, float(places[0]), float(places[-1]))
        if high < low:
            raise DatasetError(
                "data.grid: no lane of data.train has a point at its heights, "
                f"{index.grid_y[0]:g} to {index.grid_y[-1]:g} px of the frame"
            )
        if high < places[0] or low > places[-1]:
            raise DatasetError(
                f"model.{key}.range: no lane of data.train crosses an anchor: they lie from "
                f"{'xy'[axis]} = {low:.0f} to {high:.0f} px of the frame, the anchors from "
                f"{places[0]:.0f} to {places[-1]:.0f}"
            )


def _reached(index: ImageLanesIndex, axis: int, first: float, last: float) -> tuple[float, float]:
    """Return the least and largest x (axis 0) or y (axis 1) of lanes with slots, px of the frame.

    The pictures are looked through until the lanes reach the stretch from first to last.
    """
    grids = index.all_grids()
    low, high = np.inf, -np.inf
    for begin in range(0, len(grids), PICTURES_AT_ONCE):
        points = grids[begin : begin + PICTURES_AT_ONCE].reshape(-1, 2)
        values = points[points[:, 0] > ABSENT, axis]
        if len(values):
            low, high = min(low, float(values.min())), max(high, float(values.max()))
        if low <= last and high >= first:
            break
    return low, high
