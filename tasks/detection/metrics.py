"""COCO evaluation of boxes: twelve numbers, and tables by class, picture and kind of object.

K is the number of classes, N of pictures. Numbers that have no object to be about are NaN.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.index import ImageBoxesIndex
from tasks.detection.matching import ASPECTS, CROWDINGS, SIZES, BoxTable, Matching

_IOUS = {"50": 0, "75": 5}  # place among the ten IoU thresholds
_SIZE_NUMBERS = {name: number for number, name in enumerate(SIZES, start=1)}
_NO_THRESHOLD = 0.5  # where no score is the best one: nothing was found

Columns = dict[str, Sequence[Any]]


@dataclass(frozen=True)
class CocoResult:
    """What an evaluation says.

    Args:
        stats: COCO's twelve numbers: mAP, mAP_50, mAP_75, mAP_small, mAP_medium, mAP_large, AR_1,
            AR_10, AR_100, AR_small, AR_medium, AR_large.
        score_threshold: the score from which on precision and recall over all classes, at IoU
            0.5, balance best (greatest F1); `per_image`, precision and recall count from there.
        per_class: columns of K rows: class, AP, AP_50, AP_75, AR_100, objects, detections,
            precision, recall.
        per_image: columns of N rows, in the order of the pictures: image_id, objects, detections,
            true_positives, false_positives, misses, mean_iou (of the true positives) and quality
            (the picture's F1; 1 where there is nothing and nothing was detected).
        curves: `recall`, (101,); `precision_50` and `precision_75`, (K, 101); `mean_50` and
            `mean_75`, (101,), over the classes that have objects.
        slices: `size` (and `crowding`, `aspect` when asked for) -> columns slice, objects, AP,
            AP_50, AR_100.
    """

    stats: dict[str, float]
    score_threshold: float
    per_class: Columns
    per_image: Columns
    curves: dict[str, np.ndarray]
    slices: dict[str, Columns]


class CocoEvaluator:
    """Collects detections and scores them against an index.

    The ground truth is read once, when it is made; neither it nor what is added is changed.

    Args:
        index: the split; crowd boxes in it count neither way.
    """

    def __init__(self, index: ImageBoxesIndex) -> None:
        self._class_names = tuple(index.class_names)
        self._objects, self._image_ids = _objects_of(index)
        self._numbers = {image_id: number for number, image_id in enumerate(self._image_ids)}
        self._detections: dict[int, BoxTable] = {}

    def add(
        self, image_id: str, boxes_xyxy: np.ndarray, scores: np.ndarray, labels: np.ndarray
    ) -> None:
        """Take the detections of one picture; of a picture that was added before, nothing.

        Args:
            image_id: of the index.
            boxes_xyxy: (D, 4), px of the upright picture.
            scores: (D,).
            labels: (D,), index into the class names, from 0.

        Raises:
            ValueError: if the index has no such picture, or a number is not finite.
        """
        if image_id not in self._numbers:
            raise ValueError(f"the evaluated split has no picture with the id {image_id!r}")
        number = self._numbers[image_id]
        # ranks may be padded with repeated pictures
        if number in self._detections:
            return
        boxes = np.array(boxes_xyxy, np.float64).reshape(-1, 4)
        if not (np.isfinite(boxes).all() and np.isfinite(scores).all()):
            raise ValueError(f"the detections of {image_id!r} hold a number that is not finite")
        boxes[:, 2:] -= boxes[:, :2]
        self._detections[number] = _detection_table(
            np.full(len(boxes), number), labels, boxes, scores
        )

    def compute(self, *, slices: Sequence[str] = ("size",)) -> CocoResult:
        """Return the result over all pictures; those that were not added have no detections.

        Args:
            slices: of `size`, `crowding` and `aspect`; the last two cost another pass each.
        """
        added = [self._detections[number] for number in sorted(self._detections)]
        matching = Matching(
            self._objects,
            _joined([_detection_table([], [], np.zeros((0, 4)), []), *added]),
            num_images=len(self._image_ids),
            num_classes=len(self._class_names),
        )
        return _result(matching, self._class_names, self._image_ids, slices)


def coco_stats(
    gt: Mapping[str, Any], dt: Sequence[Mapping[str, Any]], *, slices: Sequence[str] = ("size",)
) -> CocoResult:
    """Score detections in COCO's results format against an instances JSON's content.

    Args:
        gt: with `images`, `annotations` and `categories`.
        dt: dicts with image_id, category_id, bbox (xywh, px) and score; may be empty. Those of
            a category that `gt` lacks are left out, as by COCO.
        slices: as in `CocoEvaluator.compute`.

    Raises:
        ValueError: if a detection is of a picture that `gt` lacks.
    """
    images = {key: number for number, key in enumerate(sorted(i["id"] for i in gt["images"]))}
    classes = {c["id"]: c["name"] for c in sorted(gt["categories"], key=lambda c: c["id"])}
    labels = {key: number for number, key in enumerate(classes)}
    strangers = {d["image_id"] for d in dt} - images.keys()
    if strangers:
        raise ValueError(
            f"detections of a picture without ground truth: image_id {strangers.pop()}"
        )

    known = [a for a in gt["annotations"] if a["image_id"] in images and a["category_id"] in labels]
    objects = BoxTable(
        images=np.array([images[a["image_id"]] for a in known], np.int64),
        labels=np.array([labels[a["category_id"]] for a in known], np.int64),
        boxes_xywh=np.array([a["bbox"] for a in known], np.float64).reshape(-1, 4),
        areas=np.array([a["area"] for a in known], np.float64),
        scores=np.zeros(len(known)),
        is_crowd=np.array([a.get("iscrowd", 0) for a in known], np.bool_),
    )
    kept = [d for d in dt if d["category_id"] in labels]
    detections = _detection_table(
        [images[d["image_id"]] for d in kept],
        [labels[d["category_id"]] for d in kept],
        np.array([d["bbox"] for d in kept], np.float64).reshape(-1, 4),
        [d["score"] for d in kept],
    )
    matching = Matching(objects, detections, num_images=len(images), num_classes=len(classes))
    return _result(matching, tuple(classes.values()), tuple(images), slices)


def _objects_of(index: ImageBoxesIndex) -> tuple[BoxTable, tuple[str, ...]]:
    image_ids: list[str] = []
    tables = [_detection_table([], [], np.zeros((0, 4)), [])]
    for number, record in enumerate(index):
        image_ids.append(record.image_id)
        boxes = np.array(record.boxes_xyxy)
        boxes[:, 2:] -= boxes[:, :2]
        table = _detection_table(
            np.full(len(boxes), number), record.labels, boxes, np.zeros(len(boxes))
        )
        tables.append(
            dataclasses.replace(
                table, areas=np.array(record.areas), is_crowd=np.array(record.is_crowd)
            )
        )
    return _joined(tables), tuple(image_ids)


def _detection_table(images: Any, labels: Any, boxes_xywh: np.ndarray, scores: Any) -> BoxTable:
    return BoxTable(
        images=np.array(images, np.int64),
        labels=np.array(labels, np.int64),
        boxes_xywh=boxes_xywh,
        areas=boxes_xywh[:, 2] * boxes_xywh[:, 3],
        scores=np.array(scores, np.float64),
        is_crowd=np.zeros(len(boxes_xywh), np.bool_),
    )


def _joined(tables: Sequence[BoxTable]) -> BoxTable:
    names = [field.name for field in dataclasses.fields(BoxTable)]
    return BoxTable(**{n: np.concatenate([getattr(t, n) for t in tables]) for n in names})


def _result(
    matching: Matching,
    class_names: Sequence[str],
    image_ids: Sequence[Any],
    slices: Sequence[str],
) -> CocoResult:
    scored = matching.evaluate(
        SIZES,
        object_values=matching.objects.areas,
        detection_values=matching.detections.areas,
    )
    threshold = _best_threshold(matching)
    return CocoResult(
        stats=_stats(scored),
        score_threshold=threshold,
        per_class=_per_class(matching, scored, class_names, threshold),
        per_image=_per_image(matching, image_ids, threshold),
        curves=_curves(scored["precision"]),
        slices={name: _slice_table(name, matching, scored) for name in slices},
    )


def _stats(scored: Mapping[str, np.ndarray]) -> dict[str, float]:
    precision, recall = scored["precision"][..., -1], scored["recall"]
    stats = {"mAP": _mean(precision[..., 0])}
    stats |= {f"mAP_{iou}": _mean(precision[place, ..., 0]) for iou, place in _IOUS.items()}
    stats |= {f"mAP_{name}": _mean(precision[..., place]) for name, place in _SIZE_NUMBERS.items()}
    stats |= {f"AR_{limit}": _mean(recall[..., 0, k]) for k, limit in enumerate((1, 10, 100))}
    stats |= {f"AR_{name}": _mean(recall[..., place, -1]) for name, place in _SIZE_NUMBERS.items()}
    return stats


def _mean(values: np.ndarray) -> float:
    """Average over what is defined; COCO marks the rest by -1."""
    defined = values[values > -1]
    return float(defined.mean()) if defined.size else float("nan")


def _best_threshold(matching: Matching) -> float:
    """Return the score at which F1 over all classes and pictures is greatest."""
    counted = ~matching.matches.is_ignored
    scores = matching.detections.scores[counted]
    order = np.argsort(-scores, kind="stable")
    scores = scores[order]
    found = np.cumsum(matching.matches.objects[counted][order] >= 0)
    if not found.size or not found[-1]:
        return _NO_THRESHOLD
    f1 = 2 * found / (np.arange(1, len(found) + 1) + (~matching.objects.is_crowd).sum())
    # a threshold takes all of equal scores
    f1[:-1][scores[:-1] == scores[1:]] = 0
    return float(scores[f1.argmax()])


def _per_class(
    matching: Matching,
    scored: Mapping[str, np.ndarray],
    class_names: Sequence[str],
    threshold: float,
) -> Columns:
    precision, recall = scored["precision"][..., 0, -1], scored["recall"][..., 0, -1]
    classes = range(len(class_names))
    counts = _counts(matching, threshold, by="labels", size=len(class_names))
    with np.errstate(invalid="ignore", divide="ignore"):
        positives = counts["true_positives"] + counts["false_positives"]
        right = counts["true_positives"] / positives
        found = counts["true_positives"] / counts["objects"]
    return {
        "class": list(class_names),
        "AP": [_mean(precision[..., k]) for k in classes],
        "AP_50": [_mean(precision[_IOUS["50"], :, k]) for k in classes],
        "AP_75": [_mean(precision[_IOUS["75"], :, k]) for k in classes],
        "AR_100": [_mean(recall[:, k]) for k in classes],
        "objects": counts["objects"].tolist(),
        "detections": counts["detections"].tolist(),
        "precision": right.tolist(),
        "recall": found.tolist(),
    }


def _per_image(matching: Matching, image_ids: Sequence[Any], threshold: float) -> Columns:
    counts = _counts(matching, threshold, by="images", size=len(image_ids))
    right, wrong = counts["true_positives"], counts["false_positives"]
    missed = counts["objects"] - right
    with np.errstate(invalid="ignore"):
        f1 = 2 * right / (2 * right + wrong + missed)
        mean_iou = counts["ious"] / right
    return {
        "image_id": list(image_ids),
        **{name: counts[name].tolist() for name in ("objects", "detections")},
        "true_positives": right.tolist(),
        "false_positives": wrong.tolist(),
        "misses": missed.tolist(),
        "mean_iou": mean_iou.tolist(),
        "quality": np.where(np.isnan(f1), 1.0, f1).tolist(),
    }


def _counts(matching: Matching, threshold: float, *, by: str, size: int) -> dict[str, np.ndarray]:
    """Count objects and the detections from the threshold on, by picture or by class."""
    chosen = matching.detections.scores >= threshold
    found = matching.matches.objects >= 0
    keys = getattr(matching.detections, by)
    object_keys = getattr(matching.objects, by)[~matching.objects.is_crowd]

    def count(where: np.ndarray) -> np.ndarray:
        return np.bincount(keys[where], minlength=size)

    right = chosen & found
    return {
        "objects": np.bincount(object_keys, minlength=size),
        "detections": count(chosen),
        "true_positives": count(right),
        "false_positives": count(chosen & ~found & ~matching.matches.is_ignored),
        "ious": np.bincount(keys[right], weights=matching.matches.ious[right], minlength=size),
    }


def _curves(precision: np.ndarray) -> dict[str, np.ndarray]:
    curves = {"recall": np.linspace(0, 1, precision.shape[1])}
    for iou, place in _IOUS.items():
        by_class = precision[place, :, :, 0, -1].T
        by_class = np.where(by_class > -1, by_class, np.nan)
        has_objects = ~np.isnan(by_class).all(axis=1)
        empty = np.full(precision.shape[1], np.nan)
        curves[f"precision_{iou}"] = by_class
        curves[f"mean_{iou}"] = by_class[has_objects].mean(axis=0) if has_objects.any() else empty
    return curves


def _slice_table(name: str, matching: Matching, scored: Mapping[str, np.ndarray]) -> Columns:
    """Score the parts of the objects that differ in one respect."""
    if name == "size":
        ranges, values = SIZES, matching.objects.areas
    else:
        ranges = {"aspect": ASPECTS, "crowding": CROWDINGS}[name]
        measure = {"aspect": _aspects, "crowding": _crowdings}[name]
        values = measure(matching, matching.objects)
        scored = matching.evaluate(
            ranges,
            object_values=values,
            detection_values=measure(matching, matching.detections),
        )
    values = values[~matching.objects.is_crowd]
    precision, recall = scored["precision"][..., -1], scored["recall"][..., -1]
    places = range(1, len(ranges) + 1)
    return {
        "slice": list(ranges),
        "objects": [int(((values >= a) & (values <= b)).sum()) for a, b in ranges.values()],
        "AP": [_mean(precision[..., k]) for k in places],
        "AP_50": [_mean(precision[_IOUS["50"], ..., k]) for k in places],
        "AR_100": [_mean(recall[..., k]) for k in places],
    }


def _aspects(matching: Matching, table: BoxTable) -> np.ndarray:
    """Width / height of each box."""
    return table.boxes_xywh[:, 2] / np.maximum(table.boxes_xywh[:, 3], 1e-9)


def _crowdings(matching: Matching, table: BoxTable) -> np.ndarray:
    """Number of objects in the picture that each box is in."""
    images = matching.objects.images[~matching.objects.is_crowd]
    return np.bincount(images, minlength=matching.num_images)[table.images].astype(np.float64)
