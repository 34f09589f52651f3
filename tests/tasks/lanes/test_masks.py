from __future__ import annotations

import cv2
import numpy as np
import pytest

from tasks.lanes.masks import draw_mask, made_mask

LANES = (np.array([[20.0, 0.0], [20.0, 60.0]]), np.array([[60.9, 0.0], [60.9, 60.0]]))
SIZE = (100, 60)


def drawn(slots, lanes=LANES):
    return draw_mask(lanes, np.array(slots), size=SIZE)


def test_lanes_are_drawn_with_the_numbers_of_their_slots():
    mask = drawn([3, 0])
    assert (mask.shape, mask.dtype) == ((60, 100), np.uint8)
    (row,) = np.unique(mask[10:50], axis=0)
    assert np.flatnonzero(row == 4).tolist() == list(range(12, 29))  # 16 px and the middle one
    assert np.flatnonzero(row == 1).tolist() == list(range(52, 69))


def test_lanes_without_slot_are_not_drawn():
    assert set(np.unique(drawn([-1, 1]))) == {0, 2}
    assert not drawn([-1, -1]).any()
    assert not draw_mask((), np.zeros(0, np.int64), size=SIZE).any()


def test_later_slots_lie_above():
    crossing = (np.array([[0.0, 30.0], [99.0, 30.0]]), LANES[0])
    assert drawn([1, 0], crossing)[30, 20] == 2
    assert drawn([0, 1], crossing)[30, 20] == 2


def test_points_far_outside_are_drawn():
    assert drawn([0], (np.array([[50.0, 30.0], [50.0, 1e300]]),))[50, 50] == 1


def made(folder, *, slots=(0, 1), lanes=LANES, content="a"):
    return made_mask(folder, lanes, np.array(slots), size=SIZE, content=content)


def test_masks_are_made_once(tmp_path):
    path = made(tmp_path)
    assert np.array_equal(cv2.imread(str(path), cv2.IMREAD_UNCHANGED), drawn([0, 1]))
    before = path.stat().st_mtime_ns
    assert made(tmp_path) == path
    assert path.stat().st_mtime_ns == before
    assert [entry for entry in tmp_path.rglob("*") if entry.is_file()] == [path]


@pytest.mark.parametrize(
    "change",
    [{"slots": (1, 0)}, {"lanes": (LANES[0] + 1, LANES[1])}, {"content": "b"}],
    ids=["slots", "lanes", "picture"],
)
def test_another_content_is_another_file(tmp_path, change):
    assert made(tmp_path) != made(tmp_path, **change)
