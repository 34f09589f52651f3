"""Row and column labels per picture, against a loop over lanes, anchors and points.

Both make the labels of the same moved points at TuSimple's and CULane's settings, and agree.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.pairs import Ratio, median_ratio, paired_seconds
from readers.lane_records import ABSENT
from tasks.lanes.config import UfldModelConfig
from tasks.lanes.geometry import affine, move_points
from tasks.lanes.labels import LabelMaker, anchor_positions

PICTURES = 32
# share of labels; float32 and Python's float64 may round a position into neighbouring cells
MOST_DIFFERENT = 0.01
SETTINGS = {
    "tusimple": {
        "frame": (1280, 720),
        "grid": (160, 710, 10),
        "rows": {"anchors": 56, "range": (160, 710), "unit": "px", "cells": 100},
        "columns": {"anchors": 41, "cells": 100},
    },
    "culane": {
        "frame": (1640, 590),
        "grid": (250, 590, 10),
        "rows": {"anchors": 72, "range": (0.42, 1), "cells": 200},
        "columns": {"anchors": 81, "cells": 100},
    },
}


def measure() -> list[Ratio]:
    """Return the loop's time over ours at both settings, on one thread."""
    torch.set_num_threads(1)
    return [_against_the_loop(name) for name in SETTINGS]


def _against_the_loop(name: str) -> Ratio:
    frame: tuple[int, int] = SETTINGS[name]["frame"]  # type: ignore[assignment]
    model = UfldModelConfig.model_validate(
        {
            "name": "ufldv2",
            "backbone": {"name": "resnet18"},
            "input": (800, 320),
            "rows": SETTINGS[name]["rows"],
            "columns": SETTINGS[name]["columns"],
        }
    )
    points = _moved_lanes(frame, SETTINGS[name]["grid"])  # type: ignore[arg-type]
    maker, batch = LabelMaker(model, frame), torch.from_numpy(points)
    _check(maker, points, model=model, frame=frame)
    pairs = paired_seconds(
        lambda: maker(batch),
        lambda: [plain_labels(picture, model, frame=frame) for picture in points],
        clock=time.process_time,
    )
    ratio, low, high = median_ratio(pairs, inverse=True)
    ours = min(seconds for seconds, _ in pairs) / PICTURES * 1e3
    return Ratio(
        name=f"lane labels, {name}",
        ratio=ratio,
        spread=(low, high),
        unit="x a per-point loop",
        target="",
        is_met=True,
        detail=f"ours {ours:.3f} ms a picture in batches of {PICTURES}",
    )


def plain_labels(
    lanes: np.ndarray, model: UfldModelConfig, *, frame: tuple[int, int]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return row and column labels of one picture, per lane, in plain Python.

    Args:
        lanes: (L, G, 2) float32, px of the frame.
        model: anchors and cells.
        frame: width and height, px.
    """
    width, height = frame
    rows, columns = [], []
    row_anchors = anchor_positions(model.rows, extent=height).tolist()
    column_anchors = anchor_positions(model.columns, extent=width).tolist()
    for lane in lanes.tolist():
        across = [_crossing(lane, anchor, axis=1) for anchor in row_anchors]
        _lead_on(across)
        rows.append([_cell(x, width, model.rows.cells) for x in across])
        down = [_crossing(lane, anchor, axis=0) for anchor in column_anchors]
        columns.append([_cell(y, height, model.columns.cells) for y in down])
    return rows, columns


def _crossing(lane: Sequence[Sequence[float]], anchor: float, *, axis: int) -> float:
    for number in range(len(lane) - 2, -1, -1):
        a, b = lane[number], lane[number + 1]
        if a[0] < 0 or a[1] < 0 or b[0] < 0 or b[1] < 0:
            continue
        if (a[axis] - anchor) * (b[axis] - anchor) <= 0:
            length = b[axis] - a[axis]
            share = (anchor - a[axis]) / length if length else 0.0
            return a[1 - axis] + share * (b[1 - axis] - a[1 - axis])
    return -1.0


def _lead_on(across: list[float]) -> None:
    there = [row for row, x in enumerate(across) if x > 0]
    if across[-1] > 0 or len(there) < 6:
        return
    lower = there[len(there) // 2 :]
    slope, offset = np.polyfit(lower, [across[row] for row in lower], 1)
    for row in range(lower[0], len(across)):
        across[row] = slope * row + offset


def _cell(position: float, extent: int, cells: int) -> int:
    cell = int(position / extent * (cells - 1))
    return cell if 0 <= position <= extent and cell < cells else -1


def _moved_lanes(frame: tuple[int, int], grid: tuple[int, int, int]) -> np.ndarray:
    """Return four curved lanes of each picture, moved as in training: (N, 4, G, 2) float32."""
    random = np.random.RandomState(0)
    width, height = frame
    first, last, step = grid
    y = np.arange(first, last + 1, step, dtype=np.float64)
    depth = (y - first) / (last - first)
    pictures = []
    for _ in range(PICTURES):
        lanes = []
        for end in np.linspace(-0.2, 1.2, 4):
            x = width * (0.5 + (end - 0.5) * depth + random.uniform(-0.1, 0.1) * depth**2)
            # lanes begin and end where they please
            kept = (depth >= random.uniform(0, 0.3)) & (depth <= random.uniform(0.7, 1.1))
            kept &= (x >= 0) & (x <= width)
            lanes.append(np.where(kept[:, None], np.stack([x, y], axis=1), ABSENT))
        matrix = affine(
            scale=(random.uniform(0.8, 1.2), random.uniform(0.8, 1.2)),
            degrees=random.uniform(-6, 6),
            shift=(random.uniform(-200, 200), random.uniform(-100, 100)),
            centre=(width / 2, height / 2),
        )
        pictures.append(move_points(np.stack(lanes).astype(np.float32), matrix))
    return np.stack(pictures)


def _check(
    maker: LabelMaker, points: np.ndarray, *, model: UfldModelConfig, frame: tuple[int, int]
) -> None:
    labels = maker(torch.from_numpy(points))
    plain = [plain_labels(picture, model, frame=frame) for picture in points]
    for number, ours in enumerate((labels.rows, labels.columns)):
        theirs = np.array([kinds[number] for kinds in plain])
        different = (ours.transpose(1, 2).numpy() != theirs).mean()
        if different > MOST_DIFFERENT:
            raise AssertionError(f"the loop has other labels at {different:.1%} of the anchors")
