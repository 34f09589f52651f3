"""Drawn roads as data sets."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from readers.culane import read_culane
from readers.images import read_image
from readers.records import DatasetError
from readers.tusimple import read_tusimple
from tasks.lanes.config import RoadsSource
from tasks.lanes.synthetic import (
    LABELS,
    SCENES_FOLDER,
    TEST_LIST,
    TRAIN_LIST,
    draw_roads,
    write_roads,
)

SCENES = ("normal", "crowd", "hlight", "shadow", "noline", "arrow", "curve", "cross", "night")


def source(**changes) -> RoadsSource:
    given = {"format": "synthetic", "roads": 6, "size": (160, 96), "seed": 3}
    return RoadsSource(**(given | changes))


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("size", [(64, 64), (64, 200), (640, 240), (320, 180)])
def test_a_picture_has_the_size_and_lanes_lie_in_it(size):
    for road in draw_roads(source(roads=12, size=size)):
        assert road.picture.shape == (size[1], size[0], 3)
        assert road.picture.dtype == np.uint8
        for lane in road.lanes.values():
            assert (lane >= 0).all()
            assert (lane <= size).all()


def test_a_written_culane_set_is_read_back_as_drawn(tmp_path):
    wanted = source(roads=30)
    write_roads(tmp_path / "a set", wanted)

    found = read_culane(tmp_path / "a set", TRAIN_LIST, scenes=SCENES_FOLDER)
    records = list(found.records)

    assert {finding.code for finding in found.findings} <= {"empty-scene", "no-lane"}
    assert sorted(found.scenes) == sorted(SCENES)
    for record, drawn in zip(records, draw_roads(wanted), strict=True):
        assert record.scenes == (drawn.scene,)
        for lane, true in zip(record.lanes, drawn.lanes.values(), strict=True):
            assert np.allclose(lane, true, atol=5.1e-4)
        assert np.abs(read_image(record.path).astype(int) - drawn.picture).mean() < 12


def test_masks_and_presence_bits_say_the_slot_of_each_lane(tmp_path):
    wanted = source(roads=12)
    write_roads(tmp_path, wanted)

    lines = (tmp_path / TRAIN_LIST).read_text(encoding="utf-8").splitlines()

    for line, drawn in zip(lines, draw_roads(wanted), strict=True):
        _, mask_name, *bits = line.split()
        mask = cv2.imdecode(
            np.frombuffer((tmp_path / mask_name[1:]).read_bytes(), np.uint8), cv2.IMREAD_UNCHANGED
        )
        assert [slot for slot in range(4) if bits[slot] == "1"] == list(drawn.lanes)
        assert set(np.unique(mask)) == {0, *(slot + 1 for slot in drawn.lanes)}
        for slot, lane in drawn.lanes.items():
            x, y = lane[len(lane) // 2].astype(int)
            # where CULane's slots are read
            assert mask[y - 1, x - 1] == slot + 1


def test_every_picture_is_in_both_lists_and_in_one_scene(tmp_path):
    write_roads(tmp_path, source(roads=40, size=(64, 64)))

    files = sorted((tmp_path / SCENES_FOLDER).iterdir())
    listed = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]

    assert [file.name for file in files] == [f"test{n}_{name}.txt" for n, name in enumerate(SCENES)]
    test_list = (tmp_path / TEST_LIST).read_text(encoding="utf-8").splitlines()
    assert sorted(listed) == test_list
    assert len(test_list) == 40


def test_crossings_have_no_lanes_and_other_scenes_have_some():
    lanes = {scene: [] for scene in SCENES}
    for road in draw_roads(source(roads=150, size=(64, 64))):
        lanes[road.scene].append(len(road.lanes))

    assert set(lanes.pop("cross")) == {0}
    assert all(min(counts) >= 1 for counts in lanes.values())
    assert max(map(max, lanes.values())) == 4


def test_a_written_tusimple_set_is_read_back_as_drawn(tmp_path):
    wanted = source(layout="tusimple", size=(320, 180), roads=20)
    write_roads(tmp_path, wanted)

    found = read_tusimple(tmp_path, [LABELS])

    assert not found.findings
    for record, drawn in zip(found.records, draw_roads(wanted), strict=True):
        assert drawn.scene != "cross"
        assert record.image_id.endswith("/20.jpg")
        assert record.path.stat().st_size > 0
        assert record.h_samples[0] >= 40
        for lane, true in zip(record.lanes, drawn.lanes.values(), strict=True):
            inside = true[true[:, 1] < 180][::-1]
            assert np.array_equal(lane[:, 1], inside[:, 1])
            # TuSimple's x are whole numbers
            assert np.abs(lane[:, 0] - inside[:, 0]).max() <= 0.5


def test_roads_do_not_depend_on_how_many_there_are(tmp_path):
    write_roads(tmp_path / "few", source(roads=2))
    write_roads(tmp_path / "more", source(roads=3))

    few, more = contents(tmp_path / "few"), contents(tmp_path / "more")
    pictures = [name for name in few if name.endswith((".jpg", ".png", ".lines.txt"))]
    assert len(pictures) == 6
    assert all(few[name] == more[name] for name in pictures)


def test_the_same_source_gives_the_same_bytes_and_another_seed_others(tmp_path):
    write_roads(tmp_path / "a", source())
    write_roads(tmp_path / "b", source())
    write_roads(tmp_path / "c", source(seed=4))

    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    name = "driver_00_00frame/00000000.MP4/00000.jpg"
    assert contents(tmp_path / "a")[name] != contents(tmp_path / "c")[name]


@pytest.mark.parametrize("layout", ["culane", "tusimple"])
def test_a_whole_set_is_not_drawn_again(layout, tmp_path):
    folder = tmp_path / "s"
    write_roads(folder, source(layout=layout))
    before = (folder / "sightflow.json").stat()

    write_roads(folder, source(layout=layout))

    after = (folder / "sightflow.json").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


@pytest.mark.parametrize(
    "damage", ["picture", "label", "list", "stamp", "other-seed", "other-layout"]
)
def test_a_damaged_or_other_set_is_drawn_anew(damage, tmp_path):
    folder = tmp_path / "s"
    before = {"other-seed": {"seed": 9}, "other-layout": {"layout": "tusimple"}}.get(damage, {})
    write_roads(folder, source(**before))
    if damage == "picture":
        next(folder.rglob("*.jpg")).unlink()
    if damage == "label":
        next(folder.rglob("*.lines.txt")).unlink()
    if damage == "list":
        (folder / TRAIN_LIST).unlink()
    if damage == "stamp":
        (folder / "sightflow.json").write_text('{"dra', encoding="utf-8")

    write_roads(folder, source())

    assert json.loads((folder / "sightflow.json").read_text(encoding="utf-8"))["seed"] == 3
    assert len(list(folder.rglob("*.jpg"))) == len(list(folder.rglob("*.lines.txt"))) == 6
    assert (folder / TRAIN_LIST).exists()
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"x")

    with pytest.raises(DatasetError, match=r"holds 'holiday\.jpg', which is no part"):
        write_roads(tmp_path, source())
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]
