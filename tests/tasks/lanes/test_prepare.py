from __future__ import annotations

import json

import cv2
import numpy as np
import pytest

from readers.culane import write_lines_txt
from readers.lane_index import ImageLanesIndex
from readers.lane_records import ABSENT
from readers.records import DatasetError
from readers.tusimple import tusimple_line
from tasks.lanes.config import LaneDataConfig
from tasks.lanes.masks import draw_mask
from tasks.lanes.prepare import prepare_data
from tests.builders import write_picture
from tests.shared import shared_data

SIZE = (320, 180)
ROWS = np.arange(60, 180, 10)
# outer left, left, right, outer right
ROAD = (
    np.array([[20.0, 140.0], [140.0, 60.0]]),
    np.array([[100.0, 170.0], [155.0, 60.0]]),
    np.array([[220.0, 170.0], [165.0, 60.0]]),
    np.array([[300.0, 140.0], [180.0, 60.0]]),
)


def picture(path, seed):
    pixels = np.random.RandomState(seed).randint(0, 255, (SIZE[1], SIZE[0], 3), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_picture(path, pixels)


def build_culane(root, *, roads=3, lanes=ROAD, slots=(0, 1, 2, 3), seed=0, masks=True):
    """Write pictures of one road as CULane; the masks give the lanes these slots."""
    entries = []
    for number in range(roads):
        name = f"drive/{seed}-{number}"
        path = picture(root / f"{name}.jpg", seed * 100 + number)
        write_lines_txt(path.with_suffix(".lines.txt"), lanes)
        entry = f"/{name}.jpg"
        if masks:
            mask = draw_mask(lanes, np.array(slots), size=SIZE, thickness=6)
            (root / "masks/drive").mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(root / f"masks/{name}.png"), mask)
            entry += f" /masks/{name}.png " + " ".join("1" for _ in lanes)
        entries.append(entry)
    (root / "list.txt").write_text("\n".join(entries) + "\n")
    return {"format": "culane", "root": str(root), "list": "list.txt"}


def build_tusimple(root, *, roads=3, lanes=ROAD, seed=0):
    rows = []
    for number in range(roads):
        name = f"clips/{seed}-{number}/20.jpg"
        picture(root / name, seed * 100 + number)
        rows.append(tusimple_line(name, lanes, ROWS))
    (root / "labels.json").write_text("\n".join(rows) + "\n")
    return {"format": "tusimple", "root": str(root), "labels": ["labels.json"]}


def prepare(tmp_path, *, jobs=1, num_lanes=4, wants_masks=False, frame=SIZE, **settings):
    settings.setdefault("slots", {"shortest": 30})
    config = LaneDataConfig.model_validate({"frame": frame, **settings})
    return prepare_data(
        config,
        num_lanes=num_lanes,
        wants_masks=wants_masks,
        base=tmp_path,
        working=tmp_path / "work",
        output=tmp_path / "out",
        jobs=jobs,
    )


def codes(prepared):
    return {name: [one.code for one in split.findings] for name, split in prepared.items()}


def quality(tmp_path):
    return json.loads((tmp_path / "out" / "quality.json").read_text("utf-8"))


def made_masks(tmp_path):
    return {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.png")}


@pytest.mark.parametrize("build", [build_culane, build_tusimple])
def test_each_benchmark_becomes_an_index(tmp_path, build):
    train, val = build(tmp_path / "train"), build(tmp_path / "val", roads=2, seed=1)
    prepared = prepare(tmp_path, train=train, val=val)
    assert codes(prepared) == {"train": [], "val": []}
    for name, count in (("train", 3), ("val", 2)):
        opened = ImageLanesIndex.open(tmp_path / "out" / f"{name}.arrow")
        assert (len(opened), opened.frame, opened.num_lanes) == (count, SIZE, 4)
        assert opened.digest == prepared[name].index.digest
        assert opened[0].slots.tolist() == [0, 1, 2, 3]
        assert opened.grid_y.tolist() == list(range(0, 181, 2))


def test_lanes_lie_at_the_heights_of_the_grid(tmp_path):
    source = build_culane(tmp_path / "set")
    grid = {"first": 50, "last": 170, "step": 20}
    record = prepare(tmp_path, train=source, val=source, grid=grid)["train"].index[0]
    assert record.grid.shape == (4, 7, 2)
    assert record.grid[1, :, 0] == pytest.approx([ABSENT, 150, 140, 130, 120, 110, 100])
    assert record.grid[1, 1:, 1].tolist() == [70, 90, 110, 130, 150, 170]
    assert record.grid[0, 5:, 0].tolist() == [ABSENT, ABSENT]


def test_several_threads_give_the_same_index(tmp_path):
    source = build_culane(tmp_path / "set", roads=40)
    one = prepare(tmp_path, train=source, val=source)
    several = prepare(tmp_path, train=source, val=source, jobs=3)
    assert one["train"].index.digest == several["train"].index.digest
    assert codes(one) == codes(several)


def test_masks_give_culane_its_slots(tmp_path):
    source = build_culane(tmp_path / "set", slots=(3, 2, 1, 0))
    prepared = prepare(tmp_path, train=source, val=source)
    assert prepared["train"].index[0].slots.tolist() == [3, 2, 1, 0]
    assert set(codes(prepared)["train"]) == {"slots-out-of-order"}


def test_culane_without_masks_gets_slots_by_angle_and_says_so_once(tmp_path):
    train, val = build_culane(tmp_path / "a", masks=False), build_culane(tmp_path / "b", seed=1)
    prepared = prepare(tmp_path, train=train, val=val)
    assert codes(prepared) == {"train": ["no-mask"], "val": []}
    (finding,) = prepared["train"].findings
    assert finding.message == "3 of 3 pictures have no mask that gives lanes slots"
    assert prepared["train"].index[0].slots.tolist() == [0, 1, 2, 3]


def test_rule_can_be_chosen(tmp_path):
    source = build_culane(tmp_path / "set", slots=(3, 2, 1, 0))
    rule = {"rule": "outermost", "shortest": 30}
    prepared = prepare(tmp_path, train=source, val=source, slots=rule)
    assert prepared["train"].index[0].slots.tolist() == [1, 0, 3, 2]
    assert prepared["train"].index[0].mask is None  # its numbers are other slots


def test_lane_that_its_mask_does_not_have_is_an_error_with_file_and_line(tmp_path):
    source = build_culane(tmp_path / "set", slots=(0, 1, -1, 3))
    message = (
        r"^train: drive/0-0\.lines\.txt:3: the mask is 0 at the lane's middle, row 59, column 164; "
        r"the lane's number, 1 to 4, is expected \(.*masks/drive/0-0\.png\) \(and 2 more errors\)"
    )
    with pytest.raises(DatasetError, match=message):
        prepare(tmp_path, train=source, val=build_culane(tmp_path / "val", seed=1))
    assert not list((tmp_path / "out").glob("*.arrow"))


def test_masks_of_scored_splits_stop_nothing(tmp_path):
    val = build_culane(tmp_path / "val", slots=(0, 1, -1, 3), seed=1)
    prepared = prepare(tmp_path, train=build_culane(tmp_path / "set"), val=val)
    assert codes(prepared) == {"train": [], "val": ["lane-not-in-mask"] * 3}
    assert prepared["val"].index[0].slots.tolist() == [0, 1, -1, 3]


def test_masks_with_more_lanes_than_the_model_are_an_error(tmp_path):
    source = build_culane(tmp_path / "set")
    with pytest.raises(DatasetError, match=r"lines\.txt:4: the mask is 4 .*; model\.lanes is 3"):
        prepare(tmp_path, train=source, val=source, num_lanes=3)


def test_mask_of_another_size_is_an_error(tmp_path):
    source = build_culane(tmp_path / "set")
    cv2.imwrite(str(tmp_path / "set/masks/drive/0-1.png"), np.zeros((90, 160), np.uint8))
    with pytest.raises(DatasetError, match=r"0-1\.png: is 160x90 px, its picture 320x180"):
        prepare(tmp_path, train=source, val=source)


def test_missing_masks_are_made_once_for_the_training_split(tmp_path):
    sources = {
        "train": build_tusimple(tmp_path / "a"),
        "val": build_tusimple(tmp_path / "b", seed=1),
    }
    first = prepare(tmp_path, wants_masks=True, **sources)
    made = made_masks(tmp_path)
    second = prepare(tmp_path, wants_masks=True, jobs=2, **sources)
    assert len(made) == 3
    assert made_masks(tmp_path) == made
    assert first["train"].index.digest == second["train"].index.digest
    assert first["val"].index[0].mask is None
    mask = cv2.imread(str(first["train"].index[0].mask), cv2.IMREAD_UNCHANGED)
    assert (mask.shape, np.unique(mask).tolist()) == ((180, 320), [0, 1, 2, 3, 4])


def test_masks_that_are_there_are_used(tmp_path):
    source = build_culane(tmp_path / "set")
    prepared = prepare(tmp_path, train=source, val=source, wants_masks=True)
    assert prepared["train"].index[0].mask == tmp_path / "set/masks/drive/0-0.png"
    assert made_masks(tmp_path) == {}


def test_no_mask_is_made_where_none_is_wanted(tmp_path):
    source = build_tusimple(tmp_path / "set")
    prepare(tmp_path, train=source, val=source)
    assert made_masks(tmp_path) == {}


def test_pictures_of_another_size_are_scaled_and_counted(tmp_path):
    source = build_tusimple(tmp_path / "set")
    prepared = prepare(tmp_path, train=source, val=source, frame=(640, 540))
    record = prepared["train"].index[0]
    assert codes(prepared)["train"] == ["picture-of-another-size"]
    assert prepared["train"].findings[0].message == (
        "data.frame is 640x540, all 3 pictures are 320x180"
    )
    there = record.grid[1][record.grid[1, :, 0] > ABSENT]
    assert there[0] == pytest.approx([310, 184], abs=4)
    assert there[-1] == pytest.approx([200, 504], abs=8)


def test_grid_outside_the_frame_is_refused(tmp_path):
    source = build_tusimple(tmp_path / "set", roads=1)
    grid = {"first": 100, "last": 200, "step": 10}
    with pytest.raises(DatasetError, match=r"data\.grid\.last is 200, .* which is 180 px high"):
        prepare(tmp_path, train=source, val=source, grid=grid)


def test_more_lanes_than_slots_are_counted(tmp_path):
    source = build_tusimple(tmp_path / "set")
    prepared = prepare(tmp_path, train=source, val=source, num_lanes=2)
    assert codes(prepared)["train"] == ["more-lanes-than-slots"] * 6
    assert prepared["train"].findings[0].where == "clips/0-0/20.jpg: lane 1"
    assert quality(tmp_path)["splits"]["train"]["counts"]["lanes_without_slot"] == 6


def test_short_lanes_are_told(tmp_path):
    source = build_tusimple(tmp_path / "set", roads=1)
    prepared = prepare(tmp_path, train=source, val=source, slots={"shortest": 130})
    assert codes(prepared)["train"] == ["lane-too-short"] * 2 + ["slots-without-lanes"]


def test_lanes_on_one_another_and_off_the_grid_are_told(tmp_path):
    lanes = (*ROAD, ROAD[1] + (0.5, 0.0), np.array([[20.0, 50.0], [150.0, 20.0]]))
    source = build_culane(tmp_path / "set", roads=1, lanes=lanes, masks=False)
    grid = {"first": 60, "last": 180, "step": 10}
    prepared = prepare(tmp_path, train=source, val=source, num_lanes=8, grid=grid)
    found = {one.code: one for one in prepared["train"].findings}
    assert set(found) == {"no-mask", "lanes-coincide", "lane-off-grid", "slots-without-lanes"}
    assert "0.5 px apart" in found["lanes-coincide"].message
    assert found["lane-off-grid"].where == "drive/0-0.lines.txt:6"


def test_split_without_any_lane_is_told(tmp_path):
    source = build_culane(tmp_path / "set", roads=9, masks=False)
    for number in range(8):
        (tmp_path / f"set/drive/0-{number}.lines.txt").write_text("")
    with pytest.raises(DatasetError, match=r"data\.train: none of the 5 pictures has a lane"):
        prepare(tmp_path, splits={"source": source, "seed": 1})


def test_all_lanes_without_slot_are_an_error(tmp_path):
    source = build_tusimple(tmp_path / "set")
    with pytest.raises(DatasetError, match="no lane has a slot"):
        prepare(tmp_path, train=source, val=source, slots={"shortest": 1000})


def test_cut_splits_share_the_findings_of_the_whole(tmp_path):
    source = build_tusimple(tmp_path / "set", roads=10)
    prepared = prepare(tmp_path, num_lanes=2, wants_masks=True, splits={"source": source})
    assert [len(split.index) for split in prepared.values()] == [6, 2, 2]
    found = quality(tmp_path)["splits"]
    assert list(found) == ["all", "train", "val", "test"]
    assert found["all"]["findings"][0]["count"] == 20
    assert len(made_masks(tmp_path)) == 6


def test_same_picture_in_two_splits_is_told(tmp_path):
    source = build_tusimple(tmp_path / "set", roads=2)
    other = build_tusimple(tmp_path / "other", roads=1, seed=7)
    data = (tmp_path / "set/clips/0-0/20.jpg").read_bytes()
    (tmp_path / "other/clips/7-0/20.jpg").write_bytes(data)
    prepared = prepare(tmp_path, train=source, val=other)
    assert codes(prepared) == {"train": [], "val": ["picture-in-two-splits"]}


def test_real_frames_are_prepared(tmp_path):
    root = shared_data("lanes/tusimple_512x288")
    source = {"format": "tusimple", "root": str(root), "labels": ["label_data.json"]}
    prepared = prepare(tmp_path, frame=(512, 288), splits={"source": source}, wants_masks=True)
    counts = quality(tmp_path)["splits"]["all"]["counts"]
    assert [len(split.index) for split in prepared.values()] == [6, 2, 2]
    assert (counts["lanes"], counts["lanes_without_slot"], counts["empty_lanes"]) == (38, 0, 2)
    assert counts["points_on_the_grid"] == counts["points"]
    assert counts["pictures_with_lanes_out_of_order"] == 10
    assert counts["rows_of_the_labels"] == {"96 to 284 px, step 4": 10}


def test_labels_of_the_full_size_are_told(tmp_path):
    root = shared_data("lanes/tusimple_512x288")
    labels = ["label_data_fullres_1280x720.json"]
    source = {"format": "tusimple", "root": str(root), "labels": labels}
    with pytest.raises(DatasetError, match="labels of other sizes"):
        prepare(tmp_path, frame=(512, 288), splits={"source": source})


def test_labelme_lines_are_drawn_out(tmp_path):
    for number in range(2):
        picture(tmp_path / f"set/{number}.jpg", number)
        shapes = [
            {"label": "lane", "shape_type": "linestrip", "points": lane.tolist()} for lane in ROAD
        ]
        content = {"imagePath": f"{number}.jpg", "shapes": shapes}
        content |= {"imageWidth": SIZE[0], "imageHeight": SIZE[1]}
        (tmp_path / f"set/{number}.json").write_text(json.dumps(content))
    source = {"format": "labelme", "root": "set"}
    record = prepare(tmp_path, train=source, val=source)["train"].index[0]
    assert record.slots.tolist() == [0, 1, 2, 3]
    assert record.grid[1, 30:86, 0] == pytest.approx(np.linspace(155, 100, 56))


def test_relative_paths_count_from_the_base(tmp_path):
    build_tusimple(tmp_path / "set")
    source = {"format": "tusimple", "root": "set", "labels": ["labels.json"]}
    index = prepare(tmp_path, train=source, val=source)["train"].index
    assert index[0].path == (tmp_path / "set/clips/0-0/20.jpg")
    assert index[0].image_id == "clips/0-0/20.jpg"


@pytest.mark.parametrize("layout", ["culane", "tusimple"])
def test_drawn_roads_are_drawn_once_and_read_in_their_layout(tmp_path, layout):
    roads = {"format": "synthetic", "roads": 3, "size": (160, 96), "layout": layout}
    sources = {"train": roads | {"seed": 1}, "val": roads | {"seed": 2}}
    first = prepare(tmp_path, frame=(160, 96), **sources)
    drawn = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.jpg")}
    second = prepare(tmp_path, frame=(160, 96), **sources)
    assert len(drawn) == 6
    assert all(path.stat().st_mtime_ns == time for path, time in drawn.items())
    assert first["train"].index.digest == second["train"].index.digest
    assert first["train"].index.digest != first["val"].index.digest
    assert (len(first["train"].index.scenes) == 9) == (layout == "culane")
    assert not {"no-mask", "slots-out-of-order"} & set(codes(first)["train"])
