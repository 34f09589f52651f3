"""Training pictures per second and core at 640x480, against torchvision.io with transforms.v2.

Both decode the same JPEGs and flip half of them with their boxes.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from torchvision.transforms import v2

from benchmarks.pairs import Ratio, median_ratio, paired_seconds
from benchmarks.torchvision_data import TorchvisionDataset, torchvision_loader
from engine.contract import Draws, EpochRequest
from readers.coco import read_coco, write_coco
from readers.index import ImageBoxesIndex, write_index
from readers.records import ImageBoxes
from tasks.detection.config import DataConfig, EvaluateConfig
from tasks.detection.task import DetectionTask

PICTURES, BATCH = 128, 8


def measure() -> list[Ratio]:
    """Return our pictures per second over theirs, both in one process with one thread.

    The promise is against the preset that torchvision documents, which makes floats of the
    pictures on the CPU; ours travel as bytes and become floats on the device. The second line is
    against the same preset without that conversion.
    """
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    flip = v2.RandomHorizontalFlip(0.5)
    documented = v2.Compose([flip, v2.ToDtype(torch.float, scale=True), v2.ToPureTensor()])
    as_bytes = v2.Compose([flip, v2.ToPureTensor()])
    with tempfile.TemporaryDirectory() as folder:
        index = _drawn(Path(folder))
        task = _task(index)
        return [
            _against(documented, "loader 640x480", ">= 1.3", task=task, index=index),
            _against(as_bytes, "loader, bytes on both sides", "", task=task, index=index),
        ]


def _against(
    transform: v2.Transform, name: str, target: str, *, task: DetectionTask, index: ImageBoxesIndex
) -> Ratio:
    dataset = TorchvisionDataset(index, transform)
    pairs = paired_seconds(
        lambda: _ours(task), lambda: _theirs(dataset), pairs=7, clock=time.process_time
    )
    ratio, low, high = median_ratio(pairs, inverse=True)
    rate = PICTURES / min(ours for ours, _ in pairs)
    detail = f"ours {rate:.0f} pictures/s"
    met = ratio >= 1.3
    return Ratio(name, ratio, (low, high), "x torchvision's speed", target, met, detail)


def _ours(task: DetectionTask) -> None:
    request = EpochRequest(epoch=0, start=0, rank=0, world_size=1, workers=0, draws=Draws(0))
    for _ in task.train_batches(request):
        pass


def _theirs(dataset: TorchvisionDataset) -> None:
    for _ in torchvision_loader(dataset, BATCH):
        pass


def _task(index: ImageBoxesIndex) -> DetectionTask:
    source = {"format": "synthetic", "images": 1, "seed": 0}
    data = DataConfig.model_validate(
        {"train": source, "val": source, "augment": {"preset": "hflip"}}
    )
    return DetectionTask(
        data=data,
        model=None,
        evaluate=EvaluateConfig(),
        batch_size=BATCH,
        indexes={"train": index, "val": index},
    )


def _drawn(folder: Path) -> ImageBoxesIndex:
    """Write smooth pictures with some texture (they compress as photographs do) and boxes."""
    random = np.random.RandomState(0)
    images = folder / "images"
    images.mkdir()
    records = []
    for number in range(PICTURES):
        coarse = random.randint(0, 255, (12, 16, 3)).astype(np.uint8)
        picture = cv2.resize(coarse, (640, 480), interpolation=cv2.INTER_CUBIC).astype(np.int16)
        picture += random.randint(-12, 12, picture.shape, dtype=np.int16)
        path = images / f"{number:06d}.jpg"
        cv2.imwrite(str(path), np.clip(picture, 0, 255).astype(np.uint8))
        corner = random.rand(7, 2) * (500, 350)
        boxes = np.c_[corner, corner + 20 + random.rand(7, 2) * 100]
        records.append(
            ImageBoxes(
                image_id=str(number + 1),
                path=path,
                width=640,
                height=480,
                turn=1,
                boxes_xyxy=boxes,
                labels=random.randint(0, 3, 7),
                is_crowd=np.zeros(7, dtype=bool),
                areas=(boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]),
                annotation_ids=[str(7 * number + i + 1) for i in range(7)],
            )
        )
    annotations = folder / "instances.json"
    write_coco(records, ["a", "b", "c"], images=images, annotations=annotations)
    return write_index(read_coco(images, annotations), folder / "train.arrow")
