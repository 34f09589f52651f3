"""YOLO text labels: reading and writing.

A label file holds one object a line, `class cx cy width height`, in fractions of the upright
picture. It lies where its picture lies, with the last folder called `images` replaced by `labels`.
Which pictures there are comes from `readers/yolo_sources.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

from readers.boxes import Box, RawBox
from readers.checked_boxes import PictureEntry, checked_records
from readers.findings import FindingLog
from readers.pictures import Size
from readers.records import ImageBoxes, ImageBoxesSet
from readers.regular_files import read_regular_text
from readers.yolo_sources import YoloPictures, find_pictures, label_path

COLUMNS = 5
# Fractions end at 1; boxes that run out of the frame a little more. Beyond this they are pixels.
LARGEST_FRACTION = 2.0
# Label tools put these beside the labels.
NO_LABELS = frozenset({"classes.txt", "labels.txt", "obj.names"})


def read_yolo(
    path: Path, *, split: str | None, names: str | Sequence[str] | None, jobs: int = 1
) -> ImageBoxesSet:
    """Return the pictures and boxes of a YOLO data set.

    Args:
        path: a data.yaml, a text file that lists pictures, or a folder of pictures.
        split: entry of the data.yaml; None for a list file or a folder.
        names: class names, or a file with one a line; None: from the data.yaml.
        jobs: threads that look at picture files.

    Raises:
        DatasetError: if there is no such file, split or class list.

    Source: the layout of darknet and ultralytics; the handling of bad rows is docs/data-sets.md.
    """
    pictures = find_pictures(path.absolute(), split=split, names=names)
    findings = FindingLog(path.name)
    for where, message in pictures.remarks:
        findings.warn("class-count-mismatch", where, message, action="`names` is used")
    entries = _entries(pictures, findings)
    return ImageBoxesSet(
        records=checked_records(entries, findings, jobs=jobs),
        class_names=pictures.class_names,
        class_ids=range(len(pictures.class_names)),
        findings=findings,
        source=path,
    )


def write_yolo(
    records: Iterable[ImageBoxes], class_names: Sequence[str], *, folder: Path, split: str
) -> None:
    """Write label files, the list `<split>.txt` and the data.yaml; the pictures are on disk.

    Crowd regions are left out: the format cannot say them.

    Args:
        records: their pictures lie under `folder`, best in a folder called `images`.
        class_names: index -> name.
        folder: gets data.yaml and the list.
        split: `train`, `val` or `test`; entries of other splits in data.yaml stay.
    """
    folder = folder.absolute()
    listed = []
    for record in records:
        target = label_path(record.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        rows = [_row(record, box) for box in range(len(record.labels)) if not record.is_crowd[box]]
        target.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        listed.append(f"./{record.path.relative_to(folder).as_posix()}\n")
    (folder / f"{split}.txt").write_text("".join(listed), encoding="utf-8")
    description = folder / "data.yaml"
    known = yaml.safe_load(description.read_text("utf-8")) if description.exists() else {}
    content = {"path": ".", **known, split: f"{split}.txt", "names": dict(enumerate(class_names))}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    description.write_text(text, encoding="utf-8")


def _row(record: ImageBoxes, box: int) -> str:
    x1, y1, x2, y2 = record.boxes_xyxy[box].tolist()
    centre = (x1 + x2) / 2 / record.width, (y1 + y2) / 2 / record.height
    size = (x2 - x1) / record.width, (y2 - y1) / record.height
    return " ".join([str(int(record.labels[box])), *(f"{value:.12g}" for value in centre + size)])


def _entries(pictures: YoloPictures, findings: FindingLog) -> Iterator[PictureEntry]:
    """Yield one entry per picture; afterwards tell the label files that belong to none."""
    taken: dict[str, Path] = {}
    used: set[Path] = set()
    for path, where in pictures.paths:
        image_id = _image_id(path, pictures.root)
        if taken.get(image_id) == path:
            message = f"{path.name} is listed twice"
            findings.warn("duplicate-image", where, message, action="second one dropped")
            continue
        labels = label_path(path)
        if image_id in taken:
            message = f"{path.name} and {taken[image_id].name} share one label file"
            findings.warn("shared-label-file", where, message, action="both kept")
            image_id = f"{image_id}{path.suffix}"
        taken[image_id] = path
        used.add(labels)
        rows = _LabelFile(labels, pictures.class_names, image_id, findings)
        yield PictureEntry(image_id=image_id, path=path, where=where, size=None, boxes=rows.boxes)
    if pictures.is_complete:
        _note_orphans(used, pictures.root, findings)


def _image_id(path: Path, root: Path) -> str:
    name = path.with_suffix("")
    return name.relative_to(root).as_posix() if name.is_relative_to(root) else name.as_posix()


def _note_orphans(used: set[Path], root: Path, findings: FindingLog) -> None:
    for folder in sorted({path.parent for path in used}):
        for path in sorted(folder.glob("*.txt")):
            if path not in used and path.name not in NO_LABELS:
                where = path.relative_to(root).as_posix() if path.is_relative_to(root) else path
                message = "the label file belongs to no picture"
                findings.warn("labels-without-picture", str(where), message, action="ignored")


@dataclass(frozen=True)
class _LabelFile:
    """One label file, read when its picture's size is known."""

    path: Path
    class_names: Sequence[str]
    image_id: str
    findings: FindingLog
    told: set[str] = field(default_factory=set)

    def boxes(self, size: Size) -> list[RawBox] | None:
        """Return the boxes of all good rows, px, without repeated ones; None without a file."""
        lines = self._lines()
        if lines is None:
            return None
        boxes: dict[tuple[int, Box], RawBox] = {}
        for number, line in enumerate(lines, start=1):
            where = f"{self.path.name}:{number}"
            warn = partial(self.findings.warn, image_id=self.image_id)
            row = self._row(line, where) if line.strip() else None
            if row is None:
                continue
            label, (x1, y1, x2, y2) = row
            box = (x1 * size[0], y1 * size[1], x2 * size[0], y2 * size[1])
            if (label, box) in boxes:
                warn("duplicate-box", where, "repeats an earlier row", action="box dropped")
                continue
            boxes[label, box] = RawBox(box_xyxy=box, label=label, name=where, where=where)
        return list(boxes.values())

    def _lines(self) -> list[str] | None:
        try:
            return read_regular_text(self.path).split("\n")
        except FileNotFoundError:
            code, message, action = "no-label-file", "there is no label file", "taken as background"
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
            code, action = "unreadable-label-file", "taken as background"
        except ValueError as error:  # no UTF-8, or a null byte in the name
            message = f"not UTF-8 text ({getattr(error, 'reason', error)})"
            code, action = "unreadable-label-file", "taken as background"
        self.findings.warn(code, self.path.name, message, action=action, image_id=self.image_id)
        return None

    def _row(self, line: str, where: str) -> tuple[int, Box] | None:
        """Return class and box of one row in fractions, or None with a finding."""
        columns = line.split()
        try:
            values = [float(column) for column in columns]
        except ValueError:
            self._bad_row(where, f"not numbers: {line.strip()[:60]!r}")
            return None
        if len(values) < COLUMNS or (len(values) > COLUMNS + 1 and len(values) % 2 == 0):
            wanted = "5 are needed (6 with a confidence; 1 + 2n for a polygon)"
            self._bad_row(where, f"{len(values)} columns; {wanted}")
            return None
        label = self._label(values[0], where)
        coordinates = values[1:] if len(values) > COLUMNS + 1 else values[1:COLUMNS]
        if any(abs(value) > LARGEST_FRACTION for value in coordinates if math.isfinite(value)):
            message = f"{line.strip()[:60]!r}: pixels? values are fractions of the picture's sides"
            self.findings.fail("not-fractions", where, message, image_id=self.image_id)
            return None
        if label is None:
            return None
        if len(values) > COLUMNS + 1:
            return label, self._polygon_box(coordinates, where)
        if len(values) == COLUMNS + 1:
            self._remark("sixth-column", where, "six columns: a confidence?", "it is ignored")
        cx, cy, width, height = coordinates
        return label, (cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2)

    def _label(self, value: float, where: str) -> int | None:
        if value in range(len(self.class_names)):
            return int(value)
        message = f"class {value:g}; the set has {len(self.class_names)}: 0 to " + str(
            len(self.class_names) - 1
        )
        self.findings.fail("unknown-class", where, message, image_id=self.image_id)
        return None

    def _polygon_box(self, coordinates: Sequence[float], where: str) -> Box:
        self._remark("polygon-row", where, "a polygon instead of a box", "its bounds are used")
        if not all(map(math.isfinite, coordinates)):
            return (math.nan,) * 4
        xs, ys = coordinates[0::2], coordinates[1::2]
        return min(xs), min(ys), max(xs), max(ys)

    def _bad_row(self, where: str, message: str) -> None:
        self.findings.warn("bad-row", where, message, action="row dropped", image_id=self.image_id)

    def _remark(self, code: str, where: str, message: str, action: str) -> None:
        """Tell something that holds for many rows at the first of them."""
        if code not in self.told:
            self.told.add(code)
            self.findings.warn(code, where, message, action=action, image_id=self.image_id)
