"""Completed labels are kept by content: the same again where nothing changed, anew where it did."""

import numpy as np
import pytest

from tasks.lanes import prepare as module
from tasks.lanes.config import LaneDataConfig
from tests.tasks.lanes.test_prepare import ROAD, SIZE, build_culane, build_tusimple

UNEVEN = (*ROAD, np.array([[150.0, 120.0], [152.0, 118.0]]))


@pytest.fixture
def completed(monkeypatch):
    """The pictures that were completed since the last look."""
    seen = []
    complete = module.Completion.complete

    def noted(self, record):
        seen.append(record.image_id)
        return complete(self, record)

    monkeypatch.setattr(module.Completion, "complete", noted)
    return seen


def prepare(tmp_path, source, *, output="out", num_lanes=4, **settings):
    settings.setdefault("slots", {"shortest": 30})
    data = {"frame": SIZE, "train": source, "val": source, **settings}
    return module.prepare_data(
        LaneDataConfig.model_validate(data),
        num_lanes=num_lanes,
        wants_masks=False,
        base=tmp_path,
        working=tmp_path / "work",
        output=tmp_path / output,
    )


def kept_files(tmp_path, ending):
    return sorted((tmp_path / "work" / "lanes").glob(f"*.{ending}"))


@pytest.mark.parametrize("build", [build_culane, build_tusimple])
def test_unchanged_data_are_completed_once_and_come_out_the_same(tmp_path, build, completed):
    source = build(
        tmp_path / "set", lanes=UNEVEN, **({"masks": False} if build is build_culane else {})
    )
    first = prepare(tmp_path, source)["train"]
    assert len(completed) == 3
    again = prepare(tmp_path, source, output="again")["train"]
    assert len(completed) == 3
    assert again.findings == first.findings
    assert any(finding.box_xyxy for finding in again.findings)
    for name in ("train.arrow", "quality.json", "quality.html"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def blank_line(root):
    path = root / "drive" / "0-0.lines.txt"
    path.write_text("\n" + path.read_text())


def other_mask(root):
    (root / "masks/drive/0-0.png").write_bytes((root / "masks/drive/0-1.png").read_bytes() + b"\0")


def other_picture(root):
    (root / "drive" / "0-0.jpg").write_bytes((root / "drive" / "0-1.jpg").read_bytes())


def other_lane(root):
    path = root / "drive" / "0-0.lines.txt"
    path.write_text(path.read_text().replace("140", "141"))


@pytest.mark.parametrize("change", [blank_line, other_mask, other_picture, other_lane])
def test_a_changed_file_gives_another_index_and_the_old_one_stays(tmp_path, change, completed):
    source = build_culane(tmp_path / "set")
    prepare(tmp_path, source)
    before = kept_files(tmp_path, "arrow")
    change(tmp_path / "set")
    prepare(tmp_path, source)
    assert len(completed) == 6
    assert set(before) < set(kept_files(tmp_path, "arrow"))


@pytest.mark.parametrize(
    "change",
    [
        {"slots": {"shortest": 31}},
        {"slots": {"shortest": 30, "rule": "angle"}},
        {"frame": (640, 360)},
        {"num_lanes": 5},
        {"grid": {"first": 60, "last": 170, "step": 5}},
    ],
)
def test_other_settings_give_another_index(tmp_path, change, completed):
    source = build_culane(tmp_path / "set")
    prepare(tmp_path, source)
    prepare(tmp_path, source, **change)
    assert len(completed) == 6


@pytest.mark.parametrize("ending", ["arrow", "json"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_broken_files_are_ignored_and_rewritten(tmp_path, ending, damage, completed):
    source = build_culane(tmp_path / "set")
    first = prepare(tmp_path, source)["train"]
    (path,) = kept_files(tmp_path, ending)
    good = path.read_bytes()
    middle = len(good) // 2
    path.unlink()
    if damage != "gone":
        rest = bytes([good[middle] ^ 255]) + good[middle + 1 :] if damage == "flipped" else b""
        path.write_bytes(good[:middle] + rest)
    again = prepare(tmp_path, source, output="again")["train"]
    assert again.findings == first.findings
    assert again.index.digest == first.index.digest
    assert path.read_bytes() == good
    assert len(completed) == 6
