"""The lane task: what the training loop asks for, made of the parts in this folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from engine.contract import Batch, Draws, EpochRequest, Evaluation, Losses
from models.lanes.build import build_lane_network
from readers.lane_index import ImageLanesIndex, concat
from tasks.lanes.config import UfldModelConfig
from tasks.lanes.labels import LabelMaker
from tasks.lanes.losses import lane_losses
from tasks.lanes.measures import lane_measures
from tasks.lanes.predictions import LaneReader
from tasks.lanes.result_files import read_results
from tasks.lanes.samples import LaneSamples, collate, unpack
from tasks.lanes.scoring import SplitScorer
from tasks.loading import EpochLoader
from tasks.shuffled import ShuffledPlan


def wants_masks(model: UfldModelConfig) -> bool:
    """Tell whether training needs masks: for an auxiliary head, or for lane tokens."""
    return model.aux is not None or model.head == "group_instance"


class LaneTask:
    """Trains and scores Ultra-Fast Lane Detection networks.

    Args:
        experiment: a lane experiment (its `data`, `model`, `loss`, `decode`, `evaluate`, `train`).
        indexes: split name -> prepared index; `train` only needs to be there to train.
        compat: reference defects to keep.
    """

    def __init__(
        self,
        experiment: Any,
        *,
        indexes: Mapping[str, ImageLanesIndex],
        compat: frozenset[str] = frozenset(),
    ) -> None:
        self._experiment = experiment
        self._indexes = dict(indexes)
        self._compat = compat
        self._scorers: dict[str, SplitScorer] = {}
        self._labels = LabelMaker(experiment.model, experiment.data.frame)

    def build_network(self) -> nn.Module:
        """Return the configured network with its starting weights, on the CPU, in train mode."""
        return build_lane_network(self._experiment.model)

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
        """Return the batch as normalised pictures and `LaneLabels`, made on the device."""
        return Batch(unpack(batch.inputs, labels=self._labels), batch.ids)

    def losses(self, network: nn.Module, batch: Batch) -> Losses:
        """Return the weighted terms, and accuracies over the batch's anchors."""
        images, labels = batch.inputs
        outputs = network(images)
        terms = lane_losses(
            outputs, labels, loss=self._experiment.loss, model=self._experiment.model
        )
        return Losses(terms, measures=lane_measures(outputs, labels, compat=self._compat))

    def evaluate(
        self, network: nn.Module, split: str, *, device: torch.device, detail: bool
    ) -> Evaluation:
        """Score a network on a split by the benchmark's metric; a collective call.

        Args:
            network: in eval mode, on the device; left so.
            split: a split's name, or several joined by `+`.
            device: where the network is.
            detail: also make the per-picture table, the small tables, plots and worst cases.

        Raises:
            DatasetError: naming the file, when a picture cannot be read.
            ValueError: if there is no such split.
        """
        return self._scorer(split).evaluate(network, device=device, detail=detail)

    def evaluate_results(self, path: Path, split: str, *, detail: bool) -> Evaluation:
        """Score the lanes that any program wrote for a split, as if a network had found them.

        Args:
            path: see `result_files.read_results`.
            split: as for `evaluate`.
            detail: as for `evaluate`.

        Raises:
            DatasetError: if the results cannot be read, with file and line.
            ValueError: if there is no such split.
        """
        index = self._split(split)
        # a joined index renames a picture that is in two splits; its result has the first name
        image_ids = [name for part in split.split("+") for name in self._indexes[part].image_ids]
        results = read_results(
            path,
            list(index),
            image_ids=image_ids,
            frame=self._experiment.data.frame,
            metric=self._experiment.evaluate.metric,
        )
        scorer = self._scorer(split)
        return scorer.report(results.lanes, detail=detail, at_rows=results.at_rows)

    def close(self) -> None:
        """End the loader's processes."""
        if "_loader" in self.__dict__:
            self._loader.close()

    def _scorer(self, split: str) -> SplitScorer:
        if split not in self._scorers:
            reader = LaneReader(
                model=self._experiment.model,
                decode=self._experiment.decode,
                frame=self._experiment.data.frame,
                compat=self._compat,
            )
            self._scorers[split] = SplitScorer(
                self._split(split), self._experiment.evaluate, reader=reader
            )
        return self._scorers[split]

    def _split(self, split: str) -> ImageLanesIndex:
        parts = split.split("+")
        for part in parts:
            if part not in self._indexes:
                raise ValueError(
                    f"evaluate.split: there is no data.{part}; there is {', '.join(self._indexes)}"
                )
        found = [self._indexes[part] for part in parts]
        return found[0] if len(found) == 1 else concat(found)

    @cached_property
    def _plan(self) -> ShuffledPlan:
        plan = ShuffledPlan(
            num_items=len(self._split("train")),
            batch_size=self._experiment.train.batch_size,
            drop_last=self._experiment.data.drop_last,
        )
        if plan.num_batches() == 0:
            raise ValueError(
                f"data.train: {plan.num_items} usable pictures do not fill a batch of "
                f"train.batch_size={plan.batch_size}; lower it, or set data.drop_last: false"
            )
        return plan

    @cached_property
    def _loader(self) -> EpochLoader:
        samples = LaneSamples(
            self._split("train"),
            data=self._experiment.data,
            model=self._experiment.model,
            wants_masks=wants_masks(self._experiment.model),
            compat=self._compat,
        )
        return EpochLoader(samples, collate, self._plan)
