"""COCO matching through faster-coco-eval, fed from arrays; and the matches at one IoU.

The library judges; this module spares it what costs most of the time there: indexing dicts, and
sorting and converting the boxes of each picture and class. N is the number of boxes of a split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from faster_coco_eval import COCOeval_faster
from faster_coco_eval.core import mask

MAX_DETECTIONS = 100  # per picture and class
MATCH_IOU = 0.5
_LARGEST = 1e10  # px^2, COCO's end of the area ranges
SIZES: Mapping[str, tuple[float, float]] = {
    "small": (0.0, 32.0**2),
    "medium": (32.0**2, 96.0**2),
    "large": (96.0**2, _LARGEST),
}
# by width / height and by objects in the picture; both ends belong to a range, as in COCO
ASPECTS = {"tall": (0.0, 2 / 3), "square": (2 / 3, 1.5), "wide": (1.5, _LARGEST)}
CROWDINGS = {"0-3": (0.0, 3.0), "4-10": (4.0, 10.0), "over 10": (11.0, _LARGEST)}


@dataclass(frozen=True)
class BoxTable:
    """Boxes of all pictures, sorted by picture, then class, then falling score (stable).

    Args:
        images: (N,) int64, number of the picture.
        labels: (N,) int64, number of the class.
        boxes_xywh: (N, 4) float64, px.
        areas: (N,) float64, px^2.
        scores: (N,) float64; zeros for objects.
        is_crowd: (N,) bool; false for detections.
    """

    images: np.ndarray
    labels: np.ndarray
    boxes_xywh: np.ndarray
    areas: np.ndarray
    scores: np.ndarray
    is_crowd: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    def take(self, chosen: np.ndarray) -> BoxTable:
        """Return the rows of these numbers, or where this mask is true."""
        return BoxTable(**{name: values[chosen] for name, values in vars(self).items()})

    def sorted(self) -> BoxTable:
        """Return the rows in the order that this class promises."""
        return self.take(np.lexsort((-self.scores, self.labels, self.images)))

    def first_per_pair(self, limit: int) -> BoxTable:
        """Return the first rows of each picture and class; self must be sorted."""
        starts = self._starts()
        rank = np.arange(len(self)) - np.repeat(starts, np.diff(starts, append=len(self)))
        return self if (rank < limit).all() else self.take(rank < limit)

    def pairs(self) -> dict[tuple[int, int], slice]:
        """Return picture and class -> its rows; self must be sorted."""
        starts = self._starts()
        names = zip(self.images[starts].tolist(), self.labels[starts].tolist(), strict=True)
        ends = np.append(starts[1:], len(self)).tolist()
        return dict(zip(names, map(slice, starts.tolist(), ends), strict=True))

    def _starts(self) -> np.ndarray:
        """Return the first row of each picture and class."""
        changes = (np.diff(self.images) != 0) | (np.diff(self.labels) != 0)
        return np.flatnonzero(np.append(len(self) > 0, changes)[: len(self)])


@dataclass(frozen=True)
class Matches:
    """Which detection found which object at `MATCH_IOU`.

    Args:
        objects: (D,) int64, row of the object found, -1 for none.
        ious: (D,) float64, with that object; 0 for none.
        is_ignored: (D,) bool, detections on crowd regions, which count neither way.
    """

    objects: np.ndarray
    ious: np.ndarray
    is_ignored: np.ndarray


class Matching:
    """Objects and detections of a split, and what COCO's rules make of them.

    Args:
        objects: any order.
        detections: any order; equal scores keep it.
        num_images: pictures are numbered from 0 below this.
        num_classes: classes are numbered from 0 below this.
    """

    def __init__(
        self, objects: BoxTable, detections: BoxTable, *, num_images: int, num_classes: int
    ) -> None:
        self.objects = objects.sorted()
        self.detections = detections.sorted().first_per_pair(MAX_DETECTIONS)
        self.num_images = num_images
        self.num_classes = num_classes
        self._object_rows = self.objects.pairs()
        self._detection_rows = self.detections.pairs()

    @cached_property
    def ious(self) -> dict[tuple[int, int], np.ndarray]:
        """Picture and class -> (detections, objects) IoU; over the detection's area for crowds."""
        found = {}
        for pair, rows in self._detection_rows.items():
            if pair in self._object_rows:
                crowd = self.objects.is_crowd[self._object_rows[pair]].astype(np.int32).tolist()
                boxes = self.objects.boxes_xywh[self._object_rows[pair]]
                found[pair] = mask.iou(self.detections.boxes_xywh[rows], boxes, crowd)
        return found

    def evaluate(
        self,
        ranges: Mapping[str, tuple[float, float]],
        *,
        object_values: np.ndarray,
        detection_values: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """Return precision and recall over all boxes and over those of each range.

        Args:
            ranges: name -> least and greatest value; objects outside are ignored, and so are
                detections outside that match nothing.
            object_values: (N,), what the ranges are about; the areas in COCO.
            detection_values: (D,), the same of the detections.

        Returns:
            `precision`, (10 IoUs, 101 recalls, classes, 1 + ranges, 3 limits of detections), and
            `recall`, without the second axis; -1 where there is no object.
        """
        if not self.num_images or not self.num_classes:
            shape = (self.num_classes, 1 + len(ranges), 3)
            return {"precision": np.full((10, 101, *shape), -1.0),
                    "recall": np.full((10, *shape), -1.0)}  # fmt: skip
        judge = _Judge(self, ranges, object_values, detection_values)
        judge.evaluate()
        judge.accumulate()
        return {name: np.asarray(judge.eval[name]) for name in ("precision", "recall")}

    @cached_property
    def matches(self) -> Matches:
        """The matches over all sizes: by falling score, each takes the best object left."""
        rows, objects, ious = self._overlaps()
        on_crowd = self.objects.is_crowd[objects]
        found = Matches(
            objects=np.full(len(self.detections), -1),
            ious=np.zeros(len(self.detections)),
            is_ignored=np.zeros(len(self.detections), np.bool_),
        )
        found.is_ignored[rows[on_crowd]] = True
        rows, objects, ious = rows[~on_crowd], objects[~on_crowd], ious[~on_crowd]
        # of equal IoUs the last object counts, as in COCO
        order = np.lexsort((-objects, -ious, rows))
        taken: set[int] = set()
        matched: dict[int, int] = {}
        for place, row, number in zip(
            order.tolist(), rows[order].tolist(), objects[order].tolist(), strict=True
        ):
            if row not in matched and number not in taken:
                matched[row] = place
                taken.add(number)
        chosen = np.fromiter(matched.values(), np.int64, len(matched))
        found.objects[rows[chosen]] = objects[chosen]
        found.ious[rows[chosen]] = ious[chosen]
        found.is_ignored[rows[chosen]] = False
        return found

    def _overlaps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return detection, object and IoU wherever that is at least `MATCH_IOU`."""
        parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = [
            (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        ]
        for pair, ious in self.ious.items():
            rows, columns = np.nonzero(ious >= MATCH_IOU)
            first, first_object = self._detection_rows[pair].start, self._object_rows[pair].start
            parts.append((rows + first, columns + first_object, ious[rows, columns]))
        rows, objects, ious = (np.concatenate(values) for values in zip(*parts, strict=True))
        return rows, objects, ious


class _Judge(COCOeval_faster):  # type: ignore[misc]
    """faster-coco-eval on a `Matching`, with IoUs that are at hand."""

    def __init__(
        self,
        matching: Matching,
        ranges: Mapping[str, tuple[float, float]],
        object_values: np.ndarray,
        detection_values: np.ndarray,
    ) -> None:
        size = (matching.num_images, matching.num_classes)
        super().__init__(
            _Annotations(matching.objects, object_values, size),
            _Annotations(matching.detections, detection_values, size),
            "bbox",
            ranges={name: list(bounds) for name, bounds in ranges.items()},
            print_function=lambda *_: None,
        )
        self._matching = matching

    def computeIoU(self, imgId: int, catId: int) -> Any:  # noqa: N802, N803 - the library's names
        """Return the (detections, objects) IoU of a picture and class."""
        # as lists, which the library's C++ side reads faster than arrays
        return self._matching.ious[imgId, catId].tolist()


class _Annotations:
    """What faster-coco-eval asks of its COCO objects. Rows are numbered from 1: 0 means none."""

    def __init__(self, table: BoxTable, values: np.ndarray, size: tuple[int, int]) -> None:
        self._size = size
        self.print_function = None
        columns = (table.images, table.labels, table.scores, table.is_crowd, values)
        self._rows = [
            {
                "id": number,
                "image_id": image,
                "category_id": label,
                "score": score,
                "iscrowd": int(crowd),
                "area": value,
            }
            for number, (image, label, score, crowd, value) in enumerate(
                zip(*(column.tolist() for column in columns), strict=True), start=1
            )
        ]

    def getImgIds(self) -> Sequence[int]:  # noqa: N802
        return range(self._size[0])

    def getCatIds(self) -> Sequence[int]:  # noqa: N802
        return range(self._size[1])

    def getAnnIds(self, **_: Any) -> None:  # noqa: N802
        """Return nothing: all pictures and classes are always asked for."""

    def loadAnns(self, ids: None) -> list[dict[str, Any]]:  # noqa: N802
        return self._rows
