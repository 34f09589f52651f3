"""Our COCO evaluation against pycocotools, on drawn ground truth and detections."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np

from benchmarks.pairs import Ratio, median_ratio, paired_seconds
from tasks.detection.metrics import coco_stats

IMAGES, CLASSES, OBJECTS, DETECTIONS = 400, 20, 8, 100


def measure() -> list[Ratio]:
    """Return pycocotools' time over ours; both must give the same twelve numbers to 1e-9."""
    truth, detections = _drawn()
    ours = list(coco_stats(truth, detections).stats.values())
    theirs = _pycocotools(truth, detections)
    difference = max(abs(a - b) for a, b in zip(ours, theirs, strict=True) if b > -1)
    pairs = paired_seconds(
        lambda: coco_stats(truth, detections), lambda: _pycocotools(truth, detections)
    )
    ratio, low, high = median_ratio(pairs, inverse=True)
    detail = f"ours {min(o for o, _ in pairs):.2f} s, numbers differ by {difference:.0e} at most"
    met = ratio >= 8 and difference <= 1e-9
    return [
        Ratio("COCO evaluation", ratio, (low, high), "x pycocotools' speed", ">= 8", met, detail)
    ]


def _pycocotools(truth: dict[str, Any], detections: list[dict[str, Any]]) -> list[float]:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = truth
        coco.createIndex()
        evaluation = COCOeval(coco, coco.loadRes(detections), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return list(evaluation.stats)


def _drawn() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return ground truth and detections of a detector that is sometimes right."""
    random = np.random.RandomState(0)
    images = [{"id": i + 1, "width": 640, "height": 480} for i in range(IMAGES)]
    annotations: list[dict[str, Any]] = []
    detections: list[dict[str, Any]] = []
    for image in images:
        boxes = np.c_[random.rand(OBJECTS, 2) * (500, 350), 8 + random.rand(OBJECTS, 2) * 130]
        labels = random.randint(1, CLASSES + 1, OBJECTS)
        for box, label in zip(boxes, labels, strict=True):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image["id"],
                    "category_id": int(label),
                    "bbox": [float(v) for v in box],
                    "area": float(box[2] * box[3]),
                    "iscrowd": 0,
                }
            )
        chosen = random.randint(OBJECTS, size=DETECTIONS)
        moved = boxes[chosen] + random.randn(DETECTIONS, 4) * 6
        moved[:, 2:] = np.maximum(moved[:, 2:], 1)
        right = random.rand(DETECTIONS) < 0.7
        found = np.where(right, labels[chosen], random.randint(1, CLASSES + 1, DETECTIONS))
        for box, label, score in zip(moved, found, random.rand(DETECTIONS), strict=True):
            detections.append(
                {
                    "image_id": image["id"],
                    "category_id": int(label),
                    "bbox": [float(v) for v in box],
                    "score": float(score),
                }
            )
    categories = [{"id": i, "name": f"class {i}"} for i in range(1, CLASSES + 1)]
    truth = {"images": images, "annotations": annotations, "categories": categories}
    return truth, detections
