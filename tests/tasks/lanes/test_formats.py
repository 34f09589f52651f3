"""Lanes as text: CULane's, TuSimple's and CurveLanes' own forms."""

import json

import numpy as np
import pytest

from readers.culane import read_lines_txt
from readers.findings import FindingLog
from tasks.lanes.decoding import DecodedLane
from tasks.lanes.formats import culane_text, curvelanes_json, tusimple_lanes, tusimple_line

FRAME = (1280, 720)


def lane_of(points, kind="row"):
    return DecodedLane(0, kind, np.array(points, np.float32), 0.9)


def at(lane, rows):
    (found,) = tusimple_lanes([lane], h_samples=np.array(rows), frame=FRAME)
    return found


def test_culane_text_has_three_decimals_and_a_line_per_lane():
    lanes = [np.array([[1, 2.5], [3.00049, 4]]), np.zeros((0, 2)), np.array([[5, 6]], np.float32)]

    assert culane_text(lanes) == "1.000 2.500 3.000 4.000 \n\n5.000 6.000 \n"
    assert culane_text([]) == ""


def test_curvelanes_json_names_its_coordinates():
    text = curvelanes_json([np.array([[1.5, 20]])])

    assert json.loads(text) == {"Lines": [[{"x": "1.500", "y": "20.000"}]]}


def test_row_lanes_are_cut_to_whole_px_at_their_anchors():
    lane = lane_of([[10.9, 160], [12.2, 170], [30.99, 190]])

    assert at(lane, [150, 160, 170, 180, 190, 200]) == [-2, 10, 12, -2, 30, -2]


def test_rows_between_neighbouring_anchors_are_interpolated():
    lane = lane_of([[10, 160], [20, 180], [40, 200], [100, 260]])

    # 220 and 240 have no point: nothing is drawn across the gap
    assert at(lane, [165, 190, 200, 230]) == [12, 30, 40, -2]


def test_column_lanes_follow_their_quadratic_and_are_rounded():
    y = np.array([100, 200, 300, 400], np.float32)
    lane = lane_of(np.stack([(y / 20) ** 2 + 0.3, y], axis=1), kind="column")
    upright = lane_of([[2.5, 100], [2.5, 200], [2.5, 300]], kind="column")

    # 35.7 at 119; rows beyond the points are absent; a half goes to the even number
    assert at(lane, [90, 100, 119, 200, 400, 410]) == [-2, 25, 36, 100, 400, -2]
    assert at(upright, [100, 250]) == [2, 2]


def test_column_lanes_outside_the_frame_are_absent():
    lane = lane_of([[-300, 0], [0, 300], [300, 600]], kind="column")
    beyond = lane_of([[1200, 0], [1300, 100]], kind="column")

    assert at(lane, [200, 300, 350]) == [-2, 0, 50]
    assert at(beyond, [0, 70, 90]) == [1200, 1270, -2]


def test_pooled_lanes_are_followed_between_their_points():
    assert at(lane_of([[0, 500], [100, 300]], kind="pooled"), [290, 300, 400]) == [-2, 100, 50]


def test_kinds_keep_their_places():
    row, column = lane_of([[5, 10], [6, 20]]), lane_of([[7, 10], [7, 20]], kind="column")

    found = tusimple_lanes([column, row, column], h_samples=np.array([10, 20]), frame=FRAME)

    assert found == [[7, 7], [5, 6], [7, 7]]


def test_a_tusimple_line_is_one_json_object():
    line = tusimple_line("clips/1.jpg", [[-2, 5]], h_samples=np.array([160, 170]))

    assert json.loads(line) == {
        "raw_file": "clips/1.jpg",
        "lanes": [[-2, 5]],
        "h_samples": [160, 170],
        "run_time": 10,
    }


def test_what_is_written_is_read_back(tmp_path):
    lanes = [np.array([[1.25, 2], [3, 4]]), np.array([[5.5, 6.125]])]
    path = tmp_path / "a.lines.txt"
    path.write_text(culane_text(lanes), encoding="utf-8")

    found = read_lines_txt(path, name=path.name, findings=FindingLog("a"), image_id="a")

    for lane, expected in zip(found, lanes, strict=True):
        assert lane.points == pytest.approx(expected)
