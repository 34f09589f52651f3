"""Pascal VOC: reading and writing.

A set is a folder with JPEGImages, Annotations (one XML a picture) and ImageSets/Main (lists of
names). VOC counts pixels from 1 and its boxes hold their last pixel: `xmin` is one more than the
left edge, and `xmax` is the right edge, end exclusive.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.sax.saxutils import escape

from readers.boxes import Box, RawBox
from readers.checked_boxes import PictureEntry, checked_records
from readers.findings import FindingLog
from readers.images import IMAGE_ENDINGS
from readers.pictures import Size
from readers.records import DatasetError, ImageBoxes, ImageBoxesSet
from readers.voc_xml import VocAnnotation, VocObject, parse_annotation

# A list of one class has a second column that says whether the picture shows it.
LISTED = re.compile(r"\s+-?[01]$")


def read_voc(
    root: Path, image_set: str, *, classes: Sequence[str] | None, jobs: int = 1
) -> ImageBoxesSet:
    """Return the pictures and boxes of a Pascal VOC set.

    Args:
        root: folder with JPEGImages, Annotations and ImageSets/Main.
        image_set: name of the list in ImageSets/Main, without `.txt`.
        classes: class names in order; None takes every name in the labels, sorted.
        jobs: threads that look at picture files.

    Raises:
        DatasetError: if a folder or the list is missing, or no label names a class.

    Source: host.robots.ox.ac.uk/pascal/VOC, development kit. Unlike torchvision's reference,
    which takes the numbers as they are, corners are moved to edges that count from 0.
    """
    root = root.absolute()
    names = _listed(root, image_set)
    findings = FindingLog(f"ImageSets/Main/{image_set}.txt")
    parsed = {name: _parse(root / "Annotations" / f"{name}.xml", findings) for name, _ in names}
    class_names = list(classes) if classes is not None else _names_in(parsed.values(), root)
    reading = _Reading(root, {name: index for index, name in enumerate(class_names)}, findings)
    return ImageBoxesSet(
        records=checked_records(reading.entries(names, parsed), findings, jobs=jobs),
        class_names=class_names,
        class_ids=range(len(class_names)),
        findings=findings,
        source=root / "ImageSets" / "Main" / f"{image_set}.txt",
    )


def write_voc(
    records: Iterable[ImageBoxes], class_names: Sequence[str], *, root: Path, image_set: str
) -> None:
    """Write XML labels and a list; the pictures are already in `root`/JPEGImages.

    Edges that are no whole pixels are written with their fraction.

    Args:
        records: pictures with boxes; crowd regions become difficult objects.
        class_names: index -> name.
        root: folder of the set.
        image_set: name of the list, without `.txt`.
    """
    folder, lists = root / "Annotations", root / "ImageSets" / "Main"
    folder.mkdir(parents=True, exist_ok=True)
    lists.mkdir(parents=True, exist_ok=True)
    names = []
    for record in records:
        names.append(f"{record.path.stem}\n")
        target = folder / f"{record.path.stem}.xml"
        target.write_text(_xml(record, class_names), encoding="utf-8")
    (lists / f"{image_set}.txt").write_text("".join(names), encoding="utf-8")


def _xml(record: ImageBoxes, class_names: Sequence[str]) -> str:
    lines = [
        "<annotation>",
        f"  <filename>{escape(record.path.name)}</filename>",
        f"  <size><width>{record.width}</width><height>{record.height}</height>"
        "<depth>3</depth></size>",
    ]
    for box, label, is_crowd in zip(
        record.boxes_xyxy.tolist(), record.labels.tolist(), record.is_crowd.tolist(), strict=True
    ):
        corners = zip(
            ("xmin", "ymin", "xmax", "ymax"), (box[0] + 1, box[1] + 1, box[2], box[3]), strict=True
        )
        inside = "".join(f"<{key}>{value:.12g}</{key}>" for key, value in corners)
        lines += [
            f"  <object><name>{escape(class_names[label])}</name>"
            f"<difficult>{int(is_crowd)}</difficult><bndbox>{inside}</bndbox></object>"
        ]
    return "\n".join([*lines, "</annotation>", ""])


def _listed(root: Path, image_set: str) -> list[tuple[str, str]]:
    """Return each picture's name and where it is listed, once."""
    folder = root / "ImageSets" / "Main"
    path = folder / f"{image_set}.txt"
    if not path.is_file():
        known = sorted(entry.stem for entry in folder.glob("*.txt"))
        near = difflib.get_close_matches(image_set, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise DatasetError(f"{path}: no such list; there are {', '.join(known) or 'none'}{hint}")
    names: dict[str, str] = {}
    lines = path.read_text(encoding="utf-8-sig", errors="replace").split("\n")
    for number, line in enumerate(lines, start=1):
        name = line.strip()
        # names may hold blanks, or be anything where the file is no list
        if not os.path.exists(root / "Annotations" / f"{name}.xml"):  # noqa: PTH110
            name = LISTED.sub("", name)
        if Path(name).suffix.lower() in IMAGE_ENDINGS:
            name = str(Path(name).with_suffix(""))
        if name:
            names.setdefault(name, f"{path.name}:{number}")
    if not names:
        raise DatasetError(f"{path}: lists no picture")
    return list(names.items())


def _parse(path: Path, findings: FindingLog) -> VocAnnotation | None:
    action = "picture dropped"
    try:
        return parse_annotation(path)
    except FileNotFoundError:
        findings.warn("no-label-file", path.name, "there is no such XML file", action=action)
    except DatasetError as error:
        findings.warn("broken-label-file", path.name, str(error), action=action)
    return None


def _names_in(annotations: Iterable[VocAnnotation | None], root: Path) -> list[str]:
    found = {item.name for labels in annotations if labels for item in labels.objects} - {""}
    if not found:
        raise DatasetError(f"{root}: no object in Annotations has a name")
    return sorted(found)


@dataclass(frozen=True)
class _Reading:
    """What the XML files of one set are read against."""

    root: Path
    labels: Mapping[str, int]
    findings: FindingLog

    def entries(
        self,
        names: Sequence[tuple[str, str]],
        annotations: Mapping[str, VocAnnotation | None],
    ) -> Iterator[PictureEntry]:
        """Yield one entry per listed picture."""
        folder = self.root / "JPEGImages"
        files = {path.stem: path for path in sorted(folder.glob("*"), reverse=True)}
        for name, where in names:
            labels = annotations[name]
            path = files.get(name, folder / f"{name}.jpg")
            if labels is None:  # `_parse` has told why
                yield PictureEntry(name, path, where, None, lambda _: (), is_lost=True)
                continue
            if labels.filename and Path(labels.filename).stem != name:
                self.findings.warn(
                    "filename-mismatch",
                    f"{name}.xml",
                    f"<filename> is {labels.filename}",
                    action=f"{path.name} is used",
                    image_id=name,
                )
            boxes = partial(self._boxes, name, labels.objects)
            yield PictureEntry(name, path, where, labels.size, boxes)

    def _boxes(self, name: str, objects: Sequence[VocObject], size: Size) -> list[RawBox]:
        boxes = []
        for number, item in enumerate(objects, start=1):
            where = f"{name}.xml:{item.line}"
            if item.name not in self.labels:
                near = difflib.get_close_matches(item.name, list(self.labels), n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                known = ", ".join(self.labels)
                message = f"class {item.name!r} is not one of {known}{hint}"
                self.findings.fail("unknown-class", where, message, image_id=name)
            elif item.corners is None:
                message = "an object without a whole <bndbox>"
                action = "box dropped"
                self.findings.warn("bad-bbox", where, message, action=action, image_id=name)
            else:
                boxes.append(
                    RawBox(
                        box_xyxy=edges(item.corners),
                        label=self.labels[item.name],
                        name=f"{name}#{number}",
                        where=where,
                        is_crowd=item.is_difficult,
                    )
                )
        return boxes


def edges(corners: Box) -> Box:
    """Return edges that count from 0, end exclusive, of corners that count from 1, inclusive.

    A box whose corners coincide is no object of one pixel but a click that slipped: its edges
    coincide too, so that it is found to have no area.
    """
    xmin, ymin, xmax, ymax = corners
    return (
        xmin - 1,
        ymin - 1,
        xmax if xmax > xmin else xmax - 1,
        ymax if ymax > ymin else ymax - 1,
    )
