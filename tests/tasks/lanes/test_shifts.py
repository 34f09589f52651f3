"""Averages over shifted feature maps: the width of a cell, votes, thresholds."""

import numpy as np
import pytest

from tasks.lanes.config import UfldModelConfig
from tasks.lanes.crossings import Crossings, LaneRule
from tasks.lanes.test_time import cell_size, merge_shifted

ANY = LaneRule(0.0, 0)


def model_of(size, crop):
    return UfldModelConfig.model_validate(
        {
            "name": "ufldv2",
            "backbone": {"name": "resnet18"},
            "input": size,
            "crop": crop,
            "rows": {"anchors": 4, "cells": 4},
            "columns": {"anchors": 4, "cells": 4},
        }
    )


def crossings_of(positions, present):
    """One lane in five blocks of one picture, at each anchor."""
    positions = np.array(positions, np.float32).reshape(5, 1, -1)
    is_present = np.array(present, bool).reshape(5, 1, -1)
    return Crossings([0], positions, is_present, is_present * 0.9, is_present.any(-1))


def test_culanes_cells_are_50_across_and_a_sixteenth_down():
    # 1600 x 320 of 1600 x 533: 50 cells across the frame, 32 of 533 rows a cell
    across, down = cell_size(model_of((1600, 320), 0.6), frame=(1640, 590))

    assert across == pytest.approx(1640 / 50)
    assert down == pytest.approx(590 * 32 / 533)


def test_tusimples_cells_are_the_references_across():
    model, frame = model_of((800, 320), 0.8), (1280, 720)

    assert cell_size(model, frame=frame)[0] == 1280 / 25
    assert cell_size(model, frame=frame)[1] == pytest.approx(720 * 32 / 400)
    assert cell_size(model, frame=frame, compat=["tta_shift"]) == (1280 / 25, 32 / 534 * 720)


def test_shifts_are_undone_before_the_mean():
    # the map moved left shows the lane a cell to the left
    lane = crossings_of([100, 90, 113, 0, 0], [1, 1, 1, 0, 0])

    merged = merge_shifted(lane, blocks=(0, 1, 2), shift=10.0, rule=ANY)

    assert merged.positions.ravel() == pytest.approx([(100 + 100 + 103) / 3])


def test_two_votes_are_needed_and_only_voters_count():
    positions = [[100, 100], [500, 90], [112, 500], [0, 0], [0, 0]]
    lane = crossings_of(positions, [[1, 0], [0, 1], [1, 0], [0, 0], [0, 0]])

    merged = merge_shifted(lane, blocks=(0, 1, 2), shift=10.0, rule=ANY)

    assert merged.is_present.ravel().tolist() == [True, False]
    assert merged.positions[0, 0, 0] == pytest.approx((100 + 102) / 2)


def test_columns_take_the_blocks_moved_up_and_down():
    lane = crossings_of([50, 0, 0, 45, 55], [1, 0, 0, 1, 1])

    merged = merge_shifted(lane, blocks=(0, 3, 4), shift=5.0, rule=ANY)

    assert merged.positions.item() == pytest.approx(50)


def test_the_original_and_what_is_left_must_reach_the_share():
    half = LaneRule(0.5, 0)
    kept = crossings_of([[1, 1]] * 5, [[1, 0]] * 5)
    few = crossings_of([[1, 1]] * 5, [[0, 0], [1, 1], [1, 1], [0, 0], [0, 0]])
    lost = crossings_of([[1, 1]] * 5, [[1, 1], [0, 0], [0, 0], [0, 0], [0, 0]])

    found = [
        merge_shifted(lane, blocks=(0, 1, 2), shift=1.0, rule=half).is_kept.item()
        for lane in (kept, few, lost)
    ]

    assert found == [True, False, False]
