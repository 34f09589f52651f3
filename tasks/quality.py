"""What `prepare` says of the data: `quality.json` for programs and `quality.html` for people.

It knows findings, counts and pictures, and nothing of any one task; a task hands in a function
that draws a finding.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import cv2
import numpy as np

from readers.arrow_index import ArrowIndex
from readers.records import DatasetError, Finding
from tasks.pictures import read_picture
from tasks.quality_page import Thumbnail, render_page

FORMAT = "sightflow-quality-1"
EXAMPLES_PER_CODE = 100
PICTURES_PER_CODE = 4
MOST_PICTURES = 32
THUMBNAIL_SIDE = 224
JPEG_QUALITY = 80

Record = TypeVar("Record")


@dataclass(frozen=True)
class SplitQuality:
    """One split, or the source that splits are cut from.

    Args:
        counts: name -> number or text, or name -> {row: number} for a small table.
        findings: everything that is wrong with it.
        draw: returns (H, W, 3) uint8 RGB that shows a finding, or None where there is nothing to
            see.
    """

    counts: Mapping[str, Any]
    findings: Sequence[Finding]
    draw: Callable[[Finding], np.ndarray | None] = lambda _: None


def finding_drawer(
    index: ArrowIndex[Record], draw: Callable[[np.ndarray, Record, Finding], np.ndarray]
) -> Callable[[Finding], np.ndarray | None]:
    """Return a function that draws a finding on its picture, (H, W, 3) uint8 RGB.

    It returns None for findings whose picture is not in the index or cannot be read.

    Args:
        index: a split.
        draw: takes a picture, its record and the finding, and returns what is shown.
    """
    rows = {key: row for row, key in enumerate(index.image_ids)}

    def drawn(finding: Finding) -> np.ndarray | None:
        row = rows.get(finding.image_id or "")
        if row is None:
            return None
        record: Any = index[row]
        try:
            picture = read_picture(record)
        except DatasetError:
            return None
        return draw(picture, record, finding)

    return drawn


def quality_report(
    splits: Mapping[str, SplitQuality], *, legend: str = ""
) -> tuple[dict[str, Any], str]:
    """Return the report as JSON data and as one self-contained HTML page.

    Args:
        splits: name -> split, in the order in which they are shown.
        legend: what the colours of the drawn findings mean.

    Returns:
        The data: `status` (`error`, `warning` or `clean`) and per split `counts` and `findings`
        (one entry per code with its severity, count and first hundred examples, errors first).
        The page: no script, no outside file; pictures are inside.
    """
    content: dict[str, Any] = {"format": FORMAT, "status": _status(splits), "splits": {}}
    for name, split in splits.items():
        content["splits"][name] = {
            "counts": dict(split.counts),
            "findings": _grouped(split.findings),
        }
    return content, render_page(content, list(_thumbnails(splits)), legend=legend)


def _status(splits: Mapping[str, SplitQuality]) -> str:
    severities = {finding.severity for split in splits.values() for finding in split.findings}
    if "error" in severities:
        return "error"
    return "warning" if severities else "clean"


def _grouped(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return one entry per severity and code, errors first, then by count."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.severity, finding.code), []).append(finding)
    entries = [
        {
            "severity": severity,
            "code": code,
            "count": sum(finding.count for finding in members),
            "examples": [_example(finding) for finding in members[:EXAMPLES_PER_CODE]],
        }
        for (severity, code), members in groups.items()
    ]
    return sorted(entries, key=lambda entry: (entry["severity"] != "error", -entry["count"]))


def _example(finding: Finding) -> dict[str, Any]:
    return {
        "where": finding.where,
        "message": finding.message,
        "action": finding.action,
        "image_id": finding.image_id,
        "box_xyxy": finding.box_xyxy,
    }


def _thumbnails(splits: Mapping[str, SplitQuality]) -> Iterator[Thumbnail]:
    """Yield pictures of the worst cases: errors first, rare kinds before common ones."""
    left = MOST_PICTURES
    for name, finding in _worst(splits):
        if left == 0:
            return
        picture = splits[name].draw(finding)
        if picture is not None:
            left -= 1
            yield Thumbnail(name, finding, _data_uri(picture))


def _worst(splits: Mapping[str, SplitQuality]) -> list[tuple[str, Finding]]:
    cases: dict[tuple[str, str, str], list[tuple[str, Finding]]] = {}
    for name, split in splits.items():
        for finding in split.findings:
            if finding.image_id is not None:
                key = (finding.severity, finding.code, name)
                cases.setdefault(key, []).append((name, finding))
    order = sorted(cases.items(), key=lambda item: (item[0][0] != "error", len(item[1])))
    return [case for _, members in order for case in members[:PICTURES_PER_CODE]]


def _data_uri(picture: np.ndarray) -> str:
    """Return a picture as a small JPEG in a data URI."""
    height, width = picture.shape[:2]
    scale = THUMBNAIL_SIDE / max(height, width)
    if scale < 1:
        size = max(1, round(width * scale)), max(1, round(height * scale))
        picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    quality = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]
    _, encoded = cv2.imencode(".jpg", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), quality)
    return "data:image/jpeg;base64," + base64.b64encode(encoded.tobytes()).decode()
