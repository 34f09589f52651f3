"""CurveLanes: reading.

A split is a folder with images, labels and a list: `train/images/a.jpg`,
`train/labels/a.lines.json` and `train/train.txt`, which holds `images/a.jpg` a line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from readers.checked_lanes import LaneEntry, checked_lanes
from readers.culane_lists import Listed, read_list
from readers.findings import FindingLog
from readers.lane_records import ImageLanesSet
from readers.lanes import LaneCleaner, RawLane
from readers.records import DatasetError
from readers.text_files import load_json

LABEL_ENDING = ".lines.json"


def read_curvelanes(root: Path, split: str, *, jobs: int = 1) -> ImageLanesSet:
    """Return the pictures and lanes of a CurveLanes split.

    Args:
        root: folder that holds the splits' folders.
        split: `train` or `valid`.
        jobs: threads that look at picture files.

    Raises:
        DatasetError: if the list is missing or empty.

    Source: CurveLanes README, "Data structure".
    """
    root = root.absolute()
    folder, name = root / split, f"{split}/{split}.txt"
    if not folder.is_dir():
        raise DatasetError(f"{folder}: no such folder; it should hold images, labels, {split}.txt")
    if not (folder / f"{split}.txt").is_file():
        raise DatasetError(
            f"{folder / split}.txt: no such list; it names the pictures, one `images/NAME.jpg` a "
            "line, and is part of the download"
        )
    listed = read_list(folder / f"{split}.txt", name=name)
    findings = FindingLog(name)
    cleaner = LaneCleaner(findings, keeps_useless=True)
    entries = _Reading(root, folder, findings).entries(listed)
    return ImageLanesSet(
        records=checked_lanes(entries, cleaner, jobs=jobs),
        findings=findings,
        source=folder / f"{split}.txt",
    )


@dataclass(frozen=True)
class _Reading:
    """What the pictures of one list are read against."""

    root: Path
    folder: Path
    findings: FindingLog

    def entries(self, listed: Sequence[Listed]) -> Iterator[LaneEntry]:
        """Yield one entry per picture of the list, in its order."""
        seen: dict[str, str] = {}
        for item in listed:
            if item.image in seen:
                message = f"{item.image} is listed in {seen[item.image]} already"
                action = "second one dropped"
                self.findings.warn("duplicate-image", item.where, message, action=action)
                continue
            seen[item.image] = item.where
            lanes = self._lanes(item)
            yield LaneEntry(
                image_id=item.image,
                path=self._picture(item.image),
                where=item.where,
                lanes=partial(list, lanes or ()),
                is_lost=lanes is None,
            )

    def _picture(self, name: str) -> Path:
        """Return the file that a line names; it counts from the split's folder or the root."""
        places = [self.folder / name, self.root / name, self.folder / "images" / name]
        found = (place for place in places if os.path.exists(place))  # noqa: PTH110
        return next(found, places[0])

    def _lanes(self, item: Listed) -> list[RawLane] | None:
        name = f"labels/{Path(item.image).stem}{LABEL_ENDING}"
        path, about = self.folder / name, {"image_id": item.image}
        if not path.is_file():
            message = f"there is no {path}"
            action = "picture dropped"
            self.findings.warn("no-label-file", item.where, message, action=action, **about)
            return None
        try:
            return _lanes_of(load_json(path), name)
        except DatasetError as error:
            message = str(error).removeprefix(f"{name}: ")
            self.findings.fail("broken-label-file", name, message, **about)
            return None


def _lanes_of(content: Any, name: str) -> list[RawLane]:
    lines = content.get("Lines") if isinstance(content, dict) else None
    if not isinstance(lines, list):
        raise DatasetError(f'{name}: {{"Lines": [[{{"x": "1", "y": "2"}}, ...], ...]}} is expected')
    return [
        RawLane(_points(line, f"lane {number}"), f"{name}: lane {number}")
        for number, line in enumerate(lines, start=1)
    ]


def _points(line: Any, lane: str) -> np.ndarray:
    """Return the points of a lane, (P, 2) float64; their numbers are texts in the files."""
    if not isinstance(line, list):
        raise DatasetError(f"{lane} is {str(line)[:40]!r}, not a list of points")
    points = []
    for number, point in enumerate(line, start=1):
        try:
            points.append((float(point["x"]), float(point["y"])))
        except (TypeError, KeyError, ValueError, OverflowError):
            raise DatasetError(
                f"{lane}, point {number} is {str(point)[:60]}; an x and a y are expected"
            ) from None
    return np.array(points, np.float64).reshape(-1, 2)
