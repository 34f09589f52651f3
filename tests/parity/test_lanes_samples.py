"""The lane reference's training samples: moved points, labels, and both picture transforms.

Each test runs once per fixture of its kind (`--fixtures FOLDER`): a .json and a .npz of one name.
tests/fixtures/lanes tells what the files hold.
"""

import json

import numpy as np
import pytest
import torch

from readers.lane_records import ABSENT
from tasks.lanes.config import UfldModelConfig
from tasks.lanes.geometry import affine, move_points, warp_mask, warp_picture
from tasks.lanes.labels import LabelMaker
from tasks.lanes.transform import mask_to_input, normalise, to_input, warped_to_input

FRAMES = {"tusimple": (1280, 720), "culane": (1640, 590), "curvelanes": (2560, 1440)}
ROW_RANGES = {
    "tusimple": {"range": (160, 710), "unit": "px"},
    "culane": {"range": (0.42, 1.0)},
    "curvelanes": {"range": (0.4, 1.0)},
}
ROW_CELLS = {"tusimple": 100, "culane": 200, "curvelanes": 200}
AUG_FIELDS = ("scale_x", "scale_y", "angle_deg", "offset_x", "offset_y")
MATRIX = 3e-4  # DALI's matrices are float32 at every step
LEVEL = 1 / (255 * np.array([0.229, 0.224, 0.225]))[:, None, None]  # a grey level, normalised


def read_pair(path):
    """Return a fixture's values and arrays."""
    with np.load(path.with_suffix(".npz")) as arrays:
        return json.loads(path.read_text(encoding="utf-8")), dict(arrays)


def set_of(path):
    return next(name for name in FRAMES if name in path.stem)


def model_of(name="culane", *, size=(1600, 320), crop=0.6, rows=72, columns=81, lanes=4):
    return UfldModelConfig.model_validate(
        {
            "name": "ufldv2",
            "backbone": {"name": "resnet18"},
            "lanes": lanes,
            "input": size,
            "crop": crop,
            "rows": {"anchors": rows, "cells": ROW_CELLS[name], **ROW_RANGES[name]},
            "columns": {"anchors": columns, "cells": 100},
        }
    )


def input_model(case):
    size = (case["train_width"], case["train_height"])
    return model_of(size=size, crop=case["crop_ratio"])


def moves_of(values):
    """Yield number, matrix of each augmentation."""
    centre = values["center"]
    for number, params in enumerate(values["aug_params"]):
        yield number, matrix_of(dict(zip(AUG_FIELDS, params, strict=True)), centre)


def moved_points(arrays, number):
    matrix = arrays[f"mt{number}"].astype(np.float64)
    return np.stack([move_points(points, matrix) for points in arrays["points"]])


def maker_for(path, arrays):
    _, rows, lanes = arrays["aug0_labels_row"].shape
    columns = arrays["aug0_labels_col"].shape[1]
    model = model_of(set_of(path), rows=rows, columns=columns, lanes=lanes)
    return LabelMaker(model, FRAMES[set_of(path)])


def matrix_of(named, centre):
    return affine(
        scale=(named["scale_x"], named["scale_y"]),
        degrees=named["angle_deg"],
        shift=(named["offset_x"], named["offset_y"]),
        centre=tuple(centre),
    )


def picture_of(seed, height, width):
    """The fixtures' rule `image(seed, H, W)`."""
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (-(-height // 16), -(-width // 16), 3), generator=generator)
    noise = torch.randint(0, 256, (height, width, 3), generator=generator)
    large = blocks.repeat_interleave(16, 0).repeat_interleave(16, 1)[:height, :width]
    return ((3 * large + noise) // 4).to(torch.uint8).numpy()


def mask_of(seed, height, width):
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 5, (-(-height // 24), -(-width // 24)), generator=generator)
    large = blocks.repeat_interleave(24, 0).repeat_interleave(24, 1)[:height, :width]
    return large.to(torch.uint8).numpy()


def normalised(image):
    return normalise(torch.from_numpy(image)[None])[0].double().numpy()


@pytest.mark.fixture_kind("lanes", "labels_")
def test_moves_have_the_references_matrices_and_points(fixture_file):
    values, arrays = read_pair(fixture_file)
    is_there = arrays["points"][..., 0] > ABSENT
    for number, matrix in moves_of(values):
        assert matrix == pytest.approx(arrays[f"mt{number}"], abs=MATRIX)
        if f"pts_aug{number}" in arrays:
            moved = moved_points(arrays, number)
            assert moved[is_there] == pytest.approx(arrays[f"pts_aug{number}"][is_there], abs=1e-3)
            assert (moved[~is_there] == ABSENT).all()


@pytest.mark.fixture_kind("lanes", "labels_")
def test_labels_are_those_of_the_reference(fixture_file):
    values, arrays = read_pair(fixture_file)
    maker = maker_for(fixture_file, arrays)
    for number, _ in moves_of(values):
        ours = moved_points(arrays, number)
        # the reference's own, where the fixture has them, and ours
        for points in (arrays.get(f"pts_aug{number}", ours), ours):
            labels = maker(torch.from_numpy(points))

            assert (labels.rows.numpy() == arrays[f"aug{number}_labels_row"]).mean() >= 0.998
            assert (labels.columns.numpy() == arrays[f"aug{number}_labels_col"]).mean() >= 0.998


@pytest.mark.fixture_kind("lanes", "labels_")
def test_positions_at_the_anchors_are_those_of_the_reference(fixture_file):
    values, arrays = read_pair(fixture_file)
    maker = maker_for(fixture_file, arrays)
    for number, _ in moves_of(values):
        positions = maker.positions(torch.from_numpy(moved_points(arrays, number)))
        frame = FRAMES[set_of(fixture_file)]
        for ours, extent, kind in zip(positions, frame, ("row", "col"), strict=True):
            share = (ours / extent).transpose(1, 2).numpy()
            share[(share < 0) | (share > 1)] = -1
            assert share == pytest.approx(arrays[f"aug{number}_labels_{kind}_float"], abs=1e-5)


@pytest.mark.fixture_kind("lanes", "transform_test")
def test_evaluation_inputs_are_within_a_grey_level(fixture_file):
    values, arrays = read_pair(fixture_file)
    for name, case in values["cases"].items():
        picture = picture_of(case["seed"], case["height"], case["width"])
        assert int(picture.sum(dtype=np.int64)) == case["image_sum"]

        ours = normalised(to_input(picture, model=input_model(case)))

        assert ours.shape == (3, case["train_height"], case["train_width"])
        down, across = case["sub_step"]
        for part, key in (
            (ours[:, ::down, ::across], "sub"),
            (ours[:, :8, :8], "tl"),
            (ours[:, -8:, -8:], "br"),
        ):
            assert (np.abs(part - arrays[f"{name}_{key}"]) <= 1.01 * LEVEL).all()
        assert ours.mean((1, 2)) == pytest.approx(case["mean"], abs=1e-3)
        assert ours.std((1, 2)) == pytest.approx(case["std"], abs=1e-3)


def train_cases(pair):
    """Yield key, case, augmentation, matrix of each training transform."""
    for name, case in pair[0]["cases"].items():
        for number, augmentation in enumerate(case["augs"]):
            named = dict(zip(AUG_FIELDS, augmentation["params"], strict=True))
            yield f"{name}{number}", case, augmentation, matrix_of(named, case["center"])


@pytest.mark.fixture_kind("lanes", "transform_train")
def test_pictures_and_masks_are_moved_as_the_reference_does(fixture_file):
    pair = read_pair(fixture_file)
    for key, case, augmentation, matrix in train_cases(pair):
        size = (case["height"], case["width"])
        assert matrix == pytest.approx(pair[1][f"{key}_matrix"], abs=MATRIX)

        picture = warp_picture(picture_of(case["image_seed"], *size), matrix)
        mask = warp_mask(mask_of(case["mask_seed"], *size), matrix)

        levels = picture[::16, ::16].astype(int) - pair[1][f"{key}_warp_sub"]
        assert np.abs(levels).max() <= 2
        assert np.abs(levels).mean() < 0.06
        assert picture.mean((0, 1)) == pytest.approx(augmentation["warp_mean"], abs=0.02)
        assert (mask[::8, ::8] == pair[1][f"{key}_mask_nearest_sub"]).mean() >= 0.999
        counts = np.bincount(mask.ravel(), minlength=5)
        assert counts == pytest.approx(augmentation["mask_nearest_counts"], abs=60)


@pytest.mark.fixture_kind("lanes", "transform_train")
def test_training_inputs_are_those_of_the_reference(fixture_file):
    pair = read_pair(fixture_file)
    for key, case, augmentation, matrix in train_cases(pair):
        size = (case["height"], case["width"])
        settings = {"model": input_model(case), "frame": (case["width"], case["height"])}

        image = warped_to_input(picture_of(case["image_seed"], *size), matrix, **settings)
        mask = mask_to_input(mask_of(case["mask_seed"], *size), matrix, **settings)

        ours = normalised(image)
        off = np.abs(ours[:, ::16, ::16] - pair[1][f"{key}_out_sub"]) > 1.1 * LEVEL
        assert off.mean() <= 0.005
        assert ours.mean((1, 2)) == pytest.approx(augmentation["out_mean"], abs=1e-3)
        assert ours.std((1, 2)) == pytest.approx(augmentation["out_std"], abs=1e-3)
        assert (mask[::4, ::8] == pair[1][f"{key}_out_mask_nearest_sub"]).mean() >= 0.999
        counts = np.bincount(mask.ravel(), minlength=5)
        assert counts == pytest.approx(augmentation["out_mask_nearest_counts"], abs=60)
