from __future__ import annotations

import numpy as np
import pytest

from readers.records import DatasetError
from readers.voc import read_voc, write_voc
from tests.builders import draw_records, record_of, write_picture
from tests.shared import shared_data


def thing(name="cat", corners=(11, 21, 30, 40), difficult=0):
    keys = ("xmin", "ymin", "xmax", "ymax")
    inside = "".join(f"<{key}>{value}</{key}>" for key, value in zip(keys, corners, strict=True))
    return (
        f"<object>\n<name>{name}</name><difficult>{difficult}</difficult>"
        f"<bndbox>{inside}</bndbox></object>\n"
    )


def annotated(root, *objects, name="a", size=(96, 72), filename=None):
    """A picture of 96x72 and its XML, in the list `all`."""
    write_picture(root / "JPEGImages" / f"{name}.png")
    (root / "Annotations").mkdir(exist_ok=True)
    (root / "ImageSets" / "Main").mkdir(parents=True, exist_ok=True)
    sides = f"<size><width>{size[0]}</width><height>{size[1]}</height></size>" if size else ""
    text = (
        f"<annotation>\n<filename>{filename or name + '.png'}</filename>{sides}\n"
        f"{''.join(objects)}</annotation>\n"
    )
    (root / "Annotations" / f"{name}.xml").write_text(text, encoding="utf-8")
    with (root / "ImageSets" / "Main" / "all.txt").open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")


def read(root, classes=None, image_set="all"):
    found = read_voc(root, image_set, classes=classes)
    return list(found.records), found


def codes(found):
    return [finding.code for finding in found.findings]


def test_inclusive_corners_from_one_become_edges_from_zero(tmp_path):
    annotated(tmp_path, thing(corners=(1, 1, 96, 72)), thing(corners=(11, 21, 30, 40)))
    records, found = read(tmp_path)
    assert records[0].boxes_xyxy.tolist() == [[0, 0, 96, 72], [10, 20, 30, 40]]
    assert codes(found) == []


def test_difficult_objects_are_marked_as_crowd(tmp_path):
    annotated(tmp_path, thing(), thing(difficult=1))
    records, _ = read(tmp_path)
    assert records[0].is_crowd.tolist() == [False, True]


def test_classes_are_sorted_or_given(tmp_path):
    annotated(tmp_path, thing("dog"), thing(" cat "))
    records, found = read(tmp_path)
    assert (list(found.class_names), records[0].labels.tolist()) == (["cat", "dog"], [1, 0])
    records, found = read(tmp_path, classes=("dog", "cat", "cow"))
    assert (list(found.class_names), records[0].labels.tolist()) == (["dog", "cat", "cow"], [0, 1])


def test_object_without_a_name_is_an_error_and_no_class(tmp_path):
    annotated(tmp_path, thing("dog"), thing(""))
    _, found = read(tmp_path)
    assert found.class_names == ["dog"]
    assert [(item.severity, item.code) for item in found.findings] == [("error", "unknown-class")]


def test_list_that_is_no_text_loses_its_pictures(tmp_path):
    annotated(tmp_path, thing())
    lists = tmp_path / "ImageSets" / "Main" / "all.txt"
    lists.write_text(f"a\nb\0c\n{'x' * 5000}\n")
    records, _ = read(tmp_path)
    assert len(records) == 1


@pytest.mark.parametrize("side", ["nan", "inf", "1e999"])
def test_size_that_is_no_number_is_taken_from_the_picture(tmp_path, side):
    annotated(tmp_path, thing(), size=(side, 72))
    records, _ = read(tmp_path)
    assert records[0].width == 96


def test_unknown_class_is_an_error_with_line_and_nearest_name(tmp_path):
    annotated(tmp_path, thing("cat"), thing("gog"))
    _, found = read(tmp_path, classes=("cat", "dog"))
    (finding,) = found.findings
    assert (finding.severity, finding.code, finding.where) == ("error", "unknown-class", "a.xml:5")
    assert "did you mean dog?" in finding.message


@pytest.mark.parametrize(
    ("corners", "code", "kept"),
    [
        ((20, 20, 20, 20), "zero-area-box", None),
        ((20, 20, 20, 40), "zero-area-box", None),
        ((40, 20, 20, 40), "negative-size-box", None),
        ((0, 0, 20, 40), "box-out-of-frame", [0, 0, 20, 40]),
        ((90, 20, 120, 40), "box-out-of-frame", [89, 19, 96, 40]),
        (("", 20, 120, 40), "bad-bbox", None),
    ],
)
def test_bad_boxes_are_told(tmp_path, corners, code, kept):
    annotated(tmp_path, thing(), thing(corners=corners))
    records, found = read(tmp_path)
    assert codes(found) == [code]
    assert found.findings[0].where == "a.xml:5"
    assert records[0].boxes_xyxy.tolist()[1:] == ([kept] if kept else [])


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({"size": (72, 96)}, "swapped-size"),
        ({"size": (95, 72)}, "size-off-by-one"),
        ({"size": None}, None),
        ({"size": (0, 0)}, None),
        ({"filename": "b.png"}, "filename-mismatch"),
        ({"filename": "a.jpeg"}, None),
    ],
)
def test_size_and_name_that_contradict_the_file_are_told(tmp_path, keys, code):
    annotated(tmp_path, thing(), **keys)
    records, found = read(tmp_path)
    assert (records[0].width, records[0].height) == (96, 72)
    assert codes(found) == ([code] if code else [])


def test_broken_and_missing_labels_lose_the_picture(tmp_path):
    for number in range(20):
        annotated(tmp_path, thing(), name=f"p{number}")
    (tmp_path / "Annotations" / "p3.xml").write_text("<annotation>\n<object>\n</annotation>")
    (tmp_path / "Annotations" / "p4.xml").unlink()
    records, found = read(tmp_path)
    assert len(records) == 18
    assert sorted(codes(found)) == ["broken-label-file", "no-label-file"]
    assert "p3.xml:3: broken XML: mismatched tag" in found.findings[0].message


def test_list_may_have_a_second_column_and_names_with_blanks(tmp_path):
    for name in ("a", "b 1", "c"):
        annotated(tmp_path, thing(), name=name)
    path = tmp_path / "ImageSets" / "Main" / "cat_train.txt"
    path.write_bytes(b"\xef\xbb\xbfa  1\r\nb 1\r\nc.png -1\r\n\r\n")
    records, _ = read(tmp_path, image_set="cat_train")
    assert [record.image_id for record in records] == ["a", "b 1", "c"]


def test_missing_list_names_those_that_there_are(tmp_path):
    annotated(tmp_path, thing())
    with pytest.raises(DatasetError, match=r"there are all; did you mean all\?"):
        read_voc(tmp_path, "al", classes=None)


def test_parts_inside_an_object_are_no_objects(tmp_path):
    part = "<part><name>head</name><bndbox><xmin>1</xmin></bndbox></part></object>"
    annotated(tmp_path, thing().replace("</object>", part))
    records, found = read(tmp_path)
    assert records[0].boxes_xyxy.tolist() == [[10, 20, 30, 40]]
    assert list(found.class_names) == ["cat"]


def test_reading_what_was_written_gives_the_same(tmp_path):
    records = draw_records(tmp_path / "JPEGImages", images=5)
    write_voc(records, ("red", "<green>"), root=tmp_path, image_set="train")
    again, found = read(tmp_path, classes=("red", "<green>"), image_set="train")
    assert codes(found) == []
    for before, after in zip(records, again, strict=True):
        assert before.path == after.path
        assert np.array_equal(before.boxes_xyxy, after.boxes_xyxy)
        assert np.array_equal(before.labels, after.labels)


def test_fractions_of_a_pixel_survive_writing(tmp_path):
    path = write_picture(tmp_path / "JPEGImages" / "a.png")
    record = record_of(path, [(0.25, 1.5, 40.125, 30)], [0], size=(96, 72), is_crowd=[1])
    write_voc([record], ("cat",), root=tmp_path, image_set="all")
    (again,), _ = read(tmp_path)
    assert np.array_equal(record.boxes_xyxy, again.boxes_xyxy)
    assert again.is_crowd.tolist() == [True]


def test_bccd_loses_its_one_box_without_area():
    records, found = read(shared_data("detection/bccd_voc"))
    assert len(records) == 79
    assert sum(len(record.labels) for record in records) == 1056
    assert list(found.class_names) == ["Platelets", "RBC", "WBC"]
    assert [(one.code, one.where) for one in found.findings] == [
        ("zero-area-box", "BloodImage_00338.xml:158")
    ]


def test_raccoon_has_its_known_counts():
    records, found = read(shared_data("detection/raccoon_voc"))
    assert (len(records), sum(len(record.labels) for record in records)) == (60, 63)
    assert found.findings == []
