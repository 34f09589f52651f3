"""TuSimple's accuracy, false positives and false negatives, frame by frame.

T true lanes, F found lanes, S rows at which lanes are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Table = Sequence[Sequence[float]] | np.ndarray

ABSENT = -100.0  # takes the place of all negative x: two absences are equal, one is far away
MOST_LANES = 4
# a picture with this many lanes more than there are counts as wrong altogether
LANES_TOO_MANY = 2
SLOWEST = 200.0  # ms


@dataclass(frozen=True)
class TusimpleScore:
    """What a frame scores.

    Args:
        accuracy: mean share of rows at which the true lanes were found, at most 1.
        fp: share of the found lanes that match none.
        fn: share of the true lanes that no lane matches.
    """

    accuracy: float
    fp: float
    fn: float


def score_frame(
    truth: Table,
    found: Table,
    h_samples: np.ndarray,
    *,
    pixels: float = 20.0,
    accuracy: float = 0.85,
    run_time: float = 0.0,
) -> TusimpleScore:
    """Return the benchmark's three numbers for one frame.

    At each row a found lane is right within `pixels` / cos(angle) of the true one, whose angle to
    the vertical is that of the straight fit x(y) to its points. A true lane is matched when the
    best of the found lanes is right at a share `accuracy` of all rows, absences included; a found
    lane may match several. Of more than four true lanes the worst is left out, and one miss.

    Args:
        truth: T lanes, x at each row; negative: absent.
        found: F lanes alike.
        h_samples: (S,) rows, px.
        pixels: see above.
        accuracy: see above.
        run_time: ms; above 200 the frame scores (0, 0, 1), as it does with more than T + 2 lanes.

    Raises:
        ValueError: if a lane has another length than `h_samples`.

    Source: the benchmark's evaluation (TuSimple/tusimple-benchmark, lane.py).
    """
    rows = np.asarray(h_samples, np.float64)
    true_x, found_x = (_table(lanes, len(rows)) for lanes in (truth, found))
    num_true, num_found = len(truth), len(found)
    if run_time > SLOWEST or num_true + LANES_TOO_MANY < num_found:
        return TusimpleScore(0.0, 0.0, 1.0)
    limit = pixels * np.sqrt(1 + _slopes(true_x, rows) ** 2)
    distance = np.abs(true_x[:, None] - found_x[None])
    right = (distance < limit[:, None, None]).sum(-1) / len(rows)
    best = right.max(axis=1, initial=0.0)

    matched = int((best >= accuracy).sum())
    missed, total = num_true - matched, float(best.sum())
    if num_true > MOST_LANES:
        missed -= missed > 0
        total -= float(best.min())
    counted = max(min(num_true, MOST_LANES), 1)
    return TusimpleScore(
        accuracy=total / counted,
        fp=(num_found - matched) / num_found if num_found else 0.0,
        fn=missed / counted,
    )


def mean_scores(scores: Sequence[TusimpleScore]) -> dict[str, float]:
    """Return the means over frames, and F1 of precision 1 - FP and recall 1 - FN (0 if both are 0).

    NaN without frames.
    """
    if not scores:
        return dict.fromkeys(("accuracy", "FP", "FN", "F1"), float("nan"))
    table = np.array([[each.accuracy, each.fp, each.fn] for each in scores])
    accuracy, fp, fn = table.mean(0).tolist()
    precision, recall = 1 - fp, 1 - fn
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return {"accuracy": accuracy, "FP": fp, "FN": fn, "F1": f1}


def _table(lanes: Table, num_rows: int) -> np.ndarray:
    """Return (lanes, S) float64, absent entries as `ABSENT`."""
    for number, lane in enumerate(lanes, start=1):
        if len(lane) != num_rows:
            raise ValueError(f"lane {number} has {len(lane)} values, h_samples has {num_rows}")
    x = np.array(lanes, np.float64).reshape(len(lanes), num_rows)
    return np.where(x < 0, ABSENT, x)


def _slopes(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return (T,) dx/dy of the straight fits; 0 for lanes of fewer than two points."""
    is_present = x >= 0
    count = np.maximum(is_present.sum(1, keepdims=True), 1)
    y = np.where(is_present, rows - (is_present * rows).sum(1, keepdims=True) / count, 0)
    variance = (y * y).sum(1)
    return np.where(variance > 0, (y * x).sum(1) / np.where(variance > 0, variance, 1), 0)
