import math

import pytest
import torch
from torch import nn

from engine.config import EmaConfig
from engine.ema import Ema


def test_average_follows_weights_and_buffers():
    network = nn.BatchNorm1d(1)
    ema = Ema(network, EmaConfig(decay=0.75))
    with torch.no_grad():
        network.weight.fill_(3.0)
        network.running_mean.fill_(8.0)
        network.num_batches_tracked.fill_(5)
    ema.update(1)
    assert ema.network.weight.item() == 1.5  # 0.75 * 1 + 0.25 * 3
    assert ema.network.running_mean.item() == 2.0
    assert ema.network.num_batches_tracked.item() == 5
    assert not ema.network.training
    assert not ema.network.weight.requires_grad


def test_decay_rises_with_the_ramp():
    ema = Ema(nn.Linear(1, 1), EmaConfig(decay=0.9999, ramp=2000))
    assert ema.decay(1) == pytest.approx(0.9999 * (1 - math.exp(-1 / 2000)))
    assert ema.decay(100_000) == pytest.approx(0.9999)


def test_saved_averages_are_read_back():
    ema, other = (Ema(nn.Linear(2, 2), EmaConfig(decay=0.5)) for _ in range(2))
    other.load_state_dict(ema.state_dict())
    assert torch.equal(other.network.weight, ema.network.weight)


def test_average_still_follows_after_weights_were_loaded():
    network = nn.Linear(1, 1, bias=False)
    ema = Ema(network, EmaConfig(decay=0.5))
    network.load_state_dict({"weight": torch.tensor([[4.0]])})
    ema.load_state_dict({"weight": torch.tensor([[2.0]])})
    ema.update(1)
    assert ema.network.weight.item() == 3.0
