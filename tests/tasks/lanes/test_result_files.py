"""Results in CULane's and TuSimple's form: missing files, broken lines, what was written."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest

from readers.lane_records import ImageLanes
from readers.records import DatasetError
from tasks.lanes.config import F1MetricConfig, TusimpleMetricConfig
from tasks.lanes.formats import culane_text
from tasks.lanes.result_files import read_culane_results, read_results, read_tusimple_results

LANES = [np.array([[1.5, 2.0], [3.0, 4.25]]), np.array([[5.0, 6.0]])]
ROWS = np.array([20, 30, 40])
F1, TUSIMPLE = F1MetricConfig(name="f1"), TusimpleMetricConfig(name="tusimple")


def picture(**settings):
    """A picture of half the frame's width and twice its height."""
    return ImageLanes("1", Path("1.jpg"), 100, 100, turn=1, lanes=(), **settings)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "drive").mkdir()
    (tmp_path / "drive" / "1.lines.txt").write_text(culane_text(LANES), encoding="utf-8")
    return tmp_path


def test_lanes_are_read_as_they_were_written(folder):
    found = read_culane_results(folder, ["drive/1.jpg", "/drive/1.jpg"])

    for lanes in found:
        assert [lane.tolist() for lane in lanes] == [lane.tolist() for lane in LANES]


def test_missing_files_are_pictures_without_lanes_and_counted(folder, caplog):
    with caplog.at_level(logging.WARNING):
        found = read_culane_results(folder, ["drive/1.jpg", "drive/2.jpg", "drive/3.jpg"])

    assert [len(lanes) for lanes in found] == [2, 0, 0]
    assert "2 of 3 pictures have no result" in caplog.text


def test_a_folder_without_any_result_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="none of the 1 results is there"):
        read_culane_results(tmp_path, ["drive/1.jpg"])


def test_a_broken_line_is_named(folder):
    (folder / "drive" / "2.lines.txt").write_text("1 2 3 4\n1 2 3\n", encoding="utf-8")

    with pytest.raises(DatasetError, match=r"2\.lines\.txt:2: 3 numbers, an odd count"):
        read_culane_results(folder, ["drive/2.jpg"])


def test_a_point_that_is_nowhere_is_named(folder):
    (folder / "drive" / "2.lines.txt").write_text("1 2 3 4\n1 nan 3 4\n", encoding="utf-8")

    with pytest.raises(DatasetError, match=r"2\.lines\.txt:2: holds a value that is not finite"):
        read_culane_results(folder, ["drive/2.jpg"])


def test_lines_are_scaled_from_the_picture_to_the_frame(folder):
    found = read_results(folder, [picture()], image_ids=["drive/1.jpg"], frame=(200, 50), metric=F1)

    assert [lane.points.tolist() for lane in found.lanes[0]] == [[[3, 1], [6, 2.125]], [[10, 3]]]
    assert {(lane.slot, lane.kind, lane.score) for lane in found.lanes[0]} == {(-1, "pooled", 1.0)}
    assert found.at_rows is None


def tusimple_file(folder, *lines):
    path = folder / "results.json"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def read_lines_of(path, *names):
    return read_tusimple_results(path, names, [ROWS] * len(names))


def test_tusimple_lines_give_x_at_the_labels_rows(folder, caplog):
    path = tusimple_file(
        folder,
        {"raw_file": "/a.jpg", "lanes": [[9, 1.5, -2, 7]], "h_samples": [10, 20, 30, 40]},
        {"raw_file": "b.jpg", "lanes": [[5, -2, -2]], "run_time": 500},
    )
    found = read_lines_of(path, "a.jpg", "b.jpg", "c.jpg")

    assert [x.tolist() for x in found] == [[[1.5, -2, 7]], [[5, -2, -2]], []]
    assert "1 of 3 pictures have no result" in caplog.text


def test_tusimple_lanes_keep_their_gaps_in_px_of_the_frame(folder):
    path = tusimple_file(folder, {"raw_file": "a.jpg", "lanes": [[3, -2, 7], [-2, -2, -2]]})
    records = [picture(h_samples=ROWS)]
    found = read_results(path, records, image_ids=["a.jpg"], frame=(200, 50), metric=TUSIMPLE)

    assert found.at_rows[0].tolist() == [[6, -4, 14], [-4, -4, -4]]
    assert [lane.points.tolist() for lane in found.lanes[0]] == [[[6, 10], [14, 20]], []]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"lanes": []}, r"results\.json:1: no object with raw_file"),
        ([], r"results\.json:1: no object with raw_file"),
        ({"raw_file": "a.jpg", "lanes": [[1, 2]]}, "json:1: lane 1 has 2 values, h_samples has 3"),
        ({"raw_file": "a.jpg", "lanes": [[1, 2, "3"]]}, 'json:1: lane 1 holds "3", not a number'),
        ({"raw_file": "a.jpg", "lanes": [7]}, "json:1: lane 1 is 7, not a list of numbers"),
        ({"raw_file": "a.jpg", "lanes": [], "h_samples": [20, 30]}, "lacks row 40 of the labels"),
        ({"raw_file": "b.jpg", "lanes": []}, "none of the 1 results is there, first a.jpg"),
    ],
)
def test_a_wrong_tusimple_line_is_named(folder, line, message):
    with pytest.raises(DatasetError, match=message):
        read_lines_of(tusimple_file(folder, line), "a.jpg")


def test_two_tusimple_lines_of_one_picture_are_refused(folder):
    line = {"raw_file": "a.jpg", "lanes": []}
    with pytest.raises(DatasetError, match=r"json:2: a\.jpg has a result in .*json:1 already"):
        read_lines_of(tusimple_file(folder, line, line), "a.jpg")


def test_a_file_is_of_the_metric_tusimple_only(folder):
    path = tusimple_file(folder, {"raw_file": "a.jpg", "lanes": []})
    with pytest.raises(DatasetError, match="no folder; the metric f1 takes a folder"):
        read_results(path, [picture()], image_ids=["a.jpg"], frame=(200, 50), metric=F1)
