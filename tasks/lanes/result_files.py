"""Reads lanes that any program wrote in CULane's or TuSimple's form, so that they can be scored."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from readers.culane import label_path, read_lines_txt
from readers.findings import FindingLog
from readers.lane_records import ImageLanes
from readers.records import DatasetError
from readers.text_files import parse_json, read_lines
from tasks.lanes.config import F1MetricConfig, TusimpleMetricConfig
from tasks.lanes.decoding import DecodedLane

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Results:
    """Lanes that were read, in px of the frame.

    Args:
        lanes: per picture; points are float64, slots -1.
        at_rows: per picture x at each of its `h_samples`, (F, S), negative where absent, if the
            file gives lanes so.
    """

    lanes: Sequence[Sequence[DecodedLane]]
    at_rows: Sequence[np.ndarray] | None = None


def read_results(
    path: Path,
    records: Sequence[ImageLanes],
    *,
    image_ids: Sequence[str],
    frame: tuple[int, int],
    metric: TusimpleMetricConfig | F1MetricConfig,
) -> Results:
    """Return the results of a split's pictures, scaled from the pictures to the frame.

    Args:
        path: a folder of CULane's files, or for the metric `tusimple` a file of TuSimple's lines.
        records: the split.
        image_ids: what the results call its pictures.
        frame: width and height, px.
        metric: the experiment's `evaluate.metric`.

    Raises:
        DatasetError: if they cannot be read, with file and line.
    """
    factors = [np.array(frame, np.float64) / (each.width, each.height) for each in records]
    if path.is_dir():
        found = read_culane_results(path, image_ids)
        return Results(
            [_decoded(lanes, factor) for lanes, factor in zip(found, factors, strict=True)]
        )
    if not isinstance(metric, TusimpleMetricConfig):
        raise DatasetError(
            f"{path}: no folder; the metric {metric.name} takes a folder of <picture>.lines.txt, "
            "only the metric tusimple takes a file"
        )
    tables = read_tusimple_results(path, image_ids, [each.h_samples for each in records])
    lanes = [
        _decoded([np.stack([x, each.h_samples], axis=1)[x >= 0] for x in table], factor)
        for table, each, factor in zip(tables, records, factors, strict=True)
    ]
    # a factor is above 0: what is absent stays negative
    return Results(lanes, [x * factor[0] for x, factor in zip(tables, factors, strict=True)])


def read_culane_results(folder: Path, image_ids: Sequence[str]) -> list[list[np.ndarray]]:
    """Return the lanes of each picture, (P, 2) float64, px, from `<picture>.lines.txt` files.

    A picture without a file has no lanes, as in CULane's evaluator; a warning says how many there
    are. One that is listed twice comes twice.

    Args:
        folder: what the files' paths are relative to.
        image_ids: the pictures, as the list has them (`driver_1/a/00000.jpg`).

    Raises:
        DatasetError: if no picture has a file, or naming the file and line, if a line is no lane.
    """
    paths = [label_path(folder / image_id.lstrip("/")) for image_id in image_ids]
    _tell_missing([str(path) for path in paths if not path.exists()], len(paths), source=folder)
    return [_lanes_of(path) if path.exists() else [] for path in paths]


def read_tusimple_results(
    path: Path, image_ids: Sequence[str], rows: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return x of each picture's lanes at its rows, (F, S) float64, px, negative where absent.

    A picture without a line has no lanes; a warning says how many there are. Without `h_samples` a
    line is taken to be of the labels' rows; `run_time` is not looked at.

    Args:
        path: a JSON object a line, with `raw_file`, `lanes` and `h_samples`.
        image_ids: the pictures, as the labels name them.
        rows: the labels' rows of each picture, (S,).

    Raises:
        DatasetError: if no picture has a line, or naming the file and line, if one cannot be used.
    """
    lines = _lines_by_picture(path)
    names = [_plain(image_id) for image_id in image_ids]
    _tell_missing([name for name in names if name not in lines], len(names), source=path)
    return [
        _at_rows(*lines[name], rows=wanted) if name in lines else np.zeros((0, len(wanted)))
        for name, wanted in zip(names, rows, strict=True)
    ]


def _decoded(lanes: Sequence[np.ndarray], factor: np.ndarray) -> list[DecodedLane]:
    return [DecodedLane(slot=-1, kind="pooled", points=lane * factor, score=1.0) for lane in lanes]


def _tell_missing(missing: Sequence[str], num_pictures: int, *, source: Path) -> None:
    if missing and len(missing) == num_pictures:
        raise DatasetError(
            f"{source}: none of the {num_pictures} results is there, first {missing[0]}"
        )
    if missing:
        text = "%d of %d pictures have no result and count as without lanes, first %s"
        LOG.warning(text, len(missing), num_pictures, missing[0])


def _lanes_of(path: Path) -> list[np.ndarray]:
    findings = FindingLog(str(path))
    lanes = read_lines_txt(path, name=str(path), findings=findings, image_id=path.name)
    for finding in findings:
        if finding.severity == "error":
            raise DatasetError(f"{finding.where}: {finding.message}")
    for lane in lanes:
        if not np.isfinite(lane.points).all():
            raise DatasetError(f"{lane.where}: holds a value that is not finite")
    return [lane.points for lane in lanes]


def _lines_by_picture(path: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the place and the content of each line, by picture."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line:
            continue
        where, content = f"{path}:{number}", parse_json(line, name=str(path), line=number)
        keys = {"raw_file": str, "lanes": list}
        if not isinstance(content, dict) or not all(
            isinstance(content.get(key), kind) for key, kind in keys.items()
        ):
            raise DatasetError(f"{where}: no object with raw_file (a path) and lanes (a list)")
        name = _plain(content["raw_file"])
        if name in found:
            raise DatasetError(f"{where}: {name} has a result in {found[name][0]} already")
        found[name] = where, content
    return found


def _plain(name: str) -> str:
    return name.replace("\\", "/").lstrip("/")


def _at_rows(where: str, content: dict[str, Any], *, rows: np.ndarray) -> np.ndarray:
    """Return the lanes of a line at the labels' rows, (F, S) float64."""
    own = rows
    if "h_samples" in content:
        own = _numbers(content["h_samples"], f"{where}: h_samples")
    lanes = [
        _numbers(lane, f"{where}: lane {number}")
        for number, lane in enumerate(content["lanes"], start=1)
    ]
    for number, lane in enumerate(lanes, start=1):
        if len(lane) != len(own):
            raise DatasetError(
                f"{where}: lane {number} has {len(lane)} values, h_samples has {len(own)}"
            )
    place = {row: at for at, row in enumerate(own.tolist())}
    lacking = [row for row in rows.tolist() if row not in place]
    if lacking:
        raise DatasetError(
            f"{where}: h_samples lacks row {lacking[0]} of the labels, which have "
            f"{rows[0]} to {rows[-1]}"
        )
    chosen = [place[row] for row in rows.tolist()]
    return np.array(lanes, np.float64).reshape(len(lanes), len(own))[:, chosen]


def _numbers(values: Any, what: str) -> np.ndarray:
    """Return a list of numbers as float64."""
    if not isinstance(values, list):
        raise DatasetError(f"{what} is {json.dumps(values)[:40]}, not a list of numbers")
    for value in values:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not abs(value) < 1e300:  # nor NaN
            raise DatasetError(f"{what} holds {json.dumps(value)[:40]}, not a number")
    return np.array(values, np.float64)
