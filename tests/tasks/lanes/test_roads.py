"""The geometry of drawn roads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tasks.lanes.road_surface import paint_ground, see_ground
from tasks.lanes.roads import (
    SCENE_SHARES,
    Line,
    Road,
    draw_road,
    labelled_lanes,
    num_slots,
)
from tasks.lanes.synthetic import draw_picture

SOLID = Line(is_yellow=False, dash=0, gap=0, phase=0, width=0.15)
# 100 px below the horizon lies 10 m away, and 50 px are 1 m there
STRAIGHT = Road(
    scene="normal", width=640, height=240, horizon=90.0, centre=320.0, focal=500.0, camera=2.0,
    bend=0.0, lane_width=4.0, offset=0.0, first=-2, lines=(SOLID,) * 4, edges=(-7.0, 7.0),
)  # fmt: skip


def test_a_place_on_the_ground_is_seen_where_a_pinhole_camera_sees_it():
    # 10 m ahead, 3 m to the right: 500 / 10 * 3 px right of the middle, 500 * 2 / 10 px down
    seen = STRAIGHT.project([(3.0, 10.0, 0.0), (3.0, 10.0, 2.0)])
    assert np.allclose(seen, [[470, 190], [470, 90]])


def test_a_bend_moves_the_road_by_its_px_where_labels_end():
    bent = replace(STRAIGHT, bend=40.0)
    # 12 % of 240 px
    assert bent.nearest == pytest.approx(28.8)
    assert bent.columns(0.0, 28.8) == pytest.approx(360)
    # half of it at twice the depth
    assert bent.columns(0.0, 57.6) == pytest.approx(340)


def test_lines_run_straight_to_the_vanishing_point():
    lanes = labelled_lanes(STRAIGHT, slots=4, step=4)
    assert list(lanes) == [0, 1, 2, 3]
    inner_right = lanes[2]
    # 2 m to the right: 1 px per px of depth
    assert np.allclose(inner_right[:, 0] - 320, inner_right[:, 1] - 90)
    assert np.allclose(lanes[1][:, 0] - 320, 90 - lanes[1][:, 1])


def test_labels_run_from_the_bottom_or_the_side_to_below_the_horizon():
    lanes = labelled_lanes(STRAIGHT, slots=4, step=4)
    # 90 + 28.8 px, on the next whole step
    assert all(lane[-1, 1] == 120 for lane in lanes.values())
    assert lanes[2][0, 1] == 240
    # 6 m to the right leaves the picture 320 / 3 px below the horizon
    assert lanes[3][0].tolist() == [320 + 3 * (196 - 90), 196]


def test_a_lane_with_little_height_in_the_picture_is_not_labelled():
    wide = replace(STRAIGHT, lane_width=8.0)
    # 12 m: leaves the picture 53 px below the horizon, 24 px under the end of labels
    assert list(labelled_lanes(wide, slots=4, step=4)) == [1, 2]


@pytest.mark.parametrize(
    ("first", "count", "slots", "labelled"),
    [(-2, 5, 4, [0, 1, 2, 3]), (-3, 5, 4, [0, 1, 2, 3]), (-1, 2, 4, [1, 2]), (0, 1, 4, [2]),
     (-3, 6, 6, [0, 1, 2, 3, 4, 5])],
    ids=["fifth-right", "fifth-left", "two", "one", "six-slots"],
)  # fmt: skip
def test_slots_count_from_the_car(first, count, slots, labelled):
    narrow = replace(STRAIGHT, lane_width=1.5, first=first, lines=(SOLID,) * count)
    assert list(labelled_lanes(narrow, slots=slots, step=4)) == labelled


def test_up_to_five_lines_have_four_slots():
    assert [num_slots((2, most)) for most in (2, 4, 5, 6, 7, 8)] == [4, 4, 4, 6, 8, 8]


def test_the_paint_lies_under_the_labels():
    road = replace(STRAIGHT, bend=25.0)
    ground = see_ground(np.random.RandomState(0), road)
    picture = paint_ground(np.random.RandomState(2), road, ground).astype(int).sum(-1)
    for lane in labelled_lanes(road, slots=4, step=4).values():
        inside = lane[(lane[:, 1] < 240) & (lane[:, 0] > 8) & (lane[:, 0] < 631)]
        columns, row = np.floor(inside).astype(int).T
        around = columns[:, None] + np.arange(-8, 9)
        # y is the edge between two rows of pixels
        seen = sum(picture[row[:, None] - ground.top - above, around] for above in (0, 1))
        is_paint = seen > seen.mean(axis=1, keepdims=True) + 80
        middle = (around * is_paint).sum(1) / is_paint.sum(1) + 0.5
        assert np.abs(middle - inside[:, 0]).max() < 2
        assert np.abs((middle - inside[:, 0]).mean()) < 0.5


@pytest.mark.parametrize("scene", SCENE_SHARES)
def test_each_scene_can_be_drawn(scene):
    rng = np.random.RandomState(1)
    road = draw_road(rng, (128, 64), num_lines=(2, 5), scenes=[scene])
    assert road.scene == scene
    assert draw_picture(rng, road).std() > 5


def test_the_number_of_lines_and_bends_are_as_promised():
    roads = [
        draw_road(np.random.RandomState(seed), (640, 240), num_lines=(2, 5), scenes=[scene])
        for seed, scene in enumerate(["normal", "curve"] * 100)
    ]
    assert {len(road.lines) for road in roads} == {2, 3, 4, 5}
    assert all(-len(road.lines) < road.first < 0 for road in roads)
    bends = [abs(road.bend) / 640 for road in roads]
    assert max(bends[::2]) <= 0.03 < 0.05 <= min(bends[1::2])
