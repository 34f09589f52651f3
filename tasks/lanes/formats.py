"""Lanes as text in the benchmarks' own formats: CULane, TuSimple, CurveLanes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from tasks.lanes.decoding import DecodedLane
from tasks.lanes.quadratics import fit_quadratics

# x of a row that a TuSimple lane does not cross
TUSIMPLE_ABSENT = -2
# A row of h_samples within this many px of a point takes it as it is.
SAME_ROW = 0.01


def culane_text(lanes: Sequence[np.ndarray]) -> str:
    """Return the content of a `.lines.txt`: a line `x y x y ... ` per lane, three decimals.

    The reference writes CurveLanes' results in this form too.

    Args:
        lanes: each (P, 2), x and y in px; one without points gives an empty line.
    """
    return "".join("%.3f %.3f " * len(lane) % tuple(lane.ravel()) + "\n" for lane in lanes)


def curvelanes_json(lanes: Sequence[np.ndarray]) -> str:
    """Return the content of a `.lines.json`: `{"Lines": [[{"x": "..", "y": ".."}, ...], ...]}`.

    Args:
        lanes: each (P, 2), x and y in px.
    """
    lines = [[{"x": f"{x:.3f}", "y": f"{y:.3f}"} for x, y in lane] for lane in lanes]
    return json.dumps({"Lines": lines})


def tusimple_line(
    raw_file: str, lanes: Sequence[Sequence[int]], *, h_samples: Sequence[int], run_time: float = 10
) -> str:
    """Return one line of a TuSimple result file, without its end.

    Args:
        raw_file: the picture, as the labels name it.
        lanes: see `tusimple_lanes`.
        h_samples: the rows, px.
        run_time: ms; a benchmark's evaluator gives 0 to pictures above 200. The reference
            writes 10.
    """
    rows = [int(row) for row in h_samples]
    line = {"lanes": lanes, "h_samples": rows, "raw_file": raw_file, "run_time": run_time}
    return json.dumps(line)


def tusimple_lanes(
    lanes: Sequence[DecodedLane], *, h_samples: np.ndarray, frame: tuple[int, int]
) -> list[list[int]]:
    """Return x of each lane at each row, px of the frame, -2 where it is absent.

    - Lanes from rows: at a row anchor, their x, cut to an integer; between two neighbouring
      anchors, on the straight line.
    - Lanes from columns: x(y), the least-squares quadratic through the points, rounded to an
      integer (half to even); absent outside the rows of the points, below 0 and above the width.
    - Pooled lanes: on the straight lines between their points.

    Args:
        lanes: in px of the frame.
        h_samples: (S,) rows, px of the frame.
        frame: width and height, px.

    Source: the reference's TuSimple evaluation; rows that are no anchors and pooled lanes are ours.
    """
    rows = np.asarray(h_samples, np.float64)
    columns = [lane.points for lane in lanes if lane.kind == "column"]
    curves = iter(_on_quadratics(columns, rows, width=frame[0]) if columns else [])
    return [
        next(curves).tolist() if lane.kind == "column" else _on_segments(lane, rows).tolist()
        for lane in lanes
    ]


def _on_quadratics(lanes: Sequence[np.ndarray], rows: np.ndarray, *, width: int) -> np.ndarray:
    """Return (len(lanes), S) int64."""
    lengths = np.array([len(lane) for lane in lanes])
    is_present = np.arange(lengths.max()) < lengths[:, None]
    points = np.zeros((*is_present.shape, 2))
    points[is_present] = np.concatenate(lanes)
    x, y = points[..., 0], points[..., 1]
    found = np.rint(fit_quadratics(y, x, is_present=is_present).at(rows[None]))
    low = np.where(is_present, y, np.inf).min(1, keepdims=True)
    high = np.where(is_present, y, -np.inf).max(1, keepdims=True)
    is_absent = (found < 0) | (found > width) | (rows < low) | (rows > high)
    return np.where(is_absent, TUSIMPLE_ABSENT, found).astype(np.int64)


def _on_segments(lane: DecodedLane, rows: np.ndarray) -> np.ndarray:
    """Return (S,) int64."""
    points = lane.points[np.argsort(lane.points[:, 1], kind="stable")].astype(np.float64)
    x, y = points.T
    after = np.searchsorted(y, rows).clip(1, max(len(y) - 1, 1))
    gaps = np.diff(y, append=np.inf)
    # rows come at even distances: where neighbours are further apart, an anchor between is absent
    longest = 1.5 * gaps.min() if lane.kind == "row" else np.inf
    is_between = (rows >= y[0]) & (rows <= y[-1]) & (gaps[after - 1] <= longest)
    nearest = np.abs(y[:, None] - rows).argmin(0)
    is_point = np.abs(y[nearest] - rows) <= SAME_ROW
    found = np.where(is_point, x[nearest], np.interp(rows, y, x))
    return np.where(is_between | is_point, found, TUSIMPLE_ABSENT).astype(np.int64)
