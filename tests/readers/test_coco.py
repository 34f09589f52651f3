from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from readers.coco import read_coco, write_coco
from readers.records import DatasetError
from tests.builders import record_of, write_picture
from tests.shared import shared_data


def box(number, **keys):
    """An annotation of image 1; a key given as None is left out."""
    entry = {"id": number, "image_id": 1, "category_id": 3, "bbox": [10, 10, 20, 30]}
    entry |= {"area": 600, "iscrowd": 0, **keys}
    return {key: value for key, value in entry.items() if value is not None}


def written(tmp_path, *annotations, **keys):
    content = {
        "images": [{"id": 1, "file_name": "a.png", "width": 96, "height": 72}],
        "annotations": list(annotations),
        "categories": [{"id": 3, "name": "cat"}, {"id": 1, "name": "dog"}, {"id": 90, "name": "x"}],
    }
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(content | keys), encoding="utf-8")
    write_picture(tmp_path / "a.png")
    return path


def read(tmp_path, *annotations, **keys):
    found = read_coco(tmp_path, written(tmp_path, *annotations, **keys))
    return list(found.records), found


def codes(found):
    return [(finding.severity, finding.code) for finding in found.findings]


def test_category_ids_with_gaps_become_labels_from_zero(tmp_path):
    records, found = read(tmp_path, box(1), box(2, category_id=90))
    assert records[0].labels.tolist() == [1, 2]
    assert list(found.class_names) == ["dog", "cat", "x"]
    assert list(found.class_ids) == [1, 3, 90]


def test_box_becomes_corners_and_keeps_its_area(tmp_path):
    records, found = read(tmp_path, box(1, area=123.5))
    assert records[0].boxes_xyxy.tolist() == [[10, 10, 30, 40]]
    assert records[0].areas.tolist() == [123.5]
    assert codes(found) == []


def test_crowd_is_kept_and_marked(tmp_path):
    region = {"counts": [0, 10], "size": [72, 96]}
    records, _ = read(tmp_path, box(1), box(2, iscrowd=1, segmentation=region))
    assert records[0].is_crowd.tolist() == [False, True]


@pytest.mark.parametrize(
    ("annotations", "expected", "left"),
    [
        ([box(1), box(1)], ("warning", "duplicate-annotation"), 1),
        ([box(1), box(1, bbox=[1, 2, 3, 4])], ("warning", "duplicate-annotation-id"), 2),
        ([box(1), box(2, image_id=5)], ("warning", "unknown-image-id"), 1),
        ([box(1), box(2, category_id=4)], ("error", "unknown-category"), 1),
        ([box(1), box(2, bbox=[1, 2, 3])], ("warning", "bad-bbox"), 1),
        ([box(1), box(2, bbox=[1, 2, "3", 4])], ("warning", "bad-bbox"), 1),
        ([box(1), box(2, bbox=None)], ("warning", "bad-bbox"), 1),
        ([box(1), box(2, bbox=[1, 2, float("nan"), 4])], ("warning", "non-finite-box"), 1),
        ([box(1), box(2, bbox=[1, 2, 0, 4])], ("warning", "zero-area-box"), 1),
        ([box(1), box(2, bbox=[90, 2, 10, 4])], ("warning", "box-out-of-frame"), 2),
        ([box(1), box(2, area=None)], ("warning", "missing-keys"), 2),
        ([box(1, iscrowd=1)], ("warning", "only-crowd"), 1),
        ([box(1, bbox=[1, 2, 0, 4]), box(2)], ("warning", "zero-area-box"), 1),
    ],
)
def test_each_kind_of_trouble_has_its_finding(tmp_path, annotations, expected, left):
    records, found = read(tmp_path, *annotations)
    assert codes(found) == [expected]
    assert len(records[0].labels) == left


def test_size_of_the_file_counts_when_json_has_it_swapped(tmp_path):
    images = [{"id": 1, "file_name": "a.png", "width": 72, "height": 96}]
    records, found = read(tmp_path, box(1), images=images)
    assert (records[0].width, records[0].height) == (96, 72)
    assert codes(found) == [("warning", "swapped-size")]


def test_picture_of_another_size_is_dropped_with_its_boxes(tmp_path):
    images = [{"id": 1, "file_name": "a.png", "width": 1920, "height": 1440}]
    records, found = read(tmp_path, box(1), images=images)
    assert records == []
    assert ("warning", "size-mismatch") in codes(found)
    assert ("warning", "box-without-picture") in codes(found)
    assert ("error", "no-pictures") in codes(found)


def test_many_missing_pictures_are_an_error_and_few_are_not(tmp_path):
    def images(missing):
        names = ["gone.png"] * missing + ["a.png"] * (20 - missing)
        return [
            {"id": number, "file_name": name, "width": 96, "height": 72}
            for number, name in enumerate(names)
        ]

    for missing, is_error in ((2, False), (3, True)):
        records, found = read(tmp_path, box(1, image_id=19), images=images(missing))
        assert len(records) == 20 - missing
        assert (("error", "too-many-lost-pictures") in codes(found)) == is_error


def test_set_without_any_box_is_an_error(tmp_path):
    _, found = read(tmp_path)
    assert codes(found) == [("warning", "no-annotation"), ("error", "no-boxes")]


def test_one_image_id_for_two_files_is_an_error(tmp_path):
    images = [
        {"id": 1, "file_name": name, "width": 96, "height": 72} for name in ("a.png", "b.png")
    ]
    _, found = read(tmp_path, box(1), images=images)
    assert codes(found) == [("error", "duplicate-image-id")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"images": [],\n "annotations": [,]}', r"instances\.json:2: not JSON"),
        ("[]", "holds a list"),
        ("[" * 100_000, "not readable as JSON"),
        ('{"images": 1' + "0" * 5000 + "}", "not readable as JSON"),
        ('{"images": []}', "`annotations` must be a list"),
        ('{"images": [], "annotations": [], "categories": []}', "`categories` is empty"),
        (
            '{"images": [], "annotations": [], "categories": [{"id": "a", "name": "b"}]}',
            "whole number `id`",
        ),
        (
            '{"images": [{"id": 1}], "annotations": [], "categories": [{"id": 1, "name": "b"}]}',
            "entry 0 of `images` needs",
        ),
        (
            '{"images": [], "annotations": [], '
            '"categories": [{"id": 1, "name": "b"}, {"id": 2, "name": "b"}]}',
            "repeats an id or a name",
        ),
    ],
)
def test_what_is_no_coco_file_is_told(tmp_path, text, message):
    path = tmp_path / "instances.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DatasetError, match=message):
        list(read_coco(tmp_path, path).records)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"bbox": [10, 10, 10**400, 30]}, "non-finite-box"),
        ({"area": 10**400}, None),
        ({"id": [1]}, None),
    ],
)
def test_values_beyond_any_measure_are_findings(tmp_path, keys, expected):
    _, found = read(tmp_path, {**box(1), **keys}, box(2))
    told = [code for _, code in codes(found) if code != "missing-keys"]
    assert told == ([expected] if expected else [])


@pytest.mark.parametrize("name", ["a\0b.png", "x" * 5000])
def test_file_name_that_cannot_be_is_a_missing_picture(tmp_path, name):
    images = [
        {"id": 1, "file_name": "a.png", "width": float("nan"), "height": 72},
        {"id": 2, "file_name": name, "width": 96, "height": 72},
    ]
    _, found = read(tmp_path, box(1), images=images)
    assert ("warning", "missing-picture") in codes(found)


def test_missing_file_and_folder_are_told(tmp_path):
    with pytest.raises(DatasetError, match="cannot be read"):
        read_coco(tmp_path, tmp_path / "none.json")
    with pytest.raises(DatasetError, match="no such folder"):
        read_coco(tmp_path / "pictures", written(tmp_path, box(1)))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 40),
            st.integers(0, 30),
            st.integers(1, 50),
            st.integers(1, 40),
            st.integers(0, 2),
            st.booleans(),
        )
    )
)
def test_reading_what_was_written_gives_the_same(tmp_path, rows):
    path = write_picture(tmp_path / "b \u00e9.png")
    record = record_of(
        path,
        [(x, y, x + width, y + height) for x, y, width, height, _, _ in rows],
        [row[4] for row in rows],
        size=(96, 72),
        image_id="42",
        is_crowd=[row[5] for row in rows],
    )
    target = tmp_path / "labels" / "out.json"
    write_coco([record], ("a", "b", "c"), images=tmp_path, annotations=target, class_ids=(2, 5, 9))
    found = read_coco(tmp_path, target)
    (again,) = found.records
    assert (again.image_id, again.path, again.turn) == ("42", path, 1)
    for name in ("boxes_xyxy", "labels", "is_crowd", "areas"):
        assert np.array_equal(getattr(again, name), getattr(record, name)), name
    assert list(found.class_ids) == [2, 5, 9]


def test_tiny_coco_has_its_known_counts():
    folder = shared_data("detection/tiny_coco")
    (annotations,) = folder.rglob("*.json")
    found = read_coco(folder / "train2017", annotations, jobs=2)
    records = list(found.records)
    assert len(records) == 50
    assert sum(len(record.labels) for record in records) == 470
    assert sum(record.is_crowd.sum() for record in records) == 5
    assert sum(record.is_crowd.any() for record in records) == 4
    assert codes(found) == [("warning", "no-annotation")]
    assert (len(found.class_ids), max(found.class_ids)) == (80, 90)


def test_byte_order_mark_and_crlf_do_not_matter():
    folder = shared_data("detection/tiny_coco/train2017")
    path = shared_data("detection/awkward_labels/instances_bom_crlf.json")
    found = read_coco(folder, path)
    assert sum(len(record.labels) for record in found.records) == 57
    assert found.findings == []


def test_every_awkward_case_is_found_by_its_id():
    folder = shared_data("detection/tiny_coco/train2017")
    path = shared_data("detection/awkward_labels/instances_awkward.json")
    expected = json.loads(path.with_suffix(".expected.json").read_text("utf-8"))
    found = read_coco(folder, path)
    list(found.records)
    named = {finding.where for finding in found.findings}
    for case in expected:
        key = "annotation" if "annotation_id" in case else "image"
        assert f"{path.name}: {key} {case[key + '_id']}" in named, case["why"]
    assert len(found.findings) == len(expected)
