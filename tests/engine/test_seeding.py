import random

import numpy as np
import pytest
import torch

from engine.contract import Draws
from engine.seeding import (
    epoch_order,
    rng_state,
    sample_generators,
    seed_batch,
    seed_everything,
    set_rng_state,
)

DRAWS = Draws(1)


def draw(draws=DRAWS, *, epoch=0, index=0):
    python, numpy = sample_generators(draws, epoch=epoch, index=index)
    return python.random(), numpy.random_sample()


def global_draw():
    return random.random(), np.random.random_sample(), torch.rand(1).item()


@pytest.fixture
def kept_switches():
    yield
    seed_everything(Draws(0), "seeded")


def test_sample_draws_the_same_again():
    assert draw() == draw()


@pytest.mark.parametrize(
    "other",
    [{"draws": Draws(2)}, {"draws": Draws(1, restarts=1)}, {"epoch": 1}, {"index": 1}],
    ids=["seed", "restarts", "epoch", "index"],
)
def test_all_that_differs_draws_differently(other):
    pairs = zip(draw(), draw(**other), strict=True)
    assert all(ours != theirs for ours, theirs in pairs)


def test_the_two_generators_of_a_sample_are_independent():
    python, numpy = draw()
    assert python != numpy


def test_draws_are_spread_evenly():
    values = np.array([draw(index=index) for index in range(2000)])
    assert np.abs(values.mean(axis=0) - 0.5).max() < 0.03
    assert abs(np.corrcoef(values.T)[0, 1]) < 0.08


def test_order_is_a_permutation_of_its_epoch():
    order = epoch_order(Draws(1), epoch=0, size=50)
    assert order.dtype == np.int64
    assert sorted(order) == list(range(50))
    assert list(order) == list(epoch_order(Draws(1), epoch=0, size=50))
    assert list(order) != list(epoch_order(Draws(1), epoch=1, size=50))


def test_batch_seeds_all_global_generators():
    draws = []
    for rank in (0, 1, 0):
        seed_batch(Draws(1), epoch=0, iteration=3, rank=rank)
        draws.append(global_draw())
    assert draws[0] == draws[2]
    assert all(a != b for a, b in zip(draws[0], draws[1], strict=True))


def test_states_are_put_back(tmp_path):
    torch.save(rng_state(), tmp_path / "rng.pt")
    expected = global_draw()
    set_rng_state(torch.load(tmp_path / "rng.pt", weights_only=True))
    assert global_draw() == expected


@pytest.mark.parametrize(
    ("determinism", "expected"),
    [
        ("off", (True, False, False)),
        ("seeded", (False, False, False)),
        ("strict", (False, True, True)),
    ],
)
def test_determinism_sets_the_switches(determinism, expected, monkeypatch, kept_switches):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    seed_everything(Draws(1), determinism)
    cudnn = torch.backends.cudnn
    switches = (cudnn.benchmark, cudnn.deterministic, torch.are_deterministic_algorithms_enabled())
    assert switches == expected
