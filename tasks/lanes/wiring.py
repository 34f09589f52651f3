"""Ties the lane task to the steps: preparation, the task, what a deployed model must know."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from readers.lane_index import ImageLanesIndex
from tasks.lanes.anchor_check import check_anchors
from tasks.lanes.prepare import prepare_data
from tasks.lanes.task import LaneTask, wants_masks
from tasks.splits import SavedSplit, open_splits


def prepare(
    experiment: Any, *, base: Path, working: Path, output: Path, jobs: int
) -> Mapping[str, SavedSplit]:
    """Check the data sets, write their indexes and the quality report into `output`.

    Raises:
        DatasetError: when a data set cannot be used; the report is written all the same.
    """
    prepare_data(
        experiment.data,
        num_lanes=experiment.model.lanes,
        wants_masks=wants_masks(experiment.model),
        base=base,
        working=working,
        output=output,
        jobs=jobs,
    )
    return summarise(experiment, index=output)


def summarise(experiment: Any, *, index: Path) -> Mapping[str, SavedSplit]:
    """Summarise the splits that `prepare` wrote into the folder `index`."""
    return {
        split: SavedSplit(opened.digest, len(opened), _source_of(experiment.data, split))
        for split, opened in open_splits(index, ImageLanesIndex).items()
    }


def data_key(experiment: Any) -> Mapping[str, Any]:
    """Return what decides the index: sources, frame, grid and slots, and whether masks are made."""
    data = experiment.data.model_dump(mode="json", exclude={"augment", "drop_last"})
    return {**data, "lanes": experiment.model.lanes, "masks": wants_masks(experiment.model)}


def build_task(experiment: Any, *, index: Path) -> LaneTask:
    """Return the lane task over the prepared splits in the folder `index`.

    Raises:
        DatasetError: if the lanes of the training split cross no anchor of the model.
    """
    indexes = open_splits(index, ImageLanesIndex)
    if "train" in indexes:
        check_anchors(indexes["train"], experiment.model)
    return LaneTask(experiment, indexes=indexes, compat=experiment.defects)


def classes(index: Path) -> Mapping[str, list[Any]]:
    """Return the slots as classes: `slot 1` and 1 for the leftmost, and so on."""
    opened = next(iter(open_splits(index, ImageLanesIndex).values()))
    slots = range(1, opened.num_lanes + 1)
    return {"names": [f"slot {slot}" for slot in slots], "ids": list(slots)}


def _source_of(data: Any, split: str) -> str:
    """Return the file or folder that a split's labels came from."""
    source = data.splits.source if data.splits is not None else getattr(data, split)
    match source.format:
        case "synthetic":
            return f"drawn: {source.roads} roads of {source.size} px, seed {source.seed}"
        case "culane":
            return str(Path(source.root, source.list))
        case "curvelanes":
            return str(Path(source.root, source.split))
        case "cvat":
            return str(source.annotations)
        case _:
            return str(source.root)
