from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from readers.lane_index import build_lane_index
from readers.lane_records import ABSENT, ImageLanes
from readers.records import DatasetError
from tasks.lanes.anchor_check import check_anchors
from tasks.lanes.config import UfldModelConfig

FRAME = (200, 100)
HEIGHTS = np.arange(0, 101, 10, dtype=np.float32)


def index_of(*lanes):
    """Pictures with one lane each: x at the lowest heights of the grid."""
    records = []
    for number, xs in enumerate(lanes):
        grid = np.full((1, len(HEIGHTS), 2), ABSENT, np.float32)
        if xs:
            grid[0, -len(xs) :] = np.stack([xs, HEIGHTS[-len(xs) :]], axis=1)
        lane = grid[0, -len(xs) :].astype(np.float64) if xs else np.zeros((0, 2))
        records.append(
            ImageLanes(
                str(number), Path("a.jpg"), *FRAME, turn=1, lanes=(lane,),
                slots=np.array([0]), grid=grid,
            )
        )  # fmt: skip
    return build_lane_index(records, num_lanes=1, frame=FRAME, grid_y=HEIGHTS)


def model(rows=(0.0, 1.0), columns=(0.0, 1.0), unit="share"):
    return UfldModelConfig.model_validate(
        {
            "name": "ufldv2",
            "backbone": {"name": "slim_resnet"},
            "lanes": 1,
            "input": (64, 32),
            "rows": {"anchors": 5, "cells": 8, "range": rows, "unit": unit},
            "columns": {"anchors": 5, "cells": 8, "range": columns},
        }
    )


def test_anchors_that_some_lane_reaches_are_right():
    index = index_of((), (), (60, 70, 80, 90))
    check_anchors(index, model())
    check_anchors(index, model(rows=(0.0, 0.7)))
    check_anchors(index, model(columns=(0.45, 1.0)))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"rows": (0.0, 0.6)},
            "model.rows.range: no lane of data.train crosses an anchor: they lie from y = 70 to "
            "100 px of the frame, the anchors from 0 to 60",
        ),
        (
            {"rows": (10, 65), "unit": "px"},
            "model.rows.range: no lane of data.train crosses an anchor: they lie from y = 70 to "
            "100 px of the frame, the anchors from 10 to 65",
        ),
        (
            {"columns": (0.5, 1.0)},
            "model.columns.range: no lane of data.train crosses an anchor: they lie from x = 60 "
            "to 90 px of the frame, the anchors from 100 to 200",
        ),
    ],
)
def test_anchors_that_no_lane_crosses_are_one_sentence(settings, said):
    with pytest.raises(DatasetError) as caught:
        check_anchors(index_of((60, 70, 80, 90), (70, 80)), model(**settings))
    assert str(caught.value) == said


def test_a_grid_without_any_point_is_told():
    with pytest.raises(DatasetError, match=r"data\.grid: no lane of data\.train has a point"):
        check_anchors(index_of(()), model())
