"""Counts of matched lanes: thresholds, matching, empty frames, processes."""

import numpy as np
import pytest

from tasks.lanes import f1_metric
from tasks.lanes.f1_metric import (
    Overlap,
    count_matches,
    lane_ious,
    num_matches,
    precision_recall_f1,
)
from tasks.lanes.intervals import Canvas

OVERLAP = Overlap((200, 100), Canvas(200, 100, 10))


def upright(x):
    return np.array([[x, -20.0], [x, 50.0], [x, 120.0]])


def counts_of(truth, found, **settings):
    counts = count_matches(truth, found, OVERLAP, **settings)
    return [counts.tp.tolist(), counts.fp.tolist(), counts.fn.tolist()]


def test_upright_lanes_overlap_by_their_columns():
    # OpenCV draws 10 px as 11 columns; 4 px apart they share 7 of 15
    (ious,) = lane_ious([[upright(50)]], [[upright(54), upright(50), upright(90)]], OVERLAP)

    assert ious.tolist() == [[pytest.approx(7 / 15), 1.0, 0.0]]


def test_points_are_scaled_to_the_canvas():
    half = Overlap((400, 200), Canvas(200, 100, 10))

    (ious,) = lane_ious([[upright(100) * 2]], [[upright(104) * 2]], half)

    assert ious.item() == pytest.approx(7 / 15)


def test_frames_are_counted_apart():
    truth = [[upright(50), upright(100)], [], [upright(20)], []]
    found = [[upright(51), upright(150), upright(99)], [upright(10)], [], []]

    assert counts_of(truth, found) == [[2, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]]


def test_a_match_needs_more_than_the_threshold():
    assert num_matches(np.array([[0.5]]), threshold=0.5) == 0
    assert num_matches(np.array([[0.5001]]), threshold=0.5) == 1
    assert num_matches(np.zeros((0, 3)), threshold=0.5) == 0


def test_the_matching_has_the_largest_sum_even_if_it_has_fewer_matches():
    # 0.95 + 0.0 is less than 0.6 + 0.55; one alone would take the 0.95
    two = np.array([[0.95, 0.6], [0.55, 0.0]])
    # 0.9 + 0.4 is more than 0.51 + 0.52
    one = np.array([[0.9, 0.51], [0.52, 0.4]])

    assert num_matches(two, threshold=0.5) == 2
    assert num_matches(one, threshold=0.5) == 1


def test_a_lane_is_matched_once():
    assert counts_of([[upright(50)]], [[upright(50), upright(50)]]) == [[1], [1], [0]]


@pytest.mark.parametrize(
    "lane",
    [np.zeros((0, 2)), np.array([[50.0, 50.0]]), upright(-400), np.array([[50.0, 9.0]] * 3)],
    ids=["no-point", "one-point", "outside", "one-point-repeated"],
)
def test_lanes_without_pixels_count_and_match_nothing(lane):
    assert counts_of([[lane, upright(50)]], [[lane, upright(51)]]) == [[1], [1], [1]]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((3, 1, 3), (0.75, 0.5, 0.6)),
        ((0, 0, 0), (-1, -1, -1)),
        ((0, 0, 4), (-1, 0, 0)),
        ((0, 4, 0), (0, -1, 0)),
        ((0, 4, 4), (0, 0, 0)),
    ],
)
def test_rates_follow_the_benchmarks_conventions(counts, expected):
    assert precision_recall_f1(*counts) == pytest.approx(expected)


def test_processes_count_as_one_does(monkeypatch):
    random = np.random.RandomState(0)
    places = random.rand(9, 3) * 200
    truth = [[upright(x) for x in each] for each in places]
    found = [[upright(x) for x in each] for each in places + random.randn(9, 3) * 4]
    monkeypatch.setattr(f1_metric, "FRAMES_PER_CHUNK", 2)
    alone = counts_of(truth, found, jobs=1)
    monkeypatch.setattr(f1_metric, "FRAMES_PER_WORKER", 4)

    assert counts_of(truth, found, jobs=2) == alone
    assert sum(alone[0]) > 0


def test_no_frame_has_no_count():
    assert counts_of([], []) == [[], [], []]
