"""Boxes as the files give them, and what is done about those that cannot be used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from readers.findings import FindingLog

Box = tuple[float, float, float, float]
# Label tools round: less than this beyond the frame, px, is cut off without a word.
FRAME_TOLERANCE = 0.5


@dataclass(frozen=True, slots=True)
class RawBox:
    """A box as a label file gives it.

    Args:
        box_xyxy: px, or fractions of the picture's sides; may be any numbers at all.
        label: index into the class names, from 0.
        name: its id, for messages.
        where: file and line, or file and id.
        is_crowd: crowd region or difficult object.
        area: px^2, where the format gives one.
    """

    box_xyxy: Box
    label: int
    name: str
    where: str
    is_crowd: bool = False
    area: float | None = None


@dataclass(frozen=True, slots=True)
class BoxColumns:
    """The boxes of one picture as arrays; fields as in `ImageBoxes`."""

    boxes_xyxy: np.ndarray
    labels: np.ndarray
    is_crowd: np.ndarray
    areas: np.ndarray
    annotation_ids: tuple[str, ...]


def clean_boxes(
    raw: Sequence[RawBox], size: tuple[int, int], *, image_id: str, findings: FindingLog
) -> BoxColumns:
    """Return the usable boxes of one picture, cut at its frame.

    Args:
        raw: boxes in px.
        size: width and height of the picture, px.
        image_id: for the findings.
        findings: gets one entry for each box that is dropped, cut or under one pixel.
    """
    kept = []
    for box in raw:
        cleaned = _clean(box, size, image_id=image_id, findings=findings)
        if cleaned is not None:
            kept.append(cleaned)
    return BoxColumns(
        boxes_xyxy=np.array([box.box_xyxy for box in kept], np.float64).reshape(-1, 4),
        labels=np.array([box.label for box in kept], np.int64),
        is_crowd=np.array([box.is_crowd for box in kept], np.bool_),
        areas=np.array([box.area for box in kept], np.float64),
        annotation_ids=tuple(box.name for box in kept),
    )


def _clean(
    box: RawBox, size: tuple[int, int], *, image_id: str, findings: FindingLog
) -> RawBox | None:
    fault = _fault(box.box_xyxy, size)
    if fault is not None:
        code, why = fault
        findings.warn(
            code, box.where, why, action="box dropped", image_id=image_id, box_xyxy=box.box_xyxy
        )
        return None
    cut = _clip(box.box_xyxy, size)
    beyond = max(abs(new - old) for new, old in zip(cut, box.box_xyxy, strict=True))
    if beyond > FRAME_TOLERANCE:
        findings.warn(
            "box-out-of-frame",
            box.where,
            f"box {_text(box.box_xyxy)} runs {beyond:.4g} px out of the "
            f"{size[0]}x{size[1]} picture",
            action="cut at the frame",
            image_id=image_id,
            box_xyxy=box.box_xyxy,
        )
    width, height = cut[2] - cut[0], cut[3] - cut[1]
    if min(width, height) < 1:
        findings.warn(
            "tiny-box",
            box.where,
            f"box is {width:.3g} x {height:.3g} px, less than a pixel",
            action="kept",
            image_id=image_id,
            box_xyxy=cut,
        )
    area = box.area
    if area is None or not math.isfinite(area) or area <= 0:
        area = width * height
    return replace(box, box_xyxy=cut, area=area)


def _fault(box: Box, size: tuple[int, int]) -> tuple[str, str] | None:
    """Return code and message of what makes a box useless."""
    if not all(map(math.isfinite, box)):
        return "non-finite-box", f"box {_text(box)} holds a value that is no number"
    width, height = box[2] - box[0], box[3] - box[1]
    if width < 0 or height < 0:
        return "negative-size-box", f"box {_text(box)} is {width:.6g} x {height:.6g} px"
    if width == 0 or height == 0:
        return "zero-area-box", f"box {_text(box)} is {width:.6g} x {height:.6g} px"
    cut = _clip(box, size)
    if cut[2] <= cut[0] or cut[3] <= cut[1]:
        return (
            "box-outside",
            f"box {_text(box)} lies outside the {size[0]}x{size[1]} picture",
        )
    return None


def _clip(box: Box, size: tuple[int, int]) -> Box:
    width, height = size
    return (
        min(max(box[0], 0.0), width),
        min(max(box[1], 0.0), height),
        min(max(box[2], 0.0), width),
        min(max(box[3], 0.0), height),
    )


def _text(box: Box) -> str:
    return "[" + ", ".join(f"{value:.6g}" for value in box) + "]"
