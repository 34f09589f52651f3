from __future__ import annotations

import json

import pytest

from readers.curvelanes import read_curvelanes
from readers.records import DatasetError
from tests.builders import write_picture
from tests.shared import REPOSITORY

LANE = [{"y": "70", "x": "-5.00"}, {"y": "40", "x": "20.5"}, {"y": "20", "x": "40"}]


def labelled(root, content=None, *, name="a.png", listed="images/a.png\n", split="train"):
    """A picture of 96x72, its lanes and a line in the list."""
    write_picture(root / split / "images" / name)
    labels = root / split / "labels" / name.replace(".png", ".lines.json")
    labels.parent.mkdir(exist_ok=True)
    content = {"Lines": [LANE]} if content is None else content
    labels.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    with (root / split / f"{split}.txt").open("a", encoding="utf-8") as file:
        file.write(listed)
    return root


def read(root, split="train", **keys):
    found = read_curvelanes(root, split, **keys)
    return list(found.records), found.findings


def test_numbers_that_are_texts_become_points(tmp_path):
    records, findings = read(labelled(tmp_path, {"Lines": [LANE, LANE[1:]]}))
    assert findings == []
    assert records[0].lanes[0].tolist() == [[-5, 70], [20.5, 40], [40, 20]]
    assert len(records[0].lanes[1]) == 2
    assert (records[0].image_id, records[0].width) == ("images/a.png", 96)
    assert records[0].path == tmp_path / "train" / "images" / "a.png"


@pytest.mark.parametrize(
    "listed", ["/valid/images/a.png\r\n", "a.png", "\ufeffimages\\a.png  \n\n"]
)
def test_lists_of_other_folders_and_systems_are_read(tmp_path, listed):
    records, findings = read(labelled(tmp_path, listed=listed, split="valid"), "valid", jobs=2)
    assert findings == []
    assert records[0].path == tmp_path / "valid" / "images" / "a.png"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"Lines": [\n', "a.lines.json:2: not JSON"),
        ([], '{"Lines": [[{"x": "1", "y": "2"}, ...], ...]} is expected'),
        ({"Lines": [LANE, 7]}, "lane 2 is '7', not a list of points"),
        ({"Lines": [[*LANE, {"x": "1"}]]}, "lane 1, point 4 is {'x': '1'}; an x and a y"),
        ({"Lines": [[{"x": "1", "y": "two"}]]}, "lane 1, point 1 is {'x': '1', 'y': 'two'}"),
    ],
)
def test_broken_label_files_are_told(tmp_path, content, words):
    _, findings = read(labelled(tmp_path, content))
    assert findings[0].code == "broken-label-file"
    assert (findings[0].severity, findings[0].where) == ("error", "labels/a.lines.json")
    assert words in findings[0].message


def test_useless_lanes_stay_for_the_score(tmp_path):
    records, findings = read(labelled(tmp_path, {"Lines": [LANE, LANE[1:2], []]}))
    assert [len(lane) for lane in records[0].lanes] == [3, 1, 0]
    assert [item.code for item in findings] == ["short-lane", "short-lane"]
    assert findings[1].where == "labels/a.lines.json: lane 3"


def test_pictures_without_labels_are_dropped(tmp_path):
    labelled(tmp_path, listed="images/a.png\nimages/b.png\nimages/a.png\n")
    write_picture(tmp_path / "train" / "images" / "b.png")
    records, findings = read(tmp_path)
    assert len(records) == 1
    codes = ["no-label-file", "duplicate-image", "too-many-lost-pictures"]
    assert [item.code for item in findings] == codes
    assert [item.where for item in findings[:2]] == ["train/train.txt:2", "train/train.txt:3"]


def test_missing_folder_and_list_are_named(tmp_path):
    with pytest.raises(DatasetError, match="valid: no such folder; it should hold images"):
        read(tmp_path, "valid")
    (tmp_path / "valid").mkdir()
    with pytest.raises(
        DatasetError, match=r"valid/valid\.txt: no such list; it names the pictures"
    ):
        read(tmp_path, "valid")
    (tmp_path / "valid" / "valid.txt").write_text("\n")
    with pytest.raises(DatasetError, match=r"valid\.txt:1: the list is empty"):
        read(tmp_path, "valid")


def test_annotations_of_the_fixtures_are_read(tmp_path):
    path = REPOSITORY / "tests" / "fixtures" / "lanes" / "labels_curvelanes.json"
    annotations = json.loads(path.read_text("utf-8"))["annotations"]
    for name, content in annotations.items():
        stem = name.removeprefix("train/images/").removesuffix(".jpg")
        labelled(tmp_path, content, name=f"{stem}.png", listed=f"/train/images/{stem}.png\n")
    records, findings = read(tmp_path)
    assert findings[-1].code == "labels-of-larger-pictures"  # of 2560x1440
    for record, content in zip(records, annotations.values(), strict=True):
        points = [[(float(p["x"]), float(p["y"])) for p in line] for line in content["Lines"]]
        assert [lane.tolist() for lane in record.lanes] == [
            list(map(list, lane)) for lane in points
        ]
