from __future__ import annotations

import json

import pytest

from readers.labelme import read_labelme
from readers.records import DatasetError
from tests.builders import write_picture


def shape(points=((10, 70), (20, 40.5), (30, 20)), label="lane", kind="linestrip"):
    return {"label": label, "points": points, "shape_type": kind, "group_id": None, "flags": {}}


def labelled(root, *shapes, name="a", picture=None, image="a.png", size=(96, 72), mark=""):
    """A picture of 96x72 and its JSON."""
    write_picture(root / (picture or f"{name}.png"))
    content = {"version": "5.4.1", "shapes": list(shapes), "imagePath": image, "imageData": None}
    content |= {"imageHeight": size[1], "imageWidth": size[0]} if size else {}
    path = root / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(mark + json.dumps(content, ensure_ascii=False), "utf-8")
    return root


def read(root, **keys):
    found = read_labelme(root, **keys)
    return list(found.records), found.findings


def codes(findings):
    return [item.code for item in findings]


def test_lines_and_line_strips_are_lanes(tmp_path):
    records, findings = read(labelled(tmp_path, shape(), shape([[1, 70], [9, 20]], kind="line")))
    assert findings == []
    lanes = [lane.tolist() for lane in records[0].lanes]
    assert lanes == [[[10, 70], [20, 40.5], [30, 20]], [[1, 70], [9, 20]]]
    assert (records[0].image_id, records[0].path) == ("a.png", tmp_path / "a.png")


def test_other_labels_are_left_out(tmp_path):
    labelled(tmp_path, shape(), shape(label="kerb"), shape(label="car", kind="rectangle"))
    records, findings = read(tmp_path, labels=["lane"])
    assert [len(record.lanes) for record in records] == [1]
    assert findings == []
    assert len(read(tmp_path)[0][0].lanes) == 2


def test_a_label_that_no_line_has_is_an_error(tmp_path):
    _, findings = read(labelled(tmp_path, shape(), shape(label="kerb")), labels=["lane", "lain"])
    assert codes(findings) == ["unknown-label"]
    assert findings[0].message == "no line is labelled 'lain'; the labels of lines are kerb, lane"


def test_lanes_drawn_as_polygons_are_told(tmp_path):
    _, findings = read(labelled(tmp_path, shape(), shape(kind="polygon")), labels=["lane"])
    assert codes(findings) == ["other-shape"]
    assert findings[0].where == "a.json: shape 2"
    assert findings[0].message == "'lane' is a polygon; lanes are lines and line strips"


@pytest.mark.parametrize(
    ("image", "picture"),
    [
        ("..\\pictures \u00fc\\a b.png", "pictures \u00fc/a b.png"),
        ("../pictures \u00fc/a b.png", "pictures \u00fc/a b.png"),
        ("C:\\Users\\me\\a b.png", "labels/a b.png"),
        ("/home/me/a b.png", "labels/a b.png"),
    ],
)
def test_pictures_lie_where_the_file_says_or_beside_it(tmp_path, image, picture):
    labelled(tmp_path, shape(), name="labels/a", picture=picture, image=image, mark="\ufeff")
    records, findings = read(tmp_path, jobs=2)
    assert findings == []
    assert records[0].path == tmp_path / picture
    assert records[0].image_id == picture


def test_files_are_read_by_name_and_other_json_is_told(tmp_path):
    for name in ("b", "a"):
        labelled(tmp_path, shape(), name=name, image=f"{name}.png")
    (tmp_path / "c.json").write_text("[]")
    records, findings = read(tmp_path)
    assert [record.image_id for record in records] == ["a.png", "b.png"]
    assert codes(findings) == ["no-labelme-file"]


def test_useless_lanes_are_dropped(tmp_path):
    labelled(tmp_path, shape(), shape([]), shape([[1, 1]]), shape([[-1, 5], [-9, 70]]))
    records, findings = read(tmp_path)
    assert len(records[0].lanes) == 1
    assert codes(findings) == ["short-lane", "short-lane", "lane-outside"]
    assert {item.action for item in findings} == {"lane dropped"}


@pytest.mark.parametrize(
    ("size", "code"), [((960, 720), "size-mismatch"), ((72, 96), "swapped-size")]
)
def test_sizes_that_are_not_the_pictures_are_told(tmp_path, size, code):
    _, findings = read(labelled(tmp_path, shape(), size=size))
    assert findings[0].code == code
    assert "the labels say" in findings[0].message


def test_a_picture_with_two_label_files_is_told(tmp_path):
    labelled(tmp_path, shape(), name="a")
    labelled(tmp_path, shape(), name="b", size=None)
    records, findings = read(tmp_path)
    assert len(records) == 1
    assert codes(findings) == ["duplicate-image"]
    assert findings[0].message == "a.png has labels in a.json already"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"shapes": [],\n', "a.json:2: not JSON"),
        ('{"shapes": [], "imagePath": null}', "imagePath is None"),
        ('{"shapes": [7], "imagePath": "a.png"}', "shape 1 is '7', not an object"),
        (
            json.dumps({"shapes": [shape([[1, 2, 3]])], "imagePath": "a.png"}),
            "the points of shape 1 are no list of [x, y]",
        ),
        (
            json.dumps({"shapes": [shape([["x", 2]])], "imagePath": "a.png"}),
            "the points of shape 1 are no list of [x, y]",
        ),
    ],
)
def test_broken_files_are_told(tmp_path, content, words):
    write_picture(tmp_path / "a.png")
    (tmp_path / "a.json").write_text(content, "utf-8")
    _, findings = read(tmp_path)
    assert (findings[0].code, findings[0].severity) == ("broken-label-file", "error")
    assert words in findings[0].message


def test_folders_without_labels_stop_at_once(tmp_path):
    with pytest.raises(DatasetError, match="none: no such folder"):
        read(tmp_path / "none")
    with pytest.raises(DatasetError, match="no JSON file; LabelMe writes one beside each picture"):
        read(tmp_path)
