"""The detection task: what the training loop asks for, made of the parts in this folder."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from engine.contract import Batch, Draws, EpochRequest, Evaluation, Losses
from models.detection.build import build_detector
from readers.index import ImageBoxesIndex, concat
from tasks.detection.augment import build_augment
from tasks.detection.batches import BatchPlan, aspect_ratio_groups
from tasks.detection.config import DataConfig, EvaluateConfig
from tasks.detection.predictions import predict
from tasks.detection.samples import DetectionSamples, collate, unpack
from tasks.detection.scoring import SplitScorer
from tasks.loading import EpochLoader

__all__ = ["DetectionTask", "predict"]


class DetectionTask:
    """Trains and scores any network of torchvision's detection contract.

    Args:
        data: the experiment's `data` section.
        model: its `model` section.
        evaluate: its `evaluate` section.
        batch_size: pictures per batch over all ranks.
        indexes: split name -> prepared index; `train` only needs to be there to train.
        compat: reference defects to keep; none of them is this class's business.
    """

    def __init__(
        self,
        *,
        data: DataConfig,
        model: Any,
        evaluate: EvaluateConfig,
        batch_size: int,
        indexes: Mapping[str, ImageBoxesIndex],
        compat: Collection[str] = (),
    ) -> None:
        self._data = data
        self._model = model
        self._evaluate = evaluate
        self._batch_size = batch_size
        self._indexes = dict(indexes)
        self._scorers: dict[str, SplitScorer] = {}
        self._class_names = next(iter(self._indexes.values())).class_names

    @property
    def class_names(self) -> tuple[str, ...]:
        """Label -> name, labels from 0."""
        return tuple(self._class_names)

    def build_network(self) -> nn.Module:
        """Return the configured detector for the data's classes, on the CPU, in train mode."""
        return build_detector(self._model, len(self._class_names))

    def num_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch, the same for all.

        Raises:
            ValueError: if the training split does not fill one batch.
        """
        return self._plan.num_batches()

    def train_batches(self, request: EpochRequest) -> Iterator[Batch]:
        """Yield this rank's share of an epoch's batches; see `samples.collate` for their form.

        Raises:
            DatasetError: naming the file, when a picture cannot be read.
        """
        return self._loader.batches(request)

    def start_epoch(self, epoch: int, network: nn.Module) -> None:
        """Change nothing: all epochs are alike."""

    def prepare_batch(self, batch: Batch, *, update: int, draws: Draws) -> Batch:
        """Return the batch as pictures in [0, 1] and targets, made on the device."""
        return Batch(unpack(batch.inputs), batch.ids)

    def losses(self, network: nn.Module, batch: Batch) -> Losses:
        """Return torchvision's loss terms without the `loss_` before their names."""
        images, targets = batch.inputs
        terms = network(images, targets)
        return Losses({name.removeprefix("loss_"): term for name, term in terms.items()})

    def evaluate(
        self, network: nn.Module, split: str, *, device: torch.device, detail: bool
    ) -> Evaluation:
        """Score a network on a split by COCO's metrics; a collective call.

        Args:
            network: in eval mode, on the device; left so, the global generators untouched.
            split: a split's name, or several joined by `+`.
            device: where the network is.
            detail: also make the per-picture table, the small tables, plots and worst cases.

        Raises:
            DatasetError: naming the file, when a picture cannot be read.
            ValueError: if there is no such split.
        """
        if split not in self._scorers:
            self._scorers[split] = SplitScorer(self._split(split), self._evaluate)
        scorer = self._scorers[split]
        return scorer.evaluate(network, device=device, detail=detail)

    def close(self) -> None:
        """End the loader's processes."""
        if "_loader" in self.__dict__:
            self._loader.close()

    def _split(self, split: str) -> ImageBoxesIndex:
        parts = split.split("+")
        for part in parts:
            if part not in self._indexes:
                raise ValueError(
                    f"evaluate.split: there is no data.{part}; there is {', '.join(self._indexes)}"
                )
        found = [self._indexes[part] for part in parts]
        return found[0] if len(found) == 1 else concat(found)

    @cached_property
    def _train_index(self) -> ImageBoxesIndex:
        index = self._split("train")
        if self._data.drop_empty:
            return index.subset(np.flatnonzero(index.num_trainable_boxes()))
        return index

    @cached_property
    def _plan(self) -> BatchPlan:
        sizes = self._train_index.sizes
        plan = BatchPlan(
            groups=aspect_ratio_groups(
                sizes[:, 0] / sizes[:, 1], self._data.aspect_ratio_group_factor
            ),
            batch_size=self._batch_size,
            drop_last=self._data.drop_last,
        )
        if plan.num_batches() == 0:
            raise ValueError(
                f"data.train: {len(sizes)} usable pictures do not fill a batch of "
                f"train.batch_size={self._batch_size}; lower it, or set data.drop_last: false"
            )
        return plan

    @cached_property
    def _loader(self) -> EpochLoader:
        samples = DetectionSamples(self._train_index, build_augment(self._data.augment))
        return EpochLoader(samples, collate, self._plan)
