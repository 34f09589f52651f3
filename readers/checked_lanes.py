"""From label entries and picture files to checked records: what all lane formats share.

A reader yields one `LaneEntry` per picture; `checked_lanes` has its file looked at, cleans its
lanes and tells what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from readers.findings import FindingLog
from readers.lane_records import ImageLanes
from readers.lanes import LaneCleaner, RawLane, share_outside
from readers.pictures import Placed, Size, placed_pictures

# Lanes run out of their pictures a little; of labels of another picture size most points do.
LARGEST_SHARE_OUTSIDE = 1 / 3
# Roads reach the bottom of their pictures; labels of a smaller size end far above it.
LEAST_REACH = 0.6


@dataclass(frozen=True, slots=True)
class LaneEntry:
    """A picture that the labels name.

    Args:
        image_id: unique within the set.
        path: absolute.
        where: where the labels name it: file and line, or file and id.
        size: width and height as the labels give them, px; None where they do not.
        lanes: called once; returns lanes in px, or None where the reader has told that there are
            no labels.
        h_samples: (S,) int64, as in `ImageLanes`.
        scenes: as in `ImageLanes`.
        mask: as in `ImageLanes`.
        is_lost: its labels cannot be used, for a reason that the reader has told.
    """

    image_id: str
    path: Path
    where: str
    lanes: Callable[[], Sequence[RawLane] | None]
    size: Size | None = None
    h_samples: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    scenes: tuple[str, ...] = ()
    mask: Path | None = None
    is_lost: bool = False


def checked_lanes(
    entries: Iterable[LaneEntry], cleaner: LaneCleaner, *, jobs: int = 1
) -> Iterator[ImageLanes]:
    """Yield the usable pictures with their lanes, in order.

    Args:
        entries: what the labels name.
        cleaner: its findings get everything that is wrong, and are closed at the end.
        jobs: threads that read picture files.

    Source: docs/data-sets.md lists each finding and what is done.
    """
    findings, totals = cleaner.findings, _Totals()
    for entry, placed in placed_pictures(entries, findings, labels="lanes", jobs=jobs):
        record = _record(entry, placed, cleaner)
        totals.add(record)
        yield record
    if cleaner.may_be_empty and totals.num_empty:
        totals.tell_empty(findings)
    totals.check(findings)
    findings.close()


def _record(entry: LaneEntry, placed: Placed, cleaner: LaneCleaner) -> ImageLanes:
    raw = entry.lanes()
    lanes = cleaner.clean(raw or (), placed.size, image_id=entry.image_id)
    if raw is not None and not any(len(lane) > 1 for lane in lanes):
        message = "the picture has no lane"
        if any(len(lane.points) for lane in raw):
            message = f"none of the picture's {len(raw)} lanes can be used"
        code = "no-lane" if message.endswith("no lane") else "no-usable-lane"
        about = {"action": "kept as a road without lanes", "image_id": entry.image_id}
        cleaner.findings.warn(code, entry.where, message, **about)
    return ImageLanes(
        image_id=entry.image_id,
        path=entry.path,
        width=placed.size[0],
        height=placed.size[1],
        turn=placed.turn,
        lanes=tuple(lanes),
        h_samples=entry.h_samples,
        scenes=entry.scenes,
        mask=entry.mask,
        content=placed.content,
    )


@dataclass
class _Totals:
    """What is known only when all pictures were seen."""

    num_pictures: int = 0
    num_lanes: int = 0
    num_empty: int = 0  # lanes without any point
    num_points: int = 0
    num_outside: int = 0
    reach: np.ndarray = field(default_factory=lambda: np.zeros(2))  # as a share of the sides

    def add(self, record: ImageLanes) -> None:
        """Count a picture."""
        size = record.width, record.height
        self.num_pictures += 1
        self.num_lanes += sum(len(lane) > 1 for lane in record.lanes)
        self.num_empty += sum(len(lane) == 0 for lane in record.lanes)
        outside, points = share_outside(record.lanes, size)
        self.num_outside += outside
        self.num_points += points
        for lane in record.lanes:
            if len(lane):
                self.reach = np.maximum(self.reach, lane.max(axis=0) / size)

    def tell_empty(self, findings: FindingLog) -> None:
        """Tell how many lanes only fill up the lists of the format; told one by one they drown."""
        message = f"lanes without any point: {self.num_empty}"
        action, count = "kept: the benchmark's score counts each as a lane", self.num_empty
        findings.warn("empty-lanes", findings.source, message, action=action, count=count)

    def check(self, findings: FindingLog) -> None:
        """Tell what no single picture shows."""
        source = findings.source
        if self.num_pictures and not self.num_lanes:
            message = (
                f"none of the {self.num_pictures} pictures has a lane: are the labels where they "
                "should be?"
            )
            findings.fail("no-lanes", source, message)
        elif self.num_outside > LARGEST_SHARE_OUTSIDE * self.num_points:
            share = self.num_outside / self.num_points
            message = (
                f"{share:.0%} of the points lie outside their pictures: labels of other sizes?"
            )
            findings.fail("labels-of-larger-pictures", source, message)
        elif self.num_lanes and (self.reach < LEAST_REACH).all():
            across, down = self.reach
            message = (
                f"all lanes lie in the upper left {across:.0%} x {down:.0%} of their pictures: "
                "labels of smaller pictures?"
            )
            findings.warn("labels-of-smaller-pictures", source, message, action="kept as they are")
