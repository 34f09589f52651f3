"""CULane: reading and writing.

A list names a picture a line, then its mask and which slots have a lane: `/img.jpg /mask.png 1 1 0
0`. Lanes lie beside the picture, in `img.lines.txt`: one a line, `x y x y ...`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from readers.checked_lanes import LaneEntry, checked_lanes
from readers.culane_lists import Listed, Scenes, read_list, read_scenes
from readers.findings import FindingLog
from readers.lane_records import ImageLanes, ImageLanesSet
from readers.lanes import LaneCleaner, RawLane
from readers.records import DatasetError
from readers.text_files import read_lines

LABEL_ENDING = ".lines.txt"
# Where the masks of training and test pictures lie when a list names none.
MASK_FOLDERS = ("laneseg_label_w16", "laneseg_label_w16_test")


def read_culane(
    root: Path, list_file: str, *, scenes: str | None = None, jobs: int = 1
) -> ImageLanesSet:
    """Return the pictures and lanes of a CULane list.

    Lanes of fewer than two points stay, as the benchmark's score counts them.

    Args:
        root: folder that the lists' paths count from.
        list_file: the list, relative to `root`, e.g. `list/train_gt.txt`.
        scenes: folder of the scene lists, relative to `root`, e.g. `list/test_split`; None: none.
        jobs: threads that look at picture files.

    Raises:
        DatasetError: if a list or one of the benchmark's scenes is missing, or the list is empty.

    Source: xingangpan.github.io/projects/CULane, "Data format"; SCNN lane_evaluation.
    """
    root = root.absolute()
    listed = read_list(root / list_file, name=list_file)
    in_scenes = {} if scenes is None else read_scenes(root / scenes)
    findings = FindingLog(list_file)
    reading = _Reading(root, findings, _scenes_by_picture(in_scenes))
    cleaner = LaneCleaner(findings, keeps_useless=True)
    return ImageLanesSet(
        records=checked_lanes(reading.entries(listed, in_scenes), cleaner, jobs=jobs),
        findings=findings,
        source=root / list_file,
        scenes=tuple(in_scenes),
    )


def write_culane_labels(records: Iterable[ImageLanes]) -> None:
    """Write `.lines.txt` files beside the records' pictures."""
    for record in records:
        write_lines_txt(label_path(record.path), record.lanes)


def write_lines_txt(path: Path, lanes: Sequence[np.ndarray]) -> None:
    """Write lanes as a `.lines.txt`; no lane gives an empty file.

    Args:
        path: file to write; its folder exists.
        lanes: per lane (P, 2), x and y px.
    """
    rows = (" ".join(f"{value:.10g}" for value in np.ravel(lane).tolist()) for lane in lanes)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def label_path(picture: Path) -> Path:
    """Return where a picture's lanes lie."""
    return picture.with_suffix(LABEL_ENDING)


def read_lines_txt(path: Path, *, name: str, findings: FindingLog, image_id: str) -> list[RawLane]:
    """Return the lanes of a `.lines.txt`, one a line.

    Args:
        path: the file.
        name: what findings call it.
        findings: gets an error for each line that is no lane.
        image_id: for the findings.

    Raises:
        DatasetError: if the file cannot be read.
    """
    lines = read_lines(path)
    lanes, last = [], len(lines) if lines[-1] else len(lines) - 1
    for number, line in enumerate(lines[:last], start=1):
        where = f"{name}:{number}"
        if not line:
            message = "a blank line; CULane's own program counts it as a lane that is never found"
            about = {"action": "line ignored", "image_id": image_id}
            findings.warn("blank-line", where, message, **about)
            continue
        try:
            lanes.append(RawLane(_points(line), where))
        except DatasetError as error:
            findings.fail("bad-lane", where, str(error), image_id=image_id)
    return lanes


@dataclass(frozen=True)
class _Reading:
    """What the pictures of one list are read against."""

    root: Path
    findings: FindingLog
    scenes: Mapping[str, Sequence[str]]

    def entries(self, listed: Sequence[Listed], in_scenes: Scenes) -> Iterator[LaneEntry]:
        """Yield one entry per picture of the list, in its order."""
        seen: dict[str, str] = {}
        for item in listed:
            if item.image in seen:
                message = f"{item.image} is listed in {seen[item.image]} already"
                action = "second one dropped"
                self.findings.warn("duplicate-image", item.where, message, action=action)
                continue
            seen[item.image] = item.where
            yield LaneEntry(
                image_id=item.image,
                path=self.root / item.image,
                where=item.where,
                lanes=partial(self._lanes, item),
                scenes=tuple(self.scenes.get(item.image, ())),
                mask=self._mask(item),
            )
        if in_scenes:
            self._note_scenes(seen, in_scenes)

    def _lanes(self, item: Listed) -> list[RawLane] | None:
        about = {"image_id": item.image}
        path = label_path(self.root / item.image)
        name = path.relative_to(self.root).as_posix()
        if not path.exists():
            message = f"there is no {name}"
            action = "taken as a road without lanes"
            self.findings.warn("no-label-file", item.where, message, action=action, **about)
            return None
        try:
            lanes = read_lines_txt(path, name=name, findings=self.findings, image_id=item.image)
        except DatasetError as error:
            self.findings.fail("unreadable-label-file", item.where, str(error), **about)
            return None
        num_present = sum(item.presence)
        if item.presence and num_present != len(lanes):
            message = f"the list says {num_present} lanes, {name} has {len(lanes)}"
            action = "those of the file are used"
            self.findings.warn("lane-count-mismatch", item.where, message, action=action, **about)
        return lanes

    def _mask(self, item: Listed) -> Path | None:
        if item.mask:
            path = self.root / item.mask
            if path.is_file():
                return path
            self.findings.warn(
                "missing-mask",
                item.where,
                f"{path}: no such file",
                action="the picture goes without a mask",
                image_id=item.image,
            )
            return None
        name = Path(item.image).with_suffix(".png")
        places = [self.root / folder / name for folder in MASK_FOLDERS]
        return next((place for place in places if place.is_file()), None)

    def _note_scenes(self, listed: Mapping[str, str], in_scenes: Scenes) -> None:
        """Tell where the list and the scene lists do not hold the same pictures."""
        for scene, (file, images) in in_scenes.items():
            lacking = [image for image in images if image not in listed]
            if not images:
                self.findings.warn(
                    "empty-scene", file, f"lists no picture of {scene}", action="no score for it"
                )
            if lacking:
                message = f"{len(lacking)} of {len(images)} pictures of {scene} are not in "
                message += f"{self.findings.source}, first {lacking[0]}"
                action, count = "left out of the scene", len(lacking)
                self.findings.warn("scene-not-listed", file, message, action=action, count=count)
        without = [image for image in listed if image not in self.scenes]
        if without:
            message = (
                f"{len(without)} of {len(listed)} pictures are in no scene, first {without[0]}"
            )
            action, count = "scored in the total only", len(without)
            source = self.findings.source
            self.findings.warn("no-scene", source, message, action=action, count=count)


def _scenes_by_picture(in_scenes: Scenes) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for scene, (_, images) in in_scenes.items():
        for image in dict.fromkeys(images):
            found[image].append(scene)
    return dict(found)


def _points(line: str) -> np.ndarray:
    """Return the points of a line, (P, 2) float64."""
    words = line.split()
    try:
        numbers = np.array([float(word) for word in words])
    except ValueError:
        wrong = next(word for word in words if not _is_number(word))
        raise DatasetError(f"{wrong[:40]!r} is not a number; `x y x y ...` is expected") from None
    if len(numbers) % 2:
        raise DatasetError(f"{len(numbers)} numbers, an odd count; `x y x y ...` is expected")
    return numbers.reshape(-1, 2)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
