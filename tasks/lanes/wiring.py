"""Ties the lane task to the steps: preparation, the task, what a deployed model must know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from readers.lane_index import ImageLanesIndex
from tasks.lanes.prepare import prepare_data
from tasks.lanes.task import LaneTask, wants_masks


@dataclass(frozen=True)
class LaneSplit:
    """One prepared split.

    Args:
        digest: hex digest of the labels and pictures.
        items: number of pictures.
        source: file or folder that the labels came from.
    """

    digest: str
    items: int
    source: str


def prepare(
    experiment: Any, *, base: Path, working: Path, output: Path, jobs: int
) -> Mapping[str, LaneSplit]:
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


def summarise(experiment: Any, *, index: Path) -> Mapping[str, LaneSplit]:
    """Summarise the splits that `prepare` wrote into the folder `index`."""
    return {
        split: LaneSplit(opened.digest, len(opened), _source_of(experiment.data, split))
        for split, opened in _open(index).items()
    }


def data_key(experiment: Any) -> Mapping[str, Any]:
    """Return what decides the index: sources, frame, grid and slots, and whether masks are made."""
    data = experiment.data.model_dump(mode="json", exclude={"augment", "drop_last"})
    return {**data, "lanes": experiment.model.lanes, "masks": wants_masks(experiment.model)}


def build_task(experiment: Any, *, index: Path) -> LaneTask:
    """Return the lane task over the prepared splits in the folder `index`."""
    return LaneTask(experiment, indexes=_open(index), compat=experiment.defects)


def classes(index: Path) -> Mapping[str, list[Any]]:
    """Return the slots as classes: `slot 1` and 1 for the leftmost, and so on."""
    slots = range(1, next(iter(_open(index).values())).num_lanes + 1)
    return {"names": [f"slot {slot}" for slot in slots], "ids": list(slots)}


def _open(index: Path) -> dict[str, ImageLanesIndex]:
    splits = ("train", "val", "test")
    found = {
        split: ImageLanesIndex.open(index / f"{split}.arrow")
        for split in splits
        if (index / f"{split}.arrow").exists()
    }
    if not found:
        raise FileNotFoundError(f"{index}: holds no prepared split (train.arrow, val.arrow, ...)")
    return found


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
