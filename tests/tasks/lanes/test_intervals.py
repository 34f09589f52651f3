"""Pixels of lanes by row intervals, against whole pictures that OpenCV draws on."""

import itertools

import cv2
import numpy as np
import pytest

from tasks.lanes.intervals import Canvas, areas_of, intersections
from tasks.lanes.splines import LaneSamples, sample_splines
from tasks.lanes.stamps import LONGEST_STEP, row_intervals, stamp_of

LANE_WIDTHS = (1, 2, 5, 7, 12, 30)


def drawn(samples, canvas):
    """Each lane as the benchmark's tool draws it: (M, H, W) bool."""
    masks = np.zeros((len(samples.counts), canvas.height, canvas.width), np.uint8)
    begin = 0
    for mask, count in zip(masks, samples.counts, strict=True):
        part = slice(begin, begin + count)
        points = np.rint(np.stack([samples.x[part], samples.y[part]], axis=1)).astype(int).tolist()
        for one, other in itertools.pairwise(points):
            cv2.line(mask, one, other, 1, canvas.lane_width)
        begin += count
    return masks.astype(bool)


def assert_as_drawn(samples, canvas):
    """Areas and all intersections are the drawn ones; returns how many lanes had to be drawn."""
    masks = drawn(samples, canvas)
    areas = areas_of(samples, canvas)
    ones, others = np.triu_indices(len(masks))
    common = [(masks[a] & masks[b]).sum() for a, b in zip(ones, others, strict=True)]
    assert areas.area.tolist() == masks.sum((1, 2)).tolist()
    assert intersections(areas, ones, others).tolist() == common
    return len(areas.drawn)


def lanes_down(random, number, *, size, wander):
    """Lanes that run down the picture, some of them beyond its edges."""
    width, height = size
    lanes = []
    for _ in range(number):
        y = np.linspace(random.uniform(-30, 60), random.uniform(120, height + 40), 12)
        t = np.linspace(0, 1, 12)
        bends = random.randn(3) * wander
        x = random.uniform(-20, width + 20) + bends[0] * t + bends[1] * t**2 + bends[2] * t**3
        lanes.append(np.c_[x, y][:: random.choice([-1, 1])])
    return lanes


@pytest.mark.parametrize("lane_width", LANE_WIDTHS)
def test_flowing_lanes_cover_what_is_drawn(lane_width):
    random = np.random.RandomState(lane_width)
    samples = sample_splines(lanes_down(random, 12, size=(240, 160), wander=80), scale=(1, 1))

    assert assert_as_drawn(samples, Canvas(240, 160, lane_width)) < 12


@pytest.mark.parametrize("lane_width", LANE_WIDTHS)
def test_lanes_that_turn_back_cover_what_is_drawn(lane_width):
    random = np.random.RandomState(lane_width)
    turning = [random.rand(5, 2) * (260, 180) - 10 for _ in range(8)]
    samples = sample_splines(
        turning + lanes_down(random, 4, size=(240, 160), wander=10), scale=(1, 1)
    )

    assert assert_as_drawn(samples, Canvas(240, 160, lane_width)) > 0


def test_sparse_points_and_pairs_of_points_cover_what_is_drawn():
    random = np.random.RandomState(3)
    lanes = [random.rand(n, 2) * (900, 500) for n in (2, 2, 2, 3, 3, 4)]
    samples = sample_splines(lanes, scale=(1, 1))

    assert_as_drawn(samples, Canvas(800, 400, 30))


def test_huge_pictures_are_counted_in_wider_numbers():
    lanes = [np.array([[19_000, 5], [19_010, 30], [19_050, 60]], float)]
    samples = sample_splines(lanes, scale=(1, 1))

    assert_as_drawn(samples, Canvas(20_000, 64, 30))


def test_lanes_far_outside_have_no_pixels():
    lanes = [
        np.array([[-500, 10], [-480, 50], [-470, 90]], float),
        np.array([[50, 900], [52, 920], [53, 950]], float),
        np.array([[1e30, 0], [1e30, 5], [50, 10]], float),
    ]
    areas = areas_of(sample_splines(lanes, scale=(1, 1)), Canvas(200, 100, 10))

    assert areas.area[:2].tolist() == [0, 0]
    assert intersections(areas, np.array([0, 0]), np.array([0, 1])).tolist() == [0, 0]


def test_a_lane_within_one_pixel_is_a_disc():
    lane = LaneSamples(np.full(2, 50.2, np.float32), np.float32([40.1, 40.2]), np.array([2]))

    assert_as_drawn(lane, Canvas(100, 80, 9))


@pytest.mark.parametrize("lane_width", LANE_WIDTHS)
def test_a_step_drawn_from_either_end_is_the_same(lane_width):
    steps = range(-LONGEST_STEP, LONGEST_STEP + 1)
    for dx, dy in [(dx, dy) for dx in steps for dy in steps]:
        there = stamp_of(dx, dy, lane_width=lane_width)
        back = stamp_of(-dx, -dy, lane_width=lane_width)
        if there is None or back is None:
            assert there is back
            continue
        assert there.rows == tuple(row + dy for row in back.rows)
        assert there.first == tuple(column + dx for column in back.first)
        assert there.last == tuple(column + dx for column in back.last)


def test_row_intervals_name_the_rows_that_hold_anything():
    mask = np.array([[0, 0, 0], [0, 1, 1], [1, 0, 1]])

    rows, first, last = row_intervals(mask)

    assert (rows.tolist(), first.tolist(), last.tolist()) == ([1, 2], [1, 0], [2, 2])
