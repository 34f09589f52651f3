"""Row and column labels of lanes, built for a whole batch at once on any device.

The last step between a picture's points and the losses: the moved points of each slot become, for
every row anchor, the cell across that the lane is in, and for every column anchor the cell down.
All of it is float32, anchors included, as in the reference: a row anchor of 250 px is then
249.99998, and a lane that begins at 250 has no label there.

Shapes: N pictures, L slots, G points of a slot, R row anchors, C column anchors, A anchors of
either kind, S = G - 1 segments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tasks.lanes.config import AnchorsConfig, UfldModelConfig

# A lane with fewer labelled rows is not extended to the bottom.
LEAST_ROWS_TO_EXTEND = 6


@dataclass(frozen=True, slots=True)
class LaneLabels:
    """What the network should say about a batch.

    Args:
        rows: (N, R, L) int64, cell in [0, cells) across the frame; -1: no lane at this anchor.
        columns: (N, C, L) int64, the same with cells down the frame.
        masks: (N, h, w) uint8, number of the lane at each pixel of the network's input (0 ground,
            1.. slots); None: not asked for.
    """

    rows: torch.Tensor
    columns: torch.Tensor
    masks: torch.Tensor | None = None


class LabelMaker:
    """Makes labels of points; holds the anchors on each device it was called for.

    Args:
        model: anchors and cells.
        frame: width and height that the points count in, px.

    Source: UFLDv2, section 3 of arXiv:2206.07389 and the reference's loader.
    """

    def __init__(self, model: UfldModelConfig, frame: tuple[int, int]) -> None:
        self._width, self._height = frame
        self._row_cells, self._column_cells = model.rows.cells, model.columns.cells
        rows = anchor_positions(model.rows, extent=self._height)
        columns = anchor_positions(model.columns, extent=self._width)
        self._anchors = {
            torch.device("cpu"): (torch.from_numpy(rows), torch.from_numpy(columns)),
        }

    def __call__(self, points: torch.Tensor, masks: torch.Tensor | None = None) -> LaneLabels:
        """Return the labels of points.

        Args:
            points: (N, L, G, 2) float32, x and y in px of the frame; a point with a negative
                coordinate is absent.
            masks: put into the labels as they are.
        """
        rows_x, columns_y = self.positions(points)
        return LaneLabels(
            rows=cells_at(rows_x, extent=self._width, cells=self._row_cells).transpose(1, 2),
            columns=cells_at(columns_y, extent=self._height, cells=self._column_cells).transpose(
                1, 2
            ),
            masks=masks,
        )

    def positions(self, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return x at each row anchor, (N, L, R), and y at each column anchor, (N, L, C).

        Both float32, px of the frame; -1 where the lane does not cross the anchor. Rows are
        extended to the bottom, columns are not.
        """
        row_anchors, column_anchors = self._anchors_on(points.device)
        x, y = points.unbind(-1)
        rows_x = extend_down(crossings(y, x, row_anchors))
        return rows_x, crossings(x, y, column_anchors)

    def _anchors_on(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        if device not in self._anchors:
            rows, columns = self._anchors[torch.device("cpu")]
            self._anchors[device] = (rows.to(device), columns.to(device))
        return self._anchors[device]


def anchor_positions(anchors: AnchorsConfig, *, extent: int) -> np.ndarray:
    """Return the anchors' positions in px of the frame: (A,) float32.

    Each is its share of the frame, rounded to float32, times `extent`, as the reference has it.

    Args:
        anchors: how many and from where to where.
        extent: height of the frame for rows, width for columns, px.
    """
    shares = anchor_shares(anchors, extent=extent).astype(np.float32)
    return np.asarray(shares * np.float32(extent))


def anchor_shares(anchors: AnchorsConfig, *, extent: int) -> np.ndarray:
    """Return the anchors as shares of the frame: (A,) float64."""
    scale = extent if anchors.unit == "px" else 1
    return np.linspace(*anchors.range, anchors.anchors) / scale


def crossings(along: torch.Tensor, across: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """Return where lanes cross anchors.

    Of several segments that reach an anchor the last one counts; a segment with a negative
    coordinate reaches none.

    Args:
        along: (N, L, G) float32, the points' coordinate that the anchors are values of.
        across: (N, L, G) float32, their other coordinate.
        anchors: (A,) float32.

    Returns:
        (N, L, A) float32, the other coordinate, linear within its segment; -1: no crossing.
    """
    is_present = (along >= 0) & (across >= 0)
    is_segment = is_present[..., :-1] & is_present[..., 1:]
    least = torch.minimum(along[..., :-1], along[..., 1:]).masked_fill(~is_segment, torch.inf)
    most = torch.maximum(along[..., :-1], along[..., 1:])
    at = anchors.unsqueeze(-1)
    reaches = (least.unsqueeze(-2) <= at) & (at <= most.unsqueeze(-2))
    # counted from 1 in a narrow type: this table of (N, L, A, S) is where the time goes
    numbers = torch.arange(1, along.shape[-1], device=along.device, dtype=torch.int16)
    last = (reaches * numbers).amax(dim=-1).to(torch.int64) - 1
    begin = last.clamp(min=0)
    from_along, to_along = along.gather(-1, begin), along.gather(-1, begin + 1)
    from_across, to_across = across.gather(-1, begin), across.gather(-1, begin + 1)
    length = to_along - from_along
    # a segment that lies on the anchor crosses it where the segment begins
    share = torch.where(length == 0, 0, (anchors - from_along) / length)
    return torch.where(last < 0, -1, from_across + share * (to_across - from_across))


def extend_down(rows_x: torch.Tensor) -> torch.Tensor:
    """Return row positions with the lanes that end early led on to the lowest row.

    A lane that has no position in the last row, and one in at least 6 rows, follows the straight
    line that fits the lower half of its positions, from the first of these on.

    Args:
        rows_x: (N, L, R) float32, px; 0 or less: no lane at this row.
    """
    is_there = rows_x > 0
    rank = is_there.cumsum(dim=-1)
    count = rank[..., -1:]
    is_lower = is_there & (rank > torch.div(count, 2, rounding_mode="floor"))
    rows = torch.arange(rows_x.shape[-1], device=rows_x.device, dtype=rows_x.dtype)
    weight = is_lower.to(rows_x.dtype)
    total = weight.sum(dim=-1, keepdim=True).clamp(min=1)
    mean_row = (weight * rows).sum(dim=-1, keepdim=True) / total
    mean_x = (weight * rows_x).sum(dim=-1, keepdim=True) / total
    from_mean = rows - mean_row
    spread = (weight * from_mean * from_mean).sum(dim=-1, keepdim=True)
    shared = (weight * from_mean * (rows_x - mean_x)).sum(dim=-1, keepdim=True)
    line = mean_x + shared / spread.clamp(min=0.5) * from_mean
    ends_early = (rows_x[..., -1:] <= 0) & (count >= LEAST_ROWS_TO_EXTEND)
    is_led_on = ends_early & (is_lower.cumsum(dim=-1) > 0)
    return torch.where(is_led_on, line, rows_x)


def cells_at(positions: torch.Tensor, *, extent: int, cells: int) -> torch.Tensor:
    """Return the cells that positions fall into, int64 of the same shape; -1: outside.

    Args:
        positions: float32, px; the frame ends at `extent`, which still belongs to it.
        extent: length of the frame, px.
        cells: number of cells; the frame has cells - 1 of full width.
    """
    found = (positions / extent * (cells - 1)).trunc().to(torch.int64)
    is_inside = (positions >= 0) & (positions <= extent) & (found < cells)
    return torch.where(is_inside, found, -1)
