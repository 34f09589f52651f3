"""Reads lanes off a network's four output arrays: numpy, on the host."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tasks.lanes.config import DecodeConfig, UfldModelConfig


@dataclass(frozen=True, slots=True)
class DecodedLane:
    """A lane that was found.

    Args:
        slot: from 0, left to right.
        kind: what it was read from.
        points: (P, 2) float32, x and y in px of the frame, along the lane.
        score: mean over the points of the probability that the lane is there, in (0.5, 1].
    """

    slot: int
    kind: Literal["row", "column", "pooled"]
    points: np.ndarray
    score: float


def decode(
    outputs: Mapping[str, np.ndarray],
    *,
    model: UfldModelConfig,
    decode: DecodeConfig,
    frame: tuple[int, int],
) -> list[list[DecodedLane]]:
    """Return the lanes of each picture of a batch."""
    raise NotImplementedError


def decode_tta(
    outputs: Mapping[str, np.ndarray],
    *,
    model: UfldModelConfig,
    decode: DecodeConfig,
    frame: tuple[int, int],
    compat: Collection[str] = (),
) -> list[list[DecodedLane]]:
    """Return the lanes of each picture of a batch of 5N outputs."""
    raise NotImplementedError
