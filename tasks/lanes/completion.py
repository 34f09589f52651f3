"""From a reader's record to one with slots and grid, and what is wrong with its lanes.

L is the number of slots, G the number of heights of the grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import PurePosixPath
from typing import Literal

import numpy as np

from readers.culane import LABEL_ENDING, label_path
from readers.images import read_mask
from readers.lane_records import ABSENT, ImageLanes
from readers.records import DatasetError, Finding
from readers.text_files import read_lines
from tasks.lanes.grid import at_heights, fitted, scaled_lanes, slot_grid
from tasks.lanes.slots import NO_LANE, Assignment, LeftOut, by_angle, by_mask, by_outermost

Rule = Literal["angle", "mask", "outermost"]

# A network cannot be trained on labels that contradict their masks.
MASK_FAULTS = ("lane-not-in-mask", "mask-beyond-slots", "mask-of-another-size")
NO_SLOT = "no slot: it is scored, but not trained on"
# Lanes that are closer than this share of the frame's width, on average, are one.
CLOSEST = 0.005
LEAST_SHARED = 3  # heights that two lanes need to have in common to be compared


@dataclass(frozen=True)
class Completed:
    """A record with slots and grid.

    Args:
        record: the record; its mask is one whose numbers are its slots, or None.
        findings: what is wrong with its lanes.
        lacks_mask: whether its slots were to come from a mask that it does not have.
    """

    record: ImageLanes
    findings: tuple[Finding, ...]
    lacks_mask: bool = False


@dataclass(frozen=True)
class Completion:
    """How the records of one source are completed.

    Args:
        layout: format of the labels.
        rule: how lanes get their slots; pictures without a mask get them by angle.
        shortest: px between the ends of the shortest lane that gets a slot by angle or place.
        num_slots: L.
        frame: width and height that grids count in, px.
        heights: (G,) float32, px of the frame.
    """

    layout: str
    rule: Rule
    shortest: float
    num_slots: int
    frame: tuple[int, int]
    heights: np.ndarray

    def complete(self, record: ImageLanes) -> Completed:
        """Return a record with its slots and its grid.

        Raises:
            DatasetError: naming the file, when a mask cannot be read.
        """
        mask = record.mask if self.rule == "mask" else None
        lacks_mask = self.rule == "mask" and mask is None
        assignment, findings = self._assigned(record)
        lanes = scaled_lanes(record, self.frame)
        to_grid = fitted if self.layout == "curvelanes" else at_heights
        points = [
            to_grid(lane, self.heights)
            if number in assignment.lane_of_slot
            else np.full((len(self.heights), 2), ABSENT, np.float32)
            for number, lane in enumerate(lanes)
        ]
        grid = slot_grid(points, assignment.lane_of_slot, num_heights=len(self.heights))
        findings.extend(self._slot_faults(record, assignment, grid))
        slots = assignment.slots(len(lanes))
        return Completed(
            replace(record, slots=slots, grid=grid, mask=mask),
            tuple(findings),
            lacks_mask,
        )

    def _assigned(self, record: ImageLanes) -> tuple[Assignment, list[Finding]]:
        if self.rule == "mask" and record.mask is not None:
            return self._by_mask(record, read_mask(record.mask))
        rule = by_outermost if self.rule == "outermost" else by_angle
        assignment = rule(
            record.lanes,
            num_slots=self.num_slots,
            size=(record.width, record.height),
            shortest=self.shortest,
        )
        return assignment, [self._left_out(record, other) for other in assignment.left_out]

    def _by_mask(self, record: ImageLanes, mask: np.ndarray) -> tuple[Assignment, list[Finding]]:
        height, width = mask.shape
        if (width, height) != (record.width, record.height):
            message = f"is {width}x{height} px, its picture {record.width}x{record.height}"
            fault = self._mask_fault(record, "mask-of-another-size", message)
            return Assignment(np.full(self.num_slots, NO_LANE), ()), [fault]
        assignment = by_mask(record.lanes, mask, num_slots=self.num_slots)
        findings = [self._left_out(record, other) for other in assignment.left_out]
        highest = int(mask.max(initial=0))
        if highest > self.num_slots and not any(map(_is_beyond, findings)):
            message = f"has lane number {highest}, model.lanes is {self.num_slots}"
            findings.append(self._mask_fault(record, "mask-beyond-slots", message))
        return assignment, findings

    def _slot_faults(
        self, record: ImageLanes, assignment: Assignment, grid: np.ndarray
    ) -> Iterator[Finding]:
        """Yield what the slots' points show: lanes off the grid, twice there, or out of order."""
        is_there = grid[..., 0] > ABSENT
        lanes = assignment.lane_of_slot.tolist()
        for slot in np.flatnonzero((assignment.lane_of_slot >= 0) & ~is_there.any(axis=1)):
            message = f"it has no point from {self.heights[0]:g} to {self.heights[-1]:g} px"
            action = "slot stays empty: the grid has no other heights"
            yield self._finding(record, lanes[slot], "lane-off-grid", message, action=action)
        for left, right in combinations(np.flatnonzero(is_there.any(axis=1)).tolist(), 2):
            shared = is_there[left] & is_there[right]
            if lanes[left] == lanes[right] or shared.sum() < LEAST_SHARED:
                continue
            gaps = grid[right, shared, 0] - grid[left, shared, 0]
            fault = self._order_fault(gaps, left=left, right=right, first=lanes[left])
            if fault is not None:
                code, message, action = fault
                yield self._finding(record, lanes[right], code, message, action=action)

    def _order_fault(
        self, gaps: np.ndarray, *, left: int, right: int, first: int
    ) -> tuple[str, str, str] | None:
        """Return code, message and action of what is wrong between two slots, if anything is."""
        other = f"lane {first + 1}, which has slot {left + 1}"
        distance = float(np.abs(gaps).mean())
        if distance < CLOSEST * self.frame[0]:
            message = f"it lies on {other}: {distance:.2g} px apart on average"
            return "lanes-coincide", message, "both are kept"
        if gaps.mean() < 0 and self.rule != "outermost":
            message = f"it has slot {right + 1}, but lies to the left of {other}"
            return "slots-out-of-order", message, "kept; slots should count from left to right"
        return None

    def _left_out(self, record: ImageLanes, other: LeftOut) -> Finding:
        finding = self._finding(record, other.lane, other.code, other.message)
        if other.code not in MASK_FAULTS:
            return finding
        message = f"{other.message} ({record.mask})"
        return replace(finding, severity="error", message=message, action="nothing is prepared")

    def _finding(
        self, record: ImageLanes, lane: int, code: str, message: str, *, action: str = NO_SLOT
    ) -> Finding:
        points = record.lanes[lane]
        (x1, y1), (x2, y2) = points.min(axis=0).tolist(), points.max(axis=0).tolist()
        where = _place(record, lane, self.layout)
        box = (x1, y1, x2, y2)
        return Finding("warning", code, where, message, action, record.image_id, box)

    def _mask_fault(self, record: ImageLanes, code: str, message: str) -> Finding:
        action = "nothing is prepared"
        return Finding("error", code, str(record.mask), message, action, record.image_id)


def lanes_out_of_order(slots: Sequence[int] | np.ndarray) -> bool:
    """Tell whether a picture's lanes with slots are not listed from left to right."""
    with_slot = [slot for slot in np.asarray(slots).tolist() if slot >= 0]
    return with_slot != sorted(with_slot)


def _is_beyond(finding: Finding) -> bool:
    return finding.code == "mask-beyond-slots"


def _place(record: ImageLanes, lane: int, layout: str) -> str:
    """Return where a lane is written: for CULane file and line, else the picture and its number."""
    if layout != "culane":
        return f"{record.image_id}: lane {lane + 1}"
    name = PurePosixPath(record.image_id).with_suffix(LABEL_ENDING).as_posix()
    try:
        lines = read_lines(label_path(record.path))
    except DatasetError:
        return f"{name}: lane {lane + 1}"
    numbers = [number for number, line in enumerate(lines, start=1) if line]
    return f"{name}:{numbers[lane]}"
