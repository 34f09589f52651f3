"""Lanes on pictures."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.lanes import drawing

GREY = np.full((240, 640, 3), 90, np.uint8)
# straight down the middle of pixels 320
MIDDLE = np.array([[320.5, 240], [320.5, 100]])


def test_a_lane_is_drawn_on_a_copy_where_it_is():
    drawn = drawing.draw_lanes(GREY, [MIDDLE], [2])
    assert (GREY == 90).all()
    assert drawn[150, 320].tolist() == list(drawing.slot_colour(2))
    assert drawn[150, 310].tolist() == [90, 90, 90]
    assert drawn[50, 320].tolist() == [90, 90, 90]


def test_lines_have_a_dark_edge_for_any_ground():
    white = np.full_like(GREY, 255)
    row = drawing.draw_lanes(white, [MIDDLE], [0])[150]
    changed = np.flatnonzero((row != 255).any(-1))
    assert len(changed) >= 5
    assert row[changed[0]].max() < 255
    assert row[changed[-1]].max() < 255


def test_slots_have_colours_of_their_own_and_none_is_grey():
    assert len({drawing.slot_colour(slot) for slot in range(-1, 32)}) == 33
    assert drawing.slot_colour(-1) == drawing.NO_SLOT


def test_a_labelled_lane_is_dashed_in_black_and_white():
    column = drawing.draw_dashed(GREY, [MIDDLE])[105:235, 320]
    values = {tuple(pixel) for pixel in column.tolist()}
    assert {(0, 0, 0), (255, 255, 255)} <= values


ODD = {
    "no-point": np.zeros((0, 2)),
    "one-point": MIDDLE[:1],
    "far-out": np.array([[-5e9, 3e9], [5e9, -3e9]]),
    "outside": np.array([[-50.0, 9], [-9, 4]]),
}


@pytest.mark.parametrize("lane", ODD.values(), ids=ODD)
def test_lanes_of_any_kind_can_be_drawn(lane):
    drawing.draw_lanes(GREY, [lane], [0], texts=["0 0.90"])
    drawing.compare(GREY, [lane, MIDDLE], [0, 1], [MIDDLE, lane], [1, 0], title="x.jpg")


def test_texts_are_written_at_the_lower_end():
    plain = drawing.draw_lanes(GREY, [MIDDLE], [1])
    drawn = drawing.draw_lanes(GREY, [MIDDLE], [1], texts=["1 0.98"])
    rows = np.flatnonzero((drawn != plain).any(-1).any(-1))
    assert rows.min() > 190


def test_small_pictures_are_enlarged_and_large_ones_shrunk():
    for (height, width), shown in (((80, 160), 480), ((500, 2000), 640)):
        image = np.zeros((height, width, 3), np.uint8)
        drawn = drawing.compare(image, [], [], [], [], title="x.jpg")
        assert drawn.shape[1] == shown


def test_a_missed_lane_shows_dashes_and_a_found_one_the_slots_colour():
    missed = drawing.compare(GREY, [MIDDLE], [1], [], [], title="")[-240:]
    found = drawing.compare(GREY, [MIDDLE], [1], [MIDDLE], [1], title="")[-240:]
    assert {tuple(pixel) for pixel in missed[110:200, 320].tolist()} >= {(0, 0, 0), (255,) * 3}
    assert (found[110:200, 320] == drawing.slot_colour(1)).all()
    # the label shows on both sides of the line
    assert (found[110:200, 314:327] == 255).all(-1).any()


def test_the_disc_at_the_lower_end_has_the_labels_slot():
    shown = drawing.compare(GREY, [MIDDLE], [3], [MIDDLE], [1], title="")
    assert shown[-9, 320].tolist() == list(drawing.slot_colour(3))


def test_lanes_move_with_the_picture_when_it_is_resized():
    large = np.full((480, 1280, 3), 90, np.uint8)
    shown = drawing.compare(large, [], [], [2 * MIDDLE], [0], title="")[-240:]
    assert shown[150, 320].tolist() == list(drawing.slot_colour(0))
