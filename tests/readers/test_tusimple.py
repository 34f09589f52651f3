from __future__ import annotations

import json

import numpy as np
import pytest

from readers.records import DatasetError
from readers.tusimple import read_tusimple, tusimple_line, write_tusimple_labels
from tests.builders import write_picture
from tests.shared import shared_data

ROWS = [20, 30, 40, 50]


def line(*lanes, raw_file="clips/a.png", rows=ROWS, **more):
    return json.dumps({"raw_file": raw_file, "lanes": list(lanes), "h_samples": rows, **more})


def labelled(root, *lines, name="label.json", end="\n", mark=""):
    """A label file, and a picture of 96x72."""
    write_picture(root / "clips" / "a.png")
    text = mark + "".join(f"{entry}{end}" for entry in lines)
    (root / name).write_bytes(text.encode("utf-8"))
    return root


def read(root, *names, jobs=1):
    found = read_tusimple(root, names or ("label.json",), jobs=jobs)
    return list(found.records), found.findings


def only(findings, code):
    assert [item.code for item in findings if item.severity == "error" or item.code == code] == [
        code
    ]
    return next(item for item in findings if item.code == code)


def test_absent_points_are_left_out_and_rows_are_kept(tmp_path):
    records, findings = read(labelled(tmp_path, line([-2, 12, 15.5, -2], [1, 2, 3, 4])))
    assert findings == []
    assert records[0].lanes[0].tolist() == [[12, 30], [15.5, 40]]
    assert records[0].lanes[1].tolist() == [[1, 20], [2, 30], [3, 40], [4, 50]]
    assert records[0].lanes[0].dtype == np.float64
    assert records[0].h_samples.tolist() == ROWS
    assert records[0].h_samples.dtype == np.int64
    assert (records[0].image_id, records[0].width, records[0].height) == ("clips/a.png", 96, 72)


def test_lane_types_are_passed_over(tmp_path):
    entry = line([-2, 12, 15, -2], [1, 2, 3, 4], classes=[1, 3])
    records, findings = read(labelled(tmp_path, entry))
    assert findings == []
    assert len(records[0].lanes) == 2


def test_lanes_without_a_point_stay_and_are_told_once(tmp_path):
    records, findings = read(labelled(tmp_path, line([-2] * 4, [1, 2, 3, 4])))
    assert [len(lane) for lane in records[0].lanes] == [0, 4]
    assert [item.code for item in findings] == ["empty-lanes"]
    assert findings[0].message == "lanes without any point: 1"


def test_label_files_follow_each_other(tmp_path):
    labelled(tmp_path, line([1, 2, 3, 4]))
    write_picture(tmp_path / "clips" / "b.png")
    labelled(tmp_path, line([5, 6, 7, 8], raw_file="clips/b.png"), name="second.json")
    records, findings = read(tmp_path, "second.json", "label.json")
    assert [record.image_id for record in records] == ["clips/b.png", "clips/a.png"]
    assert findings == []


def test_windows_files_and_rare_names_are_read(tmp_path):
    name = "clips/mit Leerzeichen \u00fc/b 1.png"
    write_picture(tmp_path / name)
    entry = line([1, 2, 3, 4], raw_file=name.replace("/", "\\"))
    labelled(tmp_path, "", f"  {entry}  ", "", end="\r\n", mark="\ufeff")
    records, findings = read(tmp_path, jobs=2)
    assert findings == []
    assert records[0].path == tmp_path / name
    assert records[0].image_id == name.replace("/", "\\")


@pytest.mark.parametrize(
    ("entry", "code", "words"),
    [
        (line([1, 2, 3]), "bad-lane", "lane 1 of clips/a.png has 3 values, h_samples has 4"),
        (line([1, 2, 3, None]), "bad-lane", "lane 1 of clips/a.png holds null, not a number"),
        (line([1, 2, 3, "4"]), "bad-lane", 'holds "4", not a number'),
        (line([1, 2, 3, 10**400]), "bad-lane", "not a number"),
        (line(7), "bad-lane", "lane 1 of clips/a.png is 7, not a list of numbers"),
        (line([1, 2, 3, 4])[:-9], "bad-line", "not JSON"),
        ("[1, 2]", "bad-line", "a list, not an object with raw_file, lanes, h_samples"),
        ('{"raw_file": "a.png"}', "bad-line", "no key lanes and no key h_samples"),
        (line(rows=[]), "bad-line", "h_samples is no list of whole numbers"),
        (line([1, 2], rows=[20, 20.5]), "bad-line", "h_samples is no list of whole numbers"),
        (line([1, 2], rows=[30, 20]), "bad-line", "h_samples does not rise"),
        (line(raw_file=""), "bad-line", "raw_file is '', not a path"),
        (line(raw_file="b.png").replace("[]", "{}"), "bad-line", "lanes is no list"),
    ],
)
def test_broken_lines_are_told_with_file_and_line(tmp_path, entry, code, words):
    good = line([1, 2, 3, 4], raw_file="clips/b.png")
    write_picture(tmp_path / "clips" / "b.png")
    _, findings = read(labelled(tmp_path, good, entry))
    finding = only(findings, code)
    assert (finding.where, finding.severity) == ("label.json:2", "error")
    assert words in finding.message


def test_pictures_that_are_labelled_twice_are_told(tmp_path):
    labelled(tmp_path, line([1, 2, 3, 4]), line([1, 2, 3, 4]), line([5, 2, 3, 4]))
    records, findings = read(tmp_path)
    assert len(records) == 1
    assert [item.where for item in findings] == ["label.json:2", "label.json:3"]
    assert findings[0].message == "clips/a.png has the same labels in label.json:1 already"
    assert findings[1].message == "clips/a.png has other labels in label.json:1 already"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "label.json: the file is empty"),
        ("\n \n", "label.json: the file is empty"),
        (f"[{line([1])},\n{line([2])}]", "label.json:1: one JSON object a line is expected"),
        ('{\n"raw_file": "a"}', "label.json:1: one JSON object a line is expected"),
    ],
)
def test_files_that_are_no_json_lines_stop_at_once(tmp_path, text, words):
    (tmp_path / "label.json").write_text(text, "utf-8")
    with pytest.raises(DatasetError, match=words):
        read(tmp_path)


def test_a_missing_label_file_names_its_neighbours(tmp_path):
    labelled(tmp_path, line([1]), name="label_data_0313.json")
    with pytest.raises(DatasetError, match=r"no such file; .*; did you mean label_data_0313\.json"):
        read(tmp_path, "label_data_313.json")


def test_lost_pictures_are_told(tmp_path):
    labelled(tmp_path, line([1, 2, 3, 4]), line([1, 2, 3, 4], raw_file="clips/gone.png"))
    records, findings = read(tmp_path)
    assert len(records) == 1
    assert [item.code for item in findings] == ["missing-picture", "too-many-lost-pictures"]
    assert findings[0].where == "label.json:2"
    assert findings[0].action == "picture dropped with its lanes"


def test_labels_of_larger_pictures_are_refused(tmp_path):
    rows = [240, 300, 400, 700]
    _, findings = read(labelled(tmp_path, line([50, 300, 600, 1000], rows=rows)))
    assert "100% of the points" in only(findings, "labels-of-larger-pictures").message


def test_labels_of_smaller_pictures_are_told(tmp_path):
    _, findings = read(labelled(tmp_path, line([10, 12, 14, 15], rows=[10, 15, 20, 25])))
    finding = only(findings, "labels-of-smaller-pictures")
    assert finding.severity == "warning"
    assert "upper left 16% x 35%" in finding.message


def test_not_one_lane_is_an_error(tmp_path):
    write_picture(tmp_path / "clips" / "b.png")
    labelled(tmp_path, line(), line([-2, -2, 3, -2], raw_file="clips/b.png"))
    _, findings = read(tmp_path)
    codes = ["no-lane", "short-lane", "no-usable-lane", "no-lanes"]
    assert [item.code for item in findings] == codes
    assert "none of the 2 pictures has a lane" in only(findings, "no-lanes").message


def test_written_line_interpolates_and_marks_what_is_absent():
    lanes = [np.array([[40.0, 50], [10, 20]]), np.array([[-4.0, 30], [5, 39]]), np.zeros((0, 2))]
    content = json.loads(tusimple_line("clips/\u00fc.jpg", lanes, ROWS))
    assert content["raw_file"] == "clips/\u00fc.jpg"
    assert content["h_samples"] == ROWS
    assert content["lanes"] == [[10, 20, 30, 40], [-2, -2, -2, -2], [-2, -2, -2, -2]]


def test_written_labels_are_read_back(tmp_path):
    labelled(tmp_path, line([-2, 12, 15, -2], [-2] * 4, [1, 2, 3, 4]))
    records, _ = read(tmp_path)
    write_tusimple_labels(tmp_path / "new.json", records)
    again, findings = read(tmp_path, "new.json")
    assert [item.code for item in findings] == ["empty-lanes"]
    for first, second in zip(records[0].lanes, again[0].lanes, strict=True):
        assert np.array_equal(first, second)


def test_real_frames_have_two_lanes_without_a_point():
    root = shared_data("lanes/tusimple_512x288")
    records, findings = read(root, "label_data.json")
    assert [(item.code, item.count) for item in findings] == [("empty-lanes", 2)]
    assert [len(record.lanes) for record in records] == [4] * 10
    assert {(record.width, record.height) for record in records} == {(512, 288)}
    lines = (root / "label_data.json").read_text("utf-8").splitlines()
    for record, text in zip(records, lines, strict=True):
        written = json.loads(tusimple_line(record.image_id, record.lanes, record.h_samples))
        assert written["lanes"] == json.loads(text)["lanes"]


def test_real_frames_with_labels_of_their_full_size_are_refused():
    root = shared_data("lanes/tusimple_512x288")
    _, findings = read(root, "label_data_fullres_1280x720.json")
    assert findings[-1].code == "labels-of-larger-pictures"


@pytest.mark.parametrize("name", ["0313", "0531", "0601"])
def test_real_label_files_hold_no_broken_line(name):
    _, findings = read(shared_data("lanes/tusimple_labels"), f"label_data_{name}_sample.json")
    assert {item.code for item in findings} == {"missing-picture", "no-pictures"}
