"""TuSimple's accuracy, FP and FN of a frame, by hand."""

import math

import numpy as np
import pytest

from tasks.lanes.tusimple_metric import TusimpleScore, mean_scores, score_frame

ROWS = np.arange(0, 100, 10)
UPRIGHT = np.full(10, 500.0)


def test_a_lane_is_right_within_20_px_of_an_upright_one():
    near = score_frame([UPRIGHT], [UPRIGHT + 19.9], ROWS)
    far = score_frame([UPRIGHT], [UPRIGHT + 20], ROWS)

    assert near == TusimpleScore(1.0, 0.0, 0.0)
    assert far == TusimpleScore(0.0, 1.0, 1.0)


def test_a_slanted_lane_has_more_room():
    slanted = 100 + ROWS * 3.0  # 20 px across the lane are 20 sqrt(10) along the row

    assert score_frame([slanted], [slanted + 20 * math.sqrt(10) - 0.1], ROWS).accuracy == 1
    assert score_frame([slanted], [slanted + 20 * math.sqrt(10) + 0.1], ROWS).accuracy == 0


def test_absent_rows_are_right_where_both_are_absent():
    truth, found = UPRIGHT.copy(), UPRIGHT.copy()
    truth[:4], found[:3] = -2, -1

    assert score_frame([truth], [found], ROWS).accuracy == pytest.approx(0.9)


def test_one_found_lane_may_match_two_true_ones():
    score = score_frame([UPRIGHT, UPRIGHT + 5], [UPRIGHT], ROWS)

    assert (score.fn, score.fp) == (0.0, -1.0)


def test_a_fifth_lane_may_be_missed():
    truth = [UPRIGHT + 100 * k for k in range(5)]

    assert score_frame(truth, truth[:4], ROWS) == TusimpleScore(1.0, 0.0, 0.0)
    assert score_frame(truth, truth[:3], ROWS) == TusimpleScore(0.75, 0.0, 0.25)


def test_too_many_lanes_or_too_slow_a_run_score_nothing():
    two_more = score_frame([UPRIGHT], [UPRIGHT] * 3, ROWS)

    assert two_more.accuracy == 1
    assert score_frame([UPRIGHT], [UPRIGHT] * 4, ROWS) == TusimpleScore(0.0, 0.0, 1.0)
    assert score_frame([UPRIGHT], [UPRIGHT], ROWS, run_time=201) == TusimpleScore(0.0, 0.0, 1.0)


def test_no_lane_at_all():
    assert score_frame([], [], ROWS) == TusimpleScore(0.0, 0.0, 0.0)
    assert score_frame([UPRIGHT], [], ROWS) == TusimpleScore(0.0, 0.0, 1.0)


def test_a_lane_of_another_length_is_refused():
    with pytest.raises(ValueError, match="lane 2 has 9 values, h_samples has 10"):
        score_frame([UPRIGHT], [UPRIGHT, UPRIGHT[:9]], ROWS)


def test_f1_is_that_of_the_mean_rates():
    scores = mean_scores([TusimpleScore(1.0, 0.0, 0.5), TusimpleScore(0.5, 0.5, 0.5)])

    assert scores["accuracy"] == 0.75
    assert scores["F1"] == pytest.approx(2 * 0.75 * 0.5 / 1.25)
    assert mean_scores([TusimpleScore(0.0, 1.0, 1.0)])["F1"] == 0
    assert all(math.isnan(value) for value in mean_scores([]).values())
