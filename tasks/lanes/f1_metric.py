"""CULane's F1: lanes drawn with a width, matched one to one by the IoU of their pixels.

CurveLanes' is the same on a canvas of 224 x 224 with lines of 5 px. Nothing but NumPy, OpenCV and
SciPy is needed here, so that worker processes start quickly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import joblib
import numpy as np
from scipy.optimize import linear_sum_assignment

from tasks.lanes.intervals import Canvas, areas_of, intersections
from tasks.lanes.splines import sample_splines

Lanes = Sequence[np.ndarray]
FRAMES_PER_CHUNK = 32
# a worker process is worth its start from this many frames on
FRAMES_PER_WORKER = 512


@dataclass(frozen=True)
class MatchCounts:
    """Lanes of each frame, (N,) int64 each.

    Args:
        tp: found lanes that match a true one.
        fp: found lanes that do not.
        fn: true lanes without a match.
    """

    tp: np.ndarray
    fp: np.ndarray
    fn: np.ndarray


@dataclass(frozen=True)
class Overlap:
    """How lanes are compared.

    Args:
        frame: width and height that the points count in, px.
        canvas: what lanes are drawn on; points are scaled to it.
        iou: a match needs more than this.
    """

    frame: tuple[int, int]
    canvas: Canvas
    iou: float = 0.5


def count_matches(
    truth: Sequence[Lanes], found: Sequence[Lanes], overlap: Overlap, *, jobs: int = 0
) -> MatchCounts:
    """Return how many lanes of each frame were found.

    A lane of fewer than two points counts, and matches nothing; so does one outside the image.
    True and found lanes are matched one to one with the largest sum of IoUs; a pair whose IoU is
    above `overlap.iou` is a match.

    Args:
        truth: per frame its lanes, each (P, 2), px of the frame.
        found: per frame the lanes that were found.
        overlap: how they are compared.
        jobs: processes; 0: one per CPU. Few frames are counted in this process.

    Source: CULane's evaluator (XingangPan/SCNN, lane_evaluation), whose matching takes weights
    within 0.01 of each other as equal; here the sum is the largest.
    """
    parts = range(0, len(truth), FRAMES_PER_CHUNK)
    work = [
        (truth[begin : begin + FRAMES_PER_CHUNK], found[begin : begin + FRAMES_PER_CHUNK])
        for begin in parts
    ]
    workers = min(jobs or joblib.cpu_count(), math.ceil(len(truth) / FRAMES_PER_WORKER))
    if workers <= 1:
        tp = [_true_positives(*part, overlap) for part in work]
    else:
        calls = (joblib.delayed(_true_positives)(*part, overlap) for part in work)
        tp = joblib.Parallel(n_jobs=workers)(calls)
    matched = np.concatenate([np.zeros(0, np.int64), *tp])
    num_true = np.array([len(lanes) for lanes in truth], np.int64)
    num_found = np.array([len(lanes) for lanes in found], np.int64)
    return MatchCounts(matched, num_found - matched, num_true - matched)


def lane_ious(truth: Sequence[Lanes], found: Sequence[Lanes], overlap: Overlap) -> list[np.ndarray]:
    """Return the IoU of each true with each found lane: per frame (true, found) float64.

    Args:
        truth: as in `count_matches`.
        found: as in `count_matches`.
        overlap: how they are compared.
    """
    lanes = [lane for frame in zip(truth, found, strict=True) for part in frame for lane in part]
    canvas = overlap.canvas
    scale = (canvas.width / overlap.frame[0], canvas.height / overlap.frame[1])
    areas = areas_of(sample_splines(lanes, scale=scale), canvas)
    shapes = [(len(true), len(ours)) for true, ours in zip(truth, found, strict=True)]
    ones, others = _pairs(shapes)
    common = intersections(areas, ones, others)
    union = areas.area[ones] + areas.area[others] - common
    ious = common / np.maximum(union, 1)
    ends = np.cumsum([true * ours for true, ours in shapes])
    return [
        part.reshape(shape) for part, shape in zip(np.split(ious, ends[:-1]), shapes, strict=True)
    ]


def num_matches(ious: np.ndarray, *, threshold: float) -> int:
    """Return how many pairs of the best one-to-one matching have an IoU above the threshold.

    Args:
        ious: (true, found) float.
        threshold: exclusive.
    """
    if not (ious > threshold).any():
        return 0
    chosen = linear_sum_assignment(ious, maximize=True)
    return int((ious[chosen] > threshold).sum())


def precision_recall_f1(tp: int, fp: int, fn: int) -> tuple[float, float, float]:
    """Return precision, recall and F1 as CULane's evaluator has them.

    Precision is -1 when nothing was found and recall -1 when there was nothing to find, and F1 is
    computed with these; it is 0 where both are 0 (the evaluator prints nan).
    """
    precision = tp / (tp + fp) if tp + fp else -1.0
    recall = tp / (tp + fn) if tp + fn else -1.0
    if not precision + recall:
        return precision, recall, 0.0
    return precision, recall, 2 * precision * recall / (precision + recall)


def _true_positives(truth: Sequence[Lanes], found: Sequence[Lanes], overlap: Overlap) -> np.ndarray:
    ious = lane_ious(truth, found, overlap)
    return np.array([num_matches(each, threshold=overlap.iou) for each in ious], np.int64)


def _pairs(shapes: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of both lanes of each pair; lanes count on, true ones before found."""
    num_true, num_found = np.array(shapes, np.int64).reshape(-1, 2).T
    begin = np.cumsum(num_true + num_found) - num_true - num_found
    pairs = num_true * num_found
    frame = np.repeat(np.arange(len(shapes)), pairs)
    place = np.arange(pairs.sum()) - (np.cumsum(pairs) - pairs)[frame]
    columns = num_found[frame]
    ones = begin[frame] + place // columns
    return ones, begin[frame] + num_true[frame] + place % columns
