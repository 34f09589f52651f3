from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from readers.lane_records import ABSENT, ImageLanes
from tasks.lanes.config import GridConfig
from tasks.lanes.grid import (
    at_heights,
    downward,
    fitted,
    grid_heights,
    scaled_lanes,
    slot_grid,
)

HEIGHTS = np.arange(0, 60, 10, dtype=np.float32)


def lane(*points):
    return np.array(points, np.float64)


def x_of(grid):
    return [None if x == ABSENT else x for x in grid[:, 0].tolist()]


@pytest.mark.parametrize(
    ("layout", "frame", "ends"),
    [
        ("tusimple", (1280, 720), (56, 160, 710)),
        ("culane", (1640, 590), (35, 250, 590)),
        ("curvelanes", (2560, 1440), (125, 200, 1440)),
        ("tusimple", (512, 288), (73, 0, 288)),
        ("culane", (1280, 720), (73, 0, 720)),
        ("labelme", (1920, 1080), (73, 0, 1080)),
        ("labelme", (64, 40), (41, 0, 40)),
    ],
)
def test_benchmarks_have_grids_of_their_own(layout, frame, ends):
    heights = grid_heights(None, layout=layout, frame=frame)
    assert (len(heights), heights[0], heights[-1]) == ends
    assert heights.dtype == np.float32


def test_a_given_grid_reaches_its_last_height():
    given = GridConfig(first=100, last=280, step=20)
    heights = grid_heights(given, layout="tusimple", frame=(1280, 720))
    assert heights.tolist() == [100, 120, 140, 160, 180, 200, 220, 240, 260, 280]


def test_lanes_on_the_grid_are_kept_with_their_gaps():
    grid = at_heights(lane((5, 50), (4, 40), (2, 20), (1, 10), (0, -10)), HEIGHTS)
    assert x_of(grid) == [None, 1, 2, None, 4, 5]
    assert grid[1].tolist() == [1, 10]
    assert grid[0].tolist() == [ABSENT, ABSENT]


def test_lanes_off_the_grid_are_drawn_out_between_points():
    grid = at_heights(lane((5, 5), (25, 25), (45, 25.5), (60, 38)), HEIGHTS)
    assert x_of(grid) == [None, 10, 20, pytest.approx(50.4), None, None]


def test_sparse_points_on_the_grid_are_joined():
    assert x_of(at_heights(lane((0, 50), (40, 10)), HEIGHTS)) == [None, 40, 30, 20, 10, 0]


def test_a_lane_that_turns_is_taken_where_it_is_first():
    grid = at_heights(lane((0, 5), (30, 35), (60, 5)), HEIGHTS)
    assert x_of(grid) == [None, 5, 15, 25, None, None]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ((), [None] * 6),
        (((7, 20),), [None, None, 7, None, None, None]),
        (((7, 21),), [None] * 6),
        (((3, 15), (9, 15)), [None] * 6),
        (((3, 20.5), (4, 20), (9, 20)), [None, None, 4, None, None, None]),
    ],
    ids=["none", "on a height", "between", "level between", "level on"],
)
def test_degenerate_lanes(points, expected):
    assert x_of(at_heights(lane(*points).reshape(-1, 2), HEIGHTS)) == expected


def test_fits_are_cubic_between_the_ends():
    y = np.array([8.0, 20, 30, 45, 50])
    grid = fitted(np.stack([(y / 10) ** 3, y], axis=1)[::-1], HEIGHTS)
    assert grid[1:, 0] == pytest.approx([1, 8, 27, 64, 125], abs=1e-3)
    assert grid[0].tolist() == [ABSENT, ABSENT]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (((0, 0), (20, 20)), [0, 10, 20]),
        (((0, 0), (1, 10), (4, 20)), [0, 1, 4]),
        (((0, 0), (10, 10), (10, 10), (20, 20)), [0, 10, 20]),
        (((5, 10), (9, 10)), [None, None, None]),
    ],
    ids=["line", "parabola", "repeated point", "level"],
)
def test_fits_of_few_points_have_a_lower_degree(points, expected):
    found = x_of(fitted(lane(*points), HEIGHTS))[:3]
    for one, other in zip(found, expected, strict=True):
        assert one == (other if other is None else pytest.approx(other, abs=1e-4))


def record(*lanes, size):
    return ImageLanes("a.jpg", Path("a.jpg"), *size, turn=1, lanes=lanes)


def test_lanes_are_scaled_from_picture_to_frame():
    (scaled,) = scaled_lanes(record(lane((100, 50), (0, 25)), size=(200, 100)), (400, 300))
    assert scaled.tolist() == [[200, 150], [0, 75]]
    assert downward(scaled).tolist() == [[0, 75], [200, 150]]


def test_slots_get_the_points_of_their_lanes():
    points = [at_heights(lane((k, 10), (k, 20)), HEIGHTS) for k in (1, 2)]
    grid = slot_grid(points, np.array([1, -1, 0]), num_heights=6)
    assert grid.shape == (3, 6, 2)
    assert grid[:, 1, 0].tolist() == [2, ABSENT, 1]
    assert (grid[1] == ABSENT).all()
