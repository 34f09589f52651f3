"""Scores of a split: totals, scenes, what is not defined."""

import logging
import math
from pathlib import Path

import numpy as np
import pytest

from readers.lane_records import ImageLanes
from tasks.lanes.config import F1MetricConfig, TusimpleMetricConfig
from tasks.lanes.decoding import DecodedLane
from tasks.lanes.scores import FrameTruth, overlap_of, score_frames, truth_of

FRAME = (400, 200)
F1 = F1MetricConfig(name="f1", lane_width=10)
TUSIMPLE = TusimpleMetricConfig(name="tusimple")


def upright(x):
    return np.array([[x, 0.0], [x, 100.0], [x, 199.0]])


def found_at(*columns, kind="row"):
    return [DecodedLane(0, kind, upright(x).astype(np.float32), 0.9) for x in columns]


def truth_at(*columns, scenes=()):
    return FrameTruth([upright(x) for x in columns], scenes=scenes)


def scored(truth, found, metric=F1):
    return score_frames(truth, found, frame=FRAME, metric=metric, jobs=1)


def test_totals_are_of_the_summed_counts():
    result = scored([truth_at(50, 100), truth_at(20)], [found_at(50), found_at(20, 90, 150)])

    assert result.scores == {
        "F1": pytest.approx(4 / 7),
        "precision": 0.5,
        "recall": pytest.approx(2 / 3),
        "TP_count": 2,
        "FP_count": 2,
        "FN_count": 1,
    }
    assert result.per_frame["f1"] == pytest.approx([2 / 3, 0.5])
    assert [result.per_frame[name] for name in ("tp", "fp", "fn")] == [[1, 1], [0, 2], [1, 0]]
    assert result.per_scene == {}


def test_scenes_come_in_the_benchmarks_order_and_crossroads_count_false_ones():
    truth = [
        truth_at(50, scenes=("night", "own")),
        truth_at(scenes=("cross",)),
        truth_at(60, scenes=("normal", "night")),
        truth_at(70),
    ]

    result = scored(truth, [found_at(50), found_at(10, 90), [], found_at(70)])

    assert result.per_scene["scene"] == ["normal", "night", "cross", "own"]
    assert result.per_scene["frames"] == [1, 2, 1, 1]
    assert result.per_scene["fp"] == [0, 0, 2, 0]
    assert {key: value for key, value in result.scores.items() if "_count" not in key} == {
        "F1": pytest.approx(4 / 7),
        "precision": 0.5,
        "recall": pytest.approx(2 / 3),
        "F1_normal": 0.0,
        "F1_night": pytest.approx(2 / 3),
        "FP_cross": 2.0,
    }


def test_nothing_to_find_and_nothing_found_is_f1_0_without_rates():
    result = scored([truth_at()], [[]])

    assert result.scores["F1"] == 0
    assert math.isnan(result.scores["precision"])
    assert math.isnan(result.scores["recall"])
    assert math.isnan(result.per_frame["f1"][0])


def test_short_lanes_count_and_are_told(caplog):
    truth = FrameTruth([upright(50)[:1], upright(90)])

    with caplog.at_level(logging.WARNING):
        result = scored([truth], [found_at(90)])

    assert (result.scores["TP_count"], result.scores["FN_count"]) == (1, 1)
    assert caplog.messages == ["1 labelled lanes have fewer than two points and match nothing"]


@pytest.mark.parametrize(
    ("settings", "frame", "canvas"),
    [
        ({}, (1640, 590), (1640, 590, 30)),
        ({}, (640, 240), (640, 240, 12)),
        ({}, (20, 10), (20, 10, 1)),
        ({"size": (224, 224), "lane_width": 5}, (2560, 1440), (224, 224, 5)),
    ],
)
def test_lanes_are_drawn_as_configured(settings, frame, canvas):
    overlap = overlap_of(F1MetricConfig(name="f1", **settings), frame=frame)

    assert (overlap.canvas.width, overlap.canvas.height, overlap.canvas.lane_width) == canvas
    assert overlap.frame == frame


def record_of(lanes, *, size, h_samples=()):
    return ImageLanes(
        image_id="a",
        path=Path("a.jpg"),
        width=size[0],
        height=size[1],
        turn=1,
        lanes=tuple(lanes),
        h_samples=np.array(h_samples, np.int64),
        scenes=("night",),
    )


def test_truth_is_scaled_to_the_frame():
    record = record_of([np.array([[10.0, 20], [30, 40]])], size=(200, 50), h_samples=[20, 40])

    truth = truth_of(record, frame=FRAME)

    assert truth.lanes[0].tolist() == [[20, 80], [60, 160]]
    assert truth.h_samples.tolist() == [80, 160]
    assert truth.scenes == ("night",)


def test_tusimple_scores_lanes_at_the_rows_of_the_labels():
    rows = [10, 20, 30, 40]
    lane = np.array([[50.0, 20], [55, 30], [60, 40]])
    truth = truth_of(record_of([lane], size=FRAME, h_samples=rows), frame=FRAME)
    right = DecodedLane(0, "row", (lane + np.array([5, 0])).astype(np.float32), 0.9)
    wrong = DecodedLane(1, "row", (lane + np.array([100, 0])).astype(np.float32), 0.9)

    result = scored([truth, truth], [[right], [wrong]], TUSIMPLE)

    # of the wrong lane the absent row is right
    assert result.scores["accuracy"] == pytest.approx((1 + 0.25) / 2)
    assert (result.scores["FP"], result.scores["FN"], result.scores["F1"]) == (0.5, 0.5, 0.5)
    assert result.per_frame == {"accuracy": [1.0, 0.25], "fp": [0.0, 1.0], "fn": [0.0, 1.0]}


def test_tusimples_metric_needs_rows():
    with pytest.raises(ValueError, match="needs labels with h_samples"):
        scored([truth_at(50)], [[]], TUSIMPLE)
