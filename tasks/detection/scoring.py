"""Scores a detector on a split: COCO's numbers, fixed pictures, and the report in detail."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn

from engine.contract import Evaluation
from engine.distributed import is_main
from readers.index import ImageBoxesIndex
from tasks.detection.config import EvaluateConfig
from tasks.detection.drawing import compare
from tasks.detection.geometry import Scene
from tasks.detection.metrics import CocoEvaluator, CocoResult
from tasks.detection.predictions import Detections, detect_split
from tasks.detection.report import plot_precision_recall, slices_table
from tasks.detection.samples import read_scene
from tasks.detection.validation_loss import mean_losses
from tasks.sheets import worst_files

# a fixed picture shows what a user would be shown; `worst` shows the best balance instead
SHOWN_SCORE = 0.5


class SplitScorer:
    """Scores networks on one split; what does not depend on the network is made once.

    Args:
        index: the split; never changed.
        config: the experiment's `evaluate` section.
    """

    def __init__(self, index: ImageBoxesIndex, config: EvaluateConfig) -> None:
        self._index = index
        self._config = config

    @cached_property
    def _ground_truth(self) -> CocoEvaluator:
        return CocoEvaluator(self._index)

    def evaluate(self, network: nn.Module, *, device: torch.device, detail: bool) -> Evaluation:
        """Score a network that is in eval mode, and leave it so; a collective call.

        Args:
            network: a detector of torchvision's contract, on the device.
            device: where the network is.
            detail: also make tables and files.
        """
        config = self._config
        found = detect_split(network, self._index, device=device, batch_size=config.batch_size)
        result = self._score(found, slices=config.slices if detail else ())
        scores = dict(result.stats)
        if config.validation_loss:
            scores |= mean_losses(network, self._index, device=device, batch_size=config.batch_size)
        if not is_main():
            return Evaluation(scores, config.headline)
        return Evaluation(
            scores=scores,
            headline=config.headline,
            pictures=self._pictures(found),
            items=self._items(result) if detail else {},
            tables=_tables(result) if detail else {},
            files=self._files(result, found) if detail else {},
        )

    def _score(self, found: Sequence[Detections], *, slices: Sequence[str]) -> CocoResult:
        evaluator = copy.deepcopy(self._ground_truth)
        for image_id, each in zip(self._index.image_ids, found, strict=True):
            evaluator.add(image_id, each.boxes_xyxy, each.scores, each.labels)
        return evaluator.compute(slices=slices)

    def _pictures(self, found: Sequence[Detections]) -> dict[str, np.ndarray]:
        """Draw the same pictures at every evaluation, spread evenly over the split."""
        wanted = min(self._config.pictures, len(self._index))
        positions = np.linspace(0, len(self._index) - 1, wanted).round().astype(int).tolist()
        return {
            f"{number:02d}": self._drawn(position, found[position].above(SHOWN_SCORE))
            for number, position in enumerate(positions, start=1)
        }

    def _drawn(self, position: int, found: Detections, note: str = "") -> np.ndarray:
        record = self._index[position]
        truth = read_scene(record)
        names = self._index.class_names
        return compare(
            truth,
            Scene(truth.image, found.boxes_xyxy.astype(np.float64), found.labels),
            texts=[
                f"{names[label]} {score:.2f}"
                for label, score in zip(found.labels, found.scores, strict=True)
            ],
            title=f"{record.path.name}  {note}".rstrip(),
        )

    def _items(self, result: CocoResult) -> Mapping[str, Sequence[object]]:
        names = [str(Path(record.path)) for record in self._index]
        return {"image_id": result.per_image["image_id"], "path": names} | dict(result.per_image)

    def _files(self, result: CocoResult, found: Sequence[Detections]) -> dict[str, bytes]:
        files = {"plots/precision-recall.png": plot_precision_recall(result)}
        drawn = [
            self._drawn(
                position,
                found[position].above(result.score_threshold),
                f"F1 {result.per_image['quality'][position]:.2f}",
            )
            for position in _worst(result, self._config.worst)
        ]
        return files | worst_files(drawn)


def _worst(result: CocoResult, wanted: int) -> list[int]:
    """Return the positions of the worst pictures, those with more errors first among equals."""
    quality = np.asarray(result.per_image["quality"], np.float64)
    misses = np.asarray(result.per_image["misses"])
    errors = misses + np.asarray(result.per_image["false_positives"])
    order = np.lexsort((-errors, quality))
    return [int(position) for position in order[:wanted] if errors[position] > 0]


def _tables(result: CocoResult) -> dict[str, Mapping[str, Sequence[object]]]:
    return {"per_class": result.per_class, "slices": slices_table(result)}
