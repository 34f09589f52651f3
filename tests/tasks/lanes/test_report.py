"""Plots of lane scores."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from tasks.lanes.report import plot_scores
from tasks.lanes.scores import LaneResult

FRAMES = {"f1": [1.0, 0.5], "tp": [4, 2], "fp": [0, 3], "fn": [0, 1]}
SCENES = {
    "scene": ["normal", "cross"], "F1": [0.75, -1.0], "tp": [6, 0], "fp": [2, 1], "fn": [1, 0],
}  # fmt: skip
TUSIMPLE = {"accuracy": [0.9, 1.0], "fp": [0.0, 0.25], "fn": [0.0, 0.0]}

RESULTS = {
    "scenes": LaneResult({"F1": 0.75}, FRAMES, SCENES),
    "no-scenes": LaneResult({"F1": 0.75}, FRAMES, {}),
    "a-score-that-means-nothing": LaneResult({"F1": float("nan")}, FRAMES, SCENES),
    "no-lane-at-all": LaneResult({"F1": -1.0}, {"f1": [], "tp": [], "fp": [], "fn": []}, {}),
    "tusimple": LaneResult({"accuracy": 0.95, "FP": 0.1, "FN": 0.0, "F1": 0.9}, TUSIMPLE, {}),
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_scores_become_a_picture(result):
    decoded = cv2.imdecode(np.frombuffer(plot_scores(result), np.uint8), cv2.IMREAD_COLOR)
    assert decoded.shape[1] == 1100
    assert len(np.unique(decoded.reshape(-1, 3), axis=0)) > 10


def test_each_scene_makes_the_picture_higher():
    many = {name: values * 4 for name, values in SCENES.items()}
    many["scene"] = [f"scene {number}" for number in range(8)]
    few = cv2.imdecode(np.frombuffer(plot_scores(RESULTS["scenes"]), np.uint8), 0)
    more = cv2.imdecode(
        np.frombuffer(plot_scores(LaneResult({"F1": 0.5}, FRAMES, many)), np.uint8), 0
    )
    assert more.shape[0] > few.shape[0]
