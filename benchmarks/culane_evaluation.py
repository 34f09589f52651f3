"""CULane's evaluation, against a plain evaluator that draws on full-size masks with OpenCV.

Both count the same synthetic frames, of four true and four found lanes each, on one core: the
plain one draws each lane once and reduces whole frames for every pair. The counts must be equal.
"""

from __future__ import annotations

import time
from itertools import pairwise

import cv2
import joblib
import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import linear_sum_assignment

from benchmarks.pairs import Ratio, median_ratio, paired_seconds
from tasks.lanes.f1_metric import Lanes, Overlap, count_matches
from tasks.lanes.intervals import Canvas

FRAMES, LANES = 64, 4
WIDTH, HEIGHT, LANE_WIDTH, IOU = 1640, 590, 30, 0.5
# frames for the measurement of all cores
MANY = 4096
SAMPLES = np.arange(50) / 50


def measure() -> list[Ratio]:
    """Return the plain evaluator's time over ours; equal counts are part of the target."""
    cv2.setNumThreads(1)
    overlap = Overlap((WIDTH, HEIGHT), Canvas(WIDTH, HEIGHT, LANE_WIDTH), IOU)
    truth, found = _drawn(FRAMES)
    ours, theirs = count_matches(truth, found, overlap, jobs=1), plain_counts(truth, found)
    is_equal = [ours.tp.sum(), ours.fp.sum(), ours.fn.sum()] == list(theirs)
    pairs = paired_seconds(
        lambda: count_matches(truth, found, overlap, jobs=1),
        lambda: plain_counts(truth, found),
        clock=time.process_time,
    )
    ratio, low, high = median_ratio(pairs, inverse=True)
    speed, plain = (FRAMES / min(seconds) for seconds in zip(*pairs, strict=True))
    cores = joblib.cpu_count()
    return [
        Ratio(
            name="CULane evaluation",
            ratio=ratio,
            spread=(low, high),
            unit="x a plain evaluator",
            target=">= 6",
            is_met=ratio >= 6 and is_equal,
            detail=f"ours {speed:.0f} frames/s and core, plain {plain:.0f}, counts "
            f"{'equal' if is_equal else 'DIFFER'}: TP, FP, FN {', '.join(map(str, theirs))}",
        ),
        _all_cores(overlap, cores),
    ]


def _all_cores(overlap: Overlap, cores: int) -> Ratio:
    """Return the time of one process over that of one per core, by the clock on the wall."""
    truth, found = _drawn(FRAMES)
    truth, found = truth * (MANY // FRAMES), found * (MANY // FRAMES)
    pairs = paired_seconds(
        lambda: count_matches(truth, found, overlap, jobs=cores),
        lambda: count_matches(truth, found, overlap, jobs=1),
        pairs=3,
    )
    ratio, low, high = median_ratio(pairs, inverse=True)
    speed = MANY / min(seconds for seconds, _ in pairs)
    return Ratio(
        name=f"CULane evaluation, {cores} cores",
        ratio=ratio,
        spread=(low, high),
        unit="x one process",
        target="",
        is_met=True,
        detail=f"{speed:.0f} frames/s",
    )


def plain_counts(truth: list[Lanes], found: list[Lanes]) -> tuple[int, int, int]:
    """Return TP, FP and FN: each lane drawn once on a mask of the whole frame."""
    tp = fp = fn = 0
    for true, ours in zip(truth, found, strict=True):
        masks = [_mask(lane) for lane in true]
        others = [_mask(lane) for lane in ours]
        ious = np.array([[_iou(mask, other) for other in others] for mask in masks])
        matched = int((ious[linear_sum_assignment(-ious)] > IOU).sum())
        tp, fp, fn = tp + matched, fp + len(ours) - matched, fn + len(true) - matched
    return tp, fp, fn


def _mask(lane: np.ndarray) -> np.ndarray:
    chords = np.hypot(*np.diff(lane, axis=0).T)
    knots = np.r_[0, chords.cumsum()]
    at = np.r_[(knots[:-1, None] + chords[:, None] * SAMPLES).ravel(), knots[-1]]
    curve = CubicSpline(knots, lane, bc_type="natural")(at).astype(np.float32)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    for one, other in pairwise(np.rint(curve).astype(int).tolist()):
        cv2.line(mask, one, other, 1, LANE_WIDTH)
    return mask


def _iou(mask: np.ndarray, other: np.ndarray) -> float:
    both = cv2.countNonZero(mask & other)
    return both / (cv2.countNonZero(mask) + cv2.countNonZero(other) - both)


def _drawn(frames: int) -> tuple[list[Lanes], list[Lanes]]:
    """Return bent lanes towards a vanishing point, and as a network might find them."""
    random = np.random.RandomState(0)
    truth, found = [], []
    for _ in range(frames):
        bend = random.randn() * 120
        true: list[np.ndarray] = []
        ours: list[np.ndarray] = []
        for foot in (100, 600, 1050, 1550):
            y = np.arange(250.0, 591, 10)
            t = (y - 250) / 340
            x = 820 + (foot + random.randn() * 40 - 820) * (0.1 + 0.9 * t) + bend * t * (1 - t)
            true.append(np.stack([x, y], axis=1))
            rows = np.linspace(0.43, 1, 72) * 590
            off = random.randn() * 8 * (0.3 + t) + random.randn() * 6
            moved = np.interp(rows, y, x + off) + random.randn(72)
            ours.append(np.stack([moved, rows], axis=1).astype(np.float32))
        truth.append(true)
        found.append(ours)
    return truth, found
