"""Scores of lanes that were found, by the benchmark's metric: one call for a whole split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from readers.lane_records import ImageLanes
from tasks.lanes.config import F1MetricConfig, TusimpleMetricConfig
from tasks.lanes.decoding import DecodedLane


@dataclass(frozen=True)
class FrameTruth:
    """What a picture's labels say, in px of the frame.

    Args:
        lanes: per lane (P, 2) float64, x and y.
        h_samples: (S,) float64, the rows that TuSimple's metric looks at; empty for other metrics.
        scenes: the scene lists that hold the picture.
    """

    lanes: Sequence[np.ndarray]
    h_samples: np.ndarray = field(default_factory=lambda: np.zeros(0))
    scenes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaneResult:
    """The scores of a split.

    Args:
        scores: name -> value, names of `tasks.lanes.config.LaneScore`.
        per_frame: columns, one value per picture.
        per_scene: columns, one value per scene; empty without scenes.
    """

    scores: Mapping[str, float]
    per_frame: Mapping[str, list[float]]
    per_scene: Mapping[str, list[object]]


def truth_of(record: ImageLanes, *, frame: tuple[int, int]) -> FrameTruth:
    """Return a record's lanes and rows, scaled from its picture to the frame."""
    raise NotImplementedError


def score_frames(
    truth: Sequence[FrameTruth],
    found: Sequence[Sequence[DecodedLane]],
    *,
    frame: tuple[int, int],
    metric: TusimpleMetricConfig | F1MetricConfig,
    jobs: int = 0,
) -> LaneResult:
    """Return the scores of the lanes found in each picture; `jobs` 0: one process per CPU."""
    raise NotImplementedError
