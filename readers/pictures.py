"""From named picture files to checked ones: what the readers of all tasks share.

A reader names pictures with what its labels say of them; `placed_pictures` looks at the files
(several at a time), tells what is wrong and decides how each is turned.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

import joblib

from readers.findings import FindingLog
from readers.images import ImageInfo, probe_image
from readers.records import DatasetError

# Pictures whose files are looked at before their labels are; bounds what is held in memory.
CHUNK = 512
# A few lost pictures in a large set are no reason to stop; more than this share are.
LARGEST_LOST_SHARE = 0.1

Size = tuple[int, int]


class NamedPicture(Protocol):
    """A picture that the labels name."""

    @property
    def image_id(self) -> str:
        """Unique within the set."""

    @property
    def path(self) -> Path:
        """Absolute."""

    @property
    def where(self) -> str:
        """Where the labels name it: file and line, or file and id."""

    @property
    def size(self) -> Size | None:
        """Width and height as the labels give them, px; None where they do not."""

    @property
    def is_lost(self) -> bool:
        """Whether its labels cannot be used, for a reason that the reader has told."""


Entry = TypeVar("Entry", bound=NamedPicture)


@dataclass(frozen=True, slots=True)
class Placed:
    """How a usable picture goes with its labels.

    Args:
        size: width and height that the labels count in, px.
        turn: EXIF orientation (1 to 8) that gives the stored pixels that size.
        content: SHA-256 of the file, hex.
    """

    size: Size
    turn: int
    content: str


def placed_pictures(
    entries: Iterable[Entry],
    findings: FindingLog,
    *,
    labels: str,
    jobs: int = 1,
    on_loss: Callable[[Entry, str], None] | None = None,
) -> Iterator[tuple[Entry, Placed]]:
    """Yield the usable pictures, in order; at the end tell whether too many are lost.

    Args:
        entries: what the labels name.
        findings: gets everything that is wrong with the pictures.
        labels: what goes with a lost picture: `boxes`, `lanes`.
        jobs: threads that read picture files.
        on_loss: called with each entry whose file cannot be used and the finding's code.

    Source: docs/data-sets.md lists each finding and what is done.
    """
    num_seen = num_kept = 0
    remaining = iter(entries)
    while chunk := list(islice(remaining, CHUNK)):
        probes = probe_images([entry.path for entry in chunk], jobs=jobs)
        for entry, probe in zip(chunk, probes, strict=True):
            num_seen += 1
            if entry.is_lost:
                continue
            try:
                placed = _place(entry, probe, findings)
            except _LostPictureError as loss:
                action = f"picture dropped with its {labels}"
                about = {"action": action, "image_id": entry.image_id}
                findings.warn(loss.code, entry.where, str(loss), **about)
                if on_loss is not None:
                    on_loss(entry, loss.code)
                continue
            num_kept += 1
            yield entry, placed
    _check_losses(num_seen, num_kept, findings)


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


class _LostPictureError(Exception):
    """A picture that cannot be used; `code` is that of the finding, the text says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _place(entry: Entry, probe: ImageInfo | DatasetError, findings: FindingLog) -> Placed:
    if isinstance(probe, DatasetError):
        # os.path: False for names that cannot be
        if not os.path.exists(entry.path):  # noqa: PTH110
            raise _LostPictureError("missing-picture", f"{entry.path}: no such file")
        raise _LostPictureError("unreadable-picture", str(probe))
    _note_picture(entry, probe, findings)
    size, turn = _size_and_turn(entry, probe, findings)
    return Placed(size, turn, probe.content)


def _note_picture(entry: Entry, info: ImageInfo, findings: FindingLog) -> None:
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


def _size_and_turn(entry: Entry, info: ImageInfo, findings: FindingLog) -> tuple[Size, int]:
    """Return the size that the labels count in, and the turn that gives it."""
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
        raise _LostPictureError("size-mismatch", message)
    findings.warn(
        "swapped-size" if is_swapped else "size-off-by-one",
        entry.where,
        message,
        action="the file's size is used",
        image_id=entry.image_id,
    )
    return upright, info.orientation


def _check_losses(num_seen: int, num_kept: int, findings: FindingLog) -> None:
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
