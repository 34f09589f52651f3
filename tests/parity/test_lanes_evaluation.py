"""The lane benchmarks' evaluation: counts of CULane and CurveLanes, TuSimple's accuracy, FP and FN.

Each test runs once per fixture file (`--fixtures FOLDER`); tests/fixtures/lanes tells what they
hold. Counts are equal, IoUs agree to 1e-4 (5e-5 in the fixtures, which have six digits).
"""

import json

import numpy as np
import pytest

from tasks.lanes.f1_metric import Overlap, count_matches, lane_ious, precision_recall_f1
from tasks.lanes.intervals import Canvas
from tasks.lanes.tusimple_metric import mean_scores, score_frame

# The official tool gives an IoU of nan to lanes outside the image, which spoils its matching.
SPOILT = "outside_image"


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def lanes_of(lists):
    return [np.array(lane, np.float64).reshape(-1, 2) for lane in lists]


def frames_of(cases):
    return [lanes_of(case["gt"]) for case in cases], [lanes_of(case["pred"]) for case in cases]


def culane(params, iou=0.5):
    width, height = params["size"]
    return Overlap((width, height), Canvas(width, height, params["width"]), iou)


def assert_counts(counts, number, expected):
    ours = (counts.tp[number], counts.fp[number], counts.fn[number])
    assert ours == (expected["tp"], expected["fp"], expected["fn"])
    rates = [float(expected[key]) for key in ("precision", "recall", "F")]
    # P = R = 0 prints nan there
    rates = [0.0 if np.isnan(rate) else rate for rate in rates]
    assert precision_recall_f1(*map(int, ours)) == pytest.approx(rates, abs=1e-5)


@pytest.mark.fixture_kind("lanes", "culane_eval")
@pytest.mark.parametrize(("key", "iou"), [("iou05", 0.5), ("iou03", 0.3)])
def test_culane_counts_are_the_official_tools(fixture_file, key, iou):
    content = read(fixture_file)
    cases = [case for case in content["cases"] if case["name"] != SPOILT]

    counts = count_matches(*frames_of(cases), culane(content["params"], iou))

    for number, case in enumerate(cases):
        assert_counts(counts, number, case[key])


@pytest.mark.fixture_kind("lanes", "culane_eval")
def test_culane_ious_are_the_official_tools(fixture_file):
    content = read(fixture_file)
    cases = [case for case in content["cases"] if case["name"] != SPOILT]

    ious = lane_ious(*frames_of(cases), culane(content["params"]))

    for ours, case in zip(ious, cases, strict=True):
        expected = np.array(case["iou_matrix"], np.float64).reshape(ours.shape)
        assert ours == pytest.approx(expected, abs=1e-4, rel=0)


@pytest.mark.fixture_kind("lanes", "culane_eval")
def test_lanes_outside_the_image_match_nothing_and_spoil_nothing(fixture_file):
    content = read(fixture_file)
    cases = [case for case in content["cases"] if case["name"] == SPOILT]

    counts = count_matches(*frames_of(cases), culane(content["params"]))

    assert [counts.tp.tolist(), counts.fp.tolist(), counts.fn.tolist()] == [[1] * len(cases)] * 3


@pytest.mark.fixture_kind("lanes", "curvelanes_eval")
def test_curvelanes_counts_are_the_official_tools(fixture_file):
    content = read(fixture_file)
    width, height = content["params"]["size"]
    canvas = Canvas(width, height, content["params"]["width"])

    counts = count_matches(*frames_of(content["cases"]), Overlap((2560, 1440), canvas))

    for number, case in enumerate(content["cases"]):
        assert_counts(counts, number, case["result"])


@pytest.mark.fixture_kind("lanes", "tusimple_eval")
def test_tusimple_frames_score_as_in_the_official_tool(fixture_file):
    content = read(fixture_file)
    rows = np.array(content["h_samples"])

    for case in content["cases"]:
        score = score_frame(case["gt"], case["pred"], rows, run_time=case["run_time"])
        expected = (case["accuracy"], case["fp"], case["fn"])
        assert (score.accuracy, score.fp, score.fn) == pytest.approx(expected, abs=1e-12)


@pytest.mark.fixture_kind("lanes", "tusimple_eval")
def test_tusimple_totals_are_means_over_frames(fixture_file):
    content = read(fixture_file)
    rows = np.array(content["h_samples"])
    cases = content["cases"]

    scores = mean_scores(
        [score_frame(c["gt"], c["pred"], rows, run_time=c["run_time"]) for c in cases]
    )

    means = {key: np.mean([case[key] for case in cases]) for key in ("accuracy", "fp", "fn")}
    assert [scores["accuracy"], scores["FP"], scores["FN"]] == pytest.approx([*means.values()])
    precision, recall = 1 - means["fp"], 1 - means["fn"]
    assert scores["F1"] == pytest.approx(2 * precision * recall / (precision + recall))
