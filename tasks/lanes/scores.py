"""Scores of the lanes that were found in a split, by the benchmark's metric."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from readers.lane_records import ImageLanes
from tasks.lanes.config import F1MetricConfig, LaneScene, TusimpleMetricConfig
from tasks.lanes.decoding import DecodedLane
from tasks.lanes.f1_metric import MatchCounts, Overlap, count_matches, precision_recall_f1
from tasks.lanes.formats import SAME_ROW, TUSIMPLE_ABSENT, tusimple_lanes
from tasks.lanes.grid import scaled_lanes
from tasks.lanes.intervals import Canvas
from tasks.lanes.tusimple_metric import Table, mean_scores, score_frame

LOG = logging.getLogger(__name__)
# CULane draws lines of 30 px on pictures of 1640
LINE_SHARE = 30 / 1640
# its pictures hold no lane, so that only false positives say anything
EMPTY_SCENE = "cross"


@dataclass(frozen=True)
class FrameTruth:
    """What a picture's labels say, in px of the frame.

    Args:
        lanes: per lane (P, 2) float64, x and y.
        h_samples: (S,) float64, the rows that TuSimple's metric looks at; empty for other metrics.
        scenes: the scene lists that hold the picture.
    """

    lanes: Sequence[np.ndarray]
    h_samples: np.ndarray = field(default_factory=lambda: np.zeros(0))
    scenes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaneResult:
    """The scores of a split.

    Args:
        scores: names of `tasks.lanes.config.LaneScore`. The metric `f1` gives F1, precision,
            recall and counts over all frames, and `F1_<scene>` for each of CULane's scenes, but
            `FP_cross` for crossroads. F1 is 0 where there is nothing to find and
            nothing was found; precision is NaN without found lanes, recall NaN without true ones.
            The metric `tusimple` gives the means of accuracy, FP and FN, and their F1.
        per_frame: columns: `f1`, `tp`, `fp`, `fn` (counts; f1 NaN where there is nothing), or
            `accuracy`, `fp`, `fn` (shares).
        per_scene: columns `scene`, `frames`, `tp`, `fp`, `fn`, `precision`, `recall`, `F1`;
            empty without scenes and for `tusimple`.
    """

    scores: Mapping[str, float]
    per_frame: Mapping[str, list[float]]
    per_scene: Mapping[str, list[object]]


def truth_of(record: ImageLanes, *, frame: tuple[int, int]) -> FrameTruth:
    """Return a record's lanes and rows, scaled from its picture to the frame."""
    return FrameTruth(
        lanes=scaled_lanes(record, frame),
        h_samples=record.h_samples * (frame[1] / record.height),
        scenes=record.scenes,
    )


def score_frames(
    truth: Sequence[FrameTruth],
    found: Sequence[Sequence[DecodedLane]],
    *,
    frame: tuple[int, int],
    metric: TusimpleMetricConfig | F1MetricConfig,
    jobs: int = 0,
    at_rows: Sequence[Table] | None = None,
) -> LaneResult:
    """Return the scores of the lanes found in each picture.

    A frame counts once in the total, and once in each of its scenes. Lanes of fewer than two
    points count and match nothing; a warning says how many there are.

    Args:
        truth: per picture what the labels say.
        found: per picture its lanes, px of the frame.
        frame: width and height, px.
        metric: the experiment's `evaluate.metric`.
        jobs: processes; 0: one per CPU.
        at_rows: for TuSimple's metric, per picture x of its found lanes at each of its
            `h_samples`, (F, S), px of the frame, negative where absent, where that is what is
            known; None: taken from the lanes' points.

    Raises:
        ValueError: TuSimple's metric on labels without `h_samples`.
    """
    if isinstance(metric, TusimpleMetricConfig):
        true_x = [_at_rows(each) for each in truth]
        if at_rows is None:
            at_rows = [
                tusimple_lanes(lanes, h_samples=each.h_samples, frame=frame)
                for each, lanes in zip(truth, found, strict=True)
            ]
        return _tusimple(true_x, at_rows, rows=[each.h_samples for each in truth], metric=metric)
    lanes = [each.lanes for each in truth]
    points = [[lane.points for lane in each] for each in found]
    for what, sets in (("labelled", lanes), ("found", points)):
        short = sum(len(lane) < 2 for each in sets for lane in each)
        if short:
            LOG.warning("%d %s lanes have fewer than two points and match nothing", short, what)
    overlap = overlap_of(metric, frame=frame)
    counts = count_matches(lanes, points, overlap, jobs=jobs)
    scenes = _per_scene([each.scenes for each in truth], counts)
    return LaneResult(_totals(counts) | _scene_scores(scenes), _per_frame(counts), scenes)


def overlap_of(metric: F1MetricConfig, *, frame: tuple[int, int]) -> Overlap:
    """Return how lanes are compared; by default drawn in the frame, 30 px wide per 1640."""
    width, height = metric.size or frame
    lane_width = metric.lane_width or max(1, round(width * LINE_SHARE))
    return Overlap(frame, Canvas(width, height, lane_width), metric.iou)


def _totals(counts: MatchCounts) -> dict[str, float]:
    tp, fp, fn = (int(column.sum()) for column in (counts.tp, counts.fp, counts.fn))
    precision, recall, f1 = _rates(tp, fp, fn)
    return {
        "F1": f1,
        "precision": precision,
        "recall": recall,
        "TP_count": float(tp),
        "FP_count": float(fp),
        "FN_count": float(fn),
    }


def _rates(tp: int, fp: int, fn: int) -> tuple[float, float, float]:
    """Return precision, recall and F1 for people: NaN in place of -1, and F1 at least 0."""
    precision, recall, f1 = precision_recall_f1(tp, fp, fn)
    nan = float("nan")
    return precision if tp + fp else nan, recall if tp + fn else nan, max(f1, 0.0)


def _per_frame(counts: MatchCounts) -> dict[str, list[float]]:
    lanes = 2 * counts.tp + counts.fp + counts.fn
    f1 = np.where(lanes > 0, 2 * counts.tp / np.maximum(lanes, 1), np.nan)
    columns = {"f1": f1, "tp": counts.tp, "fp": counts.fp, "fn": counts.fn}
    return {name: column.tolist() for name, column in columns.items()}


def _per_scene(scenes: Sequence[tuple[str, ...]], counts: MatchCounts) -> dict[str, list[object]]:
    """Return a row for each scene that a frame is in, in the benchmark's order."""
    there = {name for each in scenes for name in each}
    order = [*get_args(LaneScene), *sorted(there)]
    table: defaultdict[str, list[object]] = defaultdict(list)
    for name in dict.fromkeys(name for name in order if name in there):
        is_in = np.array([name in each for each in scenes])
        tp, fp, fn = (int(column[is_in].sum()) for column in (counts.tp, counts.fp, counts.fn))
        precision, recall, f1 = _rates(tp, fp, fn)
        row = {"scene": name, "frames": int(is_in.sum()), "tp": tp, "fp": fp, "fn": fn}
        for key, value in (row | {"precision": precision, "recall": recall, "F1": f1}).items():
            table[key].append(value)
    return dict(table)


def _scene_scores(scenes: Mapping[str, list[Any]]) -> dict[str, float]:
    """Return a score for each of the benchmark's scenes that there is."""
    rows = zip(*(scenes.get(key, ()) for key in ("scene", "fp", "F1")), strict=True)
    return {
        f"FP_{name}" if name == EMPTY_SCENE else f"F1_{name}": float(
            fp if name == EMPTY_SCENE else f1
        )
        for name, fp, f1 in rows
        if name in get_args(LaneScene)
    }


def _tusimple(
    truth: Sequence[Table],
    found: Sequence[Table],
    *,
    rows: Sequence[np.ndarray],
    metric: TusimpleMetricConfig,
) -> LaneResult:
    scores = [
        score_frame(true_x, x, h_samples, pixels=metric.pixels, accuracy=metric.accuracy)
        for true_x, x, h_samples in zip(truth, found, rows, strict=True)
    ]
    columns = ("accuracy", "fp", "fn")
    per_frame = {name: [getattr(score, name) for score in scores] for name in columns}
    return LaneResult(mean_scores(scores), per_frame, {})


def _at_rows(truth: FrameTruth) -> np.ndarray:
    """Return x of each lane at each row, (T, S) float64; -2 where it is absent."""
    rows = truth.h_samples
    if not len(rows):
        raise ValueError("the metric `tusimple` needs labels with h_samples; score them by `f1`")
    x = np.full((len(truth.lanes), len(rows)), float(TUSIMPLE_ABSENT))
    for number, lane in enumerate(truth.lanes):
        row = np.abs(rows[:, None] - lane[:, 1]).argmin(0)
        is_row = np.abs(rows[row] - lane[:, 1]) <= SAME_ROW
        x[number, row[is_row]] = lane[is_row, 0]
    return x
