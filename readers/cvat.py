"""CVAT: reading `CVAT for images 1.1`. One XML file for all pictures; its polylines are lanes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from readers.checked_lanes import LaneEntry, checked_lanes
from readers.findings import FindingLog
from readers.lane_records import ImageLanesSet
from readers.lanes import LaneCleaner, RawLane
from readers.pictures import Size
from readers.records import DatasetError
from readers.xml_files import walk_xml

# Other shapes of an <image>: told where a lane's label is on them.
OTHER_SHAPES = ("box", "polygon", "points", "cuboid", "ellipse", "mask", "skeleton")


def read_cvat(
    annotations: Path, images: Path, *, labels: Sequence[str] | None = None, jobs: int = 1
) -> ImageLanesSet:
    """Return the pictures and lanes of an XML file.

    Args:
        annotations: the XML file.
        images: folder that picture names count from.
        labels: labels that are lanes; None: every polyline.
        jobs: threads that look at picture files.

    Raises:
        DatasetError: if the file is no XML, has no pictures or is of CVAT's video format.

    Source: docs.cvat.ai, "CVAT XML annotation format", version 1.1.
    """
    annotations, images = annotations.absolute(), images.absolute()
    if not images.is_dir():
        raise DatasetError(f"{images}: no such folder (pictures of {annotations.name})")
    walk = _Walk()
    try:
        walk_xml(annotations, start=walk.start, end=lambda _: None)
    except FileNotFoundError:
        raise DatasetError(f"{annotations}: no such file") from None
    _check(walk, annotations)
    findings = FindingLog(annotations.name)
    reading = _Reading(images, annotations.name, labels, findings)
    return ImageLanesSet(
        records=checked_lanes(
            reading.entries(walk.images), LaneCleaner(findings, keeps_useless=False), jobs=jobs
        ),
        findings=findings,
        source=annotations,
    )


@dataclass
class _Image:
    """An <image>: attributes and line of itself and of its shapes, by kind."""

    attributes: dict[str, str]
    line: int
    shapes: list[tuple[str, dict[str, str], int]] = field(default_factory=list)


@dataclass
class _Walk:
    """Collects the images of a file."""

    root: str = ""
    images: list[_Image] = field(default_factory=list)
    track_line: int = 0

    def start(self, name: str, attributes: dict[str, str], line: int) -> None:
        """Take the beginning of an element."""
        if not self.root:
            self.root = name
        elif name == "image":
            self.images.append(_Image(attributes, line))
        elif name == "track":
            self.track_line = self.track_line or line
        elif self.images and (name == "polyline" or name in OTHER_SHAPES):
            self.images[-1].shapes.append((name, attributes, line))


def _check(walk: _Walk, path: Path) -> None:
    if walk.root != "annotations":
        raise DatasetError(f"{path}: <annotations> is expected, not <{walk.root}>")
    if walk.track_line:
        raise DatasetError(
            f"{path}:{walk.track_line}: a <track>, of `CVAT for video`; export the task as `CVAT "
            "for images 1.1`"
        )
    if not walk.images:
        raise DatasetError(f"{path}: holds no <image>")


@dataclass(frozen=True)
class _Reading:
    """What the images of one file are read against."""

    folder: Path
    file: str
    labels: Sequence[str] | None
    findings: FindingLog
    _seen: Counter[str] = field(default_factory=Counter)  # labels of polylines

    def entries(self, images: Sequence[_Image]) -> Iterator[LaneEntry]:
        """Yield one entry per image; afterwards tell the wanted labels that were never seen."""
        first: dict[str, str] = {}
        for image in images:
            name = image.attributes.get("name", "").replace("\\", "/")
            where = f"{self.file}:{image.line}"
            if not name:
                self.findings.fail("bad-image", where, "an <image> without a name")
                continue
            if name in first:
                message = f"{name} has labels in {first[name]} already"
                action = "second one dropped"
                self.findings.warn("duplicate-image", where, message, action=action)
                continue
            first[name] = where
            lanes = self._lanes(image, name)
            yield LaneEntry(
                image_id=name,
                path=self._picture(name),
                where=where,
                lanes=partial(list, lanes),
                size=_size(image.attributes),
            )
        for label in self.labels or ():
            if label not in self._seen:
                known = ", ".join(sorted(self._seen)) or "none"
                message = f"no polyline is labelled {label!r}; the labels of polylines are {known}"
                self.findings.fail("unknown-label", self.file, message)

    def _picture(self, name: str) -> Path:
        """Return the file of a name; exports of a single task may lack the folders in it."""
        places = [self.folder / name, self.folder / Path(name).name]
        found = (place for place in places if os.path.exists(place))  # noqa: PTH110
        return next(found, places[0])

    def _lanes(self, image: _Image, name: str) -> list[RawLane]:
        lanes = []
        for kind, attributes, line in image.shapes:
            where, about = f"{self.file}:{line}", {"image_id": name}
            label = attributes.get("label", "")
            is_wanted = self.labels is None or label in self.labels
            if kind == "polyline":
                self._seen[label] += 1
            if not is_wanted:
                continue
            if kind != "polyline":
                message = f"{label!r} is a {kind}; lanes are polylines"
                self.findings.warn("other-shape", where, message, action="shape ignored", **about)
                continue
            try:
                lanes.append(RawLane(_points(attributes.get("points", "")), where))
            except DatasetError as error:
                self.findings.fail("bad-lane", where, str(error), **about)
        return lanes


def _size(attributes: dict[str, str]) -> Size | None:
    width, height = attributes.get("width", ""), attributes.get("height", "")
    if not width.isdecimal() or not height.isdecimal():
        return None
    return (int(width), int(height)) if int(width) and int(height) else None


def _points(text: str) -> np.ndarray:
    """Return the points of `x,y;x,y`, (P, 2) float64."""
    pairs = [pair.split(",") for pair in text.split(";") if pair.strip()]
    for pair in pairs:
        if len(pair) != 2:
            raise DatasetError(f"{','.join(pair)[:40]!r} is no `x,y`; `x,y;x,y` is expected")
    try:
        return np.array([(float(x), float(y)) for x, y in pairs], np.float64).reshape(-1, 2)
    except ValueError as error:
        raise DatasetError(f"{error}; `x,y;x,y` is expected") from None
