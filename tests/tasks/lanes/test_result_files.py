"""Results in CULane's form: missing files, broken lines, what was written."""

import logging

import numpy as np
import pytest

from readers.records import DatasetError
from tasks.lanes.formats import culane_text
from tasks.lanes.result_files import read_culane_results

LANES = [np.array([[1.5, 2.0], [3.0, 4.25]]), np.array([[5.0, 6.0]])]


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
