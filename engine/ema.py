"""Exponential moving average of a network's weights and buffers."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
from torch import nn

from engine.config import EmaConfig


class Ema:
    """A copy of a network that follows it slowly; it is what is evaluated and deployed.

    Floating-point weights and buffers are averaged, whole-number buffers copied.

    Args:
        network: the network that trains, on its device.
        config: decay and ramp.

    Source: seed YOLOv3 (decay * (1 - exp(-updates / ramp))).
    """

    def __init__(self, network: nn.Module, config: EmaConfig) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        self._config = config
        pairs = list(zip(_tensors(self.network), _tensors(network), strict=True))
        self._averaged = [pair for pair in pairs if pair[0].is_floating_point()]
        self._copied = [pair for pair in pairs if not pair[0].is_floating_point()]

    def decay(self, update: int) -> float:
        """Return the decay of an update, counted from 1."""
        if self._config.ramp == 0:
            return self._config.decay
        return self._config.decay * (1 - math.exp(-update / self._config.ramp))

    @torch.no_grad()
    def update(self, update: int) -> None:
        """Follow the network after an update, counted from 1."""
        if self._averaged:
            averages, values = zip(*self._averaged, strict=True)
            torch._foreach_lerp_(averages, values, 1 - self.decay(update))
        if self._copied:
            copies, values = zip(*self._copied, strict=True)
            torch._foreach_copy_(copies, values)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the averaged weights under the network's own names."""
        return self.network.state_dict()

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take over saved averages."""
        self.network.load_state_dict(state)


def _tensors(network: nn.Module) -> list[torch.Tensor]:
    return list(network.state_dict().values())
