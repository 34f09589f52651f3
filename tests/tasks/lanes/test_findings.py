from __future__ import annotations

import numpy as np
import pytest

from readers.findings import FindingLog
from readers.lane_index import build_lane_index
from readers.lane_records import ABSENT, ImageLanes
from readers.records import Finding
from tasks.lanes.findings import draw_finding, lane_counts, note_lanes, note_sizes, note_slots
from tests.builders import write_picture

FRAME = (200, 100)
HEIGHTS = np.arange(0, 101, 10, dtype=np.float32)
LEFT = np.array([[40.0, 100.0], [80.0, 20.0]])
RIGHT = np.array([[160.0, 100.0], [120.0, 20.0]])


def record(tmp_path, number, lanes=(), slots=(), *, size=FRAME, rows=(), scenes=()):
    path = tmp_path / f"{number}.png"
    write_picture(path, np.full((size[1], size[0], 3), 90, np.uint8))
    grid = np.full((2, len(HEIGHTS), 2), ABSENT, np.float32)
    for slot in slots:
        grid[max(slot, 0), :5] = 7.0
    return ImageLanes(
        f"{number}.png",
        path,
        *size,
        turn=1,
        lanes=tuple(lanes),
        h_samples=np.array(rows, np.int64),
        scenes=scenes,
        slots=np.array(slots, np.int64),
        grid=grid,
    )


def index_of(*records, scenes=()):
    return build_lane_index(records, num_lanes=2, frame=FRAME, grid_y=HEIGHTS, scenes=scenes)


def test_counts_are_of_pictures_lanes_slots_and_points(tmp_path):
    empty = np.zeros((0, 2))
    counts = lane_counts(
        index_of(
            record(tmp_path, 0, (RIGHT, LEFT), (1, 0), rows=(20, 60, 100), scenes=("night",)),
            record(tmp_path, 1, (LEFT, empty), (-1, -1), rows=(20, 50, 100)),
            record(tmp_path, 2, size=(50, 50)),
            scenes=("normal", "night"),
        )
    )
    counts.pop("digest")
    assert counts == {
        "pictures": 3,
        "pictures_without_lanes": 1,
        "pictures_with_lanes_out_of_order": 1,
        "lanes": 3,
        "lanes_without_slot": 1,
        "empty_lanes": 1,
        "points": 6,
        "points_on_the_grid": 15,
        "frame": "200x100",
        "grid": "0 to 100 px, step 10",
        "lanes_per_slot": {"slot 1": 1, "slot 2": 1},
        "lanes_per_picture": {"0": 1, "1": 1, "2": 1},
        "pictures_per_scene": {"normal": 0, "night": 1},
        "rows_of_the_labels": {
            "20 to 100 px, step 40": 1,
            "20 to 100 px, uneven steps": 1,
            "none": 1,
        },
        "picture_sizes": {"200x100": 2, "50x50": 1},
    }


def test_sizes_other_than_the_frame_are_told_once(tmp_path):
    sizes = [FRAME, (50, 50), (60, 60), (70, 70), (80, 80), (50, 50)]
    records = [record(tmp_path, number, size=size) for number, size in enumerate(sizes)]
    findings = FindingLog("labels")
    note_sizes(index_of(*records[:1]), findings)
    assert findings == []
    note_sizes(index_of(*records), findings)
    (finding,) = findings
    assert finding.message == (
        "data.frame is 200x100, 5 of 6 pictures are 50x50, 60x60, 70x70 and 1 other sizes"
    )


@pytest.mark.parametrize(
    ("split", "lanes", "slots", "told"),
    [
        ("train", (), (), ("error", "no-lanes")),
        ("val", (), (), ("warning", "no-lanes")),
        ("train", (LEFT,), (-1,), ("error", "no-slots")),
        ("train", (LEFT,), (0,), None),
    ],
)
def test_splits_without_lanes_or_slots_are_told(tmp_path, split, lanes, slots, told):
    findings = []
    note_lanes(split, index_of(record(tmp_path, 0, lanes, slots)), findings)
    assert [(one.severity, one.code) for one in findings] == ([] if told is None else [told])
    note_lanes(split, index_of(record(tmp_path, 0, lanes, slots)), findings)
    assert len(findings) <= (2 if told and told[1] == "no-slots" else 1)


def test_slots_that_no_lane_has_are_told_once(tmp_path):
    findings = []
    note_slots(index_of(record(tmp_path, 0, (LEFT, RIGHT), (0, 1))), findings)
    note_slots(index_of(record(tmp_path, 0, (LEFT,), (-1,))), findings)
    assert findings == []
    note_slots(index_of(record(tmp_path, 0, (RIGHT,), (1,))), findings)
    ((code, message),) = [(one.code, one.message) for one in findings]
    assert (code, message) == ("slots-without-lanes", "no lane has slot 1 of 2 (model.lanes)")


@pytest.mark.parametrize("box", [None, (40, 20, 80, 100), (-900, -900, 1e9, 1e9)])
def test_any_finding_can_be_drawn(tmp_path, box):
    draw = draw_finding(index_of(record(tmp_path, 0, (LEFT, RIGHT, LEFT[:0]), (0, -1, -1))))
    picture = draw(Finding("warning", "x", "", "", "", image_id="0.png", box_xyxy=box))
    assert (picture.shape, picture.dtype) == ((224, 448, 3), np.uint8)
    assert draw(Finding("warning", "x", "", "", "", image_id="none")) is None


def test_the_lane_in_question_has_a_red_box(tmp_path):
    draw = draw_finding(index_of(record(tmp_path, 0, (LEFT,), (0,))))
    plain = draw(Finding("warning", "x", "", "", "", image_id="0.png"))
    boxed = draw(Finding("warning", "x", "", "", "", image_id="0.png", box_xyxy=(20, 20, 80, 90)))
    changed = np.argwhere((plain != boxed).any(axis=2))
    assert changed.min(axis=0) == pytest.approx([41, 41], abs=2)  # 20 px x 2.24, less the margin
    assert changed.max(axis=0) == pytest.approx([206, 183], abs=2)
