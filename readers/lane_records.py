"""Plain records of pictures with lanes, as readers yield them and `prepare` completes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from readers.records import Finding

ABSENT = -99999.0  # x and y of a grid point that a slot does not have


def _no_slots() -> np.ndarray:
    return np.zeros(0, np.int64)


def _no_grid() -> np.ndarray:
    return np.zeros((0, 0, 2), np.float32)


@dataclass(frozen=True, slots=True)
class ImageLanes:
    """A picture and its labelled lanes.

    Args:
        image_id: unique within the set: the picture's path as the labels name it.
        path: absolute path of the picture.
        width: px of the picture as the labels see it.
        height: px of the picture as the labels see it.
        turn: EXIF orientation (1 to 8) to apply to the stored pixels.
        lanes: per lane (P, 2) float64, x and y in px of the picture, x to the right and y down,
            in the order of the file; points that the format marks as absent are left out, points
            outside the picture are kept (lanes may run out of it).
        h_samples: (S,) int64, the rows (px) at which a TuSimple label gives each lane; empty for
            other formats.
        scenes: names of the scene lists that hold the picture (CULane: `normal`, `crowd`, ...).
        mask: absolute path of a picture of lane numbers (0 ground, 1.. lanes); None: there is none.
        slots: (len(lanes),) int64, slot of each lane from 0, -1 for a lane that gets none; empty
            before `prepare`.
        grid: (L, G, 2) float32, x and y in px of the experiment's frame, one row per slot at the
            experiment's grid of heights; -99999 where a slot has no point; empty before `prepare`.
        content: SHA-256 of the picture's file, hex; empty where it was not read.
    """

    image_id: str
    path: Path
    width: int
    height: int
    turn: int
    lanes: tuple[np.ndarray, ...]
    h_samples: np.ndarray = field(default_factory=_no_slots)
    scenes: tuple[str, ...] = ()
    mask: Path | None = None
    slots: np.ndarray = field(default_factory=_no_slots)
    grid: np.ndarray = field(default_factory=_no_grid)
    content: str = ""


@dataclass(frozen=True)
class ImageLanesSet:
    """What a lane reader returns.

    Args:
        records: in the set's own order; iterable once per call of the reader.
        findings: everything that was wrong; complete once `records` has been walked through.
        source: file or folder the labels came from.
        scenes: names of all scene lists that were read, in the benchmark's order.
    """

    records: Iterable[ImageLanes]
    findings: list[Finding]
    source: Path
    scenes: Sequence[str] = ()
