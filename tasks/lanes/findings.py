"""What the quality report shows of a lane set: counts, checks of the whole, findings drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np

from readers.findings import FindingLog
from readers.lane_index import ImageLanesIndex
from readers.lane_records import ABSENT, ImageLanes
from readers.records import Finding, Severity
from tasks.lanes.completion import lanes_out_of_order
from tasks.lanes.drawing import draw_lanes
from tasks.quality import finding_drawer

LEGEND = (
    "Red box: the lane in question. Lanes have the colours and numbers of their slots, from 1; "
    "grey lanes have none."
)
SIDE = 448  # px; twice the thumbnail, so that lines stay smooth
MARGIN = 4  # px between a lane and the box about it
RED = (230, 40, 40)
SHOWN = 12  # rows of a table of texts
NO_ROWS = "none"


def lane_counts(index: ImageLanesIndex) -> dict[str, Any]:
    """Return counts of an index, and small tables, for the quality report."""
    sizes = Counter(f"{width}x{height}" for width, height in index.sizes.tolist())
    per_picture, rows, totals = Counter[int](), Counter[str](), Counter[str]()
    for record in index:
        num_lanes = sum(len(lane) > 0 for lane in record.lanes)
        per_picture[num_lanes] += 1
        rows[_rows_of(record)] += 1
        totals["pictures_without_lanes"] += num_lanes == 0
        totals["pictures_with_lanes_out_of_order"] += lanes_out_of_order(record.slots)
        totals["lanes"] += num_lanes
        totals["lanes_without_slot"] += num_lanes - int((record.slots >= 0).sum())
        totals["empty_lanes"] += len(record.lanes) - num_lanes
        totals["points"] += sum(map(len, record.lanes))
        totals["points_on_the_grid"] += int((record.grid[..., 0] > ABSENT).sum())
    counts = index.counts()
    tables = {
        "lanes_per_slot": {f"slot {n}": count for n, count in enumerate(counts["per_slot"], 1)},
        "lanes_per_picture": {str(n): per_picture[n] for n in sorted(per_picture)},
        "pictures_per_scene": counts["per_scene"],
        "rows_of_the_labels": {} if set(rows) <= {NO_ROWS} else _most_common(rows),
        "picture_sizes": _most_common(sizes),
    }
    return {
        "pictures": len(index),
        **totals,
        "frame": "{}x{}".format(*index.frame),
        "grid": _range(index.grid_y),
        "digest": index.digest[:12],
        **{name: table for name, table in tables.items() if table},
    }


def note_sizes(index: ImageLanesIndex, findings: FindingLog) -> None:
    """Tell how many pictures are not of the frame's size; their labels are scaled."""
    frame = index.frame
    is_other = (index.sizes != np.array(frame)).any(axis=1)
    count = int(is_other.sum())
    if not count:
        return
    sizes = Counter(f"{width}x{height}" for width, height in index.sizes[is_other].tolist())
    common = ", ".join(name for name, _ in sizes.most_common(3))
    which = "all" if count == len(index) else f"{count} of"
    message = f"data.frame is {frame[0]}x{frame[1]}, {which} {len(index)} pictures are {common}"
    if len(sizes) > 3:
        message += f" and {len(sizes) - 3} other sizes"
    action = "labels are scaled to the frame, in which scores count"
    findings.warn("picture-of-another-size", findings.source, message, action=action)


def note_lanes(name: str, index: ImageLanesIndex, findings: list[Finding]) -> None:
    """Tell a split without any lane, or of which no lane has a slot; of train it is an error.

    Args:
        name: the split's.
        index: its records.
        findings: gets it, unless the reader has told.
    """
    if any(finding.code == "no-lanes" for finding in findings):
        return
    if not index.lane_counts().sum():
        message = f"none of the {len(index)} pictures has a lane"
        code = "no-lanes"
    elif not sum(index.counts()["per_slot"]):
        message = "no lane has a slot; the other findings say why"
        code = "no-slots"
    else:
        return
    is_trained = name == "train"
    action = "nothing is prepared" if is_trained else "kept; scores on it say little"
    severity: Severity = "error" if is_trained else "warning"
    findings.append(Finding(severity, code, f"data.{name}", message, action))


def note_slots(index: ImageLanesIndex, findings: list[Finding]) -> None:
    """Tell slots that no lane of the training split has, where there are others that some have."""
    counts = index.counts()["per_slot"]
    empty = [str(slot) for slot, count in enumerate(counts, start=1) if not count]
    if not empty or len(empty) == len(counts):
        return
    which = f"slot {empty[0]}" if len(empty) == 1 else f"slots {', '.join(empty)}"
    message = f"no lane has {which} of {len(counts)} (model.lanes)"
    action = "cannot be learned"
    findings.append(Finding("warning", "slots-without-lanes", "data.train", message, action))


def draw_finding(index: ImageLanesIndex) -> Callable[[Finding], np.ndarray | None]:
    """Return a function that draws findings; see `tasks.quality.finding_drawer`."""
    return finding_drawer(index, _drawn)


def _drawn(picture: np.ndarray, record: ImageLanes, finding: Finding) -> np.ndarray:
    scale = SIDE / max(record.width, record.height)
    size = max(1, round(record.width * scale)), max(1, round(record.height * scale))
    canvas = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    texts = [str(slot + 1) if slot >= 0 else "" for slot in record.slots.tolist()]
    lanes = [lane * scale for lane in record.lanes]
    drawn = draw_lanes(canvas, lanes, record.slots.tolist(), texts=texts)
    if finding.box_xyxy is not None:
        corners = np.clip(np.array(finding.box_xyxy) * scale, -SIDE, 2 * SIDE)
        x1, y1, x2, y2 = np.rint(corners).astype(int).tolist()
        cv2.rectangle(drawn, (x1 - MARGIN, y1 - MARGIN), (x2 + MARGIN, y2 + MARGIN), RED, 2)
    return drawn


def _rows_of(record: ImageLanes) -> str:
    return _range(record.h_samples) if len(record.h_samples) else NO_ROWS


def _range(rows: np.ndarray) -> str:
    """Return `96 to 284 px, step 4`; `uneven` where steps differ."""
    steps = np.unique(np.diff(rows))
    step = f"step {steps[0]:g}" if len(steps) == 1 else "uneven steps"
    return f"{rows[0]:g} to {rows[-1]:g} px, {step}"


def _most_common(values: Counter[str]) -> dict[str, int]:
    """Return the most common values, and the number of the others."""
    common = dict(values.most_common(SHOWN))
    if len(values) > SHOWN:
        common["others"] = values.total() - sum(common.values())
    return common
