"""COCO instances JSON: reading and writing.

Category ids have gaps (1 to 90 for 80 classes); here labels count from 0 in the order of the ids,
and `class_ids` leads back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from readers.boxes import Box, RawBox
from readers.checked_boxes import PictureEntry, checked_records
from readers.findings import FindingLog
from readers.pictures import Size
from readers.records import DatasetError, ImageBoxes, ImageBoxesSet
from readers.text_files import load_json

Annotation = Mapping[str, Any]


def read_coco(images: Path, annotations: Path, *, jobs: int = 1) -> ImageBoxesSet:
    """Return the pictures and boxes of a COCO instances file.

    Args:
        images: folder that `file_name` counts from.
        annotations: the JSON; a byte order mark and any line ends are fine.
        jobs: threads that look at picture files.

    Raises:
        DatasetError: if the file is no COCO JSON or the folder does not exist.

    Source: cocodataset.org, "Data format"; the handling of bad entries is docs/data-sets.md.
    """
    images, annotations = images.absolute(), annotations.absolute()
    content = _load(annotations)
    if not images.is_dir():
        raise DatasetError(f"{images}: no such folder (pictures of {annotations.name})")
    class_names, class_ids = _classes(content["categories"], annotations)
    findings = FindingLog(annotations.name)
    reading = _Reading(
        images, annotations.name, {key: index for index, key in enumerate(class_ids)}, findings
    )
    entries = reading.entries(content["images"], content["annotations"])
    return ImageBoxesSet(
        records=checked_records(entries, findings, jobs=jobs),
        class_names=class_names,
        class_ids=class_ids,
        findings=findings,
        source=annotations,
    )


def write_coco(
    records: Iterable[ImageBoxes],
    class_names: Sequence[str],
    *,
    images: Path,
    annotations: Path,
    class_ids: Sequence[int] | None = None,
) -> None:
    """Write records as COCO instances JSON; the pictures are already on disk.

    Args:
        records: where all image ids are numbers they stay, else pictures are numbered from 1.
        class_names: index -> name.
        images: folder that `file_name` counts from; pictures elsewhere get absolute names.
        annotations: file to write; its folder is made.
        class_ids: index -> category id; None counts from 1.
    """
    class_ids = class_ids or range(1, len(class_names) + 1)
    records = list(records)
    keeps_ids = all(record.image_id.isdecimal() for record in records)
    content: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": []}
    for number, record in enumerate(records, start=1):
        image_id = int(record.image_id) if keeps_ids else number
        content["images"].append(
            {
                "id": image_id,
                "file_name": _relative(record.path, images.absolute()),
                "width": record.width,
                "height": record.height,
            }
        )
        for box in _annotations_of(record, class_ids):
            count = len(content["annotations"]) + 1
            content["annotations"].append({"id": count, "image_id": image_id, **box})
    content["categories"] = [
        {"id": key, "name": name} for key, name in zip(class_ids, class_names, strict=True)
    ]
    annotations.parent.mkdir(parents=True, exist_ok=True)
    annotations.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _annotations_of(record: ImageBoxes, class_ids: Sequence[int]) -> Iterator[dict[str, Any]]:
    for box, label, is_crowd, area in zip(
        record.boxes_xyxy.tolist(),
        record.labels.tolist(),
        record.is_crowd.tolist(),
        record.areas.tolist(),
        strict=True,
    ):
        yield {
            "category_id": class_ids[label],
            "bbox": [box[0], box[1], box[2] - box[0], box[3] - box[1]],
            "area": area,
            "iscrowd": int(is_crowd),
        }


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


def _load(path: Path) -> dict[str, Any]:
    content = load_json(path)
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise DatasetError(
            f"{path}: holds a {kind}; COCO instances are an object with images, annotations and "
            "categories (a list is a results file)"
        )
    for key in ("images", "annotations", "categories"):
        entries = content.get(key)
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise DatasetError(f"{path}: `{key}` must be a list of objects")
    return content


def _classes(categories: Sequence[Mapping], path: Path) -> tuple[list[str], list[int]]:
    """Return names and ids in the order of the ids."""
    names: dict[int, str] = {}
    for category in categories:
        key, name = category.get("id"), category.get("name")
        if not isinstance(key, int) or not isinstance(name, str):
            raise DatasetError(
                f"{path}: category {dict(category)} needs a whole number `id` and a text `name`"
            )
        if key in names or name in names.values():
            raise DatasetError(f"{path}: category {key} ({name!r}) repeats an id or a name")
        names[key] = name
    if not names:
        raise DatasetError(f"{path}: `categories` is empty")
    ids = sorted(names)
    return [names[key] for key in ids], ids


@dataclass(frozen=True)
class _Reading:
    """What the entries of one file are read against."""

    images: Path
    file: str
    labels: Mapping[int, int]
    findings: FindingLog

    def entries(
        self, images: Sequence[Mapping], annotations: Sequence[Annotation]
    ) -> Iterator[PictureEntry]:
        """Yield one entry per picture of the file, in its order."""
        unique = self._unique_images(images)
        of_image = self._group(annotations, unique)
        for key, image in unique.items():
            name = str(image["file_name"]).replace("\\", "/")  # some exporters run on Windows
            yield PictureEntry(
                image_id=str(key),
                path=self.images / name,
                where=f"{self.file}: image {key}",
                size=_size(image),
                boxes=partial(self._boxes, of_image.pop(key, ())),
            )

    def _unique_images(self, images: Sequence[Mapping]) -> dict[Any, Mapping]:
        unique: dict[Any, Mapping] = {}
        for position, image in enumerate(images):
            key, name = image.get("id"), image.get("file_name")
            if not isinstance(key, int | str) or not isinstance(name, str) or not name:
                raise DatasetError(
                    f"{self.file}: entry {position} of `images` needs an `id` and a `file_name`"
                )
            if key not in unique:
                unique[key] = image
                continue
            where, first = f"{self.file}: image {key}", unique[key]["file_name"]
            if first == name:
                message = f"{name} is listed twice"
                self.findings.warn("duplicate-image", where, message, action="second one dropped")
            else:
                message = f"the id names two files, {first} and {name}"
                self.findings.fail("duplicate-image-id", where, message)
        return unique

    def _group(
        self, annotations: Sequence[Annotation], images: Mapping[Any, Mapping]
    ) -> dict[Any, list[Annotation]]:
        """Return the annotations of each image id, without those that cannot belong anywhere."""
        groups: dict[Any, list[Annotation]] = {}
        first_boxes: dict[Any, tuple] = {}
        for annotation in annotations:
            key, image = annotation.get("id"), annotation.get("image_id")
            where = f"{self.file}: annotation {key}"
            if not isinstance(image, int | str) or image not in images:
                message = f"image id {image!r} is not in `images`"
                self.findings.warn("unknown-image-id", where, message, action="box dropped")
                continue
            box = (image, annotation.get("category_id"), annotation.get("bbox"))
            first = None
            if isinstance(key, int | str):
                first = first_boxes.get(key)
                first_boxes.setdefault(key, box)
            if first == box:
                message = "the same id and box come twice"
                self.findings.warn("duplicate-annotation", where, message, action="second dropped")
                continue
            if first is not None:
                message = "the id belongs to another box as well"
                self.findings.warn("duplicate-annotation-id", where, message, action="both kept")
            groups.setdefault(image, []).append(annotation)
        return groups

    def _boxes(self, annotations: Sequence[Annotation], size: Size) -> list[RawBox]:
        boxes = (self._box(annotation) for annotation in annotations)
        return [box for box in boxes if box is not None]

    def _box(self, annotation: Annotation) -> RawBox | None:
        name = str(annotation.get("id"))
        where, image_id = f"{self.file}: annotation {name}", str(annotation["image_id"])
        category, box = annotation.get("category_id"), _box_xyxy(annotation.get("bbox"))
        if not isinstance(category, int) or category not in self.labels:
            message = f"category id {category!r} is not in `categories`"
            self.findings.fail("unknown-category", where, message, image_id=image_id, box_xyxy=box)
            return None
        if box is None:
            message = f"bbox is {annotation.get('bbox')!r}, not four numbers x, y, width, height"
            self.findings.warn("bad-bbox", where, message, action="box dropped", image_id=image_id)
            return None
        missing = [key for key in ("iscrowd", "area") if annotation.get(key) is None]
        if missing:
            self.findings.warn(
                "missing-keys",
                where,
                f"no {' and no '.join(missing)}",
                action="iscrowd is taken as 0, area as width times height",
                image_id=image_id,
            )
        area = annotation.get("area")
        return RawBox(
            box_xyxy=box,
            label=self.labels[category],
            name=name,
            where=where,
            is_crowd=bool(annotation.get("iscrowd")),
            area=_number(area) if isinstance(area, int | float) else None,
        )


def _size(image: Mapping) -> Size | None:
    width, height = image.get("width"), image.get("height")
    if not isinstance(width, int | float) or not isinstance(height, int | float):
        return None
    sides = _number(width), _number(height)
    return (int(sides[0]), int(sides[1])) if all(map(math.isfinite, sides)) and all(sides) else None


def _number(value: float) -> float:
    """Return a number of the file; a whole one beyond the range of floats becomes infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _box_xyxy(bbox: Any) -> Box | None:
    if not isinstance(bbox, list) or len(bbox) != 4:
        return None
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in bbox):
        return None
    x, y, width, height = map(_number, bbox)
    return x, y, x + width, y + height
