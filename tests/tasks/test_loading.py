"""The shared loader: the same batches whatever the workers, ranks and starts."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal

import numpy as np
import pytest
import torch

from engine.contract import Batch, Draws, EpochRequest
from readers.records import DatasetError
from tasks.loading import EpochLoader, WorkerDiedError, epoch_keys, read_ahead


class Drawn:
    """Items that are two draws of their own generators; item `broken` cannot be read."""

    def __init__(self, broken: int = -1, deadly: int = -1) -> None:
        self.broken = broken
        self.deadly = deadly

    def sample(self, index, generators):
        if index == self.broken:
            raise DatasetError(f"pictures/{index}.jpg: not a picture")
        if index == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        python, state = generators
        return index, python.random(), state.uniform()


class InOrder:
    """Ten batches of four, another order in each epoch."""

    def epoch_batches(self, draws, epoch):
        order = list(range(40))
        random.Random(epoch).shuffle(order)
        return [order[start : start + 4] for start in range(0, 40, 4)]


def collate(samples) -> Batch:
    return Batch({"x": torch.tensor(samples)}, [str(index) for index, _, _ in samples])


def request(epoch=0, start=0, rank=0, world_size=1, workers=0, seed=1, restarts=0):
    return EpochRequest(epoch, start, rank, world_size, workers, Draws(seed, restarts))


def rows(loader, **values) -> list[list]:
    return [batch.inputs["x"].tolist() for batch in loader.batches(request(**values))]


def make_loader(**values) -> EpochLoader:
    return EpochLoader(Drawn(**values), collate, InOrder())


def test_workers_change_nothing():
    alone, with_two = make_loader(), make_loader()
    for epoch in (0, 1):
        assert rows(alone, epoch=epoch) == rows(with_two, epoch=epoch, workers=2)


def test_draws_change_with_epoch_seed_and_restart():
    loader = make_loader()
    by_item = [
        {row[0]: row[1:] for batch in rows(loader, **values) for row in batch}
        for values in ({}, {"epoch": 1}, {"seed": 2}, {"restarts": 1})
    ]
    assert len({tuple(items[7]) for items in by_item}) == 4


@pytest.mark.parametrize("workers", [0, 2])
def test_a_start_in_mid_epoch_gives_the_rest(workers):
    whole = rows(make_loader())
    assert rows(make_loader(), start=3, workers=workers) == whole[3:]
    assert rows(make_loader(), start=10, workers=workers) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_left_early_does_not_leak_into_the_next(workers):
    loader = make_loader()
    broken_off = loader.batches(request(workers=workers))
    next(broken_off)
    broken_off.close()
    assert rows(loader, epoch=1, workers=workers) == rows(make_loader(), epoch=1)


def test_an_old_iterator_cannot_go_on_in_the_next_epoch():
    loader = make_loader()
    old = loader.batches(request())
    next(old)
    next(loader.batches(request(epoch=1)))
    with pytest.raises(AssertionError, match="after the next"):
        next(old)


def test_ranks_share_each_batch():
    whole = rows(make_loader())
    shares = [rows(make_loader(), rank=rank, world_size=2) for rank in range(2)]
    for batch, even, odd in zip(whole, *shares, strict=True):
        assert batch == [even[0], odd[0], even[1], odd[1]]


def test_a_batch_smaller_than_the_ranks_is_repeated():
    class Three:
        def epoch_batches(self, draws, epoch):
            return [[7, 8, 9]]

    shares = [epoch_keys(Three(), request(rank=rank, world_size=4))[0].indexes for rank in range(4)]
    assert shares == [(7,), (8,), (9,), (7,)]


@pytest.mark.parametrize("workers", [0, 2])
def test_loading_leaves_the_global_generators_alone(workers):
    torch.manual_seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    rows(make_loader(), workers=workers)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_item_is_named_in_one_sentence(workers):
    loader = make_loader(broken=5)
    with pytest.raises(DatasetError) as raised:
        rows(loader, workers=workers)
    assert str(raised.value) == "pictures/5.jpg: not a picture"


def test_after_an_unreadable_item_the_loader_still_works():
    loader = make_loader(broken=5)
    with pytest.raises(DatasetError):
        rows(loader, workers=2)
    kept = rows(loader, workers=2, start=9)
    assert kept == rows(make_loader(), start=9)


def test_workers_live_across_epochs():
    class Pids(Drawn):
        def sample(self, index, generators):
            return index, os.getpid(), 0

    loader = EpochLoader(Pids(), collate, InOrder())
    pids = [
        {row[1] for batch in rows(loader, epoch=epoch, workers=2) for row in batch}
        for epoch in (0, 1)
    ]
    assert pids[0] == pids[1]
    assert len(pids[0]) == 2
    assert os.getpid() not in pids[0]


def test_a_worker_that_dies_is_named():
    with pytest.raises(WorkerDiedError, match=r"^loader worker 0 \(pid \d+\) .* code -9"):
        rows(make_loader(deadly=11), workers=1)


def test_read_ahead_keeps_the_order_and_stops_when_left():
    begun = []

    def load(item):
        begun.append(item)
        return item * item

    assert list(read_ahead(load, range(20), ahead=3)) == [item * item for item in range(20)]
    begun.clear()
    first = read_ahead(load, range(1000), ahead=3)
    assert next(first) == 0
    first.close()
    assert len(begun) < 10


def test_read_ahead_raises_what_loading_raised():
    def load(item):
        raise DatasetError("a.jpg: not a picture")

    with pytest.raises(DatasetError, match=r"a\.jpg"):
        list(read_ahead(load, [1, 2]))


def test_workers_outlast_the_signal_that_ends_the_training(monkeypatch):
    monkeypatch.setattr("tasks.loading.LAST_SECONDS", 300)  # a loaded machine takes its time
    # a service manager sends SIGTERM to all of a job's processes; the update is still finished
    loader = make_loader()
    batches = loader.batches(request(workers=2))
    for _ in range(2):  # one of each worker: both have started
        next(batches)
    for worker in multiprocessing.active_children():
        os.kill(worker.pid, signal.SIGTERM)
    assert [batch.inputs["x"].tolist() for batch in batches] == rows(make_loader(), start=2)
