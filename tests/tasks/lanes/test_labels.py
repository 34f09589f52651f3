"""Labels of points: crossings, extension, cells; batches against a loop over points."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from readers.lane_records import ABSENT
from tasks.lanes.config import AnchorsConfig, UfldModelConfig
from tasks.lanes.labels import (
    LabelMaker,
    anchor_positions,
    cells_at,
    crossings,
    extend_down,
)

FRAME = (100, 50)


def model(rows=None, columns=None):
    return UfldModelConfig.model_validate(
        {
            "name": "ufldv2",
            "backbone": {"name": "resnet18"},
            "lanes": 2,
            "input": (64, 32),
            "rows": rows or {"anchors": 6, "range": (0, 50), "unit": "px", "cells": 11},
            "columns": columns or {"anchors": 5, "cells": 6},
        }
    )


def points_of(*lanes):
    """Lanes as (1, L, G, 2), filled up with absent points."""
    longest = max(map(len, lanes))
    filled = [list(lane) + [(ABSENT, ABSENT)] * (longest - len(lane)) for lane in lanes]
    return torch.tensor([filled], dtype=torch.float32)


def crossed(points, anchors):
    x, y = points.unbind(-1)
    return crossings(y, x, torch.tensor(anchors, dtype=torch.float32))[0].tolist()


def test_labels_of_a_slanted_lane():
    # x = 2 y from the top to the bottom; the other slot is empty
    labels = LabelMaker(model(), FRAME)(points_of([(0, 0), (40, 20), (100, 50)], []))
    assert labels.rows.shape == (1, 6, 2)
    assert labels.columns.shape == (1, 5, 2)
    assert labels.rows.dtype == labels.columns.dtype == torch.int64
    # x = 0, 20, ..., 100 of 100 in 10 steps; y = 0, 12.5, ..., 50 of 50 in 5 steps
    assert labels.rows[0, :, 0].tolist() == [0, 2, 4, 6, 8, 10]
    assert labels.columns[0, :, 0].tolist() == [0, 1, 2, 3, 5]
    assert (labels.rows[..., 1] == -1).all()
    assert labels.masks is None


def test_masks_are_handed_on():
    mask = torch.zeros(1, 32, 64, dtype=torch.uint8)
    assert LabelMaker(model(), FRAME)(points_of([(0, 0), (9, 9)], []), mask).masks is mask


def test_the_last_segment_that_reaches_an_anchor_counts():
    # goes down to 20, up to 10, down to 30: height 15 is crossed three times
    lane = [(0, 0), (10, 20), (20, 10), (40, 30)]
    assert crossed(points_of(lane), [15]) == [[25]]


def test_segments_with_a_negative_coordinate_are_skipped():
    lane = [(-10, 0), (10, 20), (20, 30)]
    assert crossed(points_of(lane), [10, 25]) == [[-1, 15]]
    assert crossed(points_of([(10, 20), (ABSENT, ABSENT), (20, 40)]), [20, 30]) == [[-1, -1]]


def test_a_segment_on_the_anchor_gives_a_finite_position():
    assert crossed(points_of([(10, 20), (30, 20)]), [20]) == [[10]]


def test_anchors_are_float32_shares_times_the_extent():
    anchors = AnchorsConfig(anchors=56, range=(160, 710), unit="px", cells=100)
    positions = anchor_positions(anchors, extent=720)
    assert positions.dtype == np.float32
    assert positions[9] < 250  # 249.99998, so that a lane from 250 on has no label here
    assert positions == pytest.approx(np.arange(160, 711, 10), abs=1e-3)


def rows_of(*values):
    return torch.tensor([[values]], dtype=torch.float32)


def test_a_lane_that_ends_early_is_led_on_by_the_line_through_its_lower_half():
    # of six the lower three are 40, 50, 60: 10 a row
    found = extend_down(rows_of(-1, 9, 8, 7, 40, 50, 60, -1, -1))
    assert found[0, 0].tolist() == pytest.approx([-1, 9, 8, 7, 40, 50, 60, 70, 80])


def test_measured_rows_of_the_lower_half_are_overwritten_by_the_line():
    # least squares through (3, 0+1), (4, 2+1), (5, 1+1): slope 0.5, mean 2 at row 4
    found = extend_down(rows_of(5, 5, 5, 1, 3, 2, -1))
    assert found[0, 0].tolist() == pytest.approx([5, 5, 5, 1.5, 2, 2.5, 3])


def test_of_an_odd_number_the_larger_half_is_fitted():
    # seven rows: from the fourth (index 3) on
    found = extend_down(rows_of(9, 9, 9, 10, 20, 30, 40, -1))
    assert found[0, 0].tolist() == pytest.approx([9, 9, 9, 10, 20, 30, 40, 50])


def test_gaps_do_not_count_as_rows():
    found = extend_down(rows_of(9, 9, 9, -1, 10, -1, 30, 40, -1))
    assert found[0, 0].tolist() == pytest.approx([9, 9, 9, -1, 10, 20, 30, 40, 50])


@pytest.mark.parametrize(
    "rows",
    [
        (-1, 10, 20, 30, 40, 50, -1),  # five rows
        (10, 20, 30, 40, 50, 60, 70),  # reaches the last row
        (-1, -1, -1, -1, -1, -1, -1),
    ],
    ids=["short", "whole", "empty"],
)
def test_other_lanes_stay_as_they_are(rows):
    assert extend_down(rows_of(*rows))[0, 0].tolist() == list(rows)


def test_cells_are_cut_off_and_the_frames_end_belongs_to_it():
    positions = torch.tensor([-1, -0.01, 0, 9.99, 10, 99.99, 100, 100.01])
    found = cells_at(positions, extent=100, cells=11)
    assert found.tolist() == [-1, -1, 0, 0, 1, 9, 10, -1]


def test_a_batch_is_labelled_as_its_pictures_one_by_one():
    points = random_points(pictures=6, lanes=2, seed=0)
    maker = LabelMaker(model(), FRAME)
    together = maker(points)
    for number in range(len(points)):
        alone = maker(points[number : number + 1])
        assert torch.equal(alone.rows[0], together.rows[number])
        assert torch.equal(alone.columns[0], together.columns[number])


def test_crossings_are_those_of_a_loop_over_points():
    points = random_points(pictures=4, lanes=3, seed=1)
    anchors = np.linspace(0, 50, 9, dtype=np.float32)
    x, y = points.unbind(-1)
    found = crossings(y, x, torch.from_numpy(anchors))
    for picture in range(4):
        for lane in range(3):
            for number, anchor in enumerate(anchors):
                expected = crossing(points[picture, lane].numpy(), anchor)
                assert found[picture, lane, number].item() == pytest.approx(expected, abs=1e-4)


def test_no_step_asks_for_a_value():
    # tensors without values refuse whatever would make the host wait for a device
    labels = LabelMaker(model(), FRAME)(torch.empty(3, 2, 9, 2, device="meta"))
    assert labels.rows.shape == (3, 6, 2)
    assert labels.columns.shape == (3, 5, 2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_device_makes_the_same_labels_without_a_wait():
    points, maker = random_points(pictures=8, lanes=2, seed=2), LabelMaker(model(), FRAME)
    on_device = points.to("cuda")
    maker(on_device)  # takes the anchors there
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = maker(on_device)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = maker(points)
    assert (found.rows.cpu() != expected.rows).float().mean() <= 0.002
    assert (found.columns.cpu() != expected.columns).float().mean() <= 0.002


def random_points(*, pictures, lanes, seed):
    random = np.random.RandomState(seed)
    points = random.uniform(-10, 100, (pictures, lanes, 12, 2)).astype(np.float32)
    points[random.rand(pictures, lanes, 12) < 0.2] = ABSENT
    return torch.from_numpy(points)


def crossing(lane, anchor):
    for a, b in reversed(list(itertools.pairwise(lane))):
        if min(*a, *b) >= 0 and (a[1] - anchor) * (b[1] - anchor) <= 0:
            return a[0] + (anchor - a[1]) / (b[1] - a[1]) * (b[0] - a[0])
    return -1
