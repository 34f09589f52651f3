"""Tiny data sets with drawn pictures, written in the real formats.

Each function returns the data source as it stands in an experiment's YAML, with absolute paths.
Pictures show one to three filled rectangles, whose colour is their class.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from readers.coco import write_coco
from readers.records import ImageBoxes
from readers.voc import write_voc
from readers.yolo import write_yolo

CLASSES = ("red", "green")
COLOURS = ((220, 40, 40), (40, 200, 60), (40, 60, 220), (220, 200, 40))


def build_coco(folder: Path, *, images: int = 6, seed: int = 0, classes=CLASSES) -> dict[str, Any]:
    records = draw_records(folder / "images", images=images, seed=seed, classes=classes)
    annotations = folder / "instances.json"
    write_coco(records, classes, images=folder / "images", annotations=annotations)
    return {"format": "coco", "images": str(folder / "images"), "annotations": str(annotations)}


def build_yolo(
    folder: Path, *, images: int = 6, seed: int = 0, split: str = "train", classes=CLASSES
) -> dict[str, Any]:
    records = draw_records(folder / "images" / split, images=images, seed=seed, classes=classes)
    write_yolo(records, classes, folder=folder, split=split)
    return {"format": "yolo", "path": str(folder / "data.yaml"), "split": split}


def build_voc(
    folder: Path, *, images: int = 6, seed: int = 0, image_set: str = "all", classes=CLASSES
) -> dict[str, Any]:
    records = draw_records(folder / "JPEGImages", images=images, seed=seed, classes=classes)
    write_voc(records, classes, root=folder, image_set=image_set)
    return {"format": "voc", "root": str(folder), "image_set": image_set}


def draw_records(
    folder: Path, *, images: int, seed: int = 0, size=(96, 72), classes=CLASSES
) -> list[ImageBoxes]:
    """Draw pictures `<seed>-000.jpg`, ... into a folder; every class occurs."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.RandomState(seed)
    records = []
    for number in range(images):
        picture, boxes, labels = _scene(rng, size, first=number % len(classes), classes=classes)
        path = folder.absolute() / f"{seed}-{number:03d}.jpg"
        write_picture(path, picture)
        records.append(record_of(path, boxes, labels, size=size, image_id=str(number + 1)))
    return records


def record_of(path, boxes_xyxy, labels, *, size, image_id="1", turn=1, is_crowd=None) -> ImageBoxes:
    boxes = np.asarray(boxes_xyxy, np.float64).reshape(-1, 4)
    return ImageBoxes(
        image_id=image_id,
        path=Path(path),
        width=size[0],
        height=size[1],
        turn=turn,
        boxes_xyxy=boxes,
        labels=np.asarray(labels, np.int64),
        is_crowd=np.zeros(len(boxes), bool) if is_crowd is None else np.asarray(is_crowd, bool),
        areas=(boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]),
        annotation_ids=tuple(map(str, range(len(boxes)))),
    )


def write_picture(path: Path, picture: np.ndarray | None = None) -> Path:
    """Write an (H, W, 3) RGB picture, by default a grey one of 96x72, as the name's ending says."""
    if picture is None:
        picture = np.full((72, 96, 3), 127, np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    _, encoded = cv2.imencode(path.suffix, cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    path.write_bytes(encoded.tobytes())
    return path


def _scene(rng, size, *, first: int, classes):
    width, height = size
    picture = rng.randint(90, 140, (height, width, 3)).astype(np.uint8)
    boxes, labels = [], []
    for number in range(rng.randint(1, 4)):
        x1, y1 = rng.randint(0, width // 2), rng.randint(0, height // 2)
        x2, y2 = x1 + rng.randint(10, width // 2), y1 + rng.randint(10, height // 2)
        label = (first + number) % len(classes)
        picture[y1:y2, x1:x2] = COLOURS[label % len(COLOURS)]
        boxes.append((x1, y1, x2, y2))
        labels.append(label)
    return picture, boxes, labels
