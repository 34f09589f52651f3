"""Lanes of a batch: which slots are read from what, for any number of lanes."""

import numpy as np
import pytest

from tasks.lanes.config import DecodeConfig, UfldModelConfig
from tasks.lanes.decoding import decode, decode_tta, slots_by_kind

FRAME = (200, 100)
ROWS, COLUMNS, CELLS = 5, 9, 11


def model_of(lanes=4):
    return UfldModelConfig.model_validate(
        {
            "name": "ufldv2",
            "backbone": {"name": "resnet18"},
            "lanes": lanes,
            "input": (320, 96),
            "crop": 0.6,
            "rows": {"anchors": ROWS, "range": (20, 100), "unit": "px", "cells": CELLS},
            "columns": {"anchors": COLUMNS, "cells": CELLS},
        }
    )


def config_of(**settings):
    return DecodeConfig.model_validate(settings)


def outputs_of(cells, *, present, lanes=4):
    """One picture whose slots are all at one cell, present at the anchors given by kind."""
    arrays = {}
    for key, anchors in (("row", ROWS), ("col", COLUMNS)):
        location = np.zeros((1, CELLS, anchors, lanes), np.float32)
        for slot, cell in enumerate(cells):
            location[0, cell, :, slot] = 30
        existence = np.zeros((1, 2, anchors, lanes), np.float32)
        existence[0, 0] = 2
        existence[0, 1, present[key]] = 5
        arrays[f"loc_{key}"], arrays[f"exist_{key}"] = location, existence
    return arrays


EVERYWHERE = {"row": slice(None), "col": slice(None)}


def drawn(pictures, *, lanes=4, seed=0):
    random = np.random.RandomState(seed)
    shapes = {
        "loc_row": (CELLS, ROWS),
        "loc_col": (CELLS, COLUMNS),
        "exist_row": (2, ROWS),
        "exist_col": (2, COLUMNS),
    }
    return {
        name: random.randn(pictures, *shape, lanes).astype(np.float32) * 2
        for name, shape in shapes.items()
    }


def test_inner_slots_are_rows_and_outer_ones_columns():
    outputs = outputs_of([2, 4, 6, 8], present=EVERYWHERE)

    (lanes,) = decode(outputs, model=model_of(), decode=config_of(), frame=FRAME)

    assert [(lane.slot, lane.kind) for lane in lanes] == [
        (1, "row"), (2, "row"), (0, "column"), (3, "column"),
    ]  # fmt: skip
    assert lanes[0].points.tolist() == [[90, 20], [90, 40], [90, 60], [90, 80], [90, 100]]
    assert lanes[0].points.dtype == np.float32
    assert lanes[2].points.tolist() == [[25 * k, 25] for k in range(COLUMNS)]
    assert lanes[0].score == pytest.approx(1 / (1 + np.exp(-3)))


def test_a_lane_needs_more_than_its_share_of_anchors():
    # 3 of 5 rows are more than a half, 2 of 9 columns are not more than a quarter
    outputs = outputs_of([2, 4, 6, 8], present={"row": [0, 2, 3], "col": [4, 5]})

    (lanes,) = decode(outputs, model=model_of(), decode=config_of(), frame=FRAME)

    assert [lane.slot for lane in lanes] == [1, 2]
    assert lanes[1].points.tolist() == [[130, 20], [130, 60], [130, 80]]


@pytest.mark.parametrize(
    ("settings", "lanes", "rows", "columns"),
    [
        ({}, 6, [1, 2, 3, 4], [0, 5]),
        ({}, 2, [], [0, 1]),
        ({"column_slots": (0,)}, 3, [1, 2], [0]),
        ({"column_slots": ()}, 2, [0, 1], []),
        ({"mode": "rows"}, 3, [0, 1, 2], []),
        ({"mode": "columns"}, 3, [], [0, 1, 2]),
        ({"mode": "pooled"}, 2, [0, 1], [0, 1]),
    ],
)
def test_slots_are_divided_as_configured(settings, lanes, rows, columns):
    assert slots_by_kind(config_of(**settings), num_lanes=lanes) == (rows, columns)


@pytest.mark.parametrize("mode", ["mixed", "rows", "columns", "pooled"])
@pytest.mark.parametrize("lanes", [1, 2, 5, 8])
def test_a_batch_is_its_pictures_one_by_one(mode, lanes):
    outputs, config = drawn(3, lanes=lanes), config_of(mode=mode, row_share=0.3)
    model = model_of(lanes)

    together = decode(outputs, model=model, decode=config, frame=FRAME)

    for number, expected in enumerate(together):
        single = {name: array[number : number + 1] for name, array in outputs.items()}
        (alone,) = decode(single, model=model, decode=config, frame=FRAME)
        assert [lane.slot for lane in alone] == [lane.slot for lane in expected]
        for one, other in zip(alone, expected, strict=True):
            assert np.array_equal(one.points, other.points)
            assert one.score == pytest.approx(other.score)


def test_no_picture_and_no_lane_give_none():
    outputs, model = drawn(2), model_of()
    empty = {name: array[:0] for name, array in outputs.items()}
    outputs["exist_row"][:] = outputs["exist_col"][:] = 0

    for mode in ("mixed", "pooled"):
        config = config_of(mode=mode)
        assert decode(empty, model=model, decode=config, frame=FRAME) == []
        assert decode(outputs, model=model, decode=config, frame=FRAME) == [[], []]


def test_shifted_blocks_that_agree_give_what_one_gives():
    outputs, model, config = drawn(2), model_of(), config_of(row_share=0.3)
    # a picture 10 cells wide and 160 px high before the crop: cells of 20 x 20 px of the frame
    blocks = {name: np.concatenate([array] * 5) for name, array in outputs.items()}

    found = decode_tta(blocks, model=model, decode=config, frame=FRAME)
    single = decode(outputs, model=model, decode=config, frame=FRAME)

    assert [len(lanes) for lanes in found] == [len(lanes) for lanes in single]
    for ours, others in zip(found, single, strict=True):
        for lane, other in zip(ours, others, strict=True):
            # the shifts to both sides cancel
            assert lane.points == pytest.approx(other.points, abs=1e-4)


@pytest.mark.parametrize(
    ("mode", "lanes"), [("rows", 3), ("columns", 3), ("mixed", 2), ("mixed", 1)]
)
def test_shifted_blocks_may_leave_one_kind_without_slots(mode, lanes):
    outputs, model = drawn(2, lanes=lanes), model_of(lanes)
    config = config_of(mode=mode, row_share=0.3)
    blocks = {name: np.concatenate([array] * 5) for name, array in outputs.items()}

    found = decode_tta(blocks, model=model, decode=config, frame=FRAME)

    single = decode(outputs, model=model, decode=config, frame=FRAME)
    assert [[lane.slot for lane in lanes] for lanes in found] == [
        [lane.slot for lane in lanes] for lanes in single
    ]
