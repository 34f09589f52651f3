from __future__ import annotations

import numpy as np
import pytest

from tasks.lanes.slots import by_angle, by_mask, by_outermost

SIZE = (1000, 600)


def line(bottom, top, *, points=5):
    """A straight lane from (x, 600) up to (x, 300)."""
    return np.linspace((bottom, 600.0), (top, 300.0), points)


# from left to right; the middle ones are the steepest
LEFT_3, LEFT_2, LEFT_1 = line(0, 450), line(200, 470), line(400, 490)
RIGHT_1, RIGHT_2, RIGHT_3 = line(600, 510), line(800, 530), line(1000, 550)


def angle(*lanes, num_slots=4, shortest=90.0):
    return by_angle(lanes, num_slots=num_slots, size=SIZE, shortest=shortest)


def outermost(*lanes, num_slots=4, shortest=90.0):
    return by_outermost(lanes, num_slots=num_slots, size=SIZE, shortest=shortest)


def codes(assignment):
    return [(other.lane, other.code) for other in assignment.left_out]


def test_steepest_lanes_take_the_middle_slots_by_angle():
    found = angle(RIGHT_2, LEFT_1, RIGHT_1, LEFT_2)
    assert found.lane_of_slot.tolist() == [3, 1, 2, 0]
    assert found.slots(4).tolist() == [3, 1, 2, 0]
    assert found.left_out == ()


def test_flattest_lanes_are_left_out_where_slots_are_too_few():
    found = angle(LEFT_3, LEFT_2, LEFT_1, RIGHT_1)
    assert found.slots(4).tolist() == [-1, 0, 1, 2]
    (other,) = found.left_out
    assert (other.lane, other.code) == (0, "more-lanes-than-slots")
    assert other.message == "3 lanes on the left, 2 of 4 slots are for that side"


@pytest.mark.parametrize(
    ("num_slots", "slots"),
    [
        (1, [-1, -1, -1, 0, -1, -1]),
        (2, [-1, -1, 0, 1, -1, -1]),
        (3, [-1, -1, 0, 1, 2, -1]),
        (5, [-1, 0, 1, 2, 3, 4]),
        (6, [0, 1, 2, 3, 4, 5]),
        (8, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_any_number_of_slots_fills_from_the_middle(num_slots, slots):
    lanes = (LEFT_3, LEFT_2, LEFT_1, RIGHT_1, RIGHT_2, RIGHT_3)
    assert angle(*lanes, num_slots=num_slots).slots(6).tolist() == slots


def test_short_level_and_single_point_lanes_get_no_slot():
    short = line(400, 490)[:2]  # 78 px
    level = np.array([[100.0, 400.0], [300.0, 400.0]])
    found = angle(short, level, LEFT_1[:1], RIGHT_1, np.zeros((0, 2)))
    assert found.slots(5).tolist() == [-1, -1, -1, 2, -1]
    assert codes(found) == [(0, "lane-too-short"), (1, "level-lane")]
    assert found.left_out[0].message == "its ends lie 78.3 px apart; data.slots.shortest is 90"
    assert angle(short, shortest=70.0).slots(1).tolist() == [1]


def test_vertical_lanes_belong_to_the_side_they_are_on():
    found = angle(line(300, 300), line(700, 700), LEFT_2, RIGHT_2)
    assert found.slots(4).tolist() == [1, 2, 0, 3]


def test_of_two_lanes_of_one_angle_the_first_is_taken():
    found = angle(LEFT_1, LEFT_1 + 0.0, RIGHT_1)
    assert found.lane_of_slot.tolist() == [0, 0, 2, -1]
    assert found.slots(3).tolist() == [1, -1, 2]
    assert codes(found) == [(1, "same-lane-twice")]


def test_outermost_lanes_take_the_middle_slots_in_curvelanes_order():
    found = outermost(LEFT_3, LEFT_2, LEFT_1, RIGHT_1, RIGHT_2, RIGHT_3, num_slots=10)
    #                 leaves furthest out                                  and here
    assert found.slots(6).tolist() == [4, 3, 2, 7, 6, 5]


def test_curvelanes_lanes_nearest_the_middle_are_left_out():
    found = outermost(LEFT_3, LEFT_2, LEFT_1, RIGHT_1)
    assert found.slots(4).tolist() == [1, 0, -1, 2]
    assert codes(found) == [(2, "more-lanes-than-slots")]


def test_curvelanes_lanes_that_leave_by_the_side_are_ranked_by_height():
    # drawn out to x = 0 they reach y = 500 and y = 550: the higher one is further out
    high = np.array([[100.0, 450.0], [400.0, 300.0]])
    low = np.array([[100.0, 500.0], [500.0, 300.0]])
    assert outermost(LEFT_1, low, high, num_slots=6).slots(3).tolist() == [0, 1, 2]


def test_order_of_points_does_not_matter_to_curvelanes():
    lanes = (LEFT_2, LEFT_1, RIGHT_1)
    turned = [lane[::-1] for lane in lanes]
    assert outermost(*lanes).slots(3).tolist() == outermost(*turned).slots(3).tolist()


def test_odd_lowest_points_are_ranked_all_the_same():
    straight_down = np.array([[300.0, 600], [300, 500], [350, 400], [400, 300]])
    twice = np.array([[200.0, 600], [200, 600], [350, 400], [400, 300]])
    below = np.array([[100.0, 700], [0, 700], [400, 300]])
    slots = outermost(straight_down, twice, below, num_slots=6).slots(3)
    assert sorted(slots.tolist()) == [0, 1, 2]


def mask_with(*lanes):
    """A mask that has each lane's number about its middle point."""
    mask = np.zeros((600, 1000), np.uint8)
    for number, lane in lanes:
        column, row = lane[len(lane) // 2].astype(int)
        mask[row - 4 : row + 4, column - 4 : column + 4] = number
    return mask


def test_masks_give_slots_at_the_middle_points():
    mask = mask_with((3, RIGHT_1), (2, LEFT_1))
    found = by_mask((RIGHT_1, np.zeros((0, 2)), LEFT_1), mask, num_slots=4)
    assert found.slots(3).tolist() == [2, -1, 1]
    assert found.left_out == ()


def test_the_pixel_up_and_left_of_the_middle_counts():
    mask = np.zeros((600, 1000), np.uint8)
    mask[299, 399] = 4
    lane = np.array([[390.0, 310.0], [400.9, 300.9], [410.0, 290.0]])
    assert by_mask((lane,), mask, num_slots=4).slots(1).tolist() == [3]


@pytest.mark.parametrize(
    ("lanes", "mask", "message"),
    [
        (
            (LEFT_1,),
            mask_with(),
            "the mask is 0 at the lane's middle, row 449, column 444; the lane's number, 1 to 4, "
            "is expected",
        ),
        (
            (LEFT_1,),
            mask_with((5, LEFT_1)),
            "the mask is 5 at the lane's middle, row 449, column 444; model.lanes is 4",
        ),
        (
            (LEFT_1, LEFT_1),
            mask_with((2, LEFT_1)),
            "the mask is 2 at the lane's middle, row 449, column 444, as for lane 1",
        ),
        (
            (LEFT_1 - (1000, 0),),
            mask_with(),
            "the mask is 0 at the lane's middle, row 449, column 0, outside the picture; the "
            "lane's number, 1 to 4, is expected",
        ),
    ],
    ids=["none", "beyond", "taken", "outside"],
)
def test_what_a_mask_does_not_say_is_told(lanes, mask, message):
    found = by_mask(lanes, mask, num_slots=4)
    assert found.left_out[-1].message == message
    assert found.slots(len(lanes))[-1] == -1
