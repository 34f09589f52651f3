"""Reads lanes that any program wrote in CULane's form, so that `f1_metric` can score them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from readers.culane import label_path, read_lines_txt
from readers.findings import FindingLog
from readers.records import DatasetError

LOG = logging.getLogger(__name__)


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
    missing = [path for path in paths if not path.exists()]
    if missing and len(missing) == len(paths):
        raise DatasetError(f"{folder}: none of the {len(paths)} results is there, first {paths[0]}")
    if missing:
        text = "%d of %d pictures have no result and count as without lanes, first %s"
        LOG.warning(text, len(missing), len(paths), missing[0])
    return [_lanes_of(path) if path.exists() else [] for path in paths]


def _lanes_of(path: Path) -> list[np.ndarray]:
    findings = FindingLog(str(path))
    lanes = read_lines_txt(path, name=str(path), findings=findings, image_id=path.name)
    for finding in findings:
        if finding.severity == "error":
            raise DatasetError(f"{finding.where}: {finding.message}")
    return [lane.points for lane in lanes]
