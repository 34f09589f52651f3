"""From label entries and picture files to checked records: what all detection formats share.

A reader yields one `PictureEntry` per picture; `checked_records` has its file looked at, cleans its
boxes and tells what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from readers.boxes import RawBox, clean_boxes
from readers.findings import FindingLog
from readers.pictures import Placed, Size, placed_pictures
from readers.records import ImageBoxes


@dataclass(frozen=True, slots=True)
class PictureEntry:
    """A picture that the labels name.

    Args:
        image_id: unique within the set.
        path: absolute.
        where: where the labels name it: file and line, or file and id.
        size: width and height as the labels give them, px; None where they do not.
        boxes: called once with the picture's size as the labels see it; returns boxes in px, or
            None where the reader has told that there are no labels.
        is_lost: its labels cannot be used, for a reason that the reader has told.
    """

    image_id: str
    path: Path
    where: str
    size: Size | None
    boxes: Callable[[Size], Sequence[RawBox] | None]
    is_lost: bool = False


def checked_records(
    entries: Iterable[PictureEntry], findings: FindingLog, *, jobs: int = 1
) -> Iterator[ImageBoxes]:
    """Yield the usable pictures with their usable boxes, in order.

    Args:
        entries: what the labels name.
        findings: gets everything that is wrong, and is closed at the end.
        jobs: threads that read picture files.

    Source: docs/data-sets.md lists each finding and what is done.
    """
    num_kept = num_boxes = 0
    on_loss = partial(_tell_boxes, findings)
    for entry, placed in placed_pictures(
        entries, findings, labels="boxes", jobs=jobs, on_loss=on_loss
    ):
        record = _record(entry, placed, findings)
        num_kept += 1
        num_boxes += len(record.labels)
        yield record
    if num_kept and num_boxes == 0:
        message = f"none of the {num_kept} pictures has a box: are the labels where they should be?"
        findings.fail("no-boxes", findings.source, message)
    findings.close()


def _record(entry: PictureEntry, placed: Placed, findings: FindingLog) -> ImageBoxes:
    raw = entry.boxes(placed.size)
    columns = clean_boxes(raw or (), placed.size, image_id=entry.image_id, findings=findings)
    if raw is not None:
        _note_contents(entry, len(raw), columns.is_crowd.tolist(), findings)
    return ImageBoxes(
        image_id=entry.image_id,
        path=entry.path,
        width=placed.size[0],
        height=placed.size[1],
        turn=placed.turn,
        boxes_xyxy=columns.boxes_xyxy,
        labels=columns.labels,
        is_crowd=columns.is_crowd,
        areas=columns.areas,
        annotation_ids=columns.annotation_ids,
        content=placed.content,
    )


def _tell_boxes(findings: FindingLog, entry: PictureEntry, code: str) -> None:
    """Note the boxes of a picture that cannot be used."""
    for box in entry.boxes(entry.size or (1, 1)) or ():
        findings.warn(
            "box-without-picture",
            box.where,
            f"its picture {entry.path.name} cannot be used ({code})",
            action="box dropped",
            image_id=entry.image_id,
        )


def _note_contents(
    entry: PictureEntry, num_raw: int, is_crowd: list[bool], findings: FindingLog
) -> None:
    about = {"action": "kept as background", "image_id": entry.image_id}
    if num_raw == 0:
        findings.warn("no-annotation", entry.where, "the picture has no box", **about)
    elif not is_crowd:
        message = f"none of the picture's {num_raw} boxes can be used"
        findings.warn("no-usable-box", entry.where, message, **about)
    elif all(is_crowd):
        message = "the picture has only crowd regions or difficult objects"
        findings.warn("only-crowd", entry.where, message, **about)
