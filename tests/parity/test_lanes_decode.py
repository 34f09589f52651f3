"""The lane reference's decoding: CULane's and CurveLanes' text, TuSimple's rows, shifted features.

Each test runs once per fixture file (`--fixtures FOLDER`); tests/fixtures/lanes tells what they
hold. Texts agree to 0.001 a number, with as many lines and points; TuSimple's integers are equal.
"""

import json

import numpy as np
import pytest
import torch

from tasks.lanes.config import DecodeConfig, UfldModelConfig
from tasks.lanes.decoding import decode, decode_tta
from tasks.lanes.formats import culane_text, tusimple_lanes

FRAMES = {"CULane": (1640, 590), "CurveLanes": (2560, 1440), "Tusimple": (1280, 720)}
# cells and anchors of rows and columns, lanes; input and crop; row range
SHAPES = {
    "CULane": ((200, 72), (100, 81), 4),
    "CurveLanes": ((200, 72), (100, 41), 10),
    "Tusimple": ((100, 56), (100, 41), 4),
}
INPUTS = {"CULane": ((1600, 320), 0.6), "CurveLanes": ((1600, 800), 0.8)}
ROW_RANGES = {
    "CULane": {"range": (0.42, 1.0)},
    "CurveLanes": {"range": (0.4, 1.0)},
    "Tusimple": {"range": (160, 710), "unit": "px"},
}
CULANE = {"mode": "mixed", "window": 1, "row_share": 0.5, "column_share": 0.25}
CURVELANES = {"window": 1, "row_share": 0.25, "column_share": 0.25}
TUSIMPLE = {"window": 14, "row_share": 0.0, "column_share": 0.0, "least_anchors": 3}
TUSIMPLE_MODES = {"4row": "rows", "2row2col": "mixed", "4col": "columns"}
CLOSE = 1e-3 + 1e-9


def model_of(name):
    (row_cells, rows), (column_cells, columns), lanes = SHAPES[name]
    size, crop = INPUTS.get(name, ((800, 320), 0.8))
    return UfldModelConfig.model_validate(
        {
            "name": "ufldv2",
            "backbone": {"name": "resnet18"},
            "lanes": lanes,
            "input": size,
            "crop": crop,
            "rows": {"anchors": rows, "cells": row_cells, **ROW_RANGES[name]},
            "columns": {"anchors": columns, "cells": column_cells},
        }
    )


def drawn(seed, batch, name, *, structured):
    """Predictions by the fixtures' rule."""

    def generator(offset):
        return torch.Generator().manual_seed(seed + offset)

    rows, columns, lanes = SHAPES[name]
    arrays = {}
    for key, (cells, anchors), start in (("row", rows, 0), ("col", columns, 10)):
        x = torch.randn(batch, cells, anchors, lanes, generator=generator(start))
        if structured:
            a = torch.rand(batch, 1, lanes, generator=generator(start + 1))
            b = torch.rand(batch, 1, lanes, generator=generator(start + 2)) - 0.5
            q = torch.rand(batch, 1, lanes, generator=generator(start + 3)) - 0.5
            t = torch.linspace(0, 1, anchors).view(1, anchors, 1)
            cell = ((a + b * t + q * t * t).clamp(0, 1) * (cells - 1)).round().long()
            x.scatter_add_(1, cell.unsqueeze(1), torch.full((batch, 1, anchors, lanes), 6.0))
        e = torch.randn(batch, 2, anchors, lanes, generator=generator(start + 4))
        e[:, 1] += torch.randn(batch, 1, lanes, generator=generator(start + 5)) * 1.5 + 0.8
        arrays[f"loc_{key}"], arrays[f"exist_{key}"] = x, e
    return {key: value.numpy() for key, value in arrays.items()}


def cases_of(path, kind, **wanted):
    """Return the file's cases of one data set, with or without shifts."""
    cases = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(cases, dict):
        return []  # the probe of the drawn predictions, whose name begins alike
    is_shifted = wanted.get("shifted", False)
    return [c for c in cases if c["dataset"] == kind and c.get("tta", False) == is_shifted]


def found_in(case, **settings):
    name = case["dataset"]
    outputs = drawn(case["seed"], case["batch"], name, structured=case["structured"])
    config = DecodeConfig.model_validate(settings)
    return decode(outputs, model=model_of(name), decode=config, frame=FRAMES[name])


def points_of(lanes):
    return [lane.points for lane in lanes]


def by_slot(lanes, num_lanes):
    """The reference's intermediate texts have a line for every slot."""
    points = {lane.slot: lane.points for lane in lanes}
    return [points.get(slot, np.zeros((0, 2))) for slot in range(num_lanes)]


def assert_same_text(ours, expected):
    lines = ours.split("\n")
    assert len(lines) == len(expected.split("\n"))
    for line, other in zip(lines, expected.split("\n"), strict=True):
        numbers = [float(value) for value in line.split()]
        assert numbers == pytest.approx([float(v) for v in other.split()], abs=CLOSE, rel=0)


@pytest.mark.fixture_kind("lanes", "decode_input_probe")
def test_the_drawn_predictions_are_the_references(fixture_file):
    arrays = drawn(4000, 2, "CULane", structured=True)

    for name, expected in json.loads(fixture_file.read_text(encoding="utf-8")).items():
        assert list(arrays[name].shape) == expected["shape"]
        assert arrays[name].astype(np.float64).sum() == pytest.approx(expected["sum"], rel=1e-6)
        assert arrays[name].ravel()[:5] == pytest.approx(expected["first"], rel=1e-6)


@pytest.mark.fixture_kind("lanes", "decode")
def test_culane_text_is_the_references(fixture_file):
    for case in cases_of(fixture_file, "CULane"):
        found = found_in(case, **CULANE)
        for lanes, expected in zip(found, case["lines_txt"], strict=True):
            assert_same_text(culane_text(points_of(lanes)), expected)


@pytest.mark.fixture_kind("lanes", "decode")
@pytest.mark.parametrize("name", ["CULane", "Tusimple"])
def test_whole_points_are_those_of_the_references_demo(fixture_file, name):
    for case in cases_of(fixture_file, name):
        lanes = found_in(case, **CULANE)[0]
        expected = case["demo_pred2coords_img0"]
        assert len(lanes) == len(expected)
        for lane, points in zip(lanes, expected, strict=True):
            whole = lane.points.astype(int)
            assert whole[:, 0].tolist() == [x for x, _ in points]
            # the reference cuts row anchors of 229.99997 px to 229
            assert whole[:, 1] == pytest.approx([y for _, y in points], abs=1, rel=0)


@pytest.mark.fixture_kind("lanes", "decode")
def test_curvelanes_rows_columns_and_pooled_curves_are_the_references(fixture_file):
    for case in cases_of(fixture_file, "CurveLanes"):
        for mode, key in (("rows", "row_txt"), ("columns", "col_txt")):
            found = found_in(case, mode=mode, **CURVELANES)
            for lanes, expected in zip(found, case[key], strict=True):
                assert_same_text(culane_text(by_slot(lanes, 10)), expected)
        found = found_in(case, mode="pooled", **CURVELANES)
        for lanes, expected in zip(found, case["combined_txt"], strict=True):
            assert_same_text(culane_text(points_of(lanes)), expected)


@pytest.mark.fixture_kind("lanes", "decode")
@pytest.mark.parametrize("key", TUSIMPLE_MODES)
def test_tusimple_rows_are_the_references(fixture_file, key):
    for case in cases_of(fixture_file, "Tusimple"):
        found = found_in(case, mode=TUSIMPLE_MODES[key], **TUSIMPLE)
        for lanes, expected in zip(found, case[key], strict=True):
            ours = tusimple_lanes(lanes, h_samples=np.arange(160, 711, 10), frame=(1280, 720))
            assert ours == expected


@pytest.mark.fixture_kind("lanes", "decode")
def test_shifted_features_give_the_references_text_with_its_cell_sizes(fixture_file):
    for case in cases_of(fixture_file, "CULane", shifted=True):
        outputs = drawn(case["seed"], 5, "CULane", structured=case["structured"])
        for key, value in outputs.items():
            generator = torch.Generator().manual_seed(case["seed"] + 7)
            noise = torch.randn(value.shape, generator=generator).numpy()
            outputs[key] = value[:1] + np.float32(0.1) * noise
        found = decode_tta(
            outputs,
            model=model_of("CULane"),
            decode=DecodeConfig.model_validate(CULANE),
            frame=FRAMES["CULane"],
            compat=["tta_shift"],
        )
        for lanes, expected in zip(found, case["lines_txt"], strict=True):
            assert_same_text(culane_text(points_of(lanes)), expected)
