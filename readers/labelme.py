"""LabelMe: reading. One JSON file per picture; its lines and line strips are lanes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from readers.checked_lanes import LaneEntry, checked_lanes
from readers.findings import FindingLog
from readers.lane_records import ImageLanesSet
from readers.lanes import LaneCleaner, RawLane
from readers.pictures import Size
from readers.records import DatasetError
from readers.text_files import load_json

LANE_SHAPES = ("line", "linestrip")


def read_labelme(
    root: Path, *, labels: Sequence[str] | None = None, jobs: int = 1
) -> ImageLanesSet:
    """Return the pictures and lanes of a folder of LabelMe files and those below it, by name.

    Args:
        root: folder of the JSON files; a picture lies where `imagePath` says, else beside its file.
        labels: labels that are lanes; None: every line and line strip.
        jobs: threads that look at picture files.

    Raises:
        DatasetError: if there is no such folder or no JSON file in it.

    Source: labelme (wkentaro), the JSON files of version 4 and 5.
    """
    root = root.absolute()
    if not root.is_dir():
        raise DatasetError(f"{root}: no such folder")
    files = sorted(path for path in root.rglob("*.json") if not path.name.startswith("."))
    if not files:
        raise DatasetError(f"{root}: no JSON file; LabelMe writes one beside each picture")
    findings = FindingLog(root.name)
    reading = _Reading(root, labels, findings)
    cleaner = LaneCleaner(findings, keeps_useless=False)
    return ImageLanesSet(
        records=checked_lanes(reading.entries(files), cleaner, jobs=jobs),
        findings=findings,
        source=root,
    )


@dataclass(frozen=True)
class _Reading:
    """What the files of one folder are read against."""

    root: Path
    labels: Sequence[str] | None
    findings: FindingLog
    _seen: Counter[str] = field(default_factory=Counter)  # labels of lines

    def entries(self, files: Sequence[Path]) -> Iterator[LaneEntry]:
        """Yield one entry per file; afterwards tell the wanted labels that were never seen."""
        first: dict[Path, str] = {}
        for file in files:
            entry = self._entry(file)
            if entry is None:
                continue
            if entry.path in first:
                message = f"{entry.image_id} has labels in {first[entry.path]} already"
                action = "second one dropped"
                self.findings.warn("duplicate-image", entry.where, message, action=action)
                continue
            first[entry.path] = entry.where
            yield entry
        for label in self.labels or ():
            if label not in self._seen:
                known = ", ".join(sorted(self._seen)) or "none"
                message = f"no line is labelled {label!r}; the labels of lines are {known}"
                self.findings.fail("unknown-label", str(self.root), message)

    def _entry(self, file: Path) -> LaneEntry | None:
        name = file.relative_to(self.root).as_posix()
        try:
            content = load_json(file)
            if not isinstance(content, dict) or not isinstance(content.get("shapes"), list):
                message = "a JSON file without `shapes`"
                self.findings.warn("no-labelme-file", name, message, action="file ignored")
                return None
            path = _picture(file, content.get("imagePath"))
            image_id = path.relative_to(self.root) if path.is_relative_to(self.root) else path
            lanes = self._lanes(content["shapes"], name, image_id.as_posix())
        except DatasetError as error:
            message = str(error).removeprefix(f"{name}: ")
            self.findings.fail("broken-label-file", name, message)
            return None
        return LaneEntry(
            image_id=image_id.as_posix(),
            path=path,
            where=name,
            lanes=partial(list, lanes),
            size=_size(content),
        )

    def _lanes(self, shapes: Sequence[Any], name: str, image_id: str) -> list[RawLane]:
        lanes = []
        for number, shape in enumerate(shapes, start=1):
            where = f"{name}: shape {number}"
            if not isinstance(shape, dict):
                raise DatasetError(f"shape {number} is {str(shape)[:40]!r}, not an object")
            label, kind = str(shape.get("label")), shape.get("shape_type")
            is_wanted = self.labels is None or label in self.labels
            if kind in LANE_SHAPES:
                self._seen[label] += 1
                if is_wanted:
                    lanes.append(RawLane(_points(shape.get("points"), number), where))
            elif is_wanted:
                message = f"{label!r} is a {kind}; lanes are lines and line strips"
                about = {"action": "shape ignored", "image_id": image_id}
                self.findings.warn("other-shape", where, message, **about)
        return lanes


def _picture(file: Path, name: Any) -> Path:
    """Return the picture of a file: where it says, else beside it."""
    if not isinstance(name, str) or not name:
        raise DatasetError(f"imagePath is {name!r}, not the path of a picture")
    name = name.replace("\\", "/")  # the tool runs on Windows too
    places = [file.parent / name, file.parent / Path(name).name]
    found = (place for place in places if os.path.exists(place))  # noqa: PTH110
    return Path(os.path.normpath(next(found, places[0])))


def _size(content: dict[str, Any]) -> Size | None:
    width, height = content.get("imageWidth"), content.get("imageHeight")
    if not isinstance(width, int) or not isinstance(height, int) or not width or not height:
        return None
    return width, height


def _points(points: Any, shape: int) -> np.ndarray:
    """Return the points of a shape, (P, 2) float64."""
    try:
        found = np.array(points, np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.zeros(0)
    if found.ndim != 2 or found.shape[1] != 2:
        if isinstance(points, list) and not points:
            return np.zeros((0, 2))
        raise DatasetError(f"the points of shape {shape} are no list of [x, y]")
    return found
