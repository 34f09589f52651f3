"""Scores a network's lanes, or any program's, on a split: numbers, fixed pictures, the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import nn

from engine.contract import Evaluation
from engine.distributed import is_main
from readers.lane_index import ImageLanesIndex
from tasks.lanes.config import LaneEvaluateConfig
from tasks.lanes.decoding import DecodedLane
from tasks.lanes.drawing import compare
from tasks.lanes.predictions import LaneReader, predict_split
from tasks.lanes.report import plot_scores
from tasks.lanes.scores import FrameTruth, LaneResult, score_frames, truth_of
from tasks.lanes.tusimple_metric import Table
from tasks.pictures import read_picture
from tasks.sheets import worst_files


class SplitScorer:
    """Scores lanes on one split; what does not depend on who found them is made once.

    Args:
        index: the split; never changed.
        config: the experiment's `evaluate` section.
        reader: how lanes are read off a network's output.
    """

    def __init__(
        self, index: ImageLanesIndex, config: LaneEvaluateConfig, *, reader: LaneReader
    ) -> None:
        self._index = index
        self._config = config
        self._reader = reader

    @cached_property
    def _truth(self) -> list[FrameTruth]:
        return [truth_of(record, frame=self._reader.frame) for record in self._index]

    def evaluate(self, network: nn.Module, *, device: torch.device, detail: bool) -> Evaluation:
        """Score a network that is in eval mode, and leave it so; a collective call.

        Args:
            network: on the device.
            device: where the network is.
            detail: also make tables and files.
        """
        config = self._config
        found = predict_split(
            network,
            self._index,
            reader=self._reader,
            device=device,
            batch_size=config.batch_size,
        )
        if not is_main():
            # one rank scores; the others only need to know that there is a score
            return Evaluation({config.headline: float("nan")}, config.headline)
        return self.report(found, detail=detail)

    def report(
        self,
        found: Sequence[Sequence[DecodedLane]],
        *,
        detail: bool,
        at_rows: Sequence[Table] | None = None,
    ) -> Evaluation:
        """Score lanes that were found, by a network or by anything else.

        Args:
            found: per picture its lanes, px of the frame.
            detail: also make tables and files.
            at_rows: as in `score_frames`.
        """
        config = self._config
        result = score_frames(
            self._truth,
            found,
            frame=self._reader.frame,
            metric=config.metric,
            jobs=config.jobs,
            at_rows=at_rows,
        )
        return Evaluation(
            scores=result.scores,
            headline=config.headline,
            pictures=self._pictures(found),
            items=self._items(result) if detail else {},
            tables={"per_scene": result.per_scene} if detail and result.per_scene else {},
            files=self._files(result, found) if detail else {},
        )

    def _pictures(self, found: Sequence[Sequence[DecodedLane]]) -> dict[str, np.ndarray]:
        """Draw the same pictures at every evaluation, spread evenly over the split."""
        wanted = min(self._config.pictures, len(self._index))
        positions = np.linspace(0, len(self._index) - 1, wanted).round().astype(int).tolist()
        return {
            f"{number:02d}": self._drawn(position, found[position])
            for number, position in enumerate(positions, start=1)
        }

    def _drawn(self, position: int, found: Sequence[DecodedLane], note: str = "") -> np.ndarray:
        record = self._index[position]
        picture = read_picture(record)
        factor = np.array([record.width, record.height]) / self._reader.frame
        return compare(
            picture,
            record.lanes,
            record.slots.tolist(),
            [lane.points * factor for lane in found],
            [lane.slot for lane in found],
            title=f"{note}  {record.image_id}".lstrip(),
        )

    def _items(self, result: LaneResult) -> Mapping[str, Sequence[object]]:
        records = list(self._index)
        return {
            "image_id": [record.image_id for record in records],
            "path": [str(record.path) for record in records],
            "scenes": ["+".join(record.scenes) for record in records],
            **result.per_frame,
        }

    def _files(
        self, result: LaneResult, found: Sequence[Sequence[DecodedLane]]
    ) -> dict[str, bytes]:
        drawn = [
            self._drawn(position, found[position], note)
            for position, note in _worst(result, self._config.worst)
        ]
        return {"plots/scores.png": plot_scores(result)} | worst_files(drawn)


def _worst(result: LaneResult, wanted: int) -> list[tuple[int, str]]:
    """Return the positions of the worst frames and a note, those with more errors first."""
    (name,) = {"f1", "accuracy"} & set(result.per_frame)
    quality = np.nan_to_num(np.asarray(result.per_frame[name], np.float64), nan=1.0)
    errors = np.asarray(result.per_frame["fp"]) + np.asarray(result.per_frame["fn"])
    order = np.lexsort((-errors, quality))[:wanted]
    return [(int(at), f"{name} {quality[at]:.2f}") for at in order if errors[at] > 0]
