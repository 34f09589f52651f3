"""Boxes on pictures."""

from __future__ import annotations

import numpy as np

from tasks.detection import drawing
from tasks.detection.geometry import Scene

GREY = np.full((480, 640, 3), 90, np.uint8)


def scene(boxes, image=GREY) -> Scene:
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    return Scene(image, boxes, np.arange(len(boxes)))


def test_a_box_is_drawn_on_a_copy_where_it_is():
    drawn = drawing.draw_boxes(GREY, np.array([[100, 200, 300, 400]]), [0], [""])
    assert (GREY == 90).all()
    assert drawn[300, 100].tolist() == list(drawing.class_colour(0))
    assert drawn[399, 200].tolist() == list(drawing.class_colour(0))
    assert drawn[300, 200].tolist() == [90, 90, 90]


def test_lines_are_at_least_three_px_at_640():
    assert drawing.line_width(GREY) == 3
    drawn = drawing.draw_boxes(GREY, np.array([[100, 200, 300, 400]]), [0], [""])
    assert (drawn[300, :200] != 90).any(-1).sum() >= 3


def test_classes_have_colours_of_their_own():
    assert len({drawing.class_colour(label) for label in range(80)}) == 80


def test_labelled_boxes_are_dashed_in_black_and_white():
    drawn = drawing.draw_dashed(GREY, np.array([[100, 100, 500, 400]]))
    values = {tuple(pixel) for pixel in drawn[100, 110:490].tolist()}
    assert values == {(0, 0, 0), (255, 255, 255)}


def test_labels_beyond_the_edge_and_beyond_ascii_are_drawn():
    boxes = np.array([[600.0, 0, 640, 30], [-5, 470, 20, 480]])
    drawn = drawing.draw_boxes(GREY, boxes, [1, 2], ["a name far longer than its box", "Müße"])
    assert (drawn != GREY).any()


def test_small_pictures_are_enlarged_and_large_ones_shrunk():
    small, large = np.zeros((80, 160, 3), np.uint8), np.zeros((500, 2000, 3), np.uint8)
    for image, width in ((small, 480), (large, 640)):
        shown = drawing.compare(
            scene([[0, 0, 20, 20]], image), scene([], image), texts=[], title="x.jpg"
        )
        assert shown.shape[1] == width


def test_without_any_box_a_picture_and_its_name_remain():
    shown = drawing.compare(scene([]), scene([]), texts=[], title="x.jpg")
    assert np.array_equal(shown[-480:], GREY)
    assert (shown[:-480] > 200).any()
