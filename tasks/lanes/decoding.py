"""Reads lanes off a network's four output arrays: NumPy, on the host, a whole batch at once.

`loc_row` (N, cells, R, L) and `loc_col` (N, cells, C, L) say in which cell a lane crosses each row
(column) anchor, `exist_row` (N, 2, R, L) and `exist_col` (N, 2, C, L) whether it does.

Shapes: N pictures, S slots that are read, L slots of the network, R row anchors, C column anchors,
A anchors of either kind.

Source: UFLDv2 (arXiv:2206.07389, section 3.3) and the reference's decoding, whose loops over points
become array operations here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tasks.lanes.config import AnchorsConfig, DecodeConfig, UfldModelConfig
from tasks.lanes.crossings import Crossings, LaneRule, read_crossings
from tasks.lanes.labels import anchor_shares
from tasks.lanes.pooled import pooled_curves
from tasks.lanes.test_time import DOWN, LEFT, ORIGINAL, RIGHT, UP, cell_size, merge_shifted

Outputs = Mapping[str, np.ndarray]
Frame = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DecodedLane:
    """A lane that was found.

    Args:
        slot: from 0, left to right.
        kind: what it was read from.
        points: (P, 2) float32, x and y in px of the frame: down the rows, to the right along the
            columns, and along either for a pooled curve.
        score: mean over the anchors that it was read from of the probability that the lane crosses
            them, in (0.5, 1].
    """

    slot: int
    kind: Literal["row", "column", "pooled"]
    points: np.ndarray
    score: float


def decode(
    outputs: Outputs, *, model: UfldModelConfig, decode: DecodeConfig, frame: Frame
) -> list[list[DecodedLane]]:
    """Return the lanes of each picture of a batch.

    A lane is kept when it crosses more than `row_share` of the row anchors (`column_share` of the
    column anchors) and more than `least_anchors` of them. An anchor is crossed where the second
    existence output is larger than the first.

    Args:
        outputs: the network's four float32 arrays, by name.
        model: anchors, cells and slots.
        decode: which slots are read from which arrays, and how.
        frame: width and height that points are given in, px.

    Returns:
        Per picture the lanes from rows by slot, then those from columns by slot; with `pooled` one
        per slot that has either, in the order of the slots.
    """
    reader = _Reader(model, decode, frame)
    return reader.lanes(reader.rows(outputs), reader.columns(outputs))


def decode_tta(
    outputs: Outputs,
    *,
    model: UfldModelConfig,
    decode: DecodeConfig,
    frame: Frame,
    compat: Collection[str] = (),
) -> list[list[DecodedLane]]:
    """Return the lanes of N pictures from the outputs of their features and four shifts of them.

    Rows average the original and the features moved to the left and right, columns the original
    and those moved up and down, each moved back by a cell of the feature map (`cell_size`); an
    anchor needs two votes of the three. A lane is kept when both the original's anchors and those
    that are left are at least `row_share` (`column_share`) of all, and more than `least_anchors`.

    Args:
        outputs: arrays as in `decode`, of 5N entries: N of the original, then N moved left, right,
            up and down.
        model: as in `decode`.
        decode: as in `decode`.
        frame: as in `decode`.
        compat: with `tta_shift`, lanes are moved back by the reference's constants.
    """
    reader = _Reader(model, decode, frame)
    across, down = cell_size(model, frame=frame, compat=compat)
    rows = merge_shifted(
        reader.rows(outputs), blocks=(ORIGINAL, LEFT, RIGHT), shift=across, rule=reader.row_rule
    )
    columns = merge_shifted(
        reader.columns(outputs), blocks=(ORIGINAL, UP, DOWN), shift=down, rule=reader.column_rule
    )
    return reader.lanes(rows, columns)


class _Reader:
    """What `decode` and `decode_tta` share: an experiment's slots, anchors and thresholds."""

    def __init__(self, model: UfldModelConfig, decode: DecodeConfig, frame: Frame) -> None:
        self._decode = decode
        self._width, self._height = frame
        self._row_y = anchors_of(model.rows, extent=self._height)
        self._column_x = anchors_of(model.columns, extent=self._width)
        self._row_slots, self._column_slots = slots_by_kind(decode, num_lanes=model.lanes)
        self.row_rule = LaneRule(decode.row_share, decode.least_anchors)
        self.column_rule = LaneRule(decode.column_share, decode.least_anchors)

    def rows(self, outputs: Outputs) -> Crossings:
        """Return x at the row anchors, of the slots that are read from rows."""
        return read_crossings(
            outputs["loc_row"],
            outputs["exist_row"],
            slots=self._row_slots,
            window=self._decode.window,
            extent=self._width,
            rule=self.row_rule,
        )

    def columns(self, outputs: Outputs) -> Crossings:
        """Return y at the column anchors, of the slots that are read from columns."""
        return read_crossings(
            outputs["loc_col"],
            outputs["exist_col"],
            slots=self._column_slots,
            window=self._decode.window,
            extent=self._height,
            rule=self.column_rule,
        )

    def lanes(self, rows: Crossings, columns: Crossings) -> list[list[DecodedLane]]:
        """Return the kept lanes of each picture."""
        found: list[list[DecodedLane]] = [[] for _ in range(len(rows.is_kept))]
        if self._decode.mode == "pooled":
            curves = pooled_curves(rows, columns, row_y=self._row_y, column_x=self._column_x)
            for picture, slot, points, score in curves:
                found[picture].append(DecodedLane(slot, "pooled", points, score))
            return found
        for picture, slot, points, score in _kept(rows, self._row_y, across=0):
            found[picture].append(DecodedLane(slot, "row", points, score))
        for picture, slot, points, score in _kept(columns, self._column_x, across=1):
            found[picture].append(DecodedLane(slot, "column", points, score))
        return found


def slots_by_kind(decode: DecodeConfig, *, num_lanes: int) -> tuple[list[int], list[int]]:
    """Return the slots that are read from rows, and those that are read from columns."""
    every = list(range(num_lanes))
    if decode.mode == "mixed":
        outer = decode.column_slots
        columns = sorted({0, num_lanes - 1} if outer is None else set(outer))
        return [slot for slot in every if slot not in columns], columns
    rows_too = decode.mode in ("rows", "pooled")
    columns_too = decode.mode in ("columns", "pooled")
    return every if rows_too else [], every if columns_too else []


def anchors_of(anchors: AnchorsConfig, *, extent: int) -> np.ndarray:
    """Return the anchors' positions, (A,) float32, px; not rounded twice as those of the labels."""
    return (anchor_shares(anchors, extent=extent) * extent).astype(np.float32)


def _kept(
    crossings: Crossings, anchors: np.ndarray, *, across: int
) -> Iterator[tuple[int, int, np.ndarray, float]]:
    """Yield picture, slot, points and score of the kept lanes.

    Args:
        crossings: of one kind.
        anchors: (A,) px.
        across: the coordinate, 0 or 1, that the crossings give; the anchors give the other.
    """
    is_point = crossings.is_present & crossings.is_kept[..., None]
    at = np.nonzero(is_point)
    points = np.empty((len(at[2]), 2), np.float32)
    points[:, across] = crossings.positions[at]
    points[:, 1 - across] = anchors[at[2]]
    pictures, places = np.nonzero(crossings.is_kept)
    counts = is_point.sum(-1)[pictures, places]
    ends = counts.cumsum()
    begins = ends - counts
    # a kept lane has a point, so that no part of the sum is empty
    scores = np.add.reduceat(crossings.probability[at], begins) / counts if len(begins) else begins
    lanes = zip(pictures, places, begins, ends, scores, strict=True)
    for picture, place, begin, end, score in lanes:
        yield int(picture), crossings.slots[int(place)], points[begin:end], float(score)
