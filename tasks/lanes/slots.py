"""Which lane goes to which slot: the three rules of the benchmarks.

Slots count from 0; every slot has its own outputs of the network, so a rule must give like lanes
like slots. All rules look at lanes in px of their own picture. L is the number of slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NO_LANE = -1
VERTICAL = 1e-6  # px of width below which no line y(x) can be fitted

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A lane that gets no slot.

    Args:
        lane: its number in the picture, from 0.
        code: name of the finding, e.g. `lane-too-short`.
        message: why, with the value.
    """

    lane: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """The slots of one picture.

    Args:
        lane_of_slot: (L,) int64, number of the lane in each slot; -1: none.
        left_out: lanes that are in no slot, but for those that no line can be drawn of.
    """

    lane_of_slot: np.ndarray
    left_out: tuple[LeftOut, ...]

    def slots(self, num_lanes: int) -> np.ndarray:
        """Return the slot of each of the picture's lanes, (num_lanes,) int64; -1: none."""
        slots = np.full(num_lanes, -1, np.int64)
        # of a lane in two slots the inner one counts: it is the farther from the nearer end
        num_slots = len(self.lane_of_slot)
        depth = np.minimum(np.arange(num_slots), np.arange(num_slots)[::-1])
        for slot in np.argsort(depth, kind="stable"):
            if self.lane_of_slot[slot] != NO_LANE:
                slots[self.lane_of_slot[slot]] = slot
        return slots


def by_angle(
    lanes: Sequence[np.ndarray], *, num_slots: int, size: Size, shortest: float
) -> Assignment:
    """Give the lanes nearest to the vertical the middle slots, flatter ones those further out.

    A straight line y(x) is fitted to each lane; lanes with a falling x(y) are left ones. They fill
    the slots from the middle outwards to the left, and right ones to the right; lanes for which
    no slot is left over get none. Of an odd number of slots the right side has one more, so that a
    slot is always on the same side.

    Args:
        lanes: per lane (P, 2) float64, x and y px; those of fewer than two points, which the
            readers tell, are passed over.
        num_slots: L.
        size: width and height of the picture, px; a vertical lane is a left one in its left half.
        shortest: lanes of less px between first and last point get no slot.

    Source: UFLDv2's TuSimple conversion, which has four slots. As there, of several lanes of one
    and the same angle the first takes the slots of all.
    """
    angles, left_out = _angles(lanes, size=size, shortest=shortest)
    left = np.where(angles < 0, angles, np.nan)
    right = np.where(angles > 0, angles, np.nan)
    return _filled(left, right, num_slots=num_slots, left_out=left_out)


def by_outermost(
    lanes: Sequence[np.ndarray], *, num_slots: int, size: Size, shortest: float
) -> Assignment:
    """Give the outermost lanes of each side the middle slots, and nearer ones those further out.

    Left and right are told apart as in `by_angle`. A lane is ranked by where it leaves the picture
    when its lowest points are drawn out straight: on the lower edge by x, on the left or right
    edge by the height. Where a side has more lanes than slots, those nearest to the middle get
    none. Of an odd number of slots the right side has one more.

    Args:
        lanes: per lane (P, 2) float64, x and y px, in any order; those of fewer than two points
            are passed over.
        num_slots: L.
        size: width and height of the picture, px.
        shortest: lanes of less px between lowest and highest point get no slot.

    Source: UFLDv2's CurveLanes conversion, read literally (ten slots): its published weights know
    no other order. Lanes of one rank share slots as in `by_angle`.
    """
    lanes = [lane[np.argsort(-lane[:, 1], kind="stable")] for lane in lanes]
    angles, left_out = _angles(lanes, size=size, shortest=shortest)
    left, right = np.full(len(lanes), np.nan), np.full(len(lanes), np.nan)
    for number in np.flatnonzero(angles < 0):
        left[number] = _exit(lanes[number], side=0, height=size[1])
    for number in np.flatnonzero(angles > 0):
        right[number] = _exit(lanes[number], side=size[0], height=size[1])
    return _filled(left, right, num_slots=num_slots, left_out=left_out)


def by_mask(lanes: Sequence[np.ndarray], mask: np.ndarray, *, num_slots: int) -> Assignment:
    """Give each lane the slot that the mask has at its middle point.

    Args:
        lanes: per lane (P, 2) float64, x and y px; lanes without points are passed over.
        mask: (H, W) uint8, 0 ground, slot + 1 on lanes; of the picture's size.
        num_slots: L.

    Source: CULane; the point is number P // 2, the pixel one left of and above it, as in UFLDv2's
    conversion. Unlike there, of two lanes of one number the second gets no slot, and a lane that
    the mask does not have is told instead of stopping in a debugger.
    """
    lane_of_slot = np.full(num_slots, NO_LANE, np.int64)
    left_out = []
    for number, lane in enumerate(lanes):
        if len(lane) == 0:
            continue
        value, place = _value_at(mask, lane[len(lane) // 2])
        fault = _mask_fault(value, place, lane_of_slot=lane_of_slot)
        if fault is not None:
            left_out.append(LeftOut(number, *fault))
        else:
            lane_of_slot[value - 1] = number
    return Assignment(lane_of_slot, tuple(left_out))


def _angles(
    lanes: Sequence[np.ndarray], *, size: Size, shortest: float
) -> tuple[np.ndarray, list[LeftOut]]:
    """Return the angle of each lane's straight fit, NaN for lanes that get no slot."""
    angles, left_out = np.full(len(lanes), np.nan), []
    for number, lane in enumerate(lanes):
        if len(lane) < 2:
            continue
        length = float(np.hypot(*(lane[-1] - lane[0])))
        if length < shortest:
            message = f"its ends lie {length:.3g} px apart; data.slots.shortest is {shortest:g}"
            left_out.append(LeftOut(number, "lane-too-short", message))
            continue
        angle = _angle(lane, width=size[0])
        if angle == 0:
            left_out.append(LeftOut(number, "level-lane", "it is level, neither left nor right"))
            continue
        angles[number] = angle
    return angles, left_out


def _angle(lane: np.ndarray, *, width: int) -> float:
    x, y = lane.T
    if np.ptp(x) < VERTICAL:
        return float(np.copysign(np.pi / 2, x[0] - width / 2))
    if np.ptp(y) == 0:
        return 0.0
    return float(np.arctan(np.polyfit(x, y, 1)[0]))


def _exit(lane: np.ndarray, *, side: int, height: int) -> float:
    """Return where a lane leaves its picture: x on the lower edge, or x of the side, moved on.

    Args:
        lane: (P, 2), from its lowest point up.
        side: x of the edge on the lane's side, px.
        height: of the picture, px.
    """
    first = 3 if np.ptp(lane[:2, 0]) < VERTICAL and len(lane) > 2 else 2
    x, y = lane[:first].T
    if np.ptp(x) < VERTICAL:
        return float(x[0])  # runs straight down
    slope, offset = np.polyfit(x, y, 1)
    y_at_side = slope * side + offset
    if y_at_side > height and slope != 0:
        return float((height - offset) / slope)
    rise = height - y_at_side
    return float(side + rise if side else -rise)


def _filled(
    left: np.ndarray, right: np.ndarray, *, num_slots: int, left_out: Sequence[LeftOut]
) -> Assignment:
    """Fill the slots from the middle outwards, smallest left keys and largest right ones first.

    Args:
        left: (N,) key of each lane on the left side, NaN for the others.
        right: (N,) the same for the right side.
        num_slots: L.
        left_out: lanes that are on neither side.
    """
    num_left = num_slots // 2
    lane_of_slot = np.full(num_slots, NO_LANE, np.int64)
    others = list(left_out)
    slots_of = {"left": range(num_left - 1, -1, -1), "right": range(num_left, num_slots)}
    for side, keys in (("left", left), ("right", -right)):
        slots, on_side = slots_of[side], np.flatnonzero(~np.isnan(keys))
        for slot, key in zip(slots, np.sort(keys[on_side]), strict=False):
            lane_of_slot[slot] = np.flatnonzero(keys == key)[0]
        for number in set(on_side.tolist()) - set(lane_of_slot.tolist()):
            code, message = "more-lanes-than-slots", f"{len(on_side)} lanes on the {side}"
            message += f", {len(slots)} of {num_slots} slots are for that side"
            first = int(np.flatnonzero(keys == keys[number])[0])
            if first != number:
                code, message = "same-lane-twice", f"it has exactly the slope of lane {first + 1}"
            others.append(LeftOut(number, code, message))
    return Assignment(lane_of_slot, tuple(sorted(others, key=lambda other: other.lane)))


def _value_at(mask: np.ndarray, point: np.ndarray) -> tuple[int, str]:
    """Return the mask's value up and left of a point, 0 outside it, and what to call the place."""
    column, row = max(int(point[0]) - 1, 0), max(int(point[1]) - 1, 0)
    place = f"at the lane's middle, row {row}, column {column}"
    height, width = mask.shape
    if (point < 0).any() or row >= height or column >= width:
        return 0, f"{place}, outside the picture"
    return int(mask[row, column]), place


def _mask_fault(value: int, place: str, *, lane_of_slot: np.ndarray) -> tuple[str, str] | None:
    """Return code and message of what is wrong with a lane's number, if anything is."""
    num_slots = len(lane_of_slot)
    if value == 0:
        right = f"the lane's number, 1 to {num_slots}, is expected"
        return "lane-not-in-mask", f"the mask is 0 {place}; {right}"
    if value > num_slots:
        return "mask-beyond-slots", f"the mask is {value} {place}; model.lanes is {num_slots}"
    if lane_of_slot[value - 1] != NO_LANE:
        first = int(lane_of_slot[value - 1]) + 1
        return "two-lanes-in-one-slot", f"the mask is {value} {place}, as for lane {first}"
    return None
