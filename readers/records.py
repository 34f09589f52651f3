"""Plain records that readers yield and writers take; numpy only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

Severity = Literal["error", "warning"]


class DatasetError(Exception):
    """A data set that cannot be read at all; the message names file, line and what is right."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a data set.

    Args:
        severity: `error` stops `prepare`, `warning` is listed and handled as `action` says.
        code: a short stable name, e.g. `zero-area-box`; findings are counted by it.
        where: file and line, or file and id, e.g. `instances.json: annotation 17`.
        message: what is wrong, with the value.
        action: what is done about it, e.g. `box dropped`.
        image_id: the record it belongs to, if any.
        box_xyxy: the box it is about, px of the upright picture, if any.
        count: how many it stands for; above 1 where many of a kind are told at once.
    """

    severity: Severity
    code: str
    where: str
    message: str
    action: str
    image_id: str | None = None
    box_xyxy: tuple[float, float, float, float] | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class ImageBoxes:
    """A picture and its labelled boxes.

    Args:
        image_id: unique within the set: COCO's id as text, else the path without its ending.
        path: absolute path of the picture.
        width: px of the picture as the labels see it.
        height: px of the picture as the labels see it.
        turn: EXIF orientation (1 to 8) to apply to the stored pixels so that they are as the
            labels see them; 1 leaves them as they are.
        boxes_xyxy: (N, 4) float64, px, x to the right and y down, end exclusive, inside the
            picture, with positive width and height.
        labels: (N,) int64, index into the set's class names, from 0.
        is_crowd: (N,) bool; crowd regions and VOC's difficult objects: never trained on, ignored
            in evaluation.
        areas: (N,) float64, px^2, the labels' own area where the format has one.
        annotation_ids: one name per box, for messages.
        content: SHA-256 of the picture's file, hex; empty where it was not read.
    """

    image_id: str
    path: Path
    width: int
    height: int
    turn: int
    boxes_xyxy: np.ndarray
    labels: np.ndarray
    is_crowd: np.ndarray
    areas: np.ndarray
    annotation_ids: Sequence[str]
    content: str = ""


@dataclass(frozen=True)
class ImageBoxesSet:
    """What a detection reader returns.

    Args:
        records: in the set's own order; iterable once per call of the reader.
        class_names: index -> name.
        class_ids: index -> the id in the files (COCO category ids have gaps), for saving
            predictions in the set's own numbers.
        findings: everything that was wrong; complete once `records` has been walked through.
        source: file or folder the labels came from.
    """

    records: Iterable[ImageBoxes]
    class_names: Sequence[str]
    class_ids: Sequence[int]
    findings: list[Finding]
    source: Path
    extra: Mapping[str, str] = field(default_factory=dict)
