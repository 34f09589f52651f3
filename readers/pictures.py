"""From label entries and picture files to checked records: what all detection formats share.

A reader yields one `PictureEntry` per picture; `checked_records` looks at the files (several at a
time), decides how each is turned, cleans its boxes and tells what it found.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import joblib

from readers.boxes import RawBox, clean_boxes
from readers.findings import FindingLog
from readers.images import ImageInfo, probe_image
from readers.records import DatasetError, ImageBoxes

# Pictures whose files are looked at before their boxes are; bounds what is held in memory.
CHUNK = 512
# A few lost pictures in a large set are no reason to stop; more than this share are.
LARGEST_LOST_SHARE = 0.1

Size = tuple[int, int]


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
    num_seen = num_kept = num_boxes = 0
    remaining = iter(entries)
    while chunk := list(islice(remaining, CHUNK)):
        probes = probe_images([entry.path for entry in chunk], jobs=jobs)
        for entry, probe in zip(chunk, probes, strict=True):
            num_seen += 1
            record = None if entry.is_lost else _record(entry, probe, findings)
            if record is None:
                continue
            num_kept += 1
            num_boxes += len(record.labels)
            yield record
    _check_totals(num_seen, num_kept, num_boxes=num_boxes, findings=findings)
    findings.close()


def probe_images(paths: Sequence[Path], *, jobs: int) -> list[ImageInfo | DatasetError]:
    """Return what `probe_image` says of each file, or its error, in order.

    Args:
        paths: picture files.
        jobs: threads; reading and hashing run beside each other.
    """
    # Here and not in probe_image: warning filters are shared by all threads.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # large pictures and odd metadata are no concern here
        if jobs == 1:
            return [_probe(path) for path in paths]
        work = (joblib.delayed(_probe)(path) for path in paths)
        return list(joblib.Parallel(n_jobs=jobs, prefer="threads", batch_size=16)(work))


def _probe(path: Path) -> ImageInfo | DatasetError:
    try:
        return probe_image(path)
    except DatasetError as error:
        return error


def _record(
    entry: PictureEntry, probe: ImageInfo | DatasetError, findings: FindingLog
) -> ImageBoxes | None:
    if isinstance(probe, DatasetError):
        is_missing = not os.path.exists(entry.path)  # noqa: PTH110 - False for names that cannot be
        code = "missing-picture" if is_missing else "unreadable-picture"
        message = f"{entry.path}: no such file" if is_missing else str(probe)
        _lose(entry, code, message, findings)
        return None
    _note_picture(entry, probe, findings)
    placed = _size_and_turn(entry, probe, findings)
    if placed is None:
        return None
    size, turn = placed
    raw = entry.boxes(size)
    columns = clean_boxes(raw or (), size, image_id=entry.image_id, findings=findings)
    if raw is not None:
        _note_contents(entry, len(raw), columns.is_crowd.tolist(), findings)
    return ImageBoxes(
        image_id=entry.image_id,
        path=entry.path,
        width=size[0],
        height=size[1],
        turn=turn,
        boxes_xyxy=columns.boxes_xyxy,
        labels=columns.labels,
        is_crowd=columns.is_crowd,
        areas=columns.areas,
        annotation_ids=columns.annotation_ids,
        content=probe.content,
    )


def _lose(entry: PictureEntry, code: str, message: str, findings: FindingLog) -> None:
    """Note a picture that cannot be used, and the boxes that go with it."""
    about = {"action": "picture dropped with its boxes", "image_id": entry.image_id}
    findings.warn(code, entry.where, message, **about)
    for box in entry.boxes(entry.size or (1, 1)) or ():
        findings.warn(
            "box-without-picture",
            box.where,
            f"its picture {entry.path.name} cannot be used ({code})",
            action="box dropped",
            image_id=entry.image_id,
        )


def _note_picture(entry: PictureEntry, info: ImageInfo, findings: FindingLog) -> None:
    if info.is_truncated:
        findings.warn(
            "truncated-picture",
            entry.where,
            f"{entry.path} ends early",
            action="kept; the decoder fills what is missing with grey",
            image_id=entry.image_id,
        )
    if info.is_dark:
        findings.warn(
            "dark-16-bit-picture",
            entry.where,
            f"{entry.path} has 16 bits a channel but uses only the lowest: nearly black in 8",
            action="kept; stretch its values to the full range",
            image_id=entry.image_id,
        )


def _size_and_turn(
    entry: PictureEntry, info: ImageInfo, findings: FindingLog
) -> tuple[Size, int] | None:
    """Return the size that the labels count in, and the turn that gives it; None: unusable."""
    stored, upright, given = (info.width, info.height), info.upright_size, entry.size
    if given is None:
        return upright, info.orientation
    if given == stored == upright and info.orientation != 1:
        findings.warn(
            "ambiguous-orientation",
            entry.where,
            f"EXIF orientation is {info.orientation}, and the size in the labels fits the stored "
            "and the turned picture",
            action="labels are taken to be of the turned picture",
            image_id=entry.image_id,
        )
    if given == upright:
        return upright, info.orientation
    if given == stored:
        return stored, 1
    message = (
        f"the labels say {given[0]}x{given[1]}, {entry.path.name} is {upright[0]}x{upright[1]}"
    )
    is_swapped = given == (upright[1], upright[0])
    is_close = max(abs(given[0] - upright[0]), abs(given[1] - upright[1])) <= 1
    if not is_swapped and not is_close:
        _lose(entry, "size-mismatch", message, findings)
        return None
    findings.warn(
        "swapped-size" if is_swapped else "size-off-by-one",
        entry.where,
        message,
        action="the file's size is used",
        image_id=entry.image_id,
    )
    return upright, info.orientation


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


def _check_totals(num_seen: int, num_kept: int, *, num_boxes: int, findings: FindingLog) -> None:
    num_lost = num_seen - num_kept
    if num_kept == 0:
        message = f"no picture can be used ({num_seen} named)"
        findings.fail("no-pictures", findings.source, message)
    elif num_lost > LARGEST_LOST_SHARE * num_seen:
        message = (
            f"{num_lost} of {num_seen} pictures cannot be used, more than "
            f"{LARGEST_LOST_SHARE:.0%}: is the folder right?"
        )
        findings.fail("too-many-lost-pictures", findings.source, message)
    if num_kept and num_boxes == 0:
        message = f"none of the {num_kept} pictures has a box: are the labels where they should be?"
        findings.fail("no-boxes", findings.source, message)
