"""Positions at anchors: the expectation about the peak, presence, how many are enough."""

import numpy as np
import pytest

from tasks.lanes.crossings import LaneRule, as_slice, expected_cells, read_crossings


def logits_of(cells, *rows):
    """(1, cells, A, 1): -20 everywhere but at the given {cell: logit} of each anchor."""
    table = np.full((1, cells, len(rows), 1), -20, np.float32)
    for anchor, values in enumerate(rows):
        for cell, value in values.items():
            table[0, cell, anchor, 0] = value
    return table


def test_a_lone_peak_is_at_the_middle_of_its_cell():
    assert expected_cells(logits_of(10, {4: 20.0}), 1).ravel() == pytest.approx([4.5])


def test_neighbours_pull_by_their_share():
    # exp(0) and exp(ln 3): three quarters of the weight lie one cell further
    pulled = expected_cells(logits_of(10, {4: 0.0, 5: np.log(3)}), 1)

    assert pulled.ravel() == pytest.approx([4.75 + 0.5])


def test_cells_beyond_the_window_and_the_edge_count_for_nothing():
    far = expected_cells(logits_of(10, {0: 9.0, 2: 9.0 - 1e-3}, {9: 9.0, 7: 8.9}), 1)
    wide = expected_cells(logits_of(10, {0: 0.0, 2: 0.0}), 2)

    assert far.ravel() == pytest.approx([0.5, 9.5])
    assert wide.ravel() == pytest.approx([1.5])


def test_a_wide_window_is_the_softmax_over_all_cells():
    logits = np.random.RandomState(0).randn(2, 7, 3, 2).astype(np.float32)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    mean = (shares * np.arange(7)[:, None, None]).sum(1) + 0.5

    assert expected_cells(logits, 7) == pytest.approx(mean.transpose(0, 2, 1), abs=1e-5)


def test_positions_are_px_of_the_frame():
    existence = np.zeros((1, 2, 2, 1), np.float32)
    existence[0, 1] = [[3.0], [-3.0]]

    found = read_crossings(
        logits_of(11, {4: 20.0}, {9: 20.0}),
        existence,
        slots=[0],
        window=1,
        extent=200,
        rule=LaneRule(0.0, 0),
    )

    assert found.positions[0, 0] == pytest.approx([4.5 / 10 * 200, 9.5 / 10 * 200])
    assert found.is_present[0, 0].tolist() == [True, False]
    assert found.probability[0, 0, 0] == pytest.approx(1 / (1 + np.exp(-3)))


def test_equal_existence_outputs_mean_absent():
    existence = np.ones((1, 2, 3, 1), np.float32)

    found = read_crossings(
        logits_of(5, {1: 1.0}, {1: 1.0}, {1: 1.0}),
        existence,
        slots=[0],
        window=0,
        extent=10,
        rule=LaneRule(0.0, 0),
    )

    assert not found.is_present.any()
    assert not found.is_kept.any()


@pytest.mark.parametrize(
    ("share", "least", "exceeded", "reached"),
    [(0.5, 0, False, True), (0.49, 0, True, True), (0.0, 4, False, False), (0.0, 3, True, True)],
)
def test_four_of_eight_anchors(share, least, exceeded, reached):
    is_present = np.array([[[True, False] * 4]])
    rule = LaneRule(share, least)

    assert rule.exceeded(is_present).item() is exceeded
    assert rule.reached(is_present).item() is reached


def test_no_anchor_is_never_enough():
    nothing = np.zeros((1, 1, 8), bool)

    assert not LaneRule(0.0, 0).exceeded(nothing).any()
    assert not LaneRule(0.0, 0).reached(nothing).any()


@pytest.mark.parametrize("slots", [[1, 2], [0, 3], [0, 1, 3], [2], [], [0, 2, 4]])
def test_slots_are_read_alike_as_slice_or_list(slots):
    assert np.arange(6)[as_slice(slots)].tolist() == slots
