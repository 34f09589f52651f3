"""Training items: what is read, what moves together, and batches that no worker count changes."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from engine.contract import Draws, EpochRequest
from readers.lane_index import build_lane_index
from readers.lane_records import ABSENT, ImageLanes
from readers.records import DatasetError
from tasks.lanes.augment import Variation
from tasks.lanes.config import LaneDataConfig, UfldModelConfig
from tasks.lanes.labels import LabelMaker
from tasks.lanes.samples import LaneSamples, collate, unpack
from tasks.lanes.transform import normalise, to_input
from tasks.loading import EpochLoader
from tasks.shuffled import ShuffledPlan

FRAME = (160, 90)
GRID_Y = np.array([30, 60, 89], np.float32)
SHIFTED = Variation(shift=(16.0, 9.0))


def model():
    anchors = {"anchors": 6, "cells": 11}
    return UfldModelConfig.model_validate(
        {
            "name": "ufldv2",
            "backbone": {"name": "resnet18"},
            "lanes": 2,
            "input": (64, 32),
            "crop": 0.8,
            "rows": anchors,
            "columns": anchors,
        }
    )


def record(folder: Path, name="a", *, size=FRAME, has_mask=True, **changes) -> ImageLanes:
    """A picture of noise; slot 0 leans left to right, slot 1 is empty; mask 1 | 2 by halves."""
    path, mask_path = folder / f"{name}.png", folder / f"{name}-mask.png"
    seed = sum(map(ord, name))
    width, height = size
    picture = np.random.RandomState(seed).randint(0, 256, (height, width, 3)).astype(np.uint8)
    cv2.imwrite(str(path), picture)
    mask = np.ones((height, width), np.uint8)
    mask[:, width // 2 :] = 2
    cv2.imwrite(str(mask_path), mask)
    grid = np.full((2, 3, 2), ABSENT, np.float32)
    grid[0] = np.stack([[20, 40, 60], GRID_Y], axis=1)
    fields = {
        "image_id": name,
        "path": path,
        "width": width,
        "height": height,
        "turn": 1,
        "lanes": (),
        "grid": grid,
        "mask": mask_path if has_mask else None,
    }
    return ImageLanes(**(fields | changes))


def samples(records, *, wants_masks=True, augment=None, compat=()) -> LaneSamples:
    source = {"format": "synthetic", "roads": 1, "seed": 0}
    data = LaneDataConfig.model_validate(
        {"frame": FRAME, "train": source, "val": source, "augment": augment}
    )
    index = build_lane_index(records, num_lanes=2, frame=FRAME, grid_y=GRID_Y)
    return LaneSamples(index, data=data, model=model(), wants_masks=wants_masks, compat=compat)


def generators(seed=0):
    return random.Random(seed), np.random.RandomState(seed)


def test_without_augmentation_items_are_those_of_evaluation(tmp_path):
    one = record(tmp_path)
    sample = samples([one]).sample(0, generators())
    stored = cv2.imread(str(one.path))[..., ::-1]
    assert (sample.image == to_input(stored, model=model())).all()
    assert (sample.points == one.grid).all()
    assert sample.mask is not None
    assert sample.mask.shape == (32, 64)
    assert np.bincount(sample.mask.ravel()).tolist() == [0, 1024, 1024]
    assert sample.name == str(one.path)


def test_picture_points_and_mask_move_together(tmp_path):
    one = record(tmp_path)
    sample = samples([one]).varied(one, SHIFTED)
    assert (sample.points[0] == one.grid[0] + [16, 9]).all()
    assert (sample.points[1] == ABSENT).all()
    # a tenth of the frame to the right: 6.4 of 64 px are black, the halves meet at 38.4
    assert sample.mask is not None
    assert sample.mask[-1].tolist() == [0] * 6 + [1] * 32 + [2] * 26
    assert not sample.image[:, :5].any()
    assert sample.image[:, 8:].any()


def test_a_mirror_changes_the_slots(tmp_path):
    one = record(tmp_path)
    plain = samples([one]).varied(one, Variation())
    found = samples([one]).varied(one, Variation(is_mirrored=True))
    assert (found.points[0] == ABSENT).all()
    assert (found.points[1] == [160, 0] - one.grid[0] * [1, -1]).all()
    # left is 1 again: the right half came over and changed its number
    assert found.mask is not None
    assert (found.mask == plain.mask).all()
    assert np.abs(found.image.astype(int) - plain.image[:, ::-1]).max() <= 1


def test_masks_are_read_only_where_wanted(tmp_path):
    one = record(tmp_path, has_mask=False)
    assert samples([one], wants_masks=False).sample(0, generators()).mask is None
    with pytest.raises(DatasetError, match=r"a\.png: has no lane mask"):
        samples([one]).sample(0, generators())


def test_the_reference_zooms_about_the_middle_of_the_file(tmp_path):
    one = record(tmp_path, size=(80, 46))
    zoom = Variation(scale=(2.0, 2.0))
    ours = samples([one]).varied(one, zoom)
    theirs = samples([one], compat=("file_centre",)).varied(one, zoom)
    assert ours.points[0, 0].tolist() == [2 * 20 - 80, 2 * 30 - 45]
    assert theirs.points[0, 0].tolist() == [2 * 20 - 40, 2 * 30 - 23]
    assert (ours.image != theirs.image).any()


@pytest.mark.parametrize("wanted", ["picture", "mask"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, wanted):
    one = record(tmp_path)
    kept = samples([one])
    broken = one.path if wanted == "picture" else one.mask
    broken.write_bytes(b"no picture")
    with pytest.raises(DatasetError, match=broken.name):
        kept.sample(0, generators())


def test_a_picture_of_another_size_than_prepared_is_named(tmp_path):
    changed = record(tmp_path, width=200)
    with pytest.raises(DatasetError, match=r"a\.png: is 160x90 px, .* 200x90; run prepare again"):
        samples([changed]).sample(0, generators())


def test_a_batch_becomes_normalised_pictures_and_labels(tmp_path):
    kept = samples([record(tmp_path, "a"), record(tmp_path, "b")])
    batch = collate([kept.sample(number, generators()) for number in (1, 0)])
    assert {key: (value.dtype, tuple(value.shape)) for key, value in batch.inputs.items()} == {
        "images": (torch.uint8, (2, 32, 64, 3)),
        "points": (torch.float32, (2, 2, 3, 2)),
        "masks": (torch.uint8, (2, 32, 64)),
    }
    assert [Path(name).name for name in batch.ids] == ["b.png", "a.png"]
    images, labels = unpack(batch.inputs, labels=LabelMaker(model(), FRAME))
    assert torch.equal(images, normalise(batch.inputs["images"]))
    assert labels.rows.shape == labels.columns.shape == (2, 6, 2)
    # rows 36, 54 and 72 lie within the lane's 30 to 89: x = 24, 36, 48.3 of 160 in 10 steps
    assert labels.rows[0, :, 0].tolist() == [-1, -1, 1, 2, 3, -1]
    assert labels.masks is batch.inputs["masks"]


def test_items_pickle(tmp_path):
    kept = samples([record(tmp_path)], augment={"flip": 0.5})
    again = pickle.loads(pickle.dumps(kept))
    assert (again.sample(0, generators()).image == kept.sample(0, generators()).image).all()


def test_batches_are_the_same_for_any_number_of_workers(tmp_path):
    augment = {"flip": 0.5, "shift": (16, 9), "gain": 0.2, "contrast": 0.2}
    kept = samples([record(tmp_path, name) for name in "abcde"], augment=augment)
    batches = [all_batches(kept, workers=workers) for workers in (0, 2)]
    assert len(batches[0]) == 3
    for ours, theirs in zip(*batches, strict=True):
        assert ours.ids == theirs.ids
        for key, value in ours.inputs.items():
            assert torch.equal(value, theirs.inputs[key]), key


def all_batches(kept, *, workers):
    loader = EpochLoader(kept, collate, ShuffledPlan(len(kept), 2, drop_last=False))
    request = EpochRequest(
        epoch=1, start=0, rank=0, world_size=1, workers=workers, draws=Draws(seed=3)
    )
    try:
        return list(loader.batches(request))
    finally:
        loader.close()
