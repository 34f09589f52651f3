"""Decoding of a batch of 64 at CULane's size, against loops over pictures, lanes and points.

Both start from the network's four outputs on the host and end with CULane's lanes: slots 1 and 2
from rows, 0 and 3 from columns. The loops take tensors apart point by point, as the reference's do;
a second measurement gives them NumPy arrays, on which single values cost less.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.pairs import Ratio, median_ratio, paired_seconds
from tasks.lanes.config import DecodeConfig, UfldModelConfig
from tasks.lanes.decoding import DecodedLane, decode

PICTURES, LANES = 64, 4
FRAME = (1640, 590)
# the loops would take minutes on all pictures
PICTURES_OF_LOOPS = 8
# px that a lane of the loops may differ
CLOSE = 1e-2

Lanes = list[list[tuple[float, float]]]
# logits (cells, anchors, slots), cells of the window, anchor and slot -> expected cell
Expected = Callable[[Any, list[int], int, int], float]


def measure() -> list[Ratio]:
    """Return the loops' time per picture over ours, on one thread."""
    torch.set_num_threads(1)
    model, outputs = _model(), _drawn()
    tensors = {name: torch.from_numpy(array[:PICTURES_OF_LOOPS]) for name, array in outputs.items()}
    few = {name: array[:PICTURES_OF_LOOPS] for name, array in outputs.items()}
    return [
        _against(outputs, lambda: looped_tensors(tensors, model), "lane decoding", model=model),
        _against(outputs, lambda: looped_arrays(few, model), "lane decoding, arrays", model=model),
    ]


def _against(
    outputs: Mapping[str, np.ndarray],
    loops: Callable[[], list[Lanes]],
    name: str,
    *,
    model: UfldModelConfig,
) -> Ratio:
    config = DecodeConfig(tta=False)

    def ours() -> list[list[DecodedLane]]:
        return decode(outputs, model=model, decode=config, frame=FRAME)

    _check(ours(), loops())
    pairs = paired_seconds(ours, loops, clock=time.process_time)
    per_picture = [(mine / PICTURES, theirs / PICTURES_OF_LOOPS) for mine, theirs in pairs]
    ratio, low, high = median_ratio(per_picture, inverse=True)
    fast, slow = (1 / min(seconds) for seconds in zip(*per_picture, strict=True))
    has_target = name == "lane decoding"
    return Ratio(
        name=name,
        ratio=ratio,
        spread=(low, high),
        unit="x per-point loops",
        target=">= 100" if has_target else "",
        is_met=ratio >= 100 or not has_target,
        detail=f"ours {fast:.0f} pictures/s, loops {slow:.0f}",
    )


def looped_tensors(outputs: Mapping[str, torch.Tensor], model: UfldModelConfig) -> list[Lanes]:
    """Return the lanes of each picture, read point by point from tensors."""
    return _looped(outputs, model, _expected_in_tensor)


def looped_arrays(outputs: Mapping[str, np.ndarray], model: UfldModelConfig) -> list[Lanes]:
    """Return the lanes of each picture, read point by point from arrays."""
    return _looped(outputs, model, _expected_in_array)


def _looped(outputs: Mapping[str, Any], model: UfldModelConfig, expected: Expected) -> list[Lanes]:
    width, height = FRAME
    row_y = np.linspace(*model.rows.range, model.rows.anchors) * height
    column_x = np.linspace(*model.columns.range, model.columns.anchors) * width
    found = []
    for picture in range(len(outputs["loc_row"])):
        rows = _Kind(outputs, "row", picture)
        columns = _Kind(outputs, "col", picture)
        lanes: Lanes = []
        for slot in (1, 2):
            cells = rows.cells_of(slot, expected)
            if len(cells) > model.rows.anchors / 2:
                share = width / (model.rows.cells - 1)
                lanes.append([(cell * share, row_y[anchor]) for anchor, cell in cells])
        for slot in (0, 3):
            cells = columns.cells_of(slot, expected)
            if len(cells) > model.columns.anchors / 4:
                share = height / (model.columns.cells - 1)
                lanes.append([(column_x[anchor], cell * share) for anchor, cell in cells])
        found.append(lanes)
    return found


class _Kind:
    """The rows, or the columns, of one picture."""

    def __init__(self, outputs: Mapping[str, Any], key: str, picture: int) -> None:
        self._location = outputs[f"loc_{key}"][picture]
        self._peak = self._location.argmax(0)
        self._is_present = outputs[f"exist_{key}"][picture].argmax(0)

    def cells_of(self, slot: int, expected: Expected) -> list[tuple[int, float]]:
        """Return anchor and expected cell of each point of a lane."""
        found = []
        for anchor in range(len(self._peak)):
            if self._is_present[anchor, slot]:
                peak = self._peak[anchor, slot]
                window = range(max(0, peak - 1), min(len(self._location) - 1, peak + 1) + 1)
                found.append((anchor, expected(self._location, list(window), anchor, slot)))
        return found


def _expected_in_tensor(location: torch.Tensor, window: list[int], anchor: int, slot: int) -> float:
    cells = torch.tensor(window)
    return float((location[cells, anchor, slot].softmax(0) * cells.float()).sum() + 0.5)


def _expected_in_array(location: np.ndarray, window: list[int], anchor: int, slot: int) -> float:
    weights = [math.exp(location[cell, anchor, slot]) for cell in window]
    return sum(w * cell for w, cell in zip(weights, window, strict=True)) / sum(weights) + 0.5


def _check(ours: list[list[DecodedLane]], theirs: list[Lanes]) -> None:
    for lanes, others in zip(ours, theirs, strict=False):
        assert len(lanes) == len(others)
        for lane, other in zip(lanes, others, strict=True):
            assert np.abs(lane.points - np.array(other)).max() <= CLOSE


def _model() -> UfldModelConfig:
    return UfldModelConfig.model_validate(
        {
            "name": "ufldv2",
            "backbone": {"name": "resnet18"},
            "lanes": LANES,
            "input": (1600, 320),
            "crop": 0.6,
            "rows": {"anchors": 72, "range": (0.42, 1), "cells": 200},
            "columns": {"anchors": 81, "cells": 100},
        }
    )


def _drawn() -> dict[str, np.ndarray]:
    """Return outputs with a bent lane in every slot, present at most of its anchors."""
    random = np.random.RandomState(0)
    outputs = {}
    for key, cells, anchors in (("row", 200, 72), ("col", 100, 81)):
        location = random.randn(PICTURES, cells, anchors, LANES).astype(np.float32)
        t = np.linspace(0, 1, anchors)[:, None]
        start, slope, bend = random.rand(3, PICTURES, 1, LANES) - [[[[0]]], [[[0.5]]], [[[0.5]]]]
        cell = (np.clip(start + slope * t + bend * t * t, 0, 1) * (cells - 1)).round().astype(int)
        at = np.take_along_axis(location, cell[:, None], axis=1)
        np.put_along_axis(location, cell[:, None], at + 6, axis=1)
        existence = random.randn(PICTURES, 2, anchors, LANES).astype(np.float32)
        existence[:, 1] += 1.5
        outputs[f"loc_{key}"], outputs[f"exist_{key}"] = location, existence
    return outputs
