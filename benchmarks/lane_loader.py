"""Training pictures per second and core from 1280x720 JPEG, against the steps done one by one.

Both decode the same files, move picture and lanes as UFLDv2 does, resize with a widened bilinear
filter and keep the lowest rows.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torchvision.transforms.v2 import functional

from benchmarks.pairs import Ratio, median_ratio, paired_seconds
from engine.contract import Draws, EpochRequest
from readers.lane_index import ImageLanesIndex, build_lane_index
from readers.lane_records import ImageLanes
from tasks.lanes.config import LaneDataConfig, UfldModelConfig
from tasks.lanes.samples import LaneSamples, collate
from tasks.lanes.transform import MEAN, STD
from tasks.loading import EpochLoader
from tasks.shuffled import ShuffledPlan

PICTURES, BATCH = 64, 8
FRAME = (1280, 720)
INPUT, RESIZED_HEIGHT = (800, 320), 400
GRID_Y = np.arange(160, 711, 10, dtype=np.float32)
NOISE = 5  # files of about 260 kB, as a road picture of this size has


def measure() -> list[Ratio]:
    """Return our pictures per second over those of the plain chain, one process, one thread.

    The plain chain ends with normalised floats, ours with bytes that become floats on the device;
    the second line leaves the floats out of the plain chain too.
    """
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        index = _drawn(Path(folder))
        loader = _loader(index)
        try:
            return [
                _against_the_chain(loader, index, makes_floats=True),
                _against_the_chain(loader, index, makes_floats=False),
            ]
        finally:
            loader.close()


def _against_the_chain(loader: EpochLoader, index: ImageLanesIndex, *, makes_floats: bool) -> Ratio:
    pairs = paired_seconds(
        lambda: _ours(loader),
        lambda: _theirs(index, makes_floats=makes_floats),
        pairs=7,
        clock=time.process_time,
    )
    ratio, low, high = median_ratio(pairs, inverse=True)
    rate = PICTURES / min(ours for ours, _ in pairs)
    name = "lane loader 1280x720" if makes_floats else "lane loader, bytes on both sides"
    return Ratio(
        name=name,
        ratio=ratio,
        spread=(low, high),
        unit="x plain steps' speed",
        target="",
        is_met=True,
        detail=f"ours {rate:.0f} pictures/s",
    )


def _ours(loader: EpochLoader) -> None:
    request = EpochRequest(epoch=0, start=0, rank=0, world_size=1, workers=0, draws=Draws(0))
    for _ in loader.batches(request):
        pass


def _theirs(index: ImageLanesIndex, *, makes_floats: bool) -> None:
    draw = random.Random(0)
    for start in range(0, PICTURES, BATCH):
        items = [
            plain_item(index[number], draw, makes_floats=makes_floats)
            for number in range(start, start + BATCH)
        ]
        torch.stack([image for image, _ in items])
        torch.stack([points for _, points in items])


def plain_item(record: ImageLanes, draw: random.Random, *, makes_floats: bool) -> Any:
    """Return a picture and its points, each step as the reference describes it."""
    image = cv2.cvtColor(cv2.imread(str(record.path)), cv2.COLOR_BGR2RGB)
    zoom = np.diag([draw.uniform(0.8, 1.2), draw.uniform(0.8, 1.2), 1.0])
    angle = np.radians(draw.uniform(-6, 6))
    turn = np.array(
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    )
    shift, centre = np.eye(3), np.eye(3)
    shift[:2, 2] = draw.uniform(-200, 200), draw.uniform(-100, 100)
    centre[:2, 2] = FRAME[0] / 2, FRAME[1] / 2
    matrix = (shift @ centre @ turn @ zoom @ np.linalg.inv(centre))[:2]
    half = np.array([0.5, 0.5])
    centred = matrix.copy()
    centred[:, 2] += matrix[:, :2] @ half - half
    moved = cv2.warpAffine(image, centred, FRAME, flags=cv2.INTER_LINEAR)
    planes = torch.from_numpy(moved).permute(2, 0, 1)
    resized = functional.resize(planes, [RESIZED_HEIGHT, INPUT[0]], antialias=True)
    kept = resized[:, -INPUT[1] :]
    if makes_floats:
        kept = functional.normalize(functional.to_dtype(kept, torch.float32, scale=True), MEAN, STD)
    points = record.grid @ matrix[:, :2].T + matrix[:, 2]
    return kept, torch.from_numpy(points.astype(np.float32))


def _loader(index: ImageLanesIndex) -> EpochLoader:
    source = {"format": "synthetic", "roads": 1, "seed": 0}
    data = LaneDataConfig.model_validate(
        {"frame": FRAME, "train": source, "val": source, "augment": {}}
    )
    anchors = {"anchors": 56, "cells": 100}
    model = UfldModelConfig.model_validate(
        {
            "name": "ufldv2",
            "backbone": {"name": "resnet18"},
            "input": INPUT,
            "crop": INPUT[1] / RESIZED_HEIGHT,
            "rows": anchors,
            "columns": anchors,
        }
    )
    samples = LaneSamples(index, data=data, model=model, wants_masks=False)
    return EpochLoader(samples, collate, ShuffledPlan(PICTURES, BATCH, drop_last=True))


def _drawn(folder: Path) -> ImageLanesIndex:
    """Write smooth pictures with some texture (they compress as photographs do) and lanes."""
    draws = np.random.RandomState(0)
    records = []
    for number in range(PICTURES):
        coarse = draws.randint(0, 255, (18, 32, 3)).astype(np.uint8)
        picture = cv2.resize(coarse, FRAME, interpolation=cv2.INTER_CUBIC).astype(np.int16)
        picture += draws.randint(-NOISE, NOISE, picture.shape, dtype=np.int16)
        path = folder / f"{number:06d}.jpg"
        cv2.imwrite(str(path), np.clip(picture, 0, 255).astype(np.uint8))
        x = draws.rand(4, 1) * 1280 + (draws.rand(4, 1) - 0.5) * (GRID_Y - 160)
        grid = np.stack([x, np.broadcast_to(GRID_Y, x.shape)], axis=-1).astype(np.float32)
        records.append(
            ImageLanes(
                image_id=str(number),
                path=path,
                width=FRAME[0],
                height=FRAME[1],
                turn=1,
                lanes=(),
                grid=grid,
            )
        )
    index = build_lane_index(records, num_lanes=4, frame=FRAME, grid_y=GRID_Y)
    return index.save(folder / "train.arrow")
