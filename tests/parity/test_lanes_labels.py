"""The lane reference's conversions: slots, points, masks and validation texts of three benchmarks.

Each test runs once per fixture of its kind (`--fixtures FOLDER`): a .json and a .npz of one name.
tests/fixtures/lanes tells what the files hold. Numbers of pictures and points are equal, positions
to 1e-3 px, masks to the pixel.
"""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from readers.lane_records import ABSENT, ImageLanes
from tasks.lanes.completion import Completion
from tasks.lanes.grid import downward, grid_heights, scaled_lanes
from tasks.lanes.masks import draw_mask

FRAMES = {"tusimple": (1280, 720), "culane": (1640, 590), "curvelanes": (2560, 1440)}
RULES = {"tusimple": "angle", "culane": "mask", "curvelanes": "outermost"}


def set_of(path):
    return next(name for name in FRAMES if name in path.stem)


def read_case(path):
    """Return the set, its records in the fixture's order, the values and the arrays."""
    name, values = set_of(path), json.loads(path.read_text(encoding="utf-8"))
    with np.load(path.with_suffix(".npz")) as arrays:
        arrays = dict(arrays)
    if name == "tusimple":
        found = [tusimple_lanes(item) for item in values["annotations"]]
        sizes = [FRAMES[name]] * len(found)
    elif name == "culane":
        items = [values["annotations"][key] for key in values["names"]]
        found = [[pairs(np.array(line.split(), float)) for line in item["lines"]] for item in items]
        sizes = [FRAMES[name]] * len(found)
    else:
        items = [values["annotations"][key] for key in values["names"]]
        found = [curvelanes_lanes(item) for item in items]
        sizes = [(item["width"], item["height"]) for item in items]
    records = [
        ImageLanes(key, Path(key), *size, turn=1, lanes=tuple(lanes))
        for key, size, lanes in zip(values["names"], sizes, found, strict=True)
    ]
    return name, records, values, arrays


def pairs(numbers):
    return numbers.reshape(-1, 2)


def tusimple_lanes(item):
    both = [np.stack([lane, item["h_samples"]], axis=1).astype(float) for lane in item["lanes"]]
    return [lane[lane[:, 0] >= 0] for lane in both]


def curvelanes_lanes(item):
    return [np.array([[float(p["x"]), float(p["y"])] for p in line]) for line in item["Lines"]]


def with_mask(record, values, folder):
    """Draw the mask of a CULane picture by the fixture's rule."""
    slots = values["annotations"][record.image_id]["slot"]
    mask = np.zeros((record.height, record.width), np.uint8)
    for lane, slot in sorted(slots.items(), key=lambda item: item[1]):
        points = record.lanes[int(lane)].astype(np.int32)
        cv2.polylines(mask, [points], False, slot, 16)
    path = folder / record.image_id.replace("/", "_").replace(".jpg", ".png")
    cv2.imwrite(str(path), mask)
    return ImageLanes(
        record.image_id,
        record.path,
        record.width,
        record.height,
        turn=1,
        lanes=record.lanes,
        mask=path,
    )


def completion_of(name, num_slots):
    return Completion(
        layout=name,
        rule=RULES[name],
        shortest=90.0,
        num_slots=num_slots,
        frame=FRAMES[name],
        heights=grid_heights(None, layout=name, frame=FRAMES[name]),
    )


def drawn_masks(records, completion):
    """Yield the mask that is drawn of each record."""
    for record in records:
        slots = completion.complete(record).record.slots
        yield draw_mask(record.lanes, slots, size=(record.width, record.height))


@pytest.mark.fixture_kind("lanes", "labels_")
def test_points_are_those_that_the_reference_caches(fixture_file, tmp_path):
    name, records, values, arrays = read_case(fixture_file)
    completion = completion_of(name, arrays["points"].shape[1])
    for record, expected in zip(records, arrays["points"], strict=True):
        if name == "culane":
            record = with_mask(record, values, tmp_path)
        is_there = expected[..., 0] > ABSENT

        grid = completion.complete(record).record.grid

        assert grid.shape == expected.shape
        assert ((grid[..., 0] > ABSENT) == is_there).all()
        assert grid[is_there] == pytest.approx(expected[is_there], abs=1e-3)
        assert (grid[~is_there] == ABSENT).all()


@pytest.mark.fixture_kind("lanes", "labels_tusimple")
def test_tusimple_masks_have_the_references_pixels(fixture_file):
    name, records, _, arrays = read_case(fixture_file)
    masks = list(drawn_masks(records, completion_of(name, 4)))
    counts = [np.bincount(mask.ravel(), minlength=11) for mask in masks]
    assert np.array_equal(counts, arrays["seg_counts"])
    assert np.array_equal([mask[::8, ::8] for mask in masks], arrays["seg_sub8"])


@pytest.mark.fixture_kind("lanes", "labels_curvelanes")
def test_curvelanes_masks_have_the_references_pixels(fixture_file):
    name, records, _, arrays = read_case(fixture_file)
    masks = drawn_masks(records, completion_of(name, 10))
    counts = [np.bincount(mask.ravel(), minlength=11) for mask in masks]
    assert np.array_equal(counts, arrays["seg_counts"])


@pytest.mark.fixture_kind("lanes", "labels_curvelanes")
def test_scored_curvelanes_are_those_of_the_validation_texts(fixture_file):
    name, records, values, _ = read_case(fixture_file)
    by_number = {Path(record.image_id).stem[1:]: record for record in records}
    for key, text in values["valid_lines_txt"].items():
        lanes = scaled_lanes(by_number[Path(key).stem[1:]], FRAMES[name])
        lines = [pairs(np.array(line.split(), float)) for line in text.splitlines() if line]

        assert len(lanes) == len(lines)
        for lane, expected in zip(lanes, lines, strict=True):
            assert downward(lane) == pytest.approx(expected, abs=1e-6)
