"""Which pictures form which batch."""

from __future__ import annotations

import numpy as np
import pytest

from engine.contract import Draws
from tasks.detection.batches import BatchPlan, aspect_ratio_groups, grouped_batches


def test_edges_belong_to_the_group_above():
    # k = 1: edges .5, 1, 2
    ratios = [0.4, 0.5, 0.99, 1.0, 1.99, 2.0, 3.0]
    assert aspect_ratio_groups(ratios, 1).tolist() == [0, 1, 1, 2, 2, 3, 3]


def test_factor_zero_tells_tall_from_wide_and_minus_one_tells_nothing():
    assert aspect_ratio_groups([0.9, 1.0, 1.1], 0).tolist() == [0, 1, 1]
    assert aspect_ratio_groups([0.2, 1.0, 5.0], -1).tolist() == [0, 0, 0]


def test_leftovers_are_topped_up_with_the_first_of_their_group():
    groups = np.array([0, 0, 0, 1, 1])
    # five pictures, two batches: [0, 1] fills first, [3, 4] fills next, 2 is left out
    assert grouped_batches([0, 3, 1, 2, 4], groups, 2) == [[0, 1], [3, 4]]
    # [0, 1] fills; 2 and 3 are left, opened in the order 3, 2: one batch is missing
    assert grouped_batches([3, 0, 1, 2], groups, 2) == [[0, 1], [3, 3]]


def test_the_longest_leftover_comes_first():
    groups = np.array([0, 1, 1, 2, 2, 2, 2])
    # threes: 3, 4, 5 fill; leftovers 0 | 1, 2 | 6; one more batch: 1, 2 and again 1
    assert grouped_batches(range(7), groups, 3) == [[3, 4, 5], [1, 2, 1]]


def test_a_group_smaller_than_the_batch_is_repeated():
    groups = np.array([0, 1, 2, 3, 4])
    assert grouped_batches([4, 0, 1, 2, 3], groups, 5) == [[4] * 5]


def test_without_drop_last_every_picture_comes_once():
    groups = np.arange(11) % 3
    plan = BatchPlan(groups, batch_size=3, drop_last=False)
    batches = plan.epoch_batches(Draws(5), 2)
    assert sorted(index for batch in batches for index in batch) == list(range(11))
    assert len(batches) == plan.num_batches() == 2 + 2 + 1
    assert all(len({int(groups[i]) for i in batch}) == 1 for batch in batches)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 31])
def test_number_of_batches_is_known_beforehand(size):
    groups = aspect_ratio_groups(np.linspace(0.4, 2.5, size), 2)
    for drop_last in (True, False):
        plan = BatchPlan(groups, batch_size=4, drop_last=drop_last)
        assert len(plan.epoch_batches(Draws(0), 0)) == plan.num_batches()


def test_epochs_and_restarts_have_other_batches_and_the_same_draws_the_same():
    plan = BatchPlan(np.zeros(40, np.int64), batch_size=4, drop_last=True)
    first = plan.epoch_batches(Draws(7), 0)
    assert first == plan.epoch_batches(Draws(7), 0)
    assert first != plan.epoch_batches(Draws(7), 1)
    assert first != plan.epoch_batches(Draws(7, restarts=1), 0)
