"""Our training loop against torchvision's reference loop, as its documentation describes it.

Same network, pictures, augmentation, batch size and optimizer; the reference's loop moves each
batch to the device, sums the losses, reads every term on the host for its meters, steps the
optimizer and the warm-up scheduler. Loading is in the training process for both.
"""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torchvision.transforms import v2

from benchmarks.logging_cost import local_run_log
from benchmarks.pairs import Ratio, median_ratio, paired_seconds
from benchmarks.torchvision_data import TorchvisionDataset, torchvision_loader
from engine.checkpoint import CheckpointStore
from engine.config import TrainConfig
from engine.contract import RunLog
from engine.loop import fit
from engine.meters import SmoothedValue
from readers.coco import read_coco
from readers.index import ImageBoxesIndex, write_index
from tasks.detection.config import DataConfig, EvaluateConfig, FasterRcnnConfig
from tasks.detection.synthetic import write_synthetic
from tasks.detection.task import DetectionTask

SCENES, BATCH = 192, 8
MODEL = FasterRcnnConfig.model_validate(
    {
        "name": "fasterrcnn",
        "backbone": {"name": "slim_resnet"},
        "min_size": 160,
        "max_size": 160,
        "fpn_channels": 64,
        "fpn_levels": [8, 16, 32],
        "anchor_sizes": [24, 35, 51, 80],
        "anchor_ratios": [1.0],
        "roi_size": 5,
        "head_width": 192,
        "rpn_samples": 64,
        "roi_samples": 64,
        "rpn_candidates": [300, 300],
        "rpn_proposals": [100, 100],
    }
)
CONFIG = TrainConfig.model_validate(
    {
        "epochs": 1,
        "batch_size": BATCH,
        "optimizer": {"name": "sgd", "lr": 0.005, "momentum": 0.9, "weight_decay": 1e-4},
        "warmup": {"name": "linear", "updates": 10},
        "evaluate_every": 1000,
        "evaluate_first": False,
        "log_every": 4,
    }
)


class LoopTask(DetectionTask):
    """The detection task without its evaluation, which is not what is measured."""

    def evaluate(self, network: Any, split: str, *, device: Any, detail: bool) -> Any:
        """Return a constant score."""
        from engine.contract import Evaluation

        return Evaluation(scores={"mAP": 0.0}, headline="mAP")


def measure() -> list[Ratio]:
    """Return our pictures per second over the reference's."""
    with tempfile.TemporaryDirectory() as folder:
        write_synthetic(Path(folder) / "scenes", images=SCENES, size=160, seed=0)
        (annotations,) = (Path(folder) / "scenes").rglob("*.json")
        (images,) = {path.parent for path in (Path(folder) / "scenes").rglob("*.jpg")}
        index = write_index(read_coco(images, annotations), Path(folder) / "train.arrow")
        task = _task(index)
        # a run is opened and ended once a training, not once in 24 updates
        with local_run_log(Path(folder)) as log:
            pairs = paired_seconds(lambda: _ours(task, log), lambda: _reference(index, task))
    ratio, low, high = median_ratio(pairs, inverse=True)
    rate = SCENES / min(ours for ours, _ in pairs)
    detail = f"ours {rate:.1f} pictures/s"
    met = ratio >= 1.0
    return [
        Ratio("detection loop", ratio, (low, high), "x reference's speed", ">= 1.0", met, detail)
    ]


def _task(index: ImageBoxesIndex) -> LoopTask:
    source = {"format": "synthetic", "images": SCENES, "seed": 0}
    augment = {"preset": "hflip"}
    return LoopTask(
        data=DataConfig.model_validate({"train": source, "val": source, "augment": augment}),
        model=MODEL,
        evaluate=EvaluateConfig(),
        batch_size=BATCH,
        indexes={"train": index, "val": index},
    )


def _ours(task: LoopTask, log: RunLog) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = CheckpointStore(Path(folder) / "checkpoints")
        fit(task, CONFIG, seed=0, log=log, store=store, device=torch.device("cpu"))


def _reference(index: ImageBoxesIndex, task: LoopTask) -> None:
    torch.manual_seed(0)
    network = task.build_network()
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.005, momentum=0.9, weight_decay=1e-4)
    transform = v2.Compose(
        [v2.RandomHorizontalFlip(0.5), v2.ToDtype(torch.float, scale=True), v2.ToPureTensor()]
    )
    loader = torchvision_loader(TorchvisionDataset(index, transform), BATCH)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.001, total_iters=10)
    meters: dict[str, SmoothedValue] = defaultdict(lambda: SmoothedValue(20))
    network.train()
    for iteration, (pictures, targets) in enumerate(loader):
        losses = network(list(pictures), [dict(target) for target in targets])
        total = sum(losses.values())
        if not math.isfinite(total.item()):
            raise RuntimeError(f"loss is {total.item()}")
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        warmup.step()
        for name, value in losses.items():
            meters[name].update(value.item(), 1)
        meters["loss"].update(total.item(), 1)
        if iteration % 20 == 0:
            str({name: (meter.median, meter.global_avg) for name, meter in meters.items()})
    torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict()}, "/dev/null")
