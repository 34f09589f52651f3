"""Moves of pictures, masks and points, against positions worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from readers.lane_records import ABSENT
from tasks.lanes.geometry import (
    affine,
    mirrored,
    move_points,
    slots_from_right,
    slots_of_other_side,
    swap_mask,
    swap_points,
    warp_mask,
    warp_picture,
)

PICTURE = np.random.RandomState(0).randint(0, 256, (12, 16, 4)).astype(np.uint8)
CENTRE = (8.0, 6.0)
STILL = affine(centre=CENTRE)


def moved(matrix, x, y):
    return (matrix @ [x, y, 1]).tolist()


def test_zoom_leaves_the_centre_where_it_is():
    matrix = affine(scale=(2.0, 0.5), centre=CENTRE)
    assert moved(matrix, 8, 6) == [8, 6]
    assert moved(matrix, 10, 10) == [12, 8]


def test_rotation_takes_the_x_axis_towards_the_y_axis():
    assert moved(affine(degrees=90, centre=CENTRE), 10, 6) == pytest.approx([8, 8])


def test_zoom_comes_before_rotation_and_the_shift_last():
    matrix = affine(scale=(3.0, 1.0), degrees=90, shift=(5, -1), centre=CENTRE)
    # 2 px right of the centre -> 6 px right -> 6 px below -> shifted
    assert moved(matrix, 10, 6) == pytest.approx([13, 11])


def test_a_mirror_comes_last():
    matrix = mirrored(affine(shift=(3, 0), centre=CENTRE), width=16)
    assert moved(matrix, 1, 4) == [12, 4]


def test_a_mirrored_picture_is_mirrored_to_the_pixel():
    matrix = mirrored(STILL, width=16)
    assert (warp_picture(PICTURE, matrix) == PICTURE[:, ::-1]).all()
    mask = PICTURE[..., 0]
    assert (warp_mask(mask, matrix) == mask[:, ::-1]).all()


def test_a_shift_leaves_black_behind():
    matrix = affine(shift=(2, -3), centre=CENTRE)
    found = warp_picture(PICTURE, matrix)
    assert (found[:9, 2:] == PICTURE[3:, :14]).all()
    assert not found[:, :2].any()
    assert not found[9:].any()


def test_the_edge_blends_with_black():
    white = np.full((4, 4), 200, np.uint8)
    found = warp_picture(white, affine(shift=(0.5, 0), centre=(2, 2)))
    assert found[0].tolist() == [100, 200, 200, 200]


def test_zoom_counts_from_pixel_corners():
    # doubled about its left edge, each pixel covers two; between centres 1/4 and 3/4 of the way
    row = np.array([[40, 80, 120, 160]], np.uint8)
    found = warp_picture(row, affine(scale=(2.0, 1.0), centre=(0, 0.5)))
    assert found[0].tolist() == [30, 50, 70, 90]
    assert warp_mask(row, affine(scale=(2.0, 1.0), centre=(0, 0.5)))[0].tolist() == [40, 40, 80, 80]


def test_only_the_lower_rows_are_the_same_rows():
    matrix = affine(scale=(1.1, 0.9), degrees=4, shift=(1, 0.5), centre=CENTRE)
    whole = warp_picture(PICTURE, matrix).astype(int)
    part = warp_picture(PICTURE, matrix, first_row=5).astype(int)
    assert part.shape == (7, 16, 4)
    assert np.abs(part - whole[5:]).max() <= 1
    assert (warp_mask(PICTURE[..., 0], matrix, first_row=5).shape) == (7, 16)


def test_points_move_with_the_matrix_and_absent_ones_stay_absent():
    points = np.array([[[8, 6], [10, 6], [ABSENT, ABSENT], [-4, 6]]], np.float32)
    found = move_points(points, affine(scale=(2.0, 1.0), shift=(20, 1), centre=CENTRE))
    assert found.dtype == np.float32
    assert found.tolist() == [[[28, 7], [32, 7], [ABSENT, ABSENT], [4, 7]]]


def test_slots_change_sides():
    points = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    assert (swap_points(points, slots_from_right(3)) == points[::-1]).all()
    mask = np.array([[0, 1, 2, 3, 4]], np.uint8)
    assert swap_mask(mask, slots_from_right(3)).tolist() == [[0, 3, 2, 1, 4]]
    assert swap_mask(mask, slots_of_other_side(4)).tolist() == [[0, 4, 3, 2, 1]]


def test_of_an_odd_number_of_sided_slots_the_last_has_no_counterpart():
    # two left slots, three right ones
    assert slots_of_other_side(5).tolist() == [3, 2, 1, 0, -1]
    points = np.arange(20, dtype=np.float32).reshape(5, 2, 2)
    found = swap_points(points, slots_of_other_side(5))
    assert (found[:4] == points[3::-1]).all()
    assert (found[4] == ABSENT).all()
    mask = np.array([[0, 1, 2, 3, 4, 5]], np.uint8)
    assert swap_mask(mask, slots_of_other_side(5)).tolist() == [[0, 4, 3, 2, 1, 0]]
