from __future__ import annotations

import json
import random
import shutil

import numpy as np
import pytest
from pydantic import TypeAdapter

from readers.index import ImageBoxesIndex
from readers.records import DatasetError, Finding
from tasks.detection.config import DataConfig
from tasks.detection.findings import box_counts, draw_finding
from tasks.detection.prepare import prepare_data
from tasks.splits import cut
from tests.builders import build_coco, build_voc, build_yolo
from tests.shared import shared_data


def prepare(tmp_path, jobs=1, **sources):
    config = TypeAdapter(DataConfig).validate_python(sources)
    return prepare_data(
        config, base=tmp_path, working=tmp_path / "work", output=tmp_path / "out", jobs=jobs
    )


def codes(prepared):
    return {name: [one.code for one in split.findings] for name, split in prepared.items()}


@pytest.mark.parametrize("build", [build_coco, build_yolo, build_voc])
def test_each_format_becomes_an_index(tmp_path, build):
    train, val = build(tmp_path / "train"), build(tmp_path / "val", images=3, seed=1)
    prepared = prepare(tmp_path, train=train, val=val)
    assert codes(prepared) == {"train": [], "val": []}
    for name, count in (("train", 6), ("val", 3)):
        opened = ImageBoxesIndex.open(tmp_path / "out" / f"{name}.arrow")
        assert len(opened) == count
        assert opened.digest == prepared[name].index.digest
        assert set(opened.class_names) == {"red", "green"}
    assert not (tmp_path / "out" / "test.arrow").exists()


def test_relative_paths_count_from_the_base(tmp_path):
    build_coco(tmp_path / "set")
    source = {"format": "coco", "images": "set/images", "annotations": "set/instances.json"}
    prepared = prepare(tmp_path, train=source, val=source)
    assert prepared["train"].index[0].path.is_relative_to(tmp_path / "set" / "images")


def test_several_threads_give_the_same_index(tmp_path):
    source = build_yolo(tmp_path / "set", images=40)
    one = prepare(tmp_path, train=source, val=source)
    several = prepare(tmp_path, train=source, val=source, jobs=3)
    assert one["train"].index.digest == several["train"].index.digest
    assert codes(one) == codes(several)


def test_splits_are_cut_from_sorted_names_with_the_seed(tmp_path):
    source = build_voc(tmp_path / "set", images=10)
    prepared = prepare(tmp_path, splits={"source": source, "seed": 5})
    names = [f"0-{number:03d}" for number in range(10)]
    random.Random(5).shuffle(names)
    got = {name: split.index.image_ids for name, split in prepared.items()}
    assert got == {"train": names[:6], "val": names[6:8], "test": names[8:]}
    content = json.loads((tmp_path / "out" / "quality.json").read_text("utf-8"))
    assert list(content["splits"]) == ["all", "train", "val", "test"]


class Cut:
    def __init__(self, fractions, seed=0):
        self.fractions, self.seed = fractions, seed


@pytest.mark.parametrize(
    ("name", "fractions", "sizes"),
    [
        ("bccd_voc", (0.6, 0.2, 0.2), [47, 16, 16]),
        ("raccoon_voc", (0.6, 0.2, 0.2), [36, 12, 12]),
        ("raccoon_voc", (0.8, 0.2, 0.0), [48, 12]),
    ],
)
def test_real_sets_are_cut_to_their_documented_sizes(tmp_path, name, fractions, sizes):
    source = {"format": "voc", "root": str(shared_data(f"detection/{name}")), "image_set": "all"}
    prepared = prepare(tmp_path, splits={"source": source, "fractions": fractions})
    assert [len(split.index) for split in prepared.values()] == sizes
    ids = [key for split in prepared.values() for key in split.index.image_ids]
    assert len(set(ids)) == sum(sizes)


def test_a_share_without_a_picture_is_refused(tmp_path):
    source = build_voc(tmp_path / "set", images=2)
    index = prepare(tmp_path, train=source, val=source)["train"].index
    with pytest.raises(DatasetError, match=r"2 pictures are too few to cut off 0\.2 for test"):
        cut(index, Cut((0.6, 0.2, 0.2)))


def test_classes_of_other_splits_are_matched_by_name(tmp_path):
    train = build_coco(tmp_path / "train", classes=("red", "green", "blue"))
    val = build_coco(tmp_path / "val", images=2, seed=1, classes=("green", "red"))
    before = prepare(tmp_path, train=val, val=val)["val"].index
    index = prepare(tmp_path, train=train, val=val)["val"].index
    assert index.class_names == ("red", "green", "blue")
    for old, new in zip(before, index, strict=True):
        assert new.labels.tolist() == [1 - label for label in old.labels.tolist()]


def test_class_that_train_lacks_is_an_error(tmp_path):
    train = build_coco(tmp_path / "train")
    val = build_coco(tmp_path / "val", seed=1, classes=("red", "purple"))
    with pytest.raises(DatasetError, match=r"class 'purple' \(.* boxes\) is not a class of train"):
        prepare(tmp_path, train=train, val=val)


def test_same_picture_in_two_splits_is_told(tmp_path):
    train, val = build_coco(tmp_path / "train"), build_coco(tmp_path / "val", seed=1)
    images = tmp_path / "train" / "images"
    shutil.copyfile(images / "0-002.jpg", tmp_path / "val" / "images" / "1-004.jpg")
    shutil.copyfile(images / "0-002.jpg", images / "0-005.jpg")
    prepared = prepare(tmp_path, train=train, val=val)
    assert codes(prepared) == {
        "train": ["same-picture-twice"],
        "val": ["picture-in-two-splits"],
    }
    (finding,) = prepared["val"].findings
    assert (finding.where, finding.message) == ("val: 5", "the same file as 3 of train")


def test_class_without_a_box_is_told(tmp_path):
    source = build_coco(tmp_path / "set", images=1, classes=("red", "green", "blue", "grey"))
    prepared = prepare(tmp_path, train=source, val=source)
    (finding,) = prepared["train"].findings
    assert finding.code == "class-without-boxes"
    assert finding.message.endswith("grey")


def test_error_stops_after_the_report_and_leaves_no_index(tmp_path):
    train, val = build_yolo(tmp_path / "train"), build_yolo(tmp_path / "val", seed=1)
    prepare(tmp_path, train=train, val=val)
    labels = tmp_path / "val" / "labels" / "train" / "1-001.txt"
    labels.write_text("0 0.5 0.5 0.2 0.2\n7 0.5 0.5 0.2 0.2\n")
    with pytest.raises(DatasetError, match=r"^val: 1-001\.txt:2: class 7; .*quality\.html$"):
        prepare(tmp_path, train=train, val=val)
    content = json.loads((tmp_path / "out" / "quality.json").read_text("utf-8"))
    assert content["status"] == "error"
    assert "1-001.txt:2" in (tmp_path / "out" / "quality.html").read_text("utf-8")
    assert not list((tmp_path / "out").glob("*.arrow"))


def test_synthetic_source_is_drawn_once(tmp_path):
    sources = {
        name: {"format": "synthetic", "images": 4, "size": 64, "seed": seed}
        for seed, name in enumerate(("train", "val"))
    }
    first = prepare(tmp_path, **sources)
    drawn = {path: path.stat().st_mtime_ns for path in (tmp_path / "work").rglob("*.jpg")}
    second = prepare(tmp_path, **sources)
    assert len(drawn) == 8
    assert all(path.stat().st_mtime_ns == time for path, time in drawn.items())
    assert first["train"].index.digest == second["train"].index.digest
    assert first["train"].index.digest != first["val"].index.digest


def test_counts_have_tables_of_sizes(tmp_path):
    source = build_coco(tmp_path / "set", images=4)
    index = prepare(tmp_path, train=source, val=source)["train"].index
    counts = box_counts(index)
    num_boxes = sum(len(record.labels) for record in index)
    assert counts["pictures"] == 4
    assert counts["picture_sizes"] == {"96x72": 4}
    for table in ("box_areas", "square_root_of_box_area"):
        assert sum(counts[table].values()) == num_boxes
    assert sum(counts["boxes_per_picture"].values()) == 4


@pytest.mark.parametrize(
    "box",
    [
        None,
        (10, 10, 40, 30),
        (10, 10, 10, 10),
        (-30, 5, 20, 90),
        (1e9, 1e9, 2e9, 2e9),
        (-1e300, 5, 1e308, 30),
    ],
)
def test_any_finding_can_be_drawn(tmp_path, box):
    source = build_coco(tmp_path / "set", images=2)
    index = prepare(tmp_path, train=source, val=source)["train"].index
    draw = draw_finding(index)
    picture = draw(Finding("warning", "x", "", "", "", image_id="2", box_xyxy=box))
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert draw(Finding("warning", "x", "", "", "", image_id="none")) is None
