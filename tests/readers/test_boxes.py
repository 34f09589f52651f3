from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.boxes import RawBox, clean_boxes
from readers.findings import KEPT_PER_CODE, FindingLog


def clean(*boxes, size=(100, 50), area=None):
    findings = FindingLog("set")
    raw = [
        RawBox(box, 0, str(number), f"line {number}", area=area) for number, box in enumerate(boxes)
    ]
    return clean_boxes(raw, size, image_id="7", findings=findings), findings


@pytest.mark.parametrize(
    ("box", "code", "kept"),
    [
        ((10, 10, 20, 30), None, [10, 10, 20, 30]),
        ((0, 0, 100, 50), None, [0, 0, 100, 50]),
        ((10, 10, 10, 30), "zero-area-box", None),
        ((10, 10, 20, 10), "zero-area-box", None),
        ((20, 10, 10, 30), "negative-size-box", None),
        ((math.nan, 10, 20, 30), "non-finite-box", None),
        ((10, 10, math.inf, 30), "non-finite-box", None),
        ((100, 10, 120, 30), "box-outside", None),
        ((-20, 10, 0, 30), "box-outside", None),
        ((90, 10, 120, 30), "box-out-of-frame", [90, 10, 100, 30]),
        ((-5, -6, 20, 30), "box-out-of-frame", [0, 0, 20, 30]),
        ((90, 10, 100.4, 30), None, [90, 10, 100, 30]),
        ((10, 10, 10.5, 30), "tiny-box", [10, 10, 10.5, 30]),
    ],
)
def test_bad_boxes_are_told_and_dropped_or_cut(box, code, kept):
    columns, findings = clean(box)
    assert [finding.code for finding in findings] == ([code] if code else [])
    assert columns.boxes_xyxy.tolist() == ([kept] if kept else [])
    for finding in findings:
        assert (finding.where, finding.image_id) == ("line 0", "7")


@pytest.mark.parametrize(
    ("given", "expected"), [(None, 200), (math.nan, 200), (-1, 200), (150, 150)]
)
def test_area_of_no_meaning_is_width_times_height(given, expected):
    columns, _ = clean((10, 10, 20, 30), area=given)
    assert columns.areas.tolist() == [expected]


def test_no_boxes_give_empty_columns():
    columns, findings = clean()
    assert columns.boxes_xyxy.shape == (0, 4)
    assert (columns.labels.dtype, columns.is_crowd.dtype) == ("int64", "bool")
    assert findings == []


@given(st.lists(st.tuples(*[st.floats(-1e6, 1e6, width=32)] * 4), max_size=20))
def test_what_is_kept_lies_in_the_frame_and_has_an_area(boxes):
    columns, _ = clean(*boxes)
    x1, y1, x2, y2 = columns.boxes_xyxy.T
    assert (x1 >= 0).all()
    assert (y1 >= 0).all()
    assert (x2 <= 100).all()
    assert (y2 <= 50).all()
    assert (x2 > x1).all()
    assert (y2 > y1).all()
    assert (columns.areas > 0).all()


def test_box_that_cannot_be_drawn_is_left_out_of_its_finding():
    _, findings = clean((math.nan, 10, 20, 30), (10, 10, 10, 30))
    assert [finding.box_xyxy for finding in findings] == [None, (10, 10, 10, 30)]


def test_a_flood_of_findings_is_counted_not_kept():
    findings = FindingLog("set")
    for number in range(KEPT_PER_CODE + 250):
        findings.warn("tiny-box", f"line {number}", "small", action="kept")
    findings.close()
    assert len(findings) == KEPT_PER_CODE + 1
    assert sum(finding.count for finding in findings) == KEPT_PER_CODE + 250
