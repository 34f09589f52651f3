"""Running means of what training measures."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np


class SmoothedValue:
    """A value over its last few readings and over all of them.

    Args:
        window: how many readings `median`, `avg` and `max` look back on.

    Source: seeds torchvision and SeqNet.
    """

    def __init__(self, window: int = 20) -> None:
        self._readings: deque[float] = deque(maxlen=window)
        self._total = 0.0
        self._count = 0

    def update(self, value: float, n: int = 1) -> None:
        """Take a reading that stands for `n` items; it enters the window once."""
        self._readings.append(value)
        self._total += value * n
        self._count += n

    @property
    def median(self) -> float:
        """Median of the window; the lower of the two middle readings of an even number."""
        return sorted(self._readings)[(len(self._readings) - 1) // 2]

    @property
    def avg(self) -> float:
        """Mean of the window, in float32."""
        return float(np.mean(np.asarray(self._readings, dtype=np.float32)))

    @property
    def global_avg(self) -> float:
        """Mean over all items."""
        return self._total / self._count

    @property
    def max(self) -> float:
        """Largest reading of the window."""
        return max(self._readings)

    @property
    def value(self) -> float:
        """The last reading."""
        return self._readings[-1]


class WindowMeter:
    """Sums since the last point of each curve; part of a checkpoint, so that points stay whole."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, name: str, value: float, *, count: int = 1) -> None:
        """Add a reading that sums `count` items; one that is not finite is left out."""
        if not math.isfinite(value):
            return
        self._sums[name] = self._sums.get(name, 0.0) + value
        self._counts[name] = self._counts.get(name, 0) + count

    def sum(self, name: str) -> float:
        """Return the sum of a name's readings; 0 if there are none."""
        return self._sums.get(name, 0.0)

    def count(self, name: str) -> int:
        """Return how many items a name's readings sum; 0 if there are none."""
        return self._counts.get(name, 0)

    def means(self) -> dict[str, float]:
        """Return name -> mean per item."""
        return {name: total / self._counts[name] for name, total in self._sums.items()}

    def clear(self) -> None:
        """Begin a new window."""
        self._sums.clear()
        self._counts.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the open window's sums and counts."""
        return {"sums": dict(self._sums), "counts": dict(self._counts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with a saved window."""
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])
