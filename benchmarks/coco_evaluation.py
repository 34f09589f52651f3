"""Our COCO evaluation against pycocotools, on drawn ground truth and detections.

Each starts from what a training loop has in hand at every evaluation: the ground truth, read
once, and the detections, ours as the arrays that the network returns, pycocotools' as the dicts
that it asks for (making those is not counted). Ours also makes the tables by class, picture and
size.
"""

from __future__ import annotations

import contextlib
import copy
import io
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pairs import Ratio, median_ratio, paired_seconds
from readers.index import ImageBoxesIndex, build_index
from readers.records import ImageBoxes, ImageBoxesSet
from tasks.detection.metrics import CocoEvaluator

IMAGES, CLASSES, OBJECTS, DETECTIONS = 500, 20, 8, 100

Found = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


def measure() -> list[Ratio]:
    """Return pycocotools' time over ours; both must give the same twelve numbers to 1e-9."""
    index, found = _drawn()
    truth, detections = _as_dicts(index, found)
    ready, coco = CocoEvaluator(index), _coco(truth)
    difference = max(
        abs(a - b)
        for a, b in zip(_ours(ready, index, found), _pycocotools(coco, detections), strict=True)
        if b > -1
    )
    pairs = paired_seconds(
        lambda: _ours(ready, index, found),
        lambda: _pycocotools(coco, detections),
        pairs=7,
        clock=time.process_time,
    )
    ratio, low, high = median_ratio(pairs, inverse=True)
    detail = f"ours {min(o for o, _ in pairs):.2f} s, numbers differ by {difference:.0e} at most"
    met = ratio >= 8 and difference <= 1e-9
    return [
        Ratio("COCO evaluation", ratio, (low, high), "x pycocotools' speed", ">= 8", met, detail)
    ]


def _ours(ready: CocoEvaluator, index: ImageBoxesIndex, found: Found) -> list[float]:
    evaluator = copy.deepcopy(ready)
    for image_id, (boxes_xyxy, scores, labels) in zip(index.image_ids, found, strict=True):
        evaluator.add(image_id, boxes_xyxy, scores, labels)
    return list(evaluator.compute().stats.values())


def _coco(truth: dict[str, Any]) -> Any:
    from pycocotools.coco import COCO

    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = truth
        coco.createIndex()
    return coco


def _pycocotools(coco: Any, detections: list[dict[str, Any]]) -> list[float]:
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = COCOeval(coco, coco.loadRes(detections), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return list(evaluation.stats)


def _drawn() -> tuple[ImageBoxesIndex, Found]:
    """Return ground truth and detections of a detector that is sometimes right."""
    random = np.random.RandomState(0)
    records = []
    found: Found = []
    for number in range(1, IMAGES + 1):
        corner = random.rand(OBJECTS, 2) * (500, 350)
        boxes = np.c_[corner, corner + 8 + random.rand(OBJECTS, 2) * 130]
        labels = random.randint(0, CLASSES, OBJECTS)
        records.append(
            ImageBoxes(
                image_id=str(number),
                path=Path(f"{number}.jpg"),
                width=640,
                height=480,
                turn=1,
                boxes_xyxy=boxes,
                labels=labels,
                is_crowd=np.zeros(OBJECTS, dtype=bool),
                areas=np.prod(boxes[:, 2:] - boxes[:, :2], axis=1),
                annotation_ids=[str(OBJECTS * number + i) for i in range(OBJECTS)],
            )
        )
        chosen = random.randint(OBJECTS, size=DETECTIONS)
        moved = boxes[chosen] + random.randn(DETECTIONS, 4) * 6
        moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2] + 1)
        is_right = random.rand(DETECTIONS) < 0.7
        classes = np.where(is_right, labels[chosen], random.randint(0, CLASSES, DETECTIONS))
        found.append((moved, random.rand(DETECTIONS), classes))
    names = [f"class {number}" for number in range(CLASSES)]
    source = ImageBoxesSet(records, names, range(1, CLASSES + 1), [], Path("drawn"))
    return build_index(source), found


def _as_dicts(index: ImageBoxesIndex, found: Found) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the same as pycocotools asks for it."""
    annotations: list[dict[str, Any]] = []
    detections: list[dict[str, Any]] = []
    for number, (record, (boxes, scores, labels)) in enumerate(
        zip(index, found, strict=True), start=1
    ):
        for box, label, area in zip(record.boxes_xyxy, record.labels, record.areas, strict=True):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": int(label) + 1,
                    "bbox": _xywh(box),
                    "area": float(area),
                    "iscrowd": 0,
                }
            )
        for box, score, label in zip(boxes, scores, labels, strict=True):
            detections.append(
                {
                    "image_id": number,
                    "category_id": int(label) + 1,
                    "bbox": _xywh(box),
                    "score": float(score),
                }
            )
    truth = {
        "images": [{"id": number} for number in range(1, IMAGES + 1)],
        "annotations": annotations,
        "categories": [{"id": number} for number in range(1, CLASSES + 1)],
    }
    return truth, detections


def _xywh(box: np.ndarray) -> list[float]:
    x1, y1, x2, y2 = (float(value) for value in box)
    return [x1, y1, x2 - x1, y2 - y1]
