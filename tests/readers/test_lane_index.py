from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from readers.index import ImageBoxesIndex
from readers.lane_index import ImageLanesIndex, build_lane_index, concat
from readers.lane_records import ABSENT, ImageLanes
from readers.records import DatasetError

GRID_Y = np.array([20, 40, 60], np.float32)
ARRAYS = ("h_samples", "slots", "grid")


def rec(image_id, lanes=(), slots=(), *, scenes=(), mask=None, h_samples=()) -> ImageLanes:
    lanes = tuple(np.asarray(lane, np.float64).reshape(-1, 2) for lane in lanes)
    grid = np.full((2, 3, 2), ABSENT, np.float32)
    for lane, slot in zip(lanes, slots, strict=True):
        if slot >= 0:
            grid[slot] = np.stack([np.full(3, lane[0, 0]), GRID_Y], axis=1)
    return ImageLanes(
        image_id=image_id,
        path=Path(f"/d/{image_id}.jpg"),
        width=96,
        height=72,
        turn=1,
        lanes=lanes,
        h_samples=np.asarray(h_samples, np.int64),
        scenes=tuple(scenes),
        mask=mask,
        slots=np.asarray(slots, np.int64),
        grid=grid,
        content=f"content of {image_id}",
    )


RECORDS = (
    rec("a", [[(1, 20), (2.5, 40)], [(50, 60)]], [0, 1], scenes=["normal"], h_samples=[20, 40]),
    rec("b"),
    rec("c", [[(7, 20)], []], [1, -1], scenes=["crowd", "normal"]),
)


def built(*records, scenes=("normal", "crowd"), **keys) -> ImageLanesIndex:
    keys = {"num_lanes": 2, "frame": (96, 72), "grid_y": GRID_Y, "scenes": scenes} | keys
    return build_lane_index(records, **keys)


def assert_same(first: ImageLanes, second: ImageLanes) -> None:
    assert len(first.lanes) == len(second.lanes)
    for one, two in zip(first.lanes, second.lanes, strict=True):
        assert np.array_equal(one, two)
        assert one.dtype == two.dtype == np.float64
    for name in ARRAYS:
        assert np.array_equal(getattr(first, name), getattr(second, name)), name
        assert getattr(first, name).dtype == getattr(second, name).dtype, name
    for name in ("image_id", "path", "width", "height", "turn", "scenes", "mask", "content"):
        assert getattr(first, name) == getattr(second, name), name


def test_opened_file_gives_the_records_back(tmp_path):
    path = tmp_path / "da ta" / "\u00fc.arrow"
    index = built(*RECORDS).save(path)
    opened = ImageLanesIndex.open(path)
    for record, first, second in zip(RECORDS, index, opened, strict=True):
        assert_same(record, first)
        assert_same(record, second)
    assert (opened.num_lanes, opened.frame, opened.scenes) == (2, (96, 72), ("normal", "crowd"))
    assert opened.grid_y.tolist() == [20, 40, 60]
    assert opened.grid_y.dtype == np.float32


def test_arrays_are_views_that_cannot_be_changed(tmp_path):
    index = built(*RECORDS).save(tmp_path / "x.arrow")
    assert np.shares_memory(index[0].lanes[0], index[0].lanes[0])
    for array in (index[0].lanes[1], index[0].grid, index.all_grids()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


def test_all_grids_follow_the_rows(tmp_path):
    index = built(*RECORDS).save(tmp_path / "x.arrow")
    assert index.all_grids().shape == (3, 2, 3, 2)
    assert index.all_grids().dtype == np.float32
    chosen = index.subset([2, 0])
    assert np.array_equal(chosen.all_grids()[1], RECORDS[0].grid)
    assert chosen.all_grids()[0, 1, :, 0].tolist() == [7, 7, 7]
    assert built().all_grids().shape == (0, 2, 3, 2)


def test_counts_tell_slots_and_scenes():
    index = built(*RECORDS)
    assert index.counts() == {
        "pictures": 3,
        "lanes": 4,
        "without_lanes": 1,
        "without_slot": 1,
        "per_slot": [1, 2],
        "per_scene": {"normal": 2, "crowd": 1},
    }
    assert index.subset([1, 2]).counts()["per_slot"] == [0, 1]
    assert index.lane_counts().tolist() == [2, 0, 2]
    assert index.subset([2, 1]).in_scenes().tolist() == [[True, True], [False, False]]
    assert built().counts()["per_slot"] == [0, 0]


def test_subset_and_slice_choose_rows_in_order():
    index = built(*RECORDS)
    chosen = index.subset([2, 0])
    assert [record.image_id for record in chosen] == ["c", "a"]
    assert index[1:].image_ids == ["b", "c"]
    assert index[-1].image_id == "c"
    assert chosen.sizes.tolist() == [[96, 72], [96, 72]]
    assert chosen.contents == ["content of c", "content of a"]
    with pytest.raises(IndexError):
        chosen[2]


def test_saved_subset_equals_the_subset(tmp_path):
    chosen = built(*RECORDS).subset([2, 0])
    saved = chosen.save(tmp_path / "x.arrow")
    assert saved.digest == chosen.digest
    assert saved.all_grids().tolist() == chosen.all_grids().tolist()
    for first, second in zip(chosen, saved, strict=True):
        assert_same(first, second)


def test_digest_follows_content_and_not_places(tmp_path):
    index = built(*RECORDS)
    moved = [replace(record, path=tmp_path / record.path.name) for record in RECORDS]
    assert built(*moved).digest == index.digest
    changes = [
        replace(RECORDS[2], content="other"),
        replace(RECORDS[2], lanes=(RECORDS[2].lanes[0] + 0.5, RECORDS[2].lanes[1])),
        replace(RECORDS[2], lanes=RECORDS[2].lanes[::-1]),
        replace(RECORDS[2], slots=np.array([0, -1])),
        replace(RECORDS[2], grid=RECORDS[2].grid + 1),
        replace(RECORDS[2], scenes=("normal",)),
        replace(RECORDS[2], h_samples=np.array([20])),
        replace(RECORDS[2], turn=6),
    ]
    digests = {built(*RECORDS[:2], change).digest for change in changes}
    digests |= {built(*RECORDS, frame=(96, 73)).digest, built(*RECORDS[::-1]).digest}
    digests |= {built(*RECORDS, grid_y=GRID_Y + 1).digest}
    assert len(digests) == 11
    assert index.digest not in digests


def test_digest_follows_the_content_of_masks(tmp_path):
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    one.write_bytes(b"mask")
    two.write_bytes(b"mask")
    first = built(rec("a", mask=one))
    assert first[0].mask == one
    assert built(rec("a", mask=two)).digest == first.digest
    two.write_bytes(b"other")
    assert built(rec("a", mask=two), jobs=2).digest != first.digest
    assert built(rec("a")).digest != first.digest


def test_mask_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(DatasetError, match=r"gone\.png: cannot be read: No such file"):
        built(rec("a", mask=tmp_path / "gone.png"))


@pytest.mark.parametrize("is_saved", [True, False])
def test_index_travels_to_other_processes(tmp_path, is_saved):
    index = built(*RECORDS)
    index = (index.save(tmp_path / "x.arrow") if is_saved else index).subset([2, 0])
    sent = pickle.loads(pickle.dumps(index))
    assert sent.image_ids == ["c", "a"]
    assert sent.digest == index.digest
    if is_saved:
        assert len(pickle.dumps(index)) < 1000


def test_joining_keeps_ids_apart_and_scenes_together():
    other = built(
        rec("a", scenes=["night"]), rec("d", scenes=["normal"]), scenes=["night", "normal"]
    )
    joined = concat([built(*RECORDS), other])
    assert joined.image_ids == ["a", "b", "c", "1/a", "d"]
    assert joined.scenes == ("normal", "crowd", "night")
    assert [record.scenes for record in joined][3:] == [("night",), ("normal",)]
    assert_same(joined[2], RECORDS[2])
    assert_same(concat([other[1:]])[0], other[1])


def test_indexes_of_other_frames_cannot_be_joined():
    with pytest.raises(DatasetError, match="different slots, frames or grids"):
        concat([built(*RECORDS), built(*RECORDS, frame=(96, 73))])


def test_two_pictures_of_one_id_are_refused():
    with pytest.raises(DatasetError, match="two pictures have the id 'b'"):
        built(RECORDS[1], RECORDS[1])


def test_records_that_are_not_prepared_are_refused():
    with pytest.raises(ValueError, match="a: a grid"):
        built(replace(RECORDS[0], grid=np.zeros((0, 0, 2), np.float32)))
    with pytest.raises(ValueError, match="a slot a lane"):
        built(replace(RECORDS[0], slots=np.zeros(1, np.int64)))


def test_an_index_of_boxes_is_no_index_of_lanes(tmp_path):
    built(*RECORDS).save(tmp_path / "x.arrow")
    with pytest.raises(DatasetError, match="no data index of this version"):
        ImageBoxesIndex.open(tmp_path / "x.arrow")
