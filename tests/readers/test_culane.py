from __future__ import annotations

import numpy as np
import pytest

from readers.culane import read_culane, write_culane_labels, write_lines_txt
from readers.culane_lists import BENCHMARK_SCENES
from readers.records import DatasetError
from tests.builders import write_picture

LANE = "10 70 20 40.5 30 20\n"
MASK = np.zeros((72, 96, 3), np.uint8)


def labelled(root, lines=LANE, *, name="drive/a.png", entry=None, list_file="list/all.txt"):
    """A picture of 96x72, its lanes (None: no file) and a line in the list."""
    path = write_picture(root / name)
    if lines is not None:
        path.with_suffix(".lines.txt").write_bytes(lines.encode())
    (root / list_file).parent.mkdir(exist_ok=True, parents=True)
    with (root / list_file).open("a", encoding="utf-8") as file:
        file.write(f"/{name}\n" if entry is None else entry)
    return root


def scenes(root, **pictures):
    """Scene lists by the names of their files."""
    folder = root / "list" / "scenes"
    folder.mkdir(parents=True, exist_ok=True)
    for name, images in pictures.items():
        (folder / f"{name}.txt").write_text("".join(f"{image}\n" for image in images), "utf-8")
    return root


def read(root, list_file="list/all.txt", **keys):
    found = read_culane(root, list_file, **keys)
    return list(found.records), found.findings


def codes(findings):
    return [item.code for item in findings]


def test_lanes_lie_beside_the_picture(tmp_path):
    records, findings = read(labelled(tmp_path, LANE + "90 70 60 20\n"))
    assert findings == []
    assert records[0].lanes[0].tolist() == [[10, 70], [20, 40.5], [30, 20]]
    assert records[0].lanes[1].tolist() == [[90, 70], [60, 20]]
    assert (records[0].image_id, records[0].path) == ("drive/a.png", tmp_path / "drive/a.png")
    assert (records[0].mask, records[0].scenes, records[0].h_samples.size) == (None, (), 0)


def test_training_list_names_mask_and_presence(tmp_path):
    write_picture(tmp_path / "laneseg_label_w16" / "m.png", MASK)
    labelled(tmp_path, entry="/drive/a.png /laneseg_label_w16/m.png 0 1 0 0\n")
    records, findings = read(tmp_path)
    assert findings == []
    assert records[0].mask == tmp_path / "laneseg_label_w16" / "m.png"


@pytest.mark.parametrize("folder", ["laneseg_label_w16", "laneseg_label_w16_test"])
def test_a_mask_that_no_list_names_is_found(tmp_path, folder):
    mask = write_picture(tmp_path / folder / "drive" / "a.png", MASK)
    records, _ = read(labelled(tmp_path))
    assert records[0].mask == mask


def test_a_missing_mask_and_another_count_of_lanes_are_told(tmp_path):
    labelled(tmp_path, entry="/drive/a.png /laneseg_label_w16/m.png 1 1 0 0\n")
    records, findings = read(tmp_path)
    assert records[0].mask is None
    assert codes(findings) == ["missing-mask", "lane-count-mismatch"]
    assert {item.where for item in findings} == {"list/all.txt:1"}
    assert findings[1].message == "the list says 2 lanes, drive/a.lines.txt has 1"


def test_windows_files_and_rare_names_are_read(tmp_path):
    name = "drive \u00fc/a b.png"
    write_picture(tmp_path / "masks" / "m 1.png", MASK)
    entry = "\ufeff\r\n\\drive \u00fc\\a b.png   \\masks\\m 1.png  1 0 \r\n\r\n"
    lines = "\ufeff10 70 20 40.5\t30 20 \r\n"
    records, findings = read(labelled(tmp_path, lines, name=name, entry=entry), jobs=2)
    assert findings == []
    assert records[0].image_id == name
    assert records[0].mask == tmp_path / "masks" / "m 1.png"
    assert len(records[0].lanes[0]) == 3


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("10 70 20", "3 numbers, an odd count"),
        ("10 70 x20 5", "'x20' is not a number"),
        ("10,70 20,5", "'10,70' is not a number"),
    ],
)
def test_lines_that_are_no_lane_are_told_with_file_and_line(tmp_path, line, words):
    _, findings = read(labelled(tmp_path, f"{LANE}{line}\n"))
    assert codes(findings) == ["bad-lane"]
    assert (findings[0].where, findings[0].severity) == ("drive/a.lines.txt:2", "error")
    assert words in findings[0].message


def test_useless_lanes_stay_for_the_score_and_are_told(tmp_path):
    lines = f"{LANE}5 5\n-9 70 -2 20\n"
    records, findings = read(labelled(tmp_path, lines))
    assert [len(lane) for lane in records[0].lanes] == [3, 1, 2]
    assert codes(findings) == ["short-lane", "lane-outside"]
    assert [item.where for item in findings] == ["drive/a.lines.txt:2", "drive/a.lines.txt:3"]
    assert findings[0].action.startswith("kept: the benchmark's score")


def test_points_that_are_none_are_dropped_and_told(tmp_path):
    records, findings = read(labelled(tmp_path, "10 70 nan 60 20 40 20 40 30 inf 30 20\n"))
    assert records[0].lanes[0].tolist() == [[10, 70], [20, 40], [30, 20]]
    assert codes(findings) == ["non-finite-point", "repeated-point"]
    assert findings[0].message == "2 of 6 points are NaN or infinite"
    assert findings[1].message == "points equal to the one before: 1, first 20 40"


def test_a_lane_that_turns_back_is_told(tmp_path):
    records, findings = read(labelled(tmp_path, "10 70 20 30 30 50\n40 70 45 69.5 50 70 60 20\n"))
    assert [len(lane) for lane in records[0].lanes] == [3, 4]
    assert codes(findings) == ["lane-turns-back"]
    assert findings[0].message == "the lane runs 20 px down and 40 px up again"
    assert findings[0].box_xyxy == (10, 30, 30, 70)


def test_blank_lines_are_ignored_and_told(tmp_path):
    records, findings = read(labelled(tmp_path, f"{LANE}\n{LANE}"))
    assert len(records[0].lanes) == 2
    assert codes(findings) == ["blank-line"]
    assert findings[0].where == "drive/a.lines.txt:2"


def test_pictures_without_label_file_or_lane_are_roads_without_lanes(tmp_path):
    labelled(tmp_path)
    labelled(tmp_path, None, name="drive/b.png")
    labelled(tmp_path, "", name="drive/c.png")
    records, findings = read(tmp_path)
    assert [len(record.lanes) for record in records] == [1, 0, 0]
    assert codes(findings) == ["no-label-file", "no-lane"]
    assert findings[0].where == "list/all.txt:2"


def test_not_one_label_file_is_an_error(tmp_path):
    _, findings = read(labelled(tmp_path, None))
    assert codes(findings) == ["no-label-file", "no-lanes"]
    assert "none of the 1 pictures has a lane" in findings[1].message


def test_a_label_file_that_cannot_be_read_is_an_error(tmp_path):
    labelled(tmp_path)
    (tmp_path / "drive" / "a.lines.txt").write_bytes(b"\xff\xfe1\x00")
    _, findings = read(tmp_path)
    assert codes(findings)[0] == "unreadable-label-file"
    assert "not UTF-8 text" in findings[0].message


def test_a_picture_that_is_listed_twice_counts_once(tmp_path):
    labelled(tmp_path, entry="/drive/a.png\ndrive/a.png\n")
    records, findings = read(tmp_path)
    assert len(records) == 1
    assert codes(findings) == ["duplicate-image"]
    assert findings[0].message == "drive/a.png is listed in list/all.txt:1 already"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"all\.txt:1: the list is empty"),
        ("\n\r\n", r"all\.txt:1: the list is empty"),
        ("/drive/a.png\nnothing of the kind\n", r"all\.txt:2: 'nothing of the kind' names no pic"),
    ],
)
def test_lists_that_are_none_stop_at_once(tmp_path, text, words):
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "all.txt").write_text(text, "utf-8")
    with pytest.raises(DatasetError, match=words):
        read(tmp_path)


def test_a_missing_list_names_its_neighbours(tmp_path):
    labelled(tmp_path, list_file="list/train_gt.txt")
    with pytest.raises(DatasetError, match=r"no such list; .*; did you mean train_gt\.txt\?"):
        read(tmp_path, "list/train_gr.txt")


def test_scenes_come_in_the_order_of_the_benchmark(tmp_path):
    labelled(tmp_path)
    labelled(tmp_path, name="drive/b.png")
    names = dict.fromkeys(f"test{i}_{name}" for i, name in enumerate(sorted(BENCHMARK_SCENES)))
    lists = {name: ["/drive/a.png"] for name in names} | {"light_rain": ["/drive/b.png"]}
    found = read_culane(scenes(tmp_path, **lists), "list/all.txt", scenes="list/scenes")
    records = list(found.records)
    assert found.scenes == (*BENCHMARK_SCENES, "light_rain")
    assert records[0].scenes == BENCHMARK_SCENES
    assert records[1].scenes == ("light_rain",)
    assert found.findings == []


def test_a_missing_scene_of_the_benchmark_is_named(tmp_path):
    names = [f"{i}_{name}" for i, name in enumerate(BENCHMARK_SCENES) if name != "curve"]
    scenes(labelled(tmp_path), **{name: ["/drive/a.png"] for name in names})
    with pytest.raises(DatasetError, match=r"scenes: no list of CULane's scene curve, but of norm"):
        read(tmp_path, scenes="list/scenes")


def test_scenes_of_ones_own_need_not_be_nine(tmp_path):
    scenes(labelled(tmp_path), night=["/drive/a.png"], rain=["/drive/a.png"])
    found = read_culane(tmp_path, "list/all.txt", scenes="list/scenes")
    assert found.scenes == ("night", "rain")


def test_scene_folders_without_sense_stop_at_once(tmp_path):
    labelled(tmp_path)
    with pytest.raises(DatasetError, match="scenes: no such folder"):
        read(tmp_path, scenes="list/scenes")
    (tmp_path / "list" / "scenes").mkdir()
    with pytest.raises(DatasetError, match="scenes: no scene list"):
        read(tmp_path, scenes="list/scenes")
    scenes(tmp_path, test0_night=[], night=[])
    with pytest.raises(DatasetError, match=r"night\.txt and test0_night\.txt are both of"):
        read(tmp_path, scenes="list/scenes")


def test_differences_between_list_and_scenes_are_told(tmp_path):
    labelled(tmp_path)
    labelled(tmp_path, name="drive/b.png")
    scenes(tmp_path, fog=[], rain=["/drive/a.png", "/drive/z.png", "/drive/z.png"])
    records, findings = read(tmp_path, scenes="list/scenes")
    assert records[0].scenes == ("rain",)
    assert codes(findings) == ["empty-scene", "scene-not-listed", "no-scene"]
    assert [item.where for item in findings] == [
        "scenes/fog.txt",
        "scenes/rain.txt",
        "list/all.txt",
    ]
    assert findings[1].message.startswith("2 of 3 pictures of rain are not in list/all.txt, first")
    assert findings[1].count == 2


def test_written_lanes_are_read_back(tmp_path):
    lanes = [np.array([[1.25, 70], [1 / 3, 20]]), np.array([[-5.0, 71], [95, 3]])]
    labelled(tmp_path, None)
    write_lines_txt(tmp_path / "drive" / "a.lines.txt", lanes)
    records, findings = read(tmp_path)
    assert findings == []
    for first, second in zip(records[0].lanes, lanes, strict=True):
        np.testing.assert_allclose(first, second, atol=1e-8)
    write_culane_labels(records)
    assert read(tmp_path)[0][0].lanes[0].tolist() == records[0].lanes[0].tolist()
    write_lines_txt(tmp_path / "drive" / "a.lines.txt", [])
    assert (tmp_path / "drive" / "a.lines.txt").read_text() == ""
