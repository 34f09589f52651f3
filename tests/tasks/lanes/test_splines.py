"""Natural cubic splines of many lanes, against SciPy's of each."""

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from tasks.lanes.splines import sample_splines


def samples_of(lanes, scale=(1.0, 1.0)):
    """The samples lane by lane, each (T, 2)."""
    found = sample_splines(
        [np.array(lane, np.float64).reshape(-1, 2) for lane in lanes], scale=scale
    )
    flat = np.stack([found.x, found.y], axis=1)
    return np.split(flat, np.cumsum(found.counts)[:-1])


def scipys(lane):
    chords = np.hypot(*np.diff(lane, axis=0).T)
    knots = np.r_[0, chords.cumsum()]
    spline = CubicSpline(knots, lane, bc_type="natural")
    within = knots[:-1, None] + chords[:, None] * np.arange(50) / 50
    return spline(np.r_[within.ravel(), knots[-1]])


def test_lanes_of_any_lengths_are_sampled_together_as_each_alone():
    random = np.random.RandomState(0)
    lanes = [
        np.c_[random.rand(n) * 900, np.sort(random.rand(n)) * 500].astype(np.float32)
        for n in (3, 40, 4, 17, 3)
    ]

    for ours, lane in zip(samples_of(lanes), lanes, strict=True):
        assert ours == pytest.approx(scipys(lane.astype(np.float64)), abs=1e-3)
        assert len(ours) == 50 * (len(lane) - 1) + 1


def test_a_straight_lane_stays_straight():
    (found,) = samples_of([[[0, 0], [10, 20], [20, 40]]])

    assert found[:, 1] == pytest.approx(2 * found[:, 0], abs=1e-4)
    assert found[25].tolist() == pytest.approx([5, 10])


def test_two_points_are_only_joined():
    (found,) = samples_of([[[3, 4], [100, 200]]])

    assert found.tolist() == [[3, 4], [100, 200]]


def test_repeated_points_are_dropped():
    once = samples_of([[[0, 0], [5, 10], [9, 20]]])
    twice = samples_of([[[0, 0], [0, 0], [5, 10], [9, 20], [9, 20]]])

    assert np.array_equal(once[0], twice[0])


@pytest.mark.parametrize("lane", [[], [[1, 2]], [[1, 2], [1, 2]], [[np.nan, 2], [1, 2]]])
def test_fewer_than_two_different_points_give_no_sample(lane):
    beside = [[0, 0], [5, 10], [9, 20]]

    found = samples_of([beside, lane, beside])

    assert [len(each) for each in found] == [101, 0, 101]


def test_nothing_gives_nothing():
    assert len(sample_splines([], scale=(1, 1)).x) == 0
    assert len(sample_splines([np.zeros((0, 2))], scale=(1, 1)).x) == 0


def test_points_are_scaled_first():
    lane = np.array([[0, 0], [500, 100], [800, 900]])

    scaled = samples_of([lane], scale=(0.1, 0.2))
    before = samples_of([lane * [0.1, 0.2]])

    assert np.array_equal(scaled[0], before[0])
