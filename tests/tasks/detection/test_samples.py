"""Training items and how they are packed into batches."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from readers.index import build_index
from readers.records import DatasetError, ImageBoxes, ImageBoxesSet
from tasks.detection import augment
from tasks.detection.samples import DetectionSample, DetectionSamples, collate, unpack

PICTURE = np.random.RandomState(0).randint(0, 256, (6, 8, 3)).astype(np.uint8)


def record(folder: Path, name: str, boxes=(), crowd=(), size=(8, 6), turn=1) -> ImageBoxes:
    path = folder / f"{name}.png"
    cv2.imwrite(str(path), PICTURE[..., ::-1])
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    return ImageBoxes(
        image_id=name,
        path=path,
        width=size[0],
        height=size[1],
        turn=turn,
        boxes_xyxy=boxes,
        labels=np.arange(len(boxes), dtype=np.int64),
        is_crowd=np.array(crowd or [False] * len(boxes), np.bool_),
        areas=np.ones(len(boxes)),
        annotation_ids=[str(i) for i in range(len(boxes))],
    )


def samples(records, vary=augment.none) -> DetectionSamples:
    found = ImageBoxesSet(records, ["a", "b", "c"], [1, 2, 3], [], Path("labels.json"))
    return DetectionSamples(build_index(found), vary)


def generators(seed=0):
    return random.Random(seed), np.random.RandomState(seed)


def test_labels_count_from_one_and_crowds_are_left_out(tmp_path):
    boxes = [[0, 0, 4, 4], [1, 1, 8, 6], [2, 2, 3, 3]]
    sample = samples([record(tmp_path, "x", boxes, [False, True, False])]).sample(0, generators())
    assert sample.labels.tolist() == [1, 3]
    assert sample.boxes_xyxy.tolist() == [[0, 0, 4, 4], [2, 2, 3, 3]]
    assert sample.boxes_xyxy.dtype == np.float32
    assert sample.labels.dtype == np.int64
    assert np.array_equal(sample.image, PICTURE)


def test_a_turned_picture_is_as_its_labels_see_it(tmp_path):
    turned = record(tmp_path, "x", [[0, 0, 6, 8]], size=(6, 8), turn=6)
    sample = samples([turned]).sample(0, generators())
    assert sample.image.shape == (8, 6, 3)


def test_a_picture_of_another_size_is_named(tmp_path):
    changed = record(tmp_path, "x", size=(9, 6))
    with pytest.raises(DatasetError, match=r"x\.png: is 8x6 px, .* 9x6; run prepare again"):
        samples([changed]).sample(0, generators())


def test_a_missing_picture_is_named(tmp_path):
    gone = record(tmp_path, "x")
    gone.path.unlink()
    with pytest.raises(DatasetError, match=r"x\.png"):
        samples([gone]).sample(0, generators())


def test_a_sliver_that_a_network_would_refuse_is_dropped(tmp_path):
    boxes = [[1, 1, 1.001, 5], [1, 1, 2, 2]]
    sample = samples([record(tmp_path, "x", boxes)]).sample(0, generators())
    assert sample.labels.tolist() == [2]


def test_drawing_samples_does_not_change_the_index(tmp_path):
    items = samples([record(tmp_path, "x", [[0, 0, 4, 4]])], augment.random_hflip)
    before = pickle.dumps(items._index[0])
    for seed in range(4):
        items.sample(0, generators(seed))
    assert pickle.dumps(items._index[0]) == before


def test_a_batch_of_unequal_pictures_unpacks_to_what_went_in():
    state = np.random.RandomState(1)
    items = []
    for size, count in (((4, 6), 2), ((5, 3), 0), ((2, 2), 1)):
        items.append(
            DetectionSample(
                image=state.randint(0, 256, (*size, 3)).astype(np.uint8),
                boxes_xyxy=state.uniform(0, 5, (count, 4)).astype(np.float32),
                labels=np.arange(1, count + 1),
                name=f"{size}",
            )
        )
    batch = collate(items)
    images, targets = unpack(batch.inputs)
    assert batch.ids == ["(4, 6)", "(5, 3)", "(2, 2)"]
    for item, image, target in zip(items, images, targets, strict=True):
        expected = torch.from_numpy(item.image).permute(2, 0, 1) / 255
        torch.testing.assert_close(image, expected, rtol=0, atol=0)
        assert target["boxes"].tolist() == item.boxes_xyxy.tolist()
        assert target["labels"].tolist() == item.labels.tolist()
    assert targets[1]["boxes"].shape == (0, 4)
    assert targets[1]["labels"].shape == (0,)


def test_samples_travel_to_another_process(tmp_path):
    items = samples([record(tmp_path, "x", [[0, 0, 4, 4]])])
    assert pickle.loads(pickle.dumps(items)).sample(0, generators()).labels.tolist() == [1]
