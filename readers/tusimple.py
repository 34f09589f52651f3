"""TuSimple: reading and writing.

A label file holds one JSON object a line: `raw_file`, `h_samples` (rows) and `lanes`, each a list
of x at these rows, -2 where the lane is absent.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from readers.checked_lanes import LaneEntry, checked_lanes
from readers.findings import FindingLog
from readers.lane_records import ImageLanes, ImageLanesSet
from readers.lanes import LaneCleaner, RawLane
from readers.records import DatasetError
from readers.text_files import parse_json, read_lines

KEYS = ("raw_file", "lanes", "h_samples")
NO_POINT = -2


def read_tusimple(root: Path, labels: Sequence[str], *, jobs: int = 1) -> ImageLanesSet:
    """Return the pictures and lanes of TuSimple label files.

    Lanes without any point stay: the files fill up their lists with them, and the benchmark's
    score counts them. Of a lane the points with x < 0 are left out.

    Args:
        root: folder that `raw_file` counts from.
        labels: label files, relative to `root`, in order.
        jobs: threads that look at picture files.

    Raises:
        DatasetError: if a file cannot be read, is empty or is one JSON value over several lines.

    Source: TuSimple benchmark, lane detection challenge, "Label data format".
    """
    root = root.absolute()
    lines = [(name, _lines_of(root / name)) for name in labels]
    findings = FindingLog(", ".join(labels))
    entries = _Reading(root, findings).entries(lines)
    cleaner = LaneCleaner(findings, keeps_useless=True, may_be_empty=True)
    return ImageLanesSet(
        records=checked_lanes(entries, cleaner, jobs=jobs),
        findings=findings,
        source=root / labels[0] if len(labels) == 1 else root,
    )


def write_tusimple_labels(path: Path, records: Iterable[ImageLanes]) -> None:
    """Write a label file; the pictures are already on disk.

    Args:
        path: file to write; its folder is made.
        records: image ids become `raw_file`; each has `h_samples`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [tusimple_line(item.image_id, item.lanes, item.h_samples) for item in records]
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def tusimple_line(
    raw_file: str, lanes: Sequence[np.ndarray], h_samples: Sequence[int] | np.ndarray
) -> str:
    """Return one line of a label file, without the line end.

    Args:
        raw_file: the picture, relative to the data set's folder.
        lanes: per lane (P, 2), x and y px, in any order of y. x is interpolated and rounded;
            rows above or below the lane, and x < 0, are written as -2.
        h_samples: (S,), rows px, rising.
    """
    rows = np.asarray(h_samples, np.int64)
    content = {
        "lanes": [_positions(np.asarray(lane, np.float64), rows).tolist() for lane in lanes],
        "h_samples": rows.tolist(),
        "raw_file": raw_file,
    }
    return json.dumps(content, ensure_ascii=False)


def _positions(lane: np.ndarray, rows: np.ndarray) -> np.ndarray:
    if len(lane) == 0:
        return np.full(len(rows), NO_POINT)
    lane = lane[np.argsort(lane[:, 1], kind="stable")]
    x = np.rint(np.interp(rows, lane[:, 1], lane[:, 0], left=NO_POINT, right=NO_POINT))
    return np.where(x < 0, NO_POINT, x).astype(np.int64)


def _lines_of(path: Path) -> list[str]:
    if not path.is_file():
        known = sorted(entry.name for entry in path.parent.glob("*.json"))
        near = difflib.get_close_matches(path.name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise DatasetError(f"{path}: no such file; there are {', '.join(known) or 'none'}{hint}")
    lines = read_lines(path)
    first = next((line for line in lines if line), None)
    if first is None:
        raise DatasetError(f"{path}: the file is empty; one JSON object a line is expected")
    if first in ("{", "[") or first.startswith("["):
        raise DatasetError(
            f"{path}:1: one JSON object a line is expected, each with {', '.join(KEYS)}; this "
            "file is one JSON value"
        )
    return lines


@dataclass(frozen=True)
class _Reading:
    """What the lines of all files are read against."""

    root: Path
    findings: FindingLog
    _first: dict[str, tuple[str, int]] = field(default_factory=dict)  # place and hash by raw_file

    def entries(self, files: Sequence[tuple[str, Sequence[str]]]) -> Iterator[LaneEntry]:
        """Yield one entry per picture of the files, in their order."""
        for name, lines in files:
            for number, line in enumerate(lines, start=1):
                if line:
                    entry = self._entry(line, name, number)
                    if entry is not None:
                        yield entry

    def _entry(self, line: str, file: str, number: int) -> LaneEntry | None:
        where = f"{file}:{number}"
        try:
            content = parse_json(line, name=file, line=number)
            raw_file, rows, lanes = _fields(content)
        except DatasetError as error:
            self.findings.fail("bad-line", where, str(error).removeprefix(f"{where}: "))
            return None
        if self._is_repeat(raw_file, where, hash(json.dumps([lanes, content["h_samples"]]))):
            return None
        raw = []
        for lane, values in enumerate(lanes, start=1):
            try:
                points = _points(values, rows)
            except DatasetError as error:
                message = f"lane {lane} of {raw_file} {error}"
                self.findings.fail("bad-lane", where, message, image_id=raw_file)
                continue
            raw.append(RawLane(points, f"{where}: lane {lane}"))
        return LaneEntry(
            image_id=raw_file,
            path=self.root / raw_file.replace("\\", "/").lstrip("/"),
            where=where,
            lanes=partial(list, raw),
            h_samples=rows,
        )

    def _is_repeat(self, raw_file: str, where: str, content: int) -> bool:
        if raw_file not in self._first:
            self._first[raw_file] = where, content
            return False
        before, first = self._first[raw_file]
        same = "the same" if content == first else "other"
        self.findings.warn(
            "duplicate-image",
            where,
            f"{raw_file} has {same} labels in {before} already",
            action="second one dropped",
            image_id=raw_file,
        )
        return True


def _fields(content: Any) -> tuple[str, np.ndarray, list[Any]]:
    """Return raw_file, h_samples as (S,) int64 and lanes of a line."""
    if not isinstance(content, dict):
        raise DatasetError(f"a {type(content).__name__}, not an object with {', '.join(KEYS)}")
    missing = [key for key in KEYS if key not in content]
    if missing:
        raise DatasetError(f"no key {' and no key '.join(missing)}")
    raw_file, lanes, rows = (content[key] for key in KEYS)
    if not isinstance(raw_file, str) or not raw_file:
        raise DatasetError(f"raw_file is {raw_file!r}, not a path")
    if not isinstance(lanes, list):
        raise DatasetError("lanes is no list of lists of numbers")
    if not isinstance(rows, list) or not rows or not all(map(_is_row, rows)):
        raise DatasetError("h_samples is no list of whole numbers")
    samples = np.array(rows, np.float64).astype(np.int64)
    if (np.diff(samples) <= 0).any():
        raise DatasetError("h_samples does not rise from value to value")
    return raw_file, samples, lanes


def _points(values: Any, rows: np.ndarray) -> np.ndarray:
    """Return the present points of a lane, (P, 2) float64."""
    if not isinstance(values, list):
        raise DatasetError(f"is {values!r}, not a list of numbers")
    if len(values) != len(rows):
        raise DatasetError(f"has {len(values)} values, h_samples has {len(rows)}")
    wrong = [value for value in values if not _is_number(value)]
    if wrong:
        raise DatasetError(f"holds {json.dumps(wrong[0])[:40]}, not a number")
    x = np.array(values, np.float64)
    return np.stack([x, rows], axis=1)[~(x < 0)]  # NaN stays, to be told


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return True
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole and abs(value) < 2**63  # larger ones do not become floats


def _is_row(value: Any) -> bool:
    return _is_number(value) and abs(value) < 2**31 and value == int(value)
