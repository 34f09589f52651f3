import pytest

from engine.contract import Draws
from tasks.shuffled import ShuffledPlan


@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [4, 4, 2]), (True, [4, 4])])
def test_every_item_comes_once_and_the_last_batch_as_asked(drop_last, sizes):
    plan = ShuffledPlan(10, 4, drop_last)
    batches = plan.epoch_batches(Draws(0), 0)
    assert [len(batch) for batch in batches] == sizes
    assert plan.num_batches() == len(sizes)
    items = [item for batch in batches for item in batch]
    assert len(set(items)) == len(items)
    assert set(items) <= set(range(10))


def test_the_order_hangs_on_seed_and_epoch_alone():
    plan = ShuffledPlan(100, 10, drop_last=False)
    assert plan.epoch_batches(Draws(1), 2) == plan.epoch_batches(Draws(1), 2)
    assert plan.epoch_batches(Draws(1), 2) != plan.epoch_batches(Draws(1), 3)
    assert plan.epoch_batches(Draws(1), 2) != plan.epoch_batches(Draws(2), 2)
